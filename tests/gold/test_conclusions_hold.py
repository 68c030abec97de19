"""A small seeded form of `python -m benchmarks.inference`: conclusions hold on pairs whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.inference import NOISES, Noise, Score, compare, score_null_pairs
from tests.support.campaigns import pick_size

TRIALS = pick_size(60, 1000)


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.name)
def test_intervals_over_three_runs_hold_the_truth_and_call_few_null_pairs(noise: Noise) -> None:
    covered, called = score_null_pairs(np.random.default_rng(24), noise, 8, 3, TRIALS)
    assert len(covered.outcomes) == TRIALS
    assert covered.is_met, covered.rate
    assert called.is_met, called.rate


@pytest.mark.parametrize("noise", NOISES, ids=lambda noise: noise.name)
def test_one_run_per_side_never_concludes_and_more_steps_do_not_help(noise: Noise) -> None:
    random = np.random.default_rng(24)
    for steps in (2, 8, 50):
        for ratio in (1.0, 3.0):
            assert compare(random, noise, steps, 1, ratio)["verdict_class"] == "inconclusive"


def test_noise_of_other_runs_covers_what_two_runs_leave_open() -> None:
    for score in score_null_pairs(np.random.default_rng(24), NOISES[3], 50, 2, TRIALS, groups=4):
        assert score.is_met, (score.what, score.rate)


def test_a_goal_is_missed_by_more_than_chance_only() -> None:
    assert Score("coverage", (0.93, 0.98), [True] * 90 + [False] * 10).is_met
    assert not Score("coverage", (0.93, 0.98), [True] * 80 + [False] * 20).is_met
    assert not Score("conclusions", (0.0, 0.0), [True] + [False] * 99).is_met
