"""Percentiles that were observed: exact, and the same on every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake.frames import Frame

PERCENTILES = (50, 95, 99)
# The square of the normal quantile of 98.75 %, in hundredths: between two ranks so far from the middle the median lies
# with 97.5 %, so that the ratio of two such medians lies between the ratios of their bounds with 95 %.
_FAR = 503


def find_percentiles(rows: Frame, keys: Sequence[str], value: str, prefix: str = "") -> Frame:
    """One row per key with `<prefix>p50_ns` and the like: the observed value at rank ceil(q * n), nulls left out.

    No value between two observed ones is ever made up, and nothing is divided: rank k is the one for which
    k * 100 >= n * p > (k - 1) * 100.
    """
    placed = _rank_values(count_values(rows.filter(~nw.col(value).is_null()), keys, value), keys, value)
    names = {percent: f"{prefix}p{percent}_ns" for percent in PERCENTILES}
    placed = placed.with_columns(
        **{name: nw.when(_has_rank(percent)).then(nw.col(value)) for percent, name in names.items()}
    )
    return placed.group_by(*keys).agg(*(nw.col(name).max() for name in names.values()))


def count_values(rows: Frame, keys: Sequence[str], value: str, sums: Sequence[str] = ()) -> Frame:
    """The distinct values of each key and how often each was seen (`_count`): what is left of rows to rank them.

    Durations repeat: there are far fewer of these to hold and to sort than there are rows. Counts of several slices on
    top of each other are counted again by those who rank them.
    """
    return _add_sums(rows.with_columns(_count=nw.lit(1).cast(nw.Int64)), keys, value, sums)


def find_medians(rows: Frame, keys: Sequence[str], value: str, sums: Sequence[str] = ()) -> Frame:
    """One row per key: count, sum, the observed median, and observed bounds between which the true one lies.

    The bounds are order statistics, so they hold whatever the distribution: ranks r and n + 1 - r with (n - 2r)^2 >=
    5.03 n. Below 9 values there are none. Columns named in `sums` are added up beside. Rows are `counted` ones.
    """
    placed = _rank_values(_add_sums(rows, keys, value, sums), keys, value)
    last, mirrored = nw.col("_upto"), nw.col("_all") + 1 - nw.col("_upto")
    first = last - nw.col("_count") + 1
    # Ranks that lie far enough below the middle are those up to r: a value has r if it has one of them and the next.
    has_low = _is_far(first) & ~_is_far(last + 1)
    has_high = _is_far(mirrored) & ~_is_far(mirrored + nw.col("_count"))
    placed = placed.with_columns(
        _total=nw.col(value) * nw.col("_count"),
        median_ns=nw.when(_has_rank(50)).then(nw.col(value)),
        median_low_ns=nw.when(has_low).then(nw.col(value)),
        median_high_ns=nw.when(has_high).then(nw.col(value)),
    )
    return placed.group_by(*keys).agg(
        *(nw.col(name).sum().cast(nw.Int64) for name in sums),
        operations_count=nw.col("_count").sum().cast(nw.Int64),
        total_ns=nw.col("_total").sum().cast(nw.Int64),
        median_ns=nw.col("median_ns").max(),
        median_low_ns=nw.col("median_low_ns").max(),
        median_high_ns=nw.col("median_high_ns").max(),
    )


def _add_sums(rows: Frame, keys: Sequence[str], value: str, sums: Sequence[str]) -> Frame:
    return rows.group_by(*keys, value).agg(*(nw.col(name).sum().cast(nw.Int64) for name in (*sums, "_count")))


def _rank_values(values: Frame, keys: Sequence[str], value: str) -> Frame:
    """Give each distinct value the rank of its last (`_upto`), and the count of all."""
    return values.with_columns(
        _upto=nw.col("_count").cum_sum().over(*keys, order_by=value).cast(nw.Int64),
        _all=nw.col("_count").sum().over(*keys).cast(nw.Int64),
    )


def _is_far(rank: nw.Expr) -> nw.Expr:
    """Whether a rank lies far enough below the middle to bound the median."""
    off = nw.col("_all") - rank * 2
    return (off >= 0) & (off * off * 100 >= nw.col("_all") * _FAR)


def _has_rank(percent: int) -> nw.Expr:
    """Whether a value is the one at the nearest rank of that percentile."""
    wanted = nw.col("_all") * percent
    return (nw.col("_upto") * 100 >= wanted) & ((nw.col("_upto") - nw.col("_count")) * 100 < wanted)
