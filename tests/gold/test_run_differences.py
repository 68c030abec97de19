from __future__ import annotations

import pytest

from gold.pairs import explain_incomparable
from gold.run_differences import list_differences, make_pair
from silver.runs import TABLE


def make_run(
    workload: str | None = "model=m|batch_size=8|world_size=2", repeat_of: str | None = None
) -> dict[str, str | None]:
    return {"regime": "cc_off", "baseline": None, "repeat_of": repeat_of, "workload": workload, "family": workload}


INDEX = {
    "a": make_run(),
    "a2": make_run(repeat_of="a"),
    "b": make_run(),
    "b2": make_run(repeat_of="b"),
    "b3": make_run(repeat_of="b"),
}


def test_a_run_stands_for_its_repeats() -> None:
    pair = make_pair(INDEX, ["a"], ["b2"])
    assert (pair.baselines, pair.candidates) == (("a", "a2"), ("b", "b2", "b3"))


def test_several_names_are_taken_as_they_are() -> None:
    pair = make_pair(INDEX, ["a", "b"], ["b2", "b3"])
    assert (pair.baselines, pair.candidates) == (("a", "b"), ("b2", "b3"))


def test_a_run_and_its_repeat_are_compared_one_against_the_other() -> None:
    pair = make_pair(INDEX, ["b"], ["b3"])
    assert (pair.baselines, pair.candidates) == (("b",), ("b3",))
    assert explain_incomparable(INDEX, pair) is None


def test_a_run_is_not_compared_with_itself() -> None:
    answer = explain_incomparable(INDEX, make_pair(INDEX, ["b"], ["b"]))
    assert answer == "b is on both sides: a run is not compared with itself"


@pytest.mark.parametrize(
    ("workload", "answer"),
    [
        ("model=n|batch_size=8|world_size=2", "model n against m"),
        ("model=m|batch_size=16|world_size=2", "batch_size 16 against 8"),
        ("model=m|batch_size=8|world_size=4", "world_size 4 against 2"),
    ],
)
def test_steps_that_do_other_work_are_not_compared(workload: str, answer: str) -> None:
    index = {**INDEX, "other": make_run(workload)}
    reason = explain_incomparable(index, make_pair(index, ["a"], ["other"]))
    assert reason is not None
    assert reason.endswith(f"do not do the same work: {answer}")


def test_other_software_and_settings_are_what_a_comparison_is_for() -> None:
    index = {**INDEX, "new": make_run("model=m|batch_size=8|world_size=2|torch_version=2.12|bucket_cap_mib=100.0")}
    assert explain_incomparable(index, make_pair(index, ["a"], ["new"])) is None


def test_a_run_without_a_model_is_compared_with_a_caveat() -> None:
    index = {**INDEX, "unnamed": make_run(None)}
    pair = make_pair(index, ["a"], ["unnamed"])
    assert explain_incomparable(index, pair) is None
    assert pair.caveat == "no model named by unnamed: nothing says that both did the same work"


def test_software_that_differs_comes_first_and_several_values_stand_together() -> None:
    ours, theirs = ({**dict.fromkeys(TABLE.column_names), "bucket_cap_mib": cap} for cap in (100.0, 25.0))
    ours |= {"torch_version": "2.12", "family": "model=m|ring_chains=4"}
    theirs |= {"family": "model=m|ring_chains=1"}
    assert list_differences([ours, {**ours, "torch_version": "2.13"}], [theirs]) == [
        {"field": "torch_version", "baseline_value": None, "value": "2.12, 2.13"},
        {"field": "bucket_cap_mib", "baseline_value": "25", "value": "100"},
        {"field": "ring_chains", "baseline_value": "1", "value": "4"},
    ]


def test_what_is_sealed_is_never_among_the_differences() -> None:
    sealed = [column.name for column in TABLE.sealed]
    ours, theirs = ({**dict.fromkeys(TABLE.column_names), **dict.fromkeys(sealed, value)} for value in ("x", "y"))
    assert list_differences([ours], [theirs]) == []
