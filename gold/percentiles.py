"""Percentiles that were observed: exact, and the same on every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw

from lake.frames import Frame, numbered

if TYPE_CHECKING:
    from collections.abc import Sequence

PERCENTILES = (50, 95, 99)
# The square of the normal quantile of 98.75 %, in hundredths: between two ranks so far from the middle the median lies
# with 97.5 %, so that the ratio of two such medians lies between the ratios of their bounds with 95 %.
_FAR = 503


def percentiles(rows: Frame, keys: Sequence[str], value: str, prefix: str = "") -> Frame:
    """One row per key with `<prefix>p50_ns` and the like: the observed value at rank ceil(q * n), nulls left out.

    No value between two observed ones is ever made up, and nothing is divided: rank k is the one for which
    k * 100 >= n * p > (k - 1) * 100. Which of two equal values comes first makes no difference to it.
    """
    known = rows.filter(~nw.col(value).is_null())
    placed = numbered(known, "_place", keys, value).with_columns(_all=nw.col(value).count().over(*keys).cast(nw.Int64))
    names = {percent: f"{prefix}p{percent}_ns" for percent in PERCENTILES}
    placed = placed.with_columns(
        **{name: nw.when(_is_rank(percent)).then(nw.col(value)) for percent, name in names.items()}
    )
    return placed.group_by(*keys).agg(*(nw.col(name).max() for name in names.values()))


def medians(rows: Frame, keys: Sequence[str], value: str) -> Frame:
    """One row per key: count, sum, the observed median, and observed bounds between which the true one lies.

    The bounds are order statistics, so they hold whatever the distribution: ranks r and n + 1 - r with (n - 2r)^2 >=
    5.03 n. Below 9 values there are none.
    """
    placed = numbered(rows, "_place", keys, value).with_columns(_all=nw.col(value).count().over(*keys).cast(nw.Int64))
    mirrored = nw.col("_all") + 1 - nw.col("_place")
    placed = placed.with_columns(
        median_ns=nw.when(_is_rank(50)).then(nw.col(value)),
        median_low_ns=nw.when(_is_bound(nw.col("_place"))).then(nw.col(value)),
        median_high_ns=nw.when(_is_bound(mirrored)).then(nw.col(value)),
    )
    return placed.group_by(*keys).agg(
        operations_count=nw.len().cast(nw.Int64),
        total_ns=nw.col(value).sum().cast(nw.Int64),
        median_ns=nw.col("median_ns").max(),
        median_low_ns=nw.col("median_low_ns").max(),
        median_high_ns=nw.col("median_high_ns").max(),
    )


def _is_bound(rank: nw.Expr) -> nw.Expr:
    """Whether a rank is the last one that lies far enough below the middle."""
    off, least = nw.col("_all") - rank * 2, nw.col("_all") * _FAR
    is_last = (off < 2) | ((off - 2) * (off - 2) * 100 < least)
    return (off >= 0) & (off * off * 100 >= least) & is_last


def _is_rank(percent: int) -> nw.Expr:
    """Whether a row is at the nearest rank of that percentile."""
    reached, wanted = nw.col("_place") * 100, nw.col("_all") * percent
    return (reached >= wanted) & (reached < wanted + 100)
