"""Rows of gold as short literals, and the marks of a picture as a test reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pyarrow as pa
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from report.pictures import picture

if TYPE_CHECKING:
    from lake.tables import Table

SVG = "{http://www.w3.org/2000/svg}"
_EMPTY = {"text": "", "bool": False}


class PictureSnapshot(SingleFileSnapshotExtension):
    """One file per picture, one mark a line."""

    _write_mode = WriteMode.TEXT
    file_extension = "svg"


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


def parsed(svg: str | None) -> ET.Element:
    """The picture as a tree; what is not well formed is an error."""
    assert svg is not None
    return ET.fromstring(svg)  # noqa: S314  our own text


def drawn(table: Table, *rows: dict[str, Any]) -> ET.Element:
    """The picture of literal rows."""
    return parsed(picture(table, rows_of(table, list(rows))))


def texts(tree: ET.Element) -> list[str]:
    """All that is written in the picture, in the order of the marks."""
    return ["".join(mark.itertext()) for mark in tree.iter(f"{SVG}text")]


def marks(tree: ET.Element, name: str) -> dict[str, dict[str, str]]:
    """Marks of one kind that say what they stand for, by that."""
    return {
        (title.text or ""): mark.attrib for mark in tree.iter(f"{SVG}{name}") for title in mark.findall(f"{SVG}title")
    }


def wide(tree: ET.Element, start: str) -> tuple[float, float]:
    """Where the one bar begins and ends whose title begins so."""
    (bar,) = (mark for title, mark in marks(tree, "rect").items() if title.startswith(start))
    return float(bar["x"]), float(bar["x"]) + float(bar["width"])
