"""A sweep over time: which classes of intervals are running at each moment, exact and without an interval join."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw

from lake.frames import add_latest_end, to_expr

if TYPE_CHECKING:
    from lake.frames import Frame, Moment

_INT = nw.Int64
CLASSES_AT_MOST = 16
_ORDER = ["_at_ns", "_class", "_tie"]


def merge_intervals(spans: Frame) -> Frame:
    """The intervals of each rank and class (column `_class`, whole numbers from 0) as disjoint ones, in order."""
    # Intervals that begin and end alike are alike here: nothing else need tell them apart.
    keys, order = ["run_id", "rank", "_class"], ["ts_ns", "_end_ns"]
    spans = add_latest_end(spans.with_columns(_end_ns=nw.col("ts_ns") + nw.col("duration_ns")), keys, order)
    begun = nw.max_horizontal(nw.col("ts_ns"), nw.col("_before_ns"))
    disjoint = spans.with_columns(_start_ns=begun).filter(nw.col("_end_ns") > nw.col("_start_ns"))
    return disjoint.select(*keys, "_start_ns", "_end_ns")


def clip_to_slice(rows: Frame, low_ns: Moment, high_ns: Moment) -> Frame:
    """What of each interval lies within a slice of time: sums over slices are sums over the whole."""
    end = nw.min_horizontal(nw.col("ts_ns") + nw.col("duration_ns"), to_expr(high_ns))
    start = nw.max_horizontal(nw.col("ts_ns"), to_expr(low_ns))
    return rows.with_columns(ts_ns=start, duration_ns=end - start).filter(nw.col("duration_ns") > 0)


def cut_segments(intervals: Frame) -> Frame:
    """Cut each rank's time where anything begins or ends; `_mask` has bit k set while class k runs."""
    bit = nw.lit(0).cast(_INT)
    for index in range(CLASSES_AT_MOST):
        bit = nw.when(nw.col("_class") == index).then(nw.lit(1 << index).cast(_INT)).otherwise(bit)
    columns = ["run_id", "rank", "_class", "_at_ns", "_tie", "_change"]
    one = nw.lit(1).cast(_INT)
    begun = intervals.with_columns(_at_ns=nw.col("_start_ns"), _tie=one, _change=bit)
    ended = intervals.with_columns(_at_ns=nw.col("_end_ns"), _tie=one - 1, _change=bit * -1)
    found = nw.concat([begun.select(columns), ended.select(columns)])
    keys = ["run_id", "rank"]
    found = found.with_columns(
        _mask=nw.col("_change").cum_sum().over(*keys, order_by=_ORDER).cast(_INT),
        _next_ns=nw.col("_at_ns").shift(-1).over(*keys, order_by=_ORDER),
    )
    length = (nw.col("_next_ns") - nw.col("_at_ns")).fill_null(0)
    return found.with_columns(_length_ns=length).drop("_next_ns", "_change")


def is_running(*classes: int) -> nw.Expr:
    """Whether at least one of these classes runs during a segment."""
    found = nw.lit(False)
    for index in classes:
        found |= (nw.col("_mask") // (1 << index)) % 2 == 1
    return found
