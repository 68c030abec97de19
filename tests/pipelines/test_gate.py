"""`teetotal gate` and `teetotal baseline` as continuous integration runs them, on small runs with repeats."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from pipelines.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result

    from lake.store import Lake

WITHIN, EXCEEDED, WRONG_USAGE, UNDECIDED = 0, 1, 2, 3


def ask(lake: Lake, *words: str) -> Result:
    return CliRunner().invoke(main, ["--lake", str(lake.place), *words], catch_exceptions=False)


@pytest.fixture
def lake_with_a_tag(compared_lake: Lake) -> Iterator[Lake]:
    """The lake with a baseline that has a name."""
    assert ask(compared_lake, "baseline", "set", "main", "before").exit_code == 0
    yield compared_lake
    for name in json.loads((compared_lake.place.directory.parent / "baselines.json").read_text("utf-8")):
        assert ask(compared_lake, "baseline", "remove", name).exit_code == 0


@pytest.mark.parametrize(
    ("words", "status", "outcome"),
    [
        (["--run", "after", "--against", "before", "--max-slowdown", "1.3"], WITHIN, "within"),
        (["--run", "after", "--against", "before"], EXCEEDED, "exceeded"),
        (["--run", "after", "--against", "before", "--max-slowdown", "1.198"], UNDECIDED, "undecided"),
        (["--run", "after", "--against", "before-again1,before-again2"], UNDECIDED, "undecided"),
        (["--run", "sealed"], UNDECIDED, "undecided"),
    ],
    ids=["within", "exceeded", "limit inside the interval", "too few runs", "one run against its manifest's baseline"],
)
def test_the_exit_status_says_what_was_decided(
    compared_lake: Lake, words: list[str], status: int, outcome: str
) -> None:
    done = ask(compared_lake, "gate", *words, "--format", "json")
    assert done.exit_code == status, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["outcome"], answer["exit_status"]) == (outcome, status)
    assert all(limit["evidence"] in {"measured", "modelled"} for limit in answer["limits"])


def test_a_part_of_the_step_has_a_limit_of_its_own(compared_lake: Lake) -> None:
    words = ("gate", "--run", "after", "--against", "before", "--max-slowdown", "1.3", "--max-overhead")
    assert ask(compared_lake, *words, "compute=50").exit_code == WITHIN
    done = ask(compared_lake, *words, "compute=2")
    assert done.exit_code == EXCEEDED
    assert "; limit +2.00 ms: exceeded (measured)" in done.stdout


def test_a_named_baseline_stands_for_a_run_and_its_repeats(lake_with_a_tag: Lake) -> None:
    done = ask(lake_with_a_tag, "gate", "--run", "after", "--baseline-tag", "main", "--format", "json")
    assert done.exit_code == EXCEEDED
    assert json.loads(done.stdout)["baseline"] == ["before", "before-again1", "before-again2"]
    assert ask(lake_with_a_tag, "baseline", "list").stdout == "main  before\n"


def test_a_name_moves_and_says_where_it_was(lake_with_a_tag: Lake) -> None:
    assert ask(lake_with_a_tag, "baseline", "set", "main", "after").stdout == "main is after, and was before\n"
    assert ask(lake_with_a_tag, "gate", "--run", "before", "--baseline-tag", "main").exit_code == WITHIN


def test_a_pull_request_gets_a_table_with_what_differs(compared_lake: Lake) -> None:
    answer = ask(compared_lake, "gate", "--run", "after", "--against", "before", "--format", "markdown").stdout
    assert answer.startswith("### teetotal: after exceeds a limit\n")
    assert "| slowdown | 1.19" in answer
    assert "**exceeded** | measured |" in answer
    assert "- differs in torch\\_version: 2.11 to 2.12" in answer


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["gate", "--run", "after", "--against", "befor"], "did you mean 'before'?"),
        (["gate", "--run", "before"], "before names no baseline (name one: --against RUN, or --baseline-tag NAME)"),
        (["gate", "--against", "before"], "no run says when it was recorded, so none is the last"),
        (["gate", "--run", "after", "--baseline-tag", "mian"], "no baseline is named 'mian'"),
        (["gate", "--run", "after", "--against", "before", "--baseline-tag", "main"], "name the baseline once"),
        (["gate", "--run", "after", "--against", "before", "--max-overhead", "hops=1"], "did you mean 'hop'?"),
        (["gate", "--run", "after", "--against", "before", "--max-overhead", "hop=x"], "a number of milliseconds"),
        (["gate", "--run", "after", "--against", "before", "--max-overhead", "hop"], "expected PART=MS"),
        (["gate", "--run", "after", "--against", "before", "--max-slowdown", "nan"], "expected a ratio such as 1.05"),
        (["gate", "--run", "after", "--against", "small"], "do not do the same work"),
        (["baseline", "set", "main", "befor"], "did you mean 'before'?"),
        (["baseline", "set", "no name", "before"], "is no name for a baseline"),
        (["baseline", "remove", "main"], "no baseline is named 'main'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_told_with_what_was_expected(compared_lake: Lake, words: list[str], answer: str) -> None:
    done = ask(compared_lake, *words)
    assert done.exit_code == WRONG_USAGE
    assert answer in done.stderr


def test_a_file_of_names_that_is_not_understood_is_told_and_kept(lake_with_a_tag: Lake) -> None:
    path = lake_with_a_tag.place.directory.parent / "baselines.json"
    kept = path.read_bytes()
    path.write_text('["before"]', "utf-8")
    try:
        done = ask(lake_with_a_tag, "baseline", "set", "main", "after")
        assert done.exit_code == WRONG_USAGE
        assert "baselines.json beside" in done.stderr
        assert path.read_text("utf-8") == '["before"]'
    finally:
        path.write_bytes(kept)
