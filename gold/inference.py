"""Whether a difference between two groups of runs is real: statistics whose unit of evidence is the run."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy

from gold.margin import MARGIN
from gold.power import (
    ENOUGH_RUNS,
    LEVEL,
    POWER,
    count_runs_needed,
    find_detectable_effect,
    find_detectable_effect_of_known_noise,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    _Values = np.ndarray[tuple[int], np.dtype[np.float64]]

# Repeats elsewhere in the lake stand in for missing ones only where they leave so many degrees of freedom.
ENOUGH_DEGREES = 4
# With noise that was borrowed, two runs per side may conclude; one never does.
ENOUGH_MODELLED_RUNS = 2
INTERVALS = ("runs", "modelled", "within_run")
NO_NOISE = "the runs of each side are equal to the last digit, so they show no noise"
VERDICTS = ("slower", "faster", "no_difference", "not_shown", "inconclusive")


@dataclass(frozen=True)
class RunValue:
    """What one run measured: the mean step or the like, and how far the scatter inside the run leaves it open."""

    value: float
    log_standard_error: float | None = None
    effective_steps_count: float | None = None
    # How far the rounding of what it was read from may shift it, as a fraction; repeats do not average that out.
    rounding_fraction: float = 0.0


@dataclass(frozen=True)
class Noise:
    """How far repeats differ: the standard deviation of logarithms between runs, and what it rests on."""

    log_deviation: float
    degrees: int
    runs_count: int
    # The share of that variance which scatter inside the runs explains; 0 where it is not known.
    log_within_variance: float = 0.0

    def find_variance(self, log_standard_error: float) -> float:
        """The variance of a run's logarithm: what differs between runs, and what its own steps leave open."""
        return max(0.0, self.log_deviation**2 - self.log_within_variance) + log_standard_error**2


@dataclass(frozen=True)
class Estimate:
    """The ratio of two groups of runs, and what it allows to say."""

    ratio: float
    verdict_class: str
    low: float | None = None
    high: float | None = None
    # What the interval is over: the runs of the pair, noise of other runs, or only the steps inside each run.
    interval_over: str | None = None
    p_value: float | None = None
    equivalence_p_value: float | None = None
    # Standard deviation between runs of a side, as a fraction; modelled where it comes from other runs.
    run_noise_fraction: float | None = None
    noise_runs_count: int | None = None
    is_modelled: bool = False
    detectable_fraction: float | None = None
    # Further runs per side that would settle it; None where 50 would not, 0 where it is settled.
    more_runs_count: int | None = None
    # Why no conclusion is drawn although there are enough runs.
    reason: str | None = None


@dataclass(frozen=True)
class Difference:
    """A difference of two groups of runs; without an interval where there are too few of them or they show no noise."""

    value: float
    low: float | None = None
    high: float | None = None
    # Standard deviation between runs of a side.
    deviation: float | None = None


def compare_runs(
    candidate: Sequence[RunValue], baseline: Sequence[RunValue], *, margin: float = MARGIN, noise: Noise | None = None
) -> Estimate | None:
    """Compare two groups of runs by Welch's t test on logarithms; None where a side has no value above zero.

    Below 3 runs on a side, the noise of other runs stands in if it is known; with one run nothing is concluded.
    """
    ours, theirs = ([run for run in side if run.value > 0] for side in (candidate, baseline))
    if not ours or not theirs:
        return None
    if min(len(ours), len(theirs)) >= ENOUGH_RUNS:
        return _compare_measured(ours, theirs, margin)
    estimate = _compare_modelled(ours, theirs, margin, noise)
    return estimate or _describe_within_run(ours, theirs, margin, noise)


def subtract_runs(candidate: Sequence[float], baseline: Sequence[float]) -> Difference:
    """The difference of two groups of runs, with Welch's interval where each has 3; a part may take no time at all.

    What is nothing in every run is nothing, and certainly so; other values that are all equal show no noise.
    """
    sides = [np.array(side, dtype=np.float64) for side in (candidate, baseline)]
    found = float(sides[0].mean() - sides[1].mean())
    if min(len(side) for side in sides) < ENOUGH_RUNS:
        return Difference(found)
    if not any(side.any() for side in sides):
        return Difference(0.0, 0.0, 0.0, 0.0)
    _, error, degrees = _find_welch_error(*sides)
    if error <= 0:
        return Difference(found)
    half = float(scipy.special.stdtrit(degrees, 1 - LEVEL / 2)) * error
    return Difference(found, found - half, found + half, _pool_deviation(sides))


def judge(ratio: float, p_value: float, equivalence_p_value: float) -> str:
    """Name what two tests show; a difference that is shown but lies within the margin is no difference that matters."""
    if equivalence_p_value < LEVEL:
        return "no_difference"
    if p_value < LEVEL:
        return "slower" if ratio > 1 else "faster"
    return "not_shown"


def withhold(estimate: Estimate, reason: str) -> Estimate:
    """The same ratio and interval without a conclusion, which no number of repeats would give."""
    return replace(
        estimate,
        verdict_class="inconclusive",
        reason=reason,
        p_value=None,
        equivalence_p_value=None,
        detectable_fraction=None,
        more_runs_count=None,
    )


