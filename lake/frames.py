"""What passes between transforms: a lazy frame of any engine, and the shape that it ends in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import narwhals as nw

from lake.tables import Kind

if TYPE_CHECKING:
    from lake.tables import Table

Frame: TypeAlias = nw.LazyFrame[Any]

_KINDS = {
    Kind.TEXT: nw.String(),
    Kind.INT32: nw.Int32(),
    Kind.INT64: nw.Int64(),
    Kind.FLOAT64: nw.Float64(),
    Kind.BOOL: nw.Boolean(),
}


def shaped(frame: Frame, table: Table) -> Frame:
    """The declared columns in their order, cast back from what engines widen (DuckDB sums 64-bit numbers into 128)."""
    return frame.select(nw.col(column.name).cast(_KINDS[column.kind]) for column in table.columns)


def floored(total: nw.Expr, count: nw.Expr) -> nw.Expr:
    """The whole part of total / count, for a total of at least 0 and a count of at least 1.

    Spark divides as floating point and floors, which is one off for totals beyond 2^53: the remainder sets it right.
    """
    near = (total // count).cast(nw.Int64)
    rest = total - near * count
    one = nw.lit(1).cast(nw.Int64)
    return nw.when(rest < 0).then(near - one).otherwise(nw.when(rest >= count).then(near + one).otherwise(near))
