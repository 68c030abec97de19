"""The rows of a few small data files, read whole into memory, where each file is laid out exactly as declared.

A query engine plans longer than it takes to read so few rows. What is not as declared, or cannot be read, is left to
the engine: it names what it finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from lake.identity import is_slug
from lake.tables import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake.locations import Location
    from lake.tables import Table

# So few rows are read once: to plan one question about them takes an engine longer than that.
FEW_ROWS = 10_000
# An engine opens more files than that at once, and sooner.
MOST_FILES = 32


def read_few_rows(table: Table, root: Location, paths: Sequence[str], most_rows: int) -> pa.Table | None:
    """All rows of these files; none where they are more, or where a file is remote, unreadable or not as declared."""
    if not paths:
        return table.arrow_schema.empty_table()
    if len(paths) > MOST_FILES or not root.is_local:
        return None
    found, left = [], most_rows
    try:
        for path in paths:
            with pq.ParquetFile(root.directory / path) as file:
                left -= file.metadata.num_rows
                rows = None if left < 0 else read_declared(table, path, file)
            if rows is None:
                return None
            found.append(rows)
        whole = pa.concat_tables(found)
        whole.validate(full=True)  # also that text is UTF-8
    except (OSError, pa.ArrowException):
        return None
    return whole


def read_declared(table: Table, path: str, file: pq.ParquetFile) -> pa.Table | None:
    """All rows of one data file, with the values that are in its path; none where it is not laid out as declared."""
    return add_partition(table, path, file.read(use_threads=False)) if _is_as_declared(table, file) else None


def _is_as_declared(table: Table, file: pq.ParquetFile) -> bool:
    """Whether Parquet itself says what is declared: engines go by that, not by the Arrow schema that a writer adds."""
    columns = [file.schema.column(place) for place in range(len(file.schema))]
    stored = {column.path: (column.physical_type, column.logical_type.type) for column in columns}
    is_flat = not any(column.max_repetition_level for column in columns)
    return is_flat and len(columns) == len(stored) and stored == table.stored_types


def add_partition(table: Table, path: str, rows: pa.Table) -> pa.Table | None:
    """The rows with the values that are in the path; none where it has others than declared."""
    parts = [folder.partition("=") for folder in path.split("/")[:-1]]
    if tuple(name for name, _, _ in parts) != table.partition_by:
        return None
    columns = {name: rows.column(name) for name in rows.column_names}
    for name, _, value in parts:
        kind = table.column(name).kind
        if not (is_slug(value) if kind is Kind.TEXT else value.isascii() and value.isdecimal()):
            return None
        constant = pa.scalar(value if kind is Kind.TEXT else int(value), table.arrow_schema.field(name).type)
        columns[name] = pa.chunked_array([pa.repeat(constant, rows.num_rows)])
    if any(columns[field.name].type != field.type for field in table.arrow_schema):
        return None  # how a writer wanted it in memory, which no other reader goes by
    return pa.table([columns[name] for name in table.column_names], schema=table.nullable_schema)
