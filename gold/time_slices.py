"""Equal slices of each rank's time, for what is followed over the time of a trace."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, divide_down

# The time of a rank is cut into so many slices at most, whatever it recorded.
SLICES = 100
_RANK = ("run_id", "rank")


def bound_slices(rows: Frame, first: str, last: str) -> Frame:
    """Per rank the least of one column and the most of another, and how long a slice between them is."""
    bounds = rows.group_by(*_RANK).agg(_first_ns=nw.col(first).min(), _last_ns=nw.col(last).max())
    length = nw.col("_last_ns") - nw.col("_first_ns")
    return bounds.with_columns(_width_ns=divide_down(length, nw.lit(SLICES).cast(nw.Int64)) + 1)