def control_false_discoveries(p_values: Sequence[float | None]) -> list[float | None]:
    """Adjust the p values of questions that are asked together (Benjamini-Hochberg); None stays None."""
    known = np.array([value for value in p_values if value is not None], dtype=float)
    order = np.argsort(known)
    # The least of a p value's own bound and of those of all larger ones. Not by scipy.stats, which takes as long to
    # import as a small run takes to measure.
    bounds = known[order] * len(known) / np.arange(1, len(known) + 1)
    adjusted = np.empty_like(known)
    adjusted[order] = np.minimum.accumulate(bounds[::-1])[::-1]
    values = iter(adjusted.clip(max=1).tolist())
    return [None if value is None else next(values) for value in p_values]


def judge_together(estimates: Sequence[Estimate | None]) -> list[tuple[Estimate | None, float | None]]:
    """Judge questions that are asked together by adjusted p values; gives each estimate with its q value."""
    q_values = control_false_discoveries([None if one is None else one.p_value for one in estimates])
    alike = control_false_discoveries([None if one is None else one.equivalence_p_value for one in estimates])
    judged: list[tuple[Estimate | None, float | None]] = []
    for estimate, q_value, equivalence in zip(estimates, q_values, alike, strict=True):
        if estimate is None or q_value is None or equivalence is None:
            judged.append((estimate, q_value))
        else:
            verdict = judge(estimate.ratio, q_value, equivalence)
            judged.append((replace(estimate, verdict_class=verdict, equivalence_p_value=equivalence), q_value))
    return judged


def pool_noise(groups: Iterable[Sequence[RunValue]]) -> Noise | None:
    """The noise of repeats over all groups of them: each group differs from its own mean only."""
    squares, degrees, errors = 0.0, 0, list[float | None]()
    for group in groups:
        logs = _take_logs([run for run in group if run.value > 0])
        if len(logs) > 1:
            squares += float(np.square(logs - logs.mean()).sum())
            degrees += len(logs) - 1
            errors += [run.log_standard_error for run in group if run.value > 0]
    if not degrees or squares <= 0:
        return None
    # Scatter inside runs is taken out only where it is known of all of them.
    known = [error**2 for error in errors if error is not None]
    within = float(np.mean(known)) if known and len(known) == len(errors) else 0.0
    return Noise(math.sqrt(squares / degrees), degrees, len(errors), min(within, squares / degrees))


def _compare_measured(ours: Sequence[RunValue], theirs: Sequence[RunValue], margin: float) -> Estimate:
    logs = [_take_logs(side) for side in (ours, theirs)]
    log_ratio, error, degrees = _find_welch_error(*logs)
    if error <= 0:
        return Estimate(math.exp(log_ratio), "inconclusive", reason=NO_NOISE)
    shift = _find_shift(ours, theirs)
    estimate = _estimate(log_ratio, error, degrees, margin, shift)
    smallest = min(len(side) for side in logs)
    deviation = _pool_deviation(logs)
    return replace(
        estimate,
        interval_over="runs",
        run_noise_fraction=math.expm1(deviation),
        noise_runs_count=sum(map(len, logs)),
        detectable_fraction=_find_detectable(
            find_detectable_effect(len(logs[0]), len(logs[1])), error, degrees, margin, shift
        ),
        more_runs_count=_count_more(estimate.verdict_class, log_ratio, deviation, margin, smallest, shift),
    )


def _compare_modelled(
    ours: Sequence[RunValue], theirs: Sequence[RunValue], margin: float, noise: Noise | None
) -> Estimate | None:
    """Take the noise of other runs; None where too little of it is known, or where a run has too few steps."""
    errors = [run.log_standard_error for side in (ours, theirs) for run in side]
    known = [error for error in errors if error is not None]
    if noise is None or noise.degrees < ENOUGH_DEGREES or len(known) < len(errors):
        return None
    logs = [_take_logs(side) for side in (ours, theirs)]
    log_ratio = float(logs[0].mean() - logs[1].mean())
    own, degrees = _pool_deviation(logs) ** 2, sum(len(side) - 1 for side in logs)
    if degrees and own > noise.log_deviation**2 * float(scipy.special.fdtri(degrees, noise.degrees, 1 - LEVEL)):
        return None  # this pair is noisier than those repeats: nothing is borrowed
    variances = [
        float(np.mean([noise.find_variance(run.log_standard_error or 0.0) for run in side])) for side in (ours, theirs)
    ]
    error = math.sqrt(sum(variance / len(side) for variance, side in zip(variances, logs, strict=True)))
    shift = _find_shift(ours, theirs)
    estimate = _estimate(log_ratio, error, noise.degrees, margin, shift)
    smallest = min(len(side) for side in logs)
    if smallest < ENOUGH_MODELLED_RUNS:
        estimate = replace(estimate, verdict_class="inconclusive", p_value=None, equivalence_p_value=None)
    deviation = math.sqrt(sum(variances) / 2)
    return replace(
        estimate,
        interval_over="modelled",
        is_modelled=True,
        run_noise_fraction=math.expm1(deviation),
        noise_runs_count=noise.runs_count,
        detectable_fraction=_find_detectable(
            find_detectable_effect_of_known_noise(noise.degrees), error, noise.degrees, margin, shift
        )
        if smallest >= ENOUGH_MODELLED_RUNS
        else None,
        more_runs_count=_count_more(estimate.verdict_class, log_ratio, deviation, margin, smallest, shift),
    )


