"""One step as intervals per rank: each moment is charged to one part, as gold.time_breakdown charges it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gold.time_breakdown import KINDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = dict[str, Any]

# As wide as the picture that is drawn of it.
PIXELS = 720
_IDLE = "idle"
STEP_COLUMNS = ("run_id", "rank", "step_number", "ts_ns", "duration_ns", "is_warmup", "is_aligned")


def choose_step(steps: Sequence[Row]) -> int | None:
    """The step whose longest rank is the median of all, warm-up aside; None where there is none."""
    longest: dict[int, int] = {}
    for row in steps:
        if not row["is_warmup"]:
            longest[row["step_number"]] = max(longest.get(row["step_number"], 0), row["duration_ns"])
    ordered = sorted(longest, key=lambda number: (longest[number], number))
    return ordered[len(ordered) // 2] if ordered else None


def merge_to_pixels(steps: Sequence[Row], segments: Sequence[Row]) -> list[Row]:
    """The intervals of one step, from the start of the first rank on; a pixel is charged to what took most of it.

    `steps` are the rows of that step, one per rank, and `segments` those of `time_breakdown.cut_parts`, on one clock.
    """
    begin = min(row["ts_ns"] for row in steps)
    end = max(row["ts_ns"] + row["duration_ns"] for row in steps)
    found = []
    for row in sorted(steps, key=lambda one: one["rank"]):
        own = [one for one in segments if one["rank"] == row["rank"]]
        found += _merge_rank(row, own, begin, max(1, end - begin))
    return found


def _merge_rank(step: Row, segments: Sequence[Row], begin: int, length: int) -> list[Row]:
    names = (*KINDS, _IDLE)
    taken = np.zeros((len(names), PIXELS))
    edges = begin + np.arange(PIXELS + 1) * (length / PIXELS)
    low, high = step["ts_ns"], step["ts_ns"] + step["duration_ns"]
    for one in segments:
        first, last = max(one["begin_ns"], low), min(one["end_ns"], high)
        if last > first:
            taken[names.index(one["part"])] += np.clip(
                np.minimum(edges[1:], last) - np.maximum(edges[:-1], first), 0, None
            )
    inside = np.clip(np.minimum(edges[1:], high) - np.maximum(edges[:-1], low), 0, None)
    taken[-1] = inside - taken[:-1].sum(axis=0)
    winner = np.where(inside > 0, taken.argmax(axis=0), -1)
    cuts = [0, *(np.flatnonzero(np.diff(winner)) + 1).tolist(), PIXELS]
    return [
        {
            "run_id": step["run_id"],
            "rank": step["rank"],
            "step_number": step["step_number"],
            "is_aligned": step["is_aligned"],
            "part": names[winner[left]],
            "begin_ns": round(max(edges[left], low) - begin),
            "end_ns": round(min(edges[right], high) - begin),
        }
        for left, right in pairwise(cuts)
        if winner[left] >= 0
    ]
