"""A table as a reviewer reads it in a diff: a line of names, a line of kinds, then rows in the order of the key."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

if TYPE_CHECKING:
    import polars as pl

    from lake.tables import Table


class TableSnapshot(SingleFileSnapshotExtension):
    """One file per table, as text."""

    _write_mode = WriteMode.TEXT
    file_extension = "csv"


def as_text(table: Table, rows: pl.DataFrame) -> str:
    """All columns and rows; numbers with a fraction to six digits after the point; nothing where a value is null."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(column.name for column in table.columns)
    writer.writerow(f"{column.kind}{' or null' if column.nullable else ''}" for column in table.columns)
    for row in rows.sort("run_id", *table.key).select(table.column_names).iter_rows():
        writer.writerow(_cell(value) for value in row)
    return out.getvalue()


def _cell(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6f}" if isinstance(value, float) else str(value)
