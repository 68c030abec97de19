"""Whether a frame or a stored table keeps to its declaration, and which partitions it falls into."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lake.errors import ContractBroken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake.locations import Location
    from lake.table_log import TableLog
    from lake.tables import Column, Table


def require_declared(table: Table, rows: pa.Table, run_id: str) -> pa.Table:
    """Refuse rows that are not of the declared schema; change how text is laid out, never a value."""
    expected = {field.name: field.type for field in table.arrow_schema}
    found = Counter[str](rows.column_names)  # asked once: pyarrow makes the list anew at each look
    missing = [name for name in expected if name not in found]
    unknown = [name for name in found if name not in expected]
    doubled = sorted(name for name, times in found.items() if times > 1)
    if doubled:
        raise ContractBroken(f"{table.full_name}: the frame has {', '.join(doubled)} more than once")
    if missing or unknown:
        raise ContractBroken(
            f"{table.full_name} wants columns {', '.join(expected)}; missing: {', '.join(missing) or 'none'}; "
            f"not declared: {', '.join(unknown) or 'none'}"
        )
    columns = []
    for name, kind in expected.items():
        column = rows.column(name)
        if column.type != kind:
            if not (pa.types.is_string(kind) and _is_text(column.type)):
                raise ContractBroken(f"{table.full_name}.{name} is declared {kind}, the frame has {column.type}")
            column = column.cast(kind)
        columns.append(column)
    checked = pa.table(columns, schema=table.arrow_schema)
    strangers = pc.unique(checked.column(table.partition_key)).to_pylist()
    if strangers not in ([], [run_id]):
        raise ContractBroken(f"{table.full_name}: rows of {strangers} do not belong into the partition of {run_id}")
    for name in table.partition_by:
        if checked.column(name).null_count:
            raise ContractBroken(
                f"{table.full_name}.{name} may not be null, {checked.column(name).null_count} rows are"
            )
    for column in table.columns:
        _check_range(table, column, checked.column(column.name))
    return checked


def _check_range(table: Table, column: Column, values: pa.ChunkedArray) -> None:
    """Refuse values outside the declared range or set: an engine that wrapped around must not go unseen."""
    if column.one_of:
        strange = {value for value in pc.unique(values).to_pylist() if value is not None} - set(column.one_of)
        if strange:
            raise ContractBroken(f"{table.full_name}.{column.name} may not be {min(strange)!r}")
    if column.minimum is None and column.maximum is None:
        return
    found = pc.min_max(values).as_py()
    low, high = found["min"], found["max"]
    if column.minimum is not None and low is not None and low < column.minimum:
        raise ContractBroken(f"{table.full_name}.{column.name} is at least {column.minimum}; a row has {low}")
    if column.maximum is not None and high is not None and high > column.maximum:
        raise ContractBroken(f"{table.full_name}.{column.name} is at most {column.maximum}; a row has {high}")


def _is_text(kind: pa.DataType) -> bool:
    return kind in {pa.string(), pa.large_string(), pa.string_view()}


def partitions(table: Table, rows: pa.Table) -> list[dict[str, Any]]:
    inner = list(table.partition_by[1:])
    if not inner or not rows.num_rows:
        return [{}] if rows.num_rows else []
    values: list[dict[str, Any]] = rows.select(inner).group_by(inner).aggregate([]).to_pylist()
    return values


def matches(values: dict[str, Any]) -> pc.Expression:
    return reduce(and_, (pc.field(name) == value for name, value in values.items()))


def find_outdated(table: Table, log: TableLog) -> tuple[str, ...]:
    """What of a stored table's columns or partitions is not as declared: another version wrote it."""
    found = log.columns
    wanted = table.arrow_types
    parted = log.partition_columns
    if found == wanted and parted == table.partition_by:
        return ()
    differing = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
    return tuple(differing) or (f"partitions {', '.join(parted)}",)


def describe_outdated(table: Table, outdated: Sequence[str], place: Location) -> ContractBroken:
    """The error of reading or writing a table that another version wrote."""
    return ContractBroken(
        f"{table.full_name} in {place} was written with other columns: {', '.join(outdated)}",
        "it was made by another version: move that directory away and run `teetotal run --full`"
        if table.tier == "bronze"
        else "it was made by another version: `teetotal run` builds it again",
    )
