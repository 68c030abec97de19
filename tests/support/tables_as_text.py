"""A table as a reviewer reads it in a diff: a line of names, a line of kinds, then a line per row, sorted by key.

`pipelines.review.text_tables` reads it back, so that a review can say which row and which column moved.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

if TYPE_CHECKING:
    import polars as pl

    from lake.tables import Table

_QUOTED = re.compile(r'[",]|^\s|\s$')
# What would end a line early, for any reader of lines, and what marks it.
_BREAKS = re.compile(r"[\\\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_SMALL = 0.1


class TableSnapshot(SingleFileSnapshotExtension):
    """One file per table, as text."""

    _write_mode = WriteMode.TEXT
    file_extension = "csv"


def as_text(table: Table, rows: pl.DataFrame) -> str:
    """All columns and rows; nothing where a value is null, and `""` for an empty text where it might be null."""
    kinds = [f"{column.kind}{' or null' if column.nullable else ''}" for column in table.columns]
    ordered = rows.sort(table.row_key).select(table.column_names)
    lines = [list(map(_cell, table.column_names)), kinds]
    for row in ordered.iter_rows():
        cells = zip(table.columns, row, strict=True)
        lines.append(
            [_cell(_format_number(value)) or '""' * (column.nullable and value == "") for column, value in cells]
        )
    return "".join(",".join(line) + "\n" for line in lines)


def _format_number(value: object) -> str | None:
    """Six digits after the point, or six that count where the first of them are zeros."""
    if isinstance(value, float):
        return f"{value:.6g}" if 0 < abs(value) < _SMALL else f"{value or 0.0:.6f}"
    return None if value is None else str(value)


def _cell(text: str | None) -> str:
    """A cell within one line, whatever its text holds."""
    if text is None:
        return ""
    text = _BREAKS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text
