"""How large an effect must be for Welch's test to find it, and how many runs per side would settle a question."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

if TYPE_CHECKING:
    Values = np.ndarray[Any, np.dtype[np.float64]]

POWER = 0.8
LEVEL = 0.05
ENOUGH_RUNS = 3
# Beyond so many runs per side nobody repeats a training run.
MOST_RUNS = 50
# Above so many runs per side the variances of two sides hardly differ, and Welch's test is Student's.
_FEW_RUNS = 6
_QUANTILES = (np.arange(24) + 0.5) / 24
_EFFECTS = np.linspace(0, 60, 301)


@dataclass(frozen=True)
class _Curve:
    """Power of Welch's test against the true effect in standard errors, and the standard errors that it would state."""

    powers: Values
    stated: Values

    def at(self, effects: Values) -> Values:
        """The power at these effects."""
        return np.asarray(np.interp(effects, _EFFECTS, self.powers))


@lru_cache(maxsize=256)
def _trace_curve(runs: int, baseline_runs: int) -> _Curve:
    """Integrate over the variances that two sides of equal noise would show: chi-squared, by their quantiles."""
    ours, theirs = np.meshgrid(*(_find_variances(count) for count in (runs, baseline_runs)))
    degrees = (ours + theirs) ** 2 / (ours**2 / (runs - 1) + theirs**2 / (baseline_runs - 1))
    stated = np.sqrt((ours + theirs) / (1 / runs + 1 / baseline_runs)).ravel()
    bound = scipy.special.stdtrit(degrees, 1 - LEVEL / 2).ravel() * stated
    powers = np.array(
        [np.mean(scipy.special.ndtr(effect - bound) + scipy.special.ndtr(-bound - effect)) for effect in _EFFECTS]
    )
    return _Curve(powers, stated)


def _find_variances(runs: int) -> Values:
    """The variances of a mean that so many runs of unit noise show, by the quantiles of chi-squared."""
    degrees = runs - 1
    found: Values = 2 * scipy.special.gammaincinv(degrees / 2, _QUANTILES) / degrees / runs
    return found


@lru_cache(maxsize=256)
def find_detectable_effect(runs: int, baseline_runs: int) -> float:
    """The smallest true effect, in stated standard errors, that so many runs find four times out of five.

    The standard error is itself an estimate from few runs. A pair that states a small one finds its stated effect less
    often, so two powers are averaged: that of each pair's own stated effect, and that of the median stated effect.
    """
    curve = _trace_curve(runs, baseline_runs)
    middle = float(np.median(curve.stated))

    def fall_short(effect: float) -> float:
        own, typical = curve.at(effect * curve.stated).mean(), curve.at(np.array([effect * middle]))[0]
        return float((own + typical) / 2 - POWER)

    return float(scipy.optimize.brentq(fall_short, 0.1, 40.0))


@lru_cache(maxsize=256)
def find_detectable_effect_of_known_noise(degrees: float) -> float:
    """The same where the noise is known with so many degrees of freedom: by the noncentral t distribution."""
    bound = scipy.special.stdtrit(degrees, 1 - LEVEL / 2)

    def fall_short(effect: float) -> float:
        return float(1 - scipy.special.nctdtr(degrees, effect, bound) - POWER)

    return float(scipy.optimize.brentq(fall_short, 0.1, 30.0))


def count_runs_needed(log_ratio: float, log_deviation: float, log_margin: float, log_shift: float = 0.0) -> int | None:
    """Runs per side that would settle a ratio that really is so, at such noise; None where 50 would not.

    Settled is a difference that Welch's test finds four times out of five, or an equivalence found as often. Rounding
    may have shifted the ratio by `log_shift`, which no repeat averages out.
    """
    size, counts = abs(log_ratio), range(ENOUGH_RUNS, MOST_RUNS + 1)

    def is_settled(runs: int) -> bool:
        error = log_deviation * math.sqrt(2 / runs)
        difference, equivalence = _find_needed_effects(runs)
        if size > log_margin:
            return size - log_shift >= difference * error
        return log_margin - size - log_shift >= equivalence * error

    place = bisect_left(counts, True, key=is_settled)
    return counts[place] if place < len(counts) else None


@lru_cache(maxsize=256)
def _find_needed_effects(runs: int) -> tuple[float, float]:
    """How many standard errors a ratio must lie from 1, and how many from the margin, to be settled by so many runs."""
    degrees = 2 * (runs - 1)
    if runs > _FEW_RUNS:
        difference = find_detectable_effect_of_known_noise(degrees)
    else:
        difference = float(np.interp(POWER, _trace_curve(runs, runs).powers, _EFFECTS))
    # Both of the one-sided tests must succeed: at a ratio of 1 each may fail half as often.
    equivalence = scipy.special.stdtrit(degrees, 1 - LEVEL) + scipy.special.stdtrit(degrees, 1 - (1 - POWER) / 2)
    return difference, float(equivalence)
