from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gold import comparison, step_overhead
from gold.gate import bound_part, bound_slowdown, combine, decide
from gold.inference import RunValue, compare_runs
from gold.margin import MARGIN

LIMIT = 1.05
# As docs/gate.md says: 2.5 % by construction, a little more where few runs differ in noise.
STATED = 0.035
MS = 1_000_000
ENDS = st.floats(0.5, 2.0)


def step_of(ours: list[float], theirs: list[float], **fields: Any) -> dict[str, Any]:
    """The columns of gold.step_overhead that a gate reads, of runs whose steps take so long."""
    estimate = compare_runs([RunValue(value) for value in ours], [RunValue(value) for value in theirs])
    assert estimate is not None
    known = {"runs_count": len(ours), "baseline_runs_count": len(theirs), "evidence": "measured"}
    reason = "; ".join(comparison.find_reasons(estimate, (len(ours), len(theirs)))) or None
    row = dict.fromkeys(step_overhead.TABLE.column_names) | comparison.fill_ratio(estimate, MARGIN)
    return {**row, **known, "reason": reason, **fields}


@given(ENDS, ENDS, ENDS)
def test_a_gate_decides_only_where_the_limit_is_outside_the_interval(one: float, other: float, limit: float) -> None:
    low, high = sorted((one, other))
    assert (decide(low, high, limit) == "undecided") == (low <= limit < high)
    assert decide(low, high, limit) != "exceeded" or low > limit
    assert decide(low, high, limit) != "within" or high <= limit


def test_without_an_interval_nothing_is_decided() -> None:
    assert decide(None, None, LIMIT) == "undecided"


@pytest.mark.parametrize("counts", [(3, 3), (5, 5), (3, 8)])
@pytest.mark.parametrize("noises", [(0.01, 0.01), (0.05, 0.05), (0.01, 0.05)])
def test_at_the_limit_itself_false_alarms_and_false_passes_are_at_most_as_often_as_stated(
    counts: tuple[int, int], noises: tuple[float, float]
) -> None:
    draw, pairs = np.random.default_rng(37), 2000
    outcomes = []
    for _ in range(pairs):
        ours = list(LIMIT * 100 * draw.lognormal(0, noises[0], counts[0]))
        theirs = list(100 * draw.lognormal(0, noises[1], counts[1]))
        outcomes.append(bound_slowdown(step_of(ours, theirs), LIMIT).outcome)
    assert outcomes.count("exceeded") <= STATED * pairs
    assert outcomes.count("within") <= STATED * pairs


def test_a_slowdown_well_beyond_and_well_below_the_limit_is_decided() -> None:
    theirs = [100.0, 100.4, 99.8]
    assert bound_slowdown(step_of([120.0, 120.5, 119.7], theirs), LIMIT).outcome == "exceeded"
    assert bound_slowdown(step_of([101.0, 101.4, 100.9], theirs), LIMIT).outcome == "within"
    assert bound_slowdown(step_of([90.0, 90.4, 90.2], theirs), LIMIT).outcome == "within"


def test_two_runs_per_side_decide_nothing_and_say_how_many_are_missing() -> None:
    found = bound_slowdown(step_of([200.0, 201.0], [100.0, 101.0]), LIMIT)
    assert (found.outcome, found.more_runs_count) == ("undecided", 1)
    assert found.reason is not None
    assert "a conclusion needs 3 runs per side" in found.reason
    assert "record at least 1 more run per side" in found.reason


def test_runs_that_are_needed_decide_it_four_times_out_of_five() -> None:
    draw = np.random.default_rng(5)
    asked = bound_slowdown(step_of([108.0, 104.0, 112.0], [100.0, 97.0, 104.0]), LIMIT)
    assert asked.outcome == "undecided"
    assert asked.more_runs_count is not None
    runs, noise = 3 + asked.more_runs_count, 0.036
    decided = 0
    for _ in range(200):
        sides = [list(step * draw.lognormal(0, noise, runs)) for step in (108.0, 100.0)]
        decided += bound_slowdown(step_of(*sides), LIMIT).outcome == "exceeded"
    assert 130 <= decided <= 190


def test_sources_that_contradict_each_other_decide_nothing() -> None:
    answer = {
        "verdict_class": "inconclusive",
        "disagreement": "the sources disagree: 1.2x by the log, 0.8x by the trace",
    }
    found = bound_slowdown(step_of([120.0, 120.5, 119.7], [100.0, 100.4, 99.8], **answer), LIMIT)
    assert found.outcome == "undecided"
    assert found.reason is not None
    assert found.reason.startswith("the sources disagree")


def test_a_part_is_held_against_its_limit_in_time_and_may_take_none_at_all() -> None:
    more, less = [5.0 * MS, 5.2 * MS, 4.9 * MS], [1.0 * MS, 1.1 * MS, 0.9 * MS]
    assert bound_part("hop", more, less, 2.0 * MS).outcome == "exceeded"
    assert bound_part("hop", more, less, 6.0 * MS).outcome == "within"
    assert bound_part("crypto", [0.0] * 3, [0.0] * 3, 1.0 * MS).outcome == "within"
    few = bound_part("hop", more[:1], less[:1], 2.0 * MS, lacking=4)
    assert (few.outcome, few.more_runs_count) == ("undecided", 2)
    assert few.reason == (
        "traced runs per side: 1 and 1, and 4 have no traced steps; record at least 2 more runs per side (repeat_of)"
    )
    assert bound_part("hop", [], less, MS).evidence == "unobservable"


def test_equal_values_that_are_not_nothing_show_no_noise() -> None:
    found = bound_part("hop", [5.0] * 3, [4.0] * 3, 2.0)
    assert found.outcome == "undecided"
    assert found.reason is not None
    assert "equal to the last digit" in found.reason


@given(st.lists(st.sampled_from(["within", "exceeded", "undecided"]), min_size=1))
def test_one_limit_that_is_exceeded_is_enough_and_all_must_be_within(outcomes: list[str]) -> None:
    ends = {"within": [0.0] * 3, "exceeded": [9.0, 9.1, 9.2], "undecided": [1.0, 9.0, 2.0]}
    combined = combine([bound_part("hop", ends[outcome], [0.0] * 3, 3.0) for outcome in outcomes])
    expected = "exceeded" if "exceeded" in outcomes else "undecided" if "undecided" in outcomes else "within"
    assert combined == expected
