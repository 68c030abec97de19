"""`teetotal compare` as a person types it, on small runs with repeats."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from click.testing import CliRunner

from assets.build.forecasts import FORECAST_TABLES
from gold import history, overhead_breakdown, pairs, scaling, step_overhead
from lake.landing_zone import LandingZone
from lake.locations import Location
from pipelines.cli.main import main
from pipelines.cli.report import build_page
from pipelines.cli.status import collect_status
from pipelines.cli.verdicts import format_verdicts

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from lake.store import Lake


def ask(lake: Lake, *words: str) -> Result:
    return CliRunner().invoke(main, ["--lake", str(lake.place), "compare", *words], catch_exceptions=False)


def ask_json(lake: Lake, *words: str) -> dict[str, Any]:
    done = ask(lake, *words, "--format", "json")
    assert done.exit_code == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_two_runs_of_one_regime_are_compared_with_their_repeats(compared_lake: Lake) -> None:
    answer = ask_json(compared_lake, "before", "after")
    assert answer["baseline"] == ["before", "before-again1", "before-again2"]
    assert answer["step"]["verdict_class"] == "slower"
    assert answer["step"]["slowdown_ratio"] == pytest.approx(1.2, rel=0.01)
    assert answer["differences"] == [{"field": "torch_version", "baseline_value": "2.11", "value": "2.12"}]
    changes = {row["name"]: row["change"] for row in answer["kernels"]}
    assert changes == {"gemm": "slower", "relu": "no_difference", "old_add": "gone", "fused_add": "new"}
    assert sum(row["overhead_ns"] for row in answer["parts"]) == pytest.approx(20e6, rel=0.05)


def test_a_pair_of_the_lake_is_told_the_same_by_both_commands(compared_lake: Lake) -> None:
    for run_id in ("sealed", "after"):
        (kept,) = compared_lake.scan(step_overhead.TABLE, [run_id]).collect().to_dicts()
        assert ask_json(compared_lake, "before", run_id)["step"] == kept


def test_the_other_way_round_is_faster_by_the_same_ratio(compared_lake: Lake) -> None:
    one, other = (ask_json(compared_lake, *names)["step"] for names in (("before", "after"), ("after", "before")))
    assert other["verdict_class"] == "faster"
    assert other["slowdown_ratio"] == pytest.approx(1 / one["slowdown_ratio"])


def test_kernels_of_one_name_and_other_shapes_are_other_work(compared_lake: Lake) -> None:
    answer = ask_json(compared_lake, "small", "wide")
    assert {(row["detail"].replace(" ", ""), row["change"]) for row in answer["kernels"]} == {
        ("[[8,64],[64,10]]", "gone"),
        ("[[8,64],[64,99]]", "new"),
    }


def test_one_run_per_side_is_no_verdict_and_says_what_would_settle_it(compared_lake: Lake) -> None:
    done = ask(compared_lake, "before-again1,before-again2", "after-again1")
    assert done.exit_code == 0
    assert "nothing can be concluded from" in done.stdout
    assert "per side" in done.stdout


def test_a_person_reads_what_differs_before_any_number(compared_lake: Lake) -> None:
    answer = ask(compared_lake, "before", "after").stdout
    assert answer.index("torch_version: 2.11 (A), 2.12 (B)") < answer.index("step: A 100 ms, B 120 ms")
    assert "1.20x slower, 95 %" in answer
    assert "kernels: 4 compared: 1 new, 1 gone, 1 slower, 1 no difference" in answer
    assert "memory: no device was sampled on both sides" in answer


def test_the_page_has_the_verdict_the_differences_and_the_kernels(compared_lake: Lake, tmp_path: Path) -> None:
    out = tmp_path / "compared.html"
    assert ask(compared_lake, "before", "after", "--html", str(out)).exit_code == 0
    html = out.read_text("utf-8")
    assert "<title>teetotal: after against before</title>" in html
    assert html.index("torch_version") < html.index("1.20x slower")
    assert "fused_add" in html
    assert "without a TEE" not in html


def test_a_declared_baseline_of_one_regime_makes_a_pair_with_a_verdict_and_parts(compared_lake: Lake) -> None:
    (pair,) = compared_lake.scan(pairs.TABLE, ["after"]).collect().to_dicts()
    assert (pair["baseline_run_id"], pair["regime"], pair["baseline_regime"]) == ("before", "cc_off", "cc_off")
    assert pair["caveat"] == "the baseline differs in torch_version"
    (step,) = compared_lake.scan(step_overhead.TABLE, ["after"]).collect().to_dicts()
    assert (step["verdict_class"], step["runs_count"], step["baseline_runs_count"]) == ("slower", 3, 3)
    parts = compared_lake.scan(overhead_breakdown.TABLE, ["after"]).collect()
    assert parts["overhead_ns"].sum() == pytest.approx(20e6, rel=0.05)


def test_what_is_learnt_of_a_tee_comes_from_pairs_of_one_with_a_plain_run(compared_lake: Lake) -> None:
    regimes = {name for table in FORECAST_TABLES for name in compared_lake.snapshot(table).run_ids}
    assert regimes == {"sw_per_hop_aesgcm"}
    points = compared_lake.scan(scaling.TABLE).collect()
    assert set(points["tee_run_id"]) == {"sealed"}
    told = (
        compared_lake.scan(history.TABLE).filter(pl.col("run_id").is_in(["after", "sealed"])).sort("run_id").collect()
    )
    assert told["baseline_run_id"].to_list() == [None, "before"]
    assert told["overhead_ns"].is_null().to_list() == [True, False]


def test_no_word_of_a_tee_is_said_of_a_difference_between_two_runs(compared_lake: Lake) -> None:
    text = "\n".join(format_verdicts(compared_lake, ["after"]))
    assert (
        "after against before, a difference between two runs and no overhead of a TEE (cc_off against cc_off)" in text
    )
    heading = next(line for line in text.splitlines() if "ms per step, measured" in line)
    assert heading.split()[-3:] == ["baseline", "run", "change"]
    assert "TEE" in next(line for line in format_verdicts(compared_lake, ["sealed"]) if "ms per step, measured" in line)
    html = build_page(compared_lake).html
    section = html[html.index('id="other-pairs"') : html.index('id="closely"')]
    assert "after" in section
    assert "sealed" not in re.sub("<[^>]*>", "", section)
    slowdowns = html[html.index('id="slowdown"') : html.index('id="other-pairs"')]
    assert "after" not in re.sub("<[^>]*>", "", slowdowns)


def test_status_names_a_pair_that_cannot_be_made_and_why(compared_lake: Lake) -> None:
    zone = LandingZone(Location.of(compared_lake.place.directory.parent / "landing"))
    assert [note for note in collect_status(compared_lake, zone).notes if "no pair" in note] == [
        "misfit: no pair: a step of misfit and one of before do not do the same work: batch_size 16 against 8"
    ]


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["before", "aftr"], "no run 'aftr' with gold tables (did you mean 'after'?)"),
        (["before", "before"], "a run is not compared with itself"),
        (["before", "small"], "do not do the same work: batch_size 16 against 8"),
        (["before", ","], "a side names no run"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_pair_that_cannot_be_made_says_why(compared_lake: Lake, words: list[str], answer: str) -> None:
    done = ask(compared_lake, *words)
    assert done.exit_code == 2
    assert answer in done.stderr
