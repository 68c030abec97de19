"""`teetotal compare` as a person types it, on small runs with repeats."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from gold import step_overhead
from lake.landing_zone import LandingZone
from lake.locations import Location
from pipelines.cli.main import main
from pipelines.cli.status import collect_status

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
    (kept,) = compared_lake.scan(step_overhead.TABLE, ["sealed"]).collect().to_dicts()
    assert ask_json(compared_lake, "before", "sealed")["step"] == kept


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


def test_status_says_how_to_compare_a_run_with_a_baseline_of_its_own_regime(compared_lake: Lake) -> None:
    zone = LandingZone(Location.of(compared_lake.place.directory.parent / "landing"))
    answer = [note for note in collect_status(compared_lake, zone).notes if "keeps no pair" in note]
    (note,) = answer
    assert note.startswith("wide: the lake keeps no pair with its baseline small, which is of the same regime: ")
    assert note.endswith("`teetotal compare small wide` compares them")


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
