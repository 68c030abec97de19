"""Rows of gold as short literals, and the rows behind a figure as text that a reviewer can read in a diff."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pyarrow as pa

from report.drawing import specification, svg
from report.pictures import figure

if TYPE_CHECKING:
    from lake.tables import Table
    from report.figure import Figure

SVG = "{http://www.w3.org/2000/svg}"
_EMPTY = {"text": "", "bool": False}


def rows_of(table: Table, rows: list[dict[str, Any]]) -> pa.Table:
    """Literal rows; a column that is not given is null, or where it may not be, the first or least it can be."""
    least = {
        column.name: None
        if column.nullable
        else column.one_of[0]
        if column.one_of
        else _EMPTY.get(column.kind, column.minimum or 0)
        for column in table.columns
    }
    assert all(row.keys() <= least.keys() for row in rows)
    return pa.Table.from_pylist([{**least, **row} for row in rows], schema=table.arrow_schema)


def draw_picture(table: Table, rows: pa.Table) -> str | None:
    """The still picture of rows, in whatever order they come; None for a table that has no figure."""
    found = figure(table, rows)
    return None if found is None else svg(specification(found, is_titled=True))


def parse_svg(svg: str | None) -> ET.Element:
    """The picture as a tree; what is not well formed is an error."""
    assert svg is not None
    return ET.fromstring(svg)  # noqa: S314  our own text


def draw_figure(table: Table, *rows: dict[str, Any]) -> Figure:
    """The figure of literal rows."""
    found = figure(table, rows_of(table, list(rows)))
    assert found is not None
    return found


def marks(found: Figure, **facts: object) -> list[dict[str, Any]]:
    """The rows behind a figure that have these facts."""
    return [row for row in found.rows if all(row.get(name) == fact for name, fact in facts.items())]


def describe_figure(found: Figure) -> str:
    """A figure as text: its title, one line a row, its notes."""
    lines = [", ".join(f"{name}={_short(value)}" for name, value in sorted(row.items())) for row in found.rows]
    return "\n".join([found.title, found.subtitle, *lines, *(f"note: {note}" for note in found.notes), ""])


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
