"""Whether a step of both sides does the same work, as their logs say: a longer step of more samples is no cost."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gold.comparison import find_middle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gold.comparison import Sides

    Rows = Sequence[dict[str, Any]]

# Rates are rounded and often smoothed: what they make of a step tells other work apart, not a little more of it.
_TELLING_RATIO = 1.25
# Where the logs also say that batch sizes differ, less will do.
_HINTED_RATIO = 1.05


def describe_other_work(timed: Sides, period: str | None, ratio: float) -> str | None:
    """Say how much more a period of one side does, and what of a ratio is left per sample; None where it does not.

    `timed` are rows of gold.step_times; of those the logs' are asked.
    """
    sides = [
        [row for rows in side for row in rows if row["source"] == "log" and row["period"] == period and row["step_ns"]]
        for side in (timed.candidate, timed.baseline)
    ]
    stated = [_find_one_size(rows) for rows in sides]
    has_other_size = None not in stated and stated[0] != stated[1]
    for name, noun in (("samples_per_step", "sample"), ("tokens_per_step", "token")):
        ours, theirs = (_find_mean(rows, name) for rows in sides)
        if ours is not None and theirs is not None:
            least = _HINTED_RATIO if has_other_size else _TELLING_RATIO
            is_other = abs(math.log(ours / theirs)) > math.log(least)
            return _describe(period, ours, theirs, noun, ratio) if is_other else None
    ours, theirs = stated
    if has_other_size and ours is not None and theirs is not None:
        return _describe(period, ours, theirs, "sample", ratio)
    return None


def _find_one_size(rows: Rows) -> int | None:
    """The batch size that all runs of a side say; None where they say none or several."""
    sizes = {row["batch_size"] for row in rows}
    return sizes.pop() if len(sizes) == 1 else None


def _find_mean(rows: Rows, name: str) -> float | None:
    """The geometric mean over the runs of a side; None where one of them does not say it."""
    values = [row[name] for row in rows]
    return find_middle(values) if values and all(values) else None


def _describe(period: str | None, ours: float, theirs: float, noun: str, ratio: float) -> str:
    return (
        f"the logs say that a {period} of the run is of {ours:,.4g} {noun}s and one of its baseline of {theirs:,.4g}, "
        f"which makes {ratio * theirs / ours:.2f}x per {noun}"
    )
