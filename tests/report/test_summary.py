from __future__ import annotations

import re
from typing import Any

from report.page import page
from report.sections import find_example, sections
from report.sentences import describe_share
from report.verdict_list import order_pairs
from tests.support.report_answers import answers

MS = 1_000_000


def change_pairs(**changed: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    tables = answers()
    tables["gold.step_overhead"] = [
        {**row, **changed.get(row["run_id"].partition("-")[0], {})} for row in tables["gold.step_overhead"]
    ]
    return tables


def read_summary(tables: dict[str, list[dict[str, Any]]], made_on: str = "2026-11-17") -> dict[str, str]:
    html = page(tables, {}, made_on=made_on).html
    return dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", html))


def test_who_decides_gets_five_lines_before_anything_else() -> None:
    html = page(answers(), {}, made_on="2026-11-17").html
    found = read_summary(answers())
    assert list(found) == ["Date", "Compared", "Verdict", "Where", "Next"]
    assert found["Date"].startswith("made 2026-11-17; 5 runs")
    assert found["Compared"].startswith("2 pairs of Large, Small")
    assert "sw_per_hop_aesgcm against the same training without it" in found["Compared"]
    assert html.index('id="summary"') < html.index('id="filters"') < html.index('id="verdicts"')


def test_a_model_that_no_manifest_names_is_called_so() -> None:
    tables = change_pairs(small={"model": None}, large={"model": None})
    tables["silver.runs"] = [{**row, "model": None} for row in tables["silver.runs"]]
    html = page(tables, {}).html
    assert read_summary(tables)["Compared"].startswith("2 pairs of an unknown model")
    assert "5 runs of an unknown model. Every number" in html


def test_the_largest_pair_that_is_decided_comes_first() -> None:
    slower = {"verdict_class": "slower"}
    tables = change_pairs(small={**slower, "slowdown_ratio": 1.1}, large={**slower, "slowdown_ratio": 1.4})
    assert [row["run_id"] for row, _ in order_pairs(tables)] == ["large-sealed", "small-sealed"]
    tables = change_pairs(small={**slower, "slowdown_ratio": 1.1}, large={"verdict_class": "not_shown"})
    assert [row["run_id"] for row, _ in order_pairs(tables)] == ["small-sealed", "large-sealed"]
    html = page(tables, {}).html
    first, second = (html.index(f"{name}-sealed against {name}-plain") for name in ("small", "large"))
    assert first < second
    drawn = next(one for one in sections(tables, {}) if one.name == "slowdown").figures[0][1]
    assert [row["run"] for row in drawn.rows] == ["small-sealed", "large-sealed"]


def test_the_verdict_counts_pairs_and_names_the_range_of_slowdowns() -> None:
    slower = {"verdict_class": "slower"}
    both = change_pairs(small={**slower, "slowdown_ratio": 1.1}, large={**slower, "slowdown_ratio": 1.4})
    assert read_summary(both)["Verdict"] == "of 2 pairs, 2 slower; slowdown 1.10× to 1.40×"  # noqa: RUF001
    one = change_pairs(small={**slower, "slowdown_ratio": 1.1}, large={"verdict_class": "inconclusive"})
    assert read_summary(one)["Verdict"] == "of 2 pairs, 1 slower, 1 undecided; slowdown 1.10×"  # noqa: RUF001


def test_an_overhead_is_told_as_a_time_and_as_a_share_of_its_step() -> None:
    assert describe_share({"overhead_ns": 47 * MS, "step_ns": 100 * MS}) == "+47.0 ms per step, 47.0 % of the step"
    assert (
        describe_share({"overhead_ns": 20_000 * MS, "step_ns": 80_000 * MS}) == "+20.0 s per step, 25.0 % of the step"
    )
    assert describe_share({"overhead_ns": None, "step_ns": None}) == "no overhead is known"


def test_what_to_do_next_is_a_remedy_that_keeps_the_mathematics_else_more_runs() -> None:
    tables = answers()
    row = {**tables["gold.what_if"][0], "verdict": "worth it", "run_id": "small-sealed", "current_step_ns": 100 * MS}
    tables["gold.what_if"] = [
        {**row, "change": "accumulate=4", "saved_ns": 50 * MS},
        {**row, "change": "chains=4", "saved_ns": 20 * MS},
        {**row, "change": "sealing_gb_per_second=50", "saved_ns": 60 * MS},
    ]
    assert (
        read_summary(tables)["Next"]
        == "try chains=4 on small-sealed: it would save 20.0 ms of 100 ms per step, modelled"
    )
    undecided = change_pairs(small={"verdict_class": "not_shown", "more_runs_count": 2})
    undecided["gold.what_if"] = []
    assert read_summary(undecided)["Next"] == "record 2 more runs per side of small-sealed to decide it"


def test_a_lake_without_pairs_says_what_to_record() -> None:
    tables = answers()
    for name in ("gold.step_overhead", "gold.overhead_breakdown", "gold.what_if", "gold.throughput_overhead"):
        tables[name] = []
    found = read_summary(tables)
    assert found["Compared"] == "nothing: no run here has a baseline"
    assert found["Next"].startswith("record the same training with and without its TEE")


def test_the_pair_that_is_looked_at_closely_has_traces_of_several_ranks() -> None:
    tables = change_pairs(small={"verdict_class": "slower", "slowdown_ratio": 9.0})
    cells = tables["gold.time_breakdown"]
    assert find_example(tables) == ("small-sealed", "small-plain"), "all have a trace of one rank"
    second = [{**row, "rank": 1} for row in cells if "large" in row["run_id"]]
    tables["gold.time_breakdown"] = [*cells, *second]
    assert find_example(tables) == ("large-sealed", "large-plain")
    tables["gold.time_breakdown"] = []
    assert find_example(tables) is None
