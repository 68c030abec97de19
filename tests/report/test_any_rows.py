"""Whatever rows of the declared schema come: a picture is well formed and on its paper, a table has no raw HTML."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets import gold
from lake.tables import Kind
from report.markdown import markdown
from report.pictures import picture
from report.svg import WIDTH
from tests.report.drawn import SVG, parsed
from tests.report.test_markdown import cells, strange

if TYPE_CHECKING:
    from lake.tables import Column, Table

TABLES = {table.full_name: table for table in gold.TABLES}
NAMES = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["<b>", "[x](y)", "|", "\\", "`", "]]>", "a"]
)
MARKS = {"svg", "title", "desc", "rect", "text", "line", "circle", "polygon"}
PLACES = ("x", "x1", "x2", "cx")


def values(column: Column) -> st.SearchStrategy[Any]:
    """Any value that the declaration allows, and numbers that are none."""
    widest = {Kind.INT32: 31, Kind.INT64: 63}
    if column.one_of:
        found: st.SearchStrategy[Any] = st.sampled_from(column.one_of)
    elif column.kind is Kind.TEXT:
        found = NAMES
    elif column.kind is Kind.BOOL:
        found = st.booleans()
    elif column.kind is Kind.FLOAT64:
        found = st.floats(column.minimum, column.maximum) | st.sampled_from([math.nan, math.inf])
    else:
        most = 2 ** widest[column.kind] - 1
        found = st.integers(-most if column.minimum is None else int(column.minimum), most)
    return st.none() | found if column.nullable else found


def tables(table: Table) -> st.SearchStrategy[pa.Table]:
    row = st.fixed_dictionaries({column.name: values(column) for column in table.columns})
    return st.lists(row, max_size=4).map(lambda rows: pa.Table.from_pylist(rows, schema=table.arrow_schema))


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
@settings(max_examples=40)
@given(data=st.data())
def test_any_rows_give_a_well_formed_picture_and_an_inert_table(table: Table, data: st.DataObject) -> None:
    rows = data.draw(tables(table))
    svg = picture(table, rows)
    if svg is not None:
        tree = parsed(svg)
        assert {mark.tag.removeprefix(SVG) for mark in tree.iter()} <= MARKS
        places = [float(mark.attrib[name]) for mark in tree.iter() for name in PLACES if name in mark.attrib]
        assert all(0 <= place <= WIDTH for place in places)
        assert all(float(mark.attrib["width"]) >= 0 for mark in tree.iter(f"{SVG}rect"))
        assert picture(table, rows) == svg
    text = markdown(table, rows)
    assert strange(text) == set()
    assert len(cells(text)) == rows.num_rows
