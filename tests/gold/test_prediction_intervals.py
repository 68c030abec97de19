from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gold.prediction_intervals import MOST_LEVEL, Spread, find_fitted_time, find_spread, score_error, weigh

scores = st.lists(st.floats(0, 10), min_size=1, max_size=6)
groups = st.lists(scores, min_size=2, max_size=12).map(lambda some: {f"model-{n}": own for n, own in enumerate(some)})


@given(groups)
def test_no_level_is_above_what_the_groups_support(some: dict[str, list[float]]) -> None:
    spread = find_spread(some)
    assert spread is not None
    assert spread.level == min(0.8, len(some) / (len(some) + 1))
    assert spread.level <= MOST_LEVEL
    assert spread.groups_count == len(some)
    assert spread.score in {value for own in some.values() for value in own}


def test_fewer_than_two_groups_make_no_interval() -> None:
    assert find_spread({}) is None
    assert find_spread({"a": [0.1, 0.2, 0.3]}) is None
    assert find_spread({"a": [0.1], "b": []}) is None, "a model without errors is no group"


def test_few_groups_count_by_their_largest_error() -> None:
    assert find_spread({"a": [0.1, 0.9], "b": [0.2], "c": [0.3]}) == Spread(0.75, 0.9, 3)


def test_a_group_with_many_errors_weighs_no_more_than_one_with_one() -> None:
    few = {f"model-{place}": [float(place)] for place in range(1, 20)}
    found = find_spread(few)
    assert found is not None
    assert found.score == 16, "16 of 20, with the group to come, are 0.8"
    many = {**few, "model-19": [19.0] * 1000}
    assert find_spread(many) == found
    assert find_spread({**few, "model-1": [1.0] * 1000}) == found


@given(groups)
def test_the_order_of_groups_and_errors_does_not_matter(some: dict[str, list[float]]) -> None:
    turned = {name: own[::-1] for name, own in reversed(some.items())}
    assert find_spread(turned) == find_spread(some)


@pytest.mark.parametrize("count", [2, 3, 5, 9])
def test_a_model_that_nobody_has_seen_is_covered_as_often_as_is_claimed(count: int) -> None:
    # Errors of one model are alike: each model has a scale of its own, drawn as those of all others are.
    draws, generator = 3000, np.random.default_rng(count)
    covered = []
    for _ in range(draws):
        scales = np.exp(generator.normal(0, 1, count + 1))
        sizes = generator.integers(1, 6, count)
        known = {
            f"{n}": list(abs(generator.normal(0, scale, size)))
            for n, (scale, size) in enumerate(zip(scales, sizes, strict=False))
        }
        spread = find_spread(known)
        assert spread is not None
        covered.append(abs(generator.normal(0, scales[-1])) <= spread.score)
    level = min(MOST_LEVEL, count / (count + 1))
    assert sum(covered) / draws >= level - 3 * math.sqrt(level * (1 - level) / draws)


def test_a_prediction_that_adds_more_has_a_wider_interval() -> None:
    spread = Spread(0.75, 0.5, 3)
    little, much = (spread.widen(value, weigh(value, 100.0)) for value in (101.0, 200.0))
    assert little == pytest.approx((101 * math.exp(-0.5 * (0.03 + 1 / 101)), 101 * math.exp(0.5 * (0.03 + 1 / 101))))
    assert much == pytest.approx((200 * math.exp(-0.265), 200 * math.exp(0.265)))


def test_an_interval_widens_by_what_recording_slowed_the_steps_beyond_a_tenth() -> None:
    spread = Spread(0.75, 0.5, 3)
    narrow = spread.widen(100.0, 0.2)
    assert spread.widen(100.0, 0.2, 1.1) == narrow
    assert spread.widen(100.0, 0.2, 1.25) == pytest.approx((narrow[0] / 1.25, narrow[1] * 1.25))


def test_what_the_cost_makes_counts_where_it_is_more_than_what_was_added() -> None:
    assert weigh(100.0, 90.0, fitted_ns=40.0) == pytest.approx(0.43)
    assert weigh(100.0, 50.0, fitted_ns=40.0) == pytest.approx(0.53)


def test_the_time_that_a_cost_makes_is_how_the_prediction_grows_with_it() -> None:
    assert find_fitted_time(lambda cost: 70 + 60 * cost, 0.5) == pytest.approx(30, rel=0.01)
    assert find_fitted_time(lambda _: 100.0, 0.5) == 0, "compute hides all of it"
    edge = find_fitted_time(lambda cost: max(100.0, 70 + 60 * cost), 0.5)
    assert 10 < edge < 20, "hidden just so: a tenth more would show"


@given(st.floats(1, 1e9), st.floats(1, 1e9), st.floats(1, 1e9))
def test_an_error_is_at_the_end_of_an_interval_of_its_score(predicted: float, measured: float, base: float) -> None:
    weight = weigh(predicted, base)
    low, high = Spread(0.8, score_error(predicted, measured, weight), 5).widen(predicted, weight)
    assert low <= measured * (1 + 1e-9)
    assert high >= measured * (1 - 1e-9)
    nearest = min((low, high), key=lambda end: abs(math.log(end / measured)))
    assert nearest == pytest.approx(measured)


def test_noise_counts_where_nothing_is_added() -> None:
    assert weigh(100.0, 100.0) == 0.03
