"""What several answers share and every engine computes alike: percentiles, means, fractions, flags and reasons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw

from lake.frames import Frame

if TYPE_CHECKING:
    from collections.abc import Sequence

PERCENTILES = (50, 95, 99)


def percentiles(rows: Frame, keys: Sequence[str], value: str, prefix: str = "") -> Frame:
    """One row per key with `<prefix>p50_ns` and the like: the observed value at rank ceil(q * n), nulls left out.

    No value between two observed ones is ever made up, and nothing is divided: rank k is the one for which
    k * 100 >= n * p > (k - 1) * 100. Which of two equal values comes first makes no difference to it.
    """
    known = rows.filter(~nw.col(value).is_null()).with_columns(_one=nw.lit(1).cast(nw.Int64))
    placed = known.with_columns(
        _place=nw.col("_one").cum_sum().over(*keys, order_by=value).cast(nw.Int64),
        _all=nw.col("_one").sum().over(*keys).cast(nw.Int64),
    )
    names = {percent: f"{prefix}p{percent}_ns" for percent in PERCENTILES}
    placed = placed.with_columns(
        **{name: nw.when(_is_rank(percent)).then(nw.col(value)) for percent, name in names.items()}
    )
    return placed.group_by(*keys).agg(*(nw.col(name).max() for name in names.values()))


def _is_rank(percent: int) -> nw.Expr:
    """Whether a row is at the nearest rank of that percentile."""
    reached, wanted = nw.col("_place") * 100, nw.col("_all") * percent
    return (reached >= wanted) & (reached < wanted + 100)


def fraction(part: nw.Expr, whole: nw.Expr) -> nw.Expr:
    """Part of a whole as a number from 0 to 1; null where the whole is nothing."""
    is_some = whole > 0
    # Engines differ on division by zero: there is none, whichever branch is taken.
    divisor = nw.when(is_some).then(whole).otherwise(nw.lit(1).cast(nw.Int64))
    return nw.when(is_some).then(part.cast(nw.Float64) / divisor.cast(nw.Float64))


def flag(condition: nw.Expr) -> nw.Expr:
    """1 where it holds, else 0: to be summed."""
    return nw.when(condition).then(nw.lit(1).cast(nw.Int64)).otherwise(nw.lit(0).cast(nw.Int64))


def sentences(*parts: tuple[nw.Expr, str]) -> nw.Expr:
    """All sentences whose condition holds, in their order; null where none does."""
    told = nw.concat_str(
        *(nw.when(condition).then(nw.lit(sentence)) for condition, sentence in parts),
        separator="; ",
        ignore_nulls=True,
    )
    is_any = nw.lit(False)
    for condition, _ in parts:
        is_any |= condition.fill_null(False)
    return nw.when(is_any).then(told)