def _describe_within_run(
    ours: Sequence[RunValue], theirs: Sequence[RunValue], margin: float, noise: Noise | None
) -> Estimate:
    """The ratio, and the scatter inside the runs where it is known: that is no conclusion."""
    log_ratio = float(_take_logs(ours).mean() - _take_logs(theirs).mean())
    smallest = min(len(ours), len(theirs))
    more: int | None = ENOUGH_RUNS - smallest
    shift = _find_shift(ours, theirs)
    if noise is not None:
        more = _count_more("inconclusive", log_ratio, noise.log_deviation, margin, smallest, shift)
    estimate = Estimate(
        math.exp(log_ratio),
        "inconclusive",
        run_noise_fraction=None if noise is None else math.expm1(noise.log_deviation),
        noise_runs_count=None if noise is None else noise.runs_count,
        more_runs_count=more,
    )
    parts, degrees = [], []
    for side in (ours, theirs):
        for run in side:
            if run.log_standard_error is None or run.effective_steps_count is None or run.effective_steps_count <= 1:
                return estimate
            parts.append((run.log_standard_error / len(side)) ** 2)
            degrees.append(run.effective_steps_count - 1)
    if sum(parts) <= 0:
        return estimate
    freedom = sum(parts) ** 2 / sum(part**2 / free for part, free in zip(parts, degrees, strict=True))
    half = float(scipy.special.stdtrit(freedom, 1 - LEVEL / 2)) * math.sqrt(sum(parts)) + shift
    return replace(
        estimate, low=math.exp(log_ratio - half), high=math.exp(log_ratio + half), interval_over="within_run"
    )


def _find_shift(ours: Sequence[RunValue], theirs: Sequence[RunValue]) -> float:
    """How far rounding may shift the log ratio: both sides by as much as their coarsest run, and apart."""
    return sum(math.log1p(max(run.rounding_fraction for run in side)) for side in (ours, theirs))


def _estimate(log_ratio: float, error: float, degrees: float, margin: float, shift: float) -> Estimate:
    """The interval and the two tests of a log ratio with its standard error, wherever rounding may have shifted it."""
    half = float(scipy.special.stdtrit(degrees, 1 - LEVEL / 2)) * error + shift
    p_value = min(1.0, float(2 * scipy.special.stdtr(degrees, (shift - abs(log_ratio)) / error)))
    least = math.log1p(margin) - abs(log_ratio) - shift
    equivalence = float(scipy.special.stdtr(degrees, -least / error))
    ratio = math.exp(log_ratio)
    return Estimate(
        ratio,
        judge(ratio, p_value, equivalence),
        low=math.exp(log_ratio - half),
        high=math.exp(log_ratio + half),
        p_value=p_value,
        equivalence_p_value=equivalence,
    )


def _find_detectable(effect: float, error: float, degrees: float, margin: float, shift: float) -> float:
    """The smallest true difference that is called one four times out of five: found, and not within the margin."""
    beyond = math.log1p(margin) - error * float(
        scipy.special.stdtrit(degrees, 1 - LEVEL) - scipy.special.stdtrit(degrees, POWER)
    )
    return math.expm1(max(effect * error, beyond) + 2 * shift)


def _count_more(
    verdict_class: str, log_ratio: float, deviation: float, margin: float, smallest: int, shift: float
) -> int | None:
    """Runs per side that are still missing; at least one where the runs at hand have not settled it."""
    if verdict_class not in {"not_shown", "inconclusive"}:
        return 0
    needed = count_runs_needed(log_ratio, deviation, math.log1p(margin), shift)
    return None if needed is None else max(1, needed - smallest)


def _find_welch_error(ours: _Values, theirs: _Values) -> tuple[float, float, float]:
    """The difference of two means, its standard error, and the degrees of freedom of that; no noise is no error."""
    parts = [float(side.var(ddof=1)) / len(side) for side in (ours, theirs)]
    difference = float(ours.mean() - theirs.mean())
    if sum(parts) <= 0:
        return difference, 0.0, 0.0
    sides = zip(parts, (ours, theirs), strict=True)
    degrees = sum(parts) ** 2 / sum(part**2 / (len(side) - 1) for part, side in sides)
    return difference, math.sqrt(sum(parts)), degrees


def _pool_deviation(sides: Sequence[_Values]) -> float:
    degrees = sum(len(side) - 1 for side in sides)
    squares = sum(float(np.square(side - side.mean()).sum()) for side in sides)
    return math.sqrt(squares / degrees) if degrees else 0.0


def _take_logs(runs: Sequence[RunValue]) -> _Values:
    return np.log(np.array([run.value for run in runs], dtype=np.float64))
