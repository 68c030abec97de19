"""Percentiles that were observed: exact, and the same on every engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw

from lake.frames import Frame, numbered

if TYPE_CHECKING:
    from collections.abc import Sequence

PERCENTILES = (50, 95, 99)


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


def _is_rank(percent: int) -> nw.Expr:
    """Whether a row is at the nearest rank of that percentile."""
    reached, wanted = nw.col("_place") * 100, nw.col("_all") * percent
    return (reached >= wanted) & (reached < wanted + 100)
