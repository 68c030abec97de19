from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from gold.inference import Noise, RunValue, compare_runs, control_false_discoveries, judge, pool_noise
from gold.power import count_runs_needed, find_detectable_effect

VALUES = st.floats(1.0, 1e12)


def runs(*values: float, error: float | None = None, steps: float | None = None) -> list[RunValue]:
    return [RunValue(value, error, steps) for value in values]


def test_three_runs_per_side_are_compared_by_welchs_test_on_logarithms() -> None:
    ours, theirs = (120.0, 123.0, 121.0), (100.0, 104.0, 99.0, 101.0)
    found = compare_runs(runs(*ours), runs(*theirs))
    assert found is not None
    oracle = stats.ttest_ind(np.log(ours), np.log(theirs), equal_var=False)
    low, high = oracle.confidence_interval(0.95)
    assert found.p_value == pytest.approx(oracle.pvalue)
    assert (found.low, found.high) == pytest.approx((math.exp(low), math.exp(high)))
    assert found.ratio == pytest.approx(stats.gmean(ours) / stats.gmean(theirs))
    assert (found.verdict_class, found.interval_over, found.is_modelled) == ("slower", "runs", False)
    assert found.more_runs_count == 0


def test_no_difference_is_a_claim_that_needs_both_one_sided_tests() -> None:
    near = compare_runs(runs(100.0, 100.2, 100.1), runs(100.1, 100.0, 100.3))
    far = compare_runs(runs(100.0, 103.0, 97.0), runs(101.0, 98.0, 102.0))
    assert near is not None
    assert far is not None
    assert near.verdict_class == "no_difference"
    assert (far.verdict_class, far.more_runs_count is None or far.more_runs_count > 0) == ("not_shown", True)
    assert near.equivalence_p_value is not None
    assert near.equivalence_p_value < 0.05


def test_a_difference_that_is_shown_but_lies_within_the_margin_is_none_that_matters() -> None:
    found = compare_runs(runs(100.5, 100.51, 100.49), runs(100.0, 100.01, 99.99))
    assert found is not None
    assert found.p_value is not None
    assert found.p_value < 0.05
    assert found.verdict_class == "no_difference"
    strict = compare_runs(runs(100.5, 100.51, 100.49), runs(100.0, 100.01, 99.99), margin=0.001)
    assert strict is not None
    assert strict.verdict_class == "slower"


@given(st.lists(VALUES, min_size=1, max_size=6), VALUES, st.one_of(st.none(), st.floats(1e-6, 0.5)), st.integers(0, 40))
def test_with_one_run_on_a_side_nothing_is_ever_concluded(
    many: list[float], one: float, error: float | None, degrees: int
) -> None:
    noise = Noise(0.001, degrees, degrees + 1) if degrees else None
    alone = runs(one, error=error, steps=50.0)
    others = runs(*many, error=error, steps=50.0)
    for sides in ((alone, others), (others, alone)):
        found = compare_runs(*sides, noise=noise)
        assert found is not None
        assert found.verdict_class == "inconclusive"
        assert found.p_value is None
        assert found.interval_over in {None, "within_run", "modelled"}


def test_one_run_per_side_has_the_scatter_inside_the_runs_and_the_repeats_that_would_settle_it() -> None:
    sides = runs(120.0, error=0.01, steps=30.0), runs(100.0, error=0.01, steps=30.0)
    found = compare_runs(*sides)
    assert found is not None
    assert found.interval_over == "within_run"
    assert found.low is not None
    assert found.high is not None
    assert found.low < 1.2 < found.high
    assert (found.more_runs_count, found.run_noise_fraction) == (2, None)
    noisy = compare_runs(*sides, noise=Noise(0.15, 2, 4))
    assert noisy is not None
    assert noisy.interval_over == "within_run", "two degrees of freedom are too few to stand in"
    assert noisy.more_runs_count is not None
    assert noisy.more_runs_count > 2


def test_too_few_steps_have_no_interval_whatever_noise_is_known() -> None:
    found = compare_runs(runs(120.0), runs(100.0), noise=Noise(0.01, 20, 24))
    assert found is not None
    assert (found.low, found.high, found.interval_over) == (None, None, None)


def test_noise_of_other_runs_stands_in_for_two_runs_and_the_result_is_modelled() -> None:
    sides = [runs(*values, error=0.002, steps=50.0) for values in ((120.0, 121.0), (100.0, 101.0))]
    found = compare_runs(*sides, noise=Noise(0.01, 8, 12))
    assert found is not None
    assert (found.verdict_class, found.is_modelled, found.interval_over) == ("slower", True, "modelled")
    wilder = compare_runs(*sides, noise=Noise(0.2, 8, 12))
    assert wilder is not None
    assert wilder.verdict_class == "not_shown"
    unknown = compare_runs(*sides)
    assert unknown is not None
    assert (unknown.verdict_class, unknown.is_modelled) == ("inconclusive", False)


