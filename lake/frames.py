"""What passes between transforms, a lazy frame of any engine, and what every engine computes alike on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import narwhals as nw

from lake.errors import describe_engine_error
from lake.tables import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake.tables import Table

Frame: TypeAlias = nw.LazyFrame[Any]
# A moment that bounds a slice of time: the same for all rows, or a column, so that one plan serves all slices.
Moment: TypeAlias = int | nw.Expr

_KINDS = {
    Kind.TEXT: nw.String(),
    Kind.INT32: nw.Int32(),
    Kind.INT64: nw.Int64(),
    Kind.FLOAT64: nw.Float64(),
    Kind.BOOL: nw.Boolean(),
}


def select_declared(frame: Frame, table: Table) -> Frame:
    """The declared columns in their order, cast back from what engines widen (DuckDB sums 64-bit numbers into 128)."""
    return frame.select(nw.col(column.name).cast(_KINDS[column.kind]) for column in table.columns)


def compute_once(frame: Frame) -> Frame:
    """The same rows, computed once for all that a plan makes of them.

    Polars finds out by itself, but only for the outermost such frame: what is shared below it is computed again for
    each use, and again for each use of that. DuckDB and Spark never find out, and plan all of it again for each use.
    """
    native = frame.to_native()
    return nw.from_native(native.cache()) if nw.dependencies.is_polars_lazyframe(native) else cut_plan(frame)


def cut_plan(frame: Frame) -> Frame:
    """The same rows with no plan behind them, where each further step of a plan costs as much as all before it.

    DuckDB binds, and Spark analyses, the whole of a plan at every step: a long chain takes minutes to plan over a
    handful of rows. Polars plans once, when it runs, and keeps its plan.
    """
    native = frame.to_native()
    if nw.dependencies.is_duckdb_relation(native):
        import duckdb

        try:
            return nw.from_native(native.materialize())
        except duckdb.Error as error:
            raise describe_engine_error("duckdb", error) from error
    if nw.dependencies.is_pyspark_dataframe(native) or nw.dependencies.is_pyspark_connect_dataframe(native):
        return nw.from_native(native.localCheckpoint(eager=False))
    return frame


def divide_down(total: nw.Expr, count: nw.Expr) -> nw.Expr:
    """The whole part of total / count, for a total of at least 0 and a count of at least 1.

    Spark divides as floating point and floors, which is one off for totals beyond 2^53: the remainder sets it right.
    """
    near = (total // count).cast(nw.Int64)
    rest = total - near * count
    one = nw.lit(1).cast(nw.Int64)
    return nw.when(rest < 0).then(near - one).otherwise(nw.when(rest >= count).then(near + one).otherwise(near))


def number_rows(frame: Frame, name: str, keys: Sequence[str], order_by: str | Sequence[str]) -> Frame:
    """Number the rows of each group from 1, in an order that tells all of them apart or in which equals are equal."""
    counted = frame.with_columns(_one=nw.lit(1).cast(nw.Int64))
    place = nw.col("_one").cum_sum().over(*keys, order_by=order_by).cast(nw.Int64)
    return counted.with_columns(place.alias(name)).drop("_one")


def keep_first(frame: Frame, keys: Sequence[str], order_by: Sequence[str]) -> Frame:
    """The first row of each group: only rows that share its first place are sorted, not the whole group."""
    least, *_ = order_by
    began = frame.group_by(*keys).agg(_began=nw.col(least).min())
    same = frame.join(began, on=list(keys), how="inner").filter(nw.col(least) == nw.col("_began")).drop("_began")
    return number_rows(same, "_place", keys, order_by).filter(nw.col("_place") == 1).drop("_place")


def drop_matching(frame: Frame, few: Frame, keys: Sequence[str], identity: Sequence[str]) -> Frame:
    """The rows but for a few, at most one a group; no row is held, as an anti-join of Polars would hold them all."""
    named = few.select(*keys, **{f"_not_{name}": nw.col(name) for name in identity})
    found = frame.join(named, on=list(keys), how="inner")
    is_other = nw.lit(False)
    for name in identity:
        is_other |= nw.col(name) != nw.col(f"_not_{name}")
    return found.filter(is_other).drop(*(f"_not_{name}" for name in identity))


def add_latest_end(frame: Frame, keys: Sequence[str], order_by: Sequence[str]) -> Frame:
    """Add `_before_ns`: the latest `_end_ns` of the rows before each one, 0 before the first."""
    latest = frame.with_columns(_latest_ns=nw.col("_end_ns").cum_max().over(*keys, order_by=order_by))
    return latest.with_columns(_before_ns=nw.col("_latest_ns").shift(1).over(*keys, order_by=order_by).fill_null(0))


def divide_to_fraction(part: nw.Expr, whole: nw.Expr) -> nw.Expr:
    """Part of a whole as a number from 0 to 1; null where the whole is nothing."""
    is_some = whole > 0
    # Engines differ on division by zero: there is none, whichever branch is taken.
    divisor = nw.when(is_some).then(whole).otherwise(nw.lit(1).cast(nw.Int64))
    return nw.when(is_some).then(part.cast(nw.Float64) / divisor.cast(nw.Float64))


def to_expr(moment: Moment) -> nw.Expr:
    """A moment, to be computed with."""
    return nw.lit(moment).cast(nw.Int64) if isinstance(moment, int) else moment


def to_flag(condition: nw.Expr) -> nw.Expr:
    """1 where it holds, else 0: to be summed."""
    return nw.when(condition).then(nw.lit(1).cast(nw.Int64)).otherwise(nw.lit(0).cast(nw.Int64))


def join_reasons(*parts: tuple[nw.Expr, str | nw.Expr]) -> nw.Expr:
    """All sentences whose condition holds, in their order; null where none does."""
    sentence = nw.concat_str(
        *(
            nw.when(condition).then(nw.lit(sentence) if isinstance(sentence, str) else sentence)
            for condition, sentence in parts
        ),
        separator="; ",
        ignore_nulls=True,
    )
    is_any = nw.lit(False)
    for condition, _ in parts:
        is_any |= condition.fill_null(False)
    return nw.when(is_any).then(sentence)
