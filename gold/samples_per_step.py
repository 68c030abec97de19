"""Whether a step of both sides does the same work, as their logs say: a longer step of more samples is no cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    Rows = Sequence[dict[str, Any]]

# Rates are rounded and often smoothed: what they make of a step tells other work apart, not a little more of it.
_TELLING_RATIO = 1.25
# Where the logs also say that batch sizes differ, less will do.
_HINTED_RATIO = 1.05


def describe_other_work(sides: tuple[Rows, Rows], slowdown_ratio: float) -> str | None:
    """Say how much more a step of one side does, and what is left per sample; None where nothing tells them apart.

    `sides` are rows of gold.step_times that were timed by logs, in one kind of period.
    """
    stated = [_find_common(rows, "batch_size") for rows in sides]
    has_other_size = None not in stated and stated[0] != stated[1]
    for name, noun in (("samples_per_step", "sample"), ("tokens_per_step", "token")):
        found = [_find_common(rows, name) for rows in sides]
        if found[0] is not None and found[1] is not None:
            least = _HINTED_RATIO if has_other_size else _TELLING_RATIO
            is_other = abs(math.log(found[0] / found[1])) > math.log(least)
            return _describe(sides, (found[0], found[1]), noun, slowdown_ratio) if is_other else None
    if has_other_size and stated[0] is not None and stated[1] is not None:
        return _describe(sides, (stated[0], stated[1]), "sample", slowdown_ratio)
    return None


def _find_common(rows: Rows, name: str) -> float | None:
    """The geometric mean over the runs of a side; None where one of them does not say it."""
    values = [row[name] for row in rows]
    if not values or not all(values):
        return None
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def _describe(sides: tuple[Rows, Rows], work: tuple[float, float], noun: str, slowdown_ratio: float) -> str:
    period, (ours, theirs) = sides[0][0]["period"], work
    per_unit = slowdown_ratio * theirs / ours
    return (
        f"the logs say that a {period} of the run is of {ours:,.4g} {noun}s and one of its baseline of {theirs:,.4g}, "
        f"which makes {per_unit:.2f}x per {noun}"
    )
