"""Where the level of a series changed: seeded binary segmentation of ranks, tested by permutation.

Seeded binary segmentation (Kovács, Bühlmann, Li and Munk, Biometrika 110, 2023) looks for the clearest change in many
intervals of the series, long and short, so that a change that was taken back later is found as well. The values are
their ranks, so that one slow night is no change, and the test permutes them, as E-divisive does (Matteson and James,
JASA 109, 2014): it asks nothing of the noise but that its order carries no information.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import scipy

from gold.power import ENOUGH_RUNS, LEVEL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    Values = np.ndarray[tuple[int], np.dtype[np.float64]]
    Rows = np.ndarray[tuple[int, int], np.dtype[np.float64]]

# Fewer values on a side say nothing of their own scatter.
FEWEST_AFTER = ENOUGH_RUNS
# The shortest series whose clearest change is beyond chance at that level; a test computes it.
FEWEST_VALUES = 8
_PERMUTATIONS = 1999
# The same series gets the same answer, always.
_SEED = 20261117
# Each layer of intervals is so much shorter than the last.
_SHORTER = math.sqrt(2)
# Two sums of ranks that differ by less are the same.
_TINY = 1e-9


@dataclass(frozen=True)
class ChangePoint:
    """A change: the place of the first value after it, and the chance of so clear a one where nothing changed."""

    place: int
    p_value: float


def find_change_points(values: Sequence[float], level: float = LEVEL) -> list[ChangePoint]:
    """Find the clearest change, and where chance explains it no better than `level`, search both sides of it.

    Where nothing changed at all, the chance of any change point is `level`, whatever the noise.
    """
    return _search(np.array(values, dtype=np.float64), 0, level)


def _search(values: Values, begin: int, level: float) -> list[ChangePoint]:
    if len(values) < FEWEST_VALUES or not np.ptp(values):
        return []
    ranks = scipy.stats.rankdata(values)
    place, clearest = 0, -1.0
    for first, found in _scan(ranks[np.newaxis, :]):
        at = int(found[0].argmax())
        # Of two that are equally clear, the one in the longer interval stays.
        if found[0, at] > clearest + _TINY:
            place, clearest = first + at, float(found[0, at])
    chances = _permute(tuple(sorted(ranks.tolist())))
    p_value = (1 + int((chances >= clearest - _TINY).sum())) / (_PERMUTATIONS + 1)
    if p_value > level:
        return []
    return [
        *_search(values[:place], begin, level),
        ChangePoint(begin + place, p_value),
        *_search(values[place:], begin + place, level),
    ]


@lru_cache(maxsize=64)
def _permute(ranks: tuple[float, ...]) -> Values:
    """The clearest change of each of many permutations of these ranks: without ties, the same for every series."""
    rows = np.random.default_rng(_SEED).permuted(np.tile(np.array(ranks), (_PERMUTATIONS, 1)), axis=1)
    largest = np.zeros(_PERMUTATIONS)
    for _, found in _scan(rows):
        np.maximum(largest, found.max(axis=1), out=largest)
    return largest


def _scan(ranks: Rows) -> Iterator[tuple[int, Rows]]:
    """Of each interval its first place of a change, and how clear a change at each of its places is, in every row."""
    sums = np.concatenate((np.zeros((len(ranks), 1)), ranks.cumsum(axis=1)), axis=1)
    for begin, end in _list_intervals(ranks.shape[1]):
        places = np.arange(begin + FEWEST_AFTER, end - FEWEST_AFTER + 1)
        before, count = places - begin, end - begin
        whole = sums[:, end : end + 1] - sums[:, begin : begin + 1]
        apart = np.abs(sums[:, places] - sums[:, begin : begin + 1] - whole * before / count)
        yield int(places[0]), apart / np.sqrt(before * (count - before) / count)


def _list_intervals(count: int) -> list[tuple[int, int]]:
    """The whole series, then layers of shorter and shorter intervals that overlap by half, the longest first."""
    found = {(0, count): None}
    length = count / _SHORTER
    while length >= 2 * FEWEST_AFTER:
        number = 2 * math.ceil(count / length) - 1
        begins = [place * (count - length) / (number - 1) for place in range(number)]
        found |= dict.fromkeys((math.floor(begin), min(count, math.ceil(begin + length))) for begin in begins)
        length /= _SHORTER
    return list(found)