def test_a_pair_that_is_noisier_than_other_repeats_borrows_nothing() -> None:
    sides = [runs(*values, error=0.001, steps=50.0) for values in ((100.0, 140.0), (100.0, 70.0))]
    found = compare_runs(*sides, noise=Noise(0.001, 30, 40))
    assert found is not None
    assert (found.verdict_class, found.interval_over) == ("inconclusive", "within_run")


def test_equal_runs_show_no_noise_and_so_nothing() -> None:
    found = compare_runs(runs(120.0, 120.0, 120.0), runs(100.0, 100.0, 100.0))
    assert found is not None
    assert (found.verdict_class, found.low, found.reason is not None) == ("inconclusive", None, True)


def test_a_side_without_a_value_has_no_answer() -> None:
    assert compare_runs([], runs(1.0)) is None
    assert compare_runs(runs(0.0), runs(1.0)) is None


@given(
    st.lists(VALUES, min_size=3, max_size=6, unique=True),
    st.lists(VALUES, min_size=3, max_size=6, unique=True),
    st.floats(0.1, 10),
)
def test_swapping_the_sides_inverts_the_ratio_and_a_unit_changes_nothing(
    ours: list[float], theirs: list[float], unit: float
) -> None:
    found, swapped = compare_runs(runs(*ours), runs(*theirs)), compare_runs(runs(*theirs), runs(*ours))
    scaled = compare_runs(runs(*(value * unit for value in ours)), runs(*(value * unit for value in theirs)))
    assert found is not None
    assert swapped is not None
    assert scaled is not None
    if found.low is None or found.high is None or swapped.low is None or swapped.high is None:
        return
    assert found.ratio * swapped.ratio == pytest.approx(1)
    assert (swapped.low, swapped.high) == pytest.approx((1 / found.high, 1 / found.low))
    opposite = {"slower": "faster", "faster": "slower"}
    assert swapped.verdict_class == opposite.get(found.verdict_class, found.verdict_class)
    assert scaled.ratio == pytest.approx(found.ratio, rel=1e-6)
    assert found.low <= found.ratio <= found.high


def test_noise_is_pooled_over_groups_each_around_its_own_mean() -> None:
    noise = pool_noise([runs(100.0, 110.0), runs(1000.0, 1100.0), runs(5.0)])
    assert noise is not None
    assert noise.log_deviation == pytest.approx(math.log(1.1) / math.sqrt(2))
    assert (noise.degrees, noise.runs_count) == (2, 4)
    assert pool_noise([runs(5.0), runs(7.0)]) is None


def test_a_run_of_few_steps_varies_more_than_those_that_the_noise_is_from() -> None:
    noise = pool_noise([runs(100.0, 102.0, 101.0, error=0.001)])
    assert noise is not None
    assert noise.find_variance(0.001) == pytest.approx(noise.log_deviation**2)
    assert noise.find_variance(0.05) == pytest.approx(noise.log_deviation**2 - 0.001**2 + 0.05**2)


def test_false_discoveries_are_controlled_by_benjamini_and_hochberg() -> None:
    assert control_false_discoveries([0.01, None, 0.04, 0.03]) == [
        pytest.approx(0.03),
        None,
        pytest.approx(0.04),
        pytest.approx(0.04),
    ]
    assert control_false_discoveries([None]) == [None]


def test_classes_go_by_both_tests() -> None:
    assert judge(1.1, 0.01, 0.9) == "slower"
    assert judge(0.9, 0.01, 0.9) == "faster"
    assert judge(1.0, 0.9, 0.01) == "no_difference"
    assert judge(1.0, 0.9, 0.9) == "not_shown"


def test_more_runs_detect_less_and_more_noise_needs_more_runs() -> None:
    effects = [find_detectable_effect(count, count) for count in (3, 4, 5, 10)]
    assert effects == sorted(effects, reverse=True)
    margin = math.log1p(0.02)
    counts = [count_runs_needed(math.log(1.1), deviation, margin) for deviation in (0.001, 0.03, 0.06)]
    assert counts[0] == 3
    assert counts[1] is not None
    assert counts[2] is not None
    assert counts[1] < counts[2]
    assert count_runs_needed(margin, 0.05, margin) is None, "what lies at the margin is never settled"
