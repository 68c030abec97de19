from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gold.change_points
from benchmarks.change_points import (
    DRIFTING,
    NOISES,
    NightNoise,
    draw_nights,
    score_alarms,
    score_found,
    score_runs_as_unit,
)
from benchmarks.inference import Score
from gold.change_points import FEWEST_AFTER, FEWEST_VALUES, find_change_points
from gold.power import LEVEL
from tests.support.campaigns import pick_size

TRIALS = pick_size(60, 1000)


def random() -> np.random.Generator:
    return np.random.default_rng(40)


def list_places(values: list[float]) -> list[int]:
    return [one.place for one in find_change_points(values)]


def test_a_step_is_found_where_it_is_with_its_chance() -> None:
    values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.02, 2.0, 2.1, 1.9, 2.05, 1.95, 2.02]
    (found,) = find_change_points(values)
    assert found.place == 6
    assert 0 < found.p_value < 0.01
    assert find_change_points(values) == [found], "the same series gets the same answer"


def test_two_steps_are_found_one_inside_the_other() -> None:
    quiet = [0.01 * (place * 7 % 5) for place in range(36)]
    assert list_places([value + (place >= 12) + (place >= 24) for place, value in enumerate(quiet)]) == [12, 24]
    assert list_places([value + (12 <= place < 24) for place, value in enumerate(quiet)]) == [12, 24]


def test_one_slow_night_and_a_series_of_equal_values_are_no_change() -> None:
    quiet = [0.01 * (place * 7 % 5) for place in range(20)]
    assert list_places([value + 50 * (place == 11) for place, value in enumerate(quiet)]) == []
    assert list_places([1.0] * 20) == []
    assert list_places([]) == []


def test_the_fewest_values_are_those_whose_clearest_change_is_beyond_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gold.change_points, "FEWEST_VALUES", 2 * FEWEST_AFTER)

    def find_least(count: int) -> float:
        series = ([float(place + 100 * (place >= at)) for place in range(count)] for at in range(3, count - 2))
        return min(one.p_value for values in series for one in find_change_points(values, level=1.0))

    assert find_least(FEWEST_VALUES - 1) > LEVEL >= find_least(FEWEST_VALUES)


@given(st.lists(st.integers(0, 6), min_size=0, max_size=24), st.integers(1, 1000))
def test_the_answer_goes_by_the_order_of_values_alone(values: list[int], factor: int) -> None:
    found = find_change_points([float(value) for value in values])
    assert find_change_points([factor * value + 0.5 for value in values]) == found
    places = [one.place for one in found]
    assert places == sorted(places)
    edges = [0, *places, len(values)]
    assert not places or min(np.diff(edges)) >= FEWEST_AFTER
    assert all(one.p_value <= LEVEL for one in found)


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.name)
@pytest.mark.parametrize("nights", [8, 14])
def test_few_series_without_a_change_have_a_change_point(noise: NightNoise, nights: int) -> None:
    score = score_alarms(random(), noise, nights, TRIALS)
    assert score.is_met, score.rate


def test_a_change_of_five_percent_is_found_in_two_weeks() -> None:
    assert score_found(random(), NOISES[0], 14, 0.05, TRIALS).rate >= 0.95
    assert score_found(random(), NOISES[2], 30, 0.05, TRIALS).rate >= 0.8, "slow nights hide little of it"


def test_runs_of_one_night_do_not_count_as_several() -> None:
    """Were they the unit, a third of all series would have a change point; the goal tells the two apart."""
    naive = score_runs_as_unit(random(), NOISES[0], 30, TRIALS)
    assert not Score("false alarms", (0.0, LEVEL), naive.outcomes).is_met
    assert not score_alarms(random(), DRIFTING, 30, TRIALS).is_met, (
        "a drift is not promised, and docs/history.md says so"
    )


def test_nights_are_drawn_as_they_are_described() -> None:
    rows = draw_nights(random(), NightNoise("still", night=0, run=0), 10, 0.5)
    assert rows.tolist() == [[0.0] * 3] * 5 + [[0.5] * 3] * 5
