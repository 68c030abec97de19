"""Cycles of a series of steps, and how well its mean is known: gradient accumulation, autocorrelation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import fsum, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from gold.step_series import Series

    Values = np.ndarray[Any, np.dtype[np.float64]]

# No cycle is looked for that is longer, and no lag of the autocorrelation.
LONGEST_CYCLE = 1024
LONGEST_LAG = 1000
FEWEST_CYCLES = 8
# Neighbours that are more alike than this are a drift, which no correction sets right.
MOST_ALIKE = 0.9


@dataclass(frozen=True)
class Scatter:
    """How well the mean of a series is known, from the series alone."""

    effective_count: int | None
    log_standard_error: float | None
    reason: str | None


def find_cycle(series: Series) -> int | None:
    """The number of steps after which the pattern of collectives repeats; none where it never does."""
    flags = np.array(series.has_collective, dtype=bool)
    if not len(flags) or flags.all() or not flags.any():
        return 1
    parts = [flags[begin:end] for begin, end in _bounds(series)]
    longest = max(len(part) for part in parts)
    for cycle in range(2, min(longest // 2, LONGEST_CYCLE) + 1):
        if all(bool((part[cycle:] == part[:-cycle]).all()) for part in parts):
            return cycle
    return None


def mean_step(series: Series) -> int:
    """The mean step over whole cycles, rounded down."""
    kept = keep_whole_cycles(series, find_cycle(series))
    return sum(kept.values) // sum(kept.weights)


def keep_whole_cycles(series: Series, cycle: int | None) -> Series:
    """The series without the steps at the end of each unbroken part that fill no cycle."""
    if cycle is None or cycle == 1:
        return series
    kept = [place for begin, end in _bounds(series) for place in range(begin, begin + (end - begin) // cycle * cycle)]
    return replace(
        series,
        values=[series.values[place] for place in kept],
        weights=[series.weights[place] for place in kept],
        has_collective=[series.has_collective[place] for place in kept],
        numbers=[series.numbers[place] for place in kept],
        starts_part=[series.starts_part[place] for place in kept],
    )


def measure_scatter(series: Series, cycle: int) -> Scatter:
    """The standard error of the logarithm of the mean, by the scatter of whole cycles and how alike neighbours are."""
    count = len(series.values) // cycle
    if count < FEWEST_CYCLES:
        what = "steps" if cycle == 1 else "whole cycles"
        return Scatter(None, None, f"fewer than {FEWEST_CYCLES} {what} have no standard error")
    totals = np.array(
        [
            float(sum(series.values[at : at + cycle])) / sum(series.weights[at : at + cycle])
            for at in range(0, count * cycle, cycle)
        ]
    )
    mean = fsum(totals) / count
    if not mean:
        return Scatter(None, None, "the steps have no length")
    relative = totals / mean - 1
    worth = _count_alike(relative)
    effective = count / worth
    # Alike neighbours also scatter less around their own mean than around the true one: hence the divisor.
    variance = fsum(relative * relative) / (count - worth)
    return Scatter(int(effective * cycle), sqrt(variance / effective), None)


def _count_alike(values: Values) -> float:
    """How many neighbours are worth one: by their autocorrelations, and by the first of them, corrected for its bias.

    The first is Geyer's initial sequence, good for long series of any kind; the second is that of a process whose
    autocorrelations fall off evenly, which short series need because theirs come out too small. The larger counts.
    """
    count, power = len(values), _correlate(values, 0)
    if not power:
        return 1.0
    # Pairs of lags, the first of which begins with lag 0, as long as they are positive, no pair above the one before.
    found, least = -1.0, 2.0
    for lag in range(0, min(count // 2, LONGEST_LAG), 2):
        pair = (_correlate(values, lag) + _correlate(values, lag + 1)) / power
        if pair <= 0:
            break
        least = min(least, pair)
        found += 2 * least
    first = (count * _correlate(values, 1) / power + 1) / (count - 3)
    first = min(max(first, 0.0), MOST_ALIKE)
    return min(max(found, (1 + first) / (1 - first)), count / 2)


def _correlate(values: Values, lag: int) -> float:
    return float(np.add.reduce(values[lag:] * values[: len(values) - lag]))


def _bounds(series: Series) -> list[tuple[int, int]]:
    """Where each unbroken part of a series begins and ends."""
    begins = [place for place, is_start in enumerate(series.starts_part) if is_start or place == 0]
    return list(pairwise([*begins, len(series.values)]))
