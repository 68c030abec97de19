"""Whatever rows of the declared schema come: JSON for a browser, a well-formed picture, a table without raw HTML."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from assets.build import gold
from lake.tables import Kind
from report.drawing import specification
from report.markdown import markdown
from report.pictures import figure
from report.terminal import plot
from tests.report.test_markdown import cells, strange
from tests.report.test_pictures import MARKS
from tests.support.campaigns import pick_size
from tests.support.drawn_figures import SVG, draw_picture, parse_svg

if TYPE_CHECKING:
    from lake.tables import Column, Table

TABLES = {table.full_name: table for table in gold.TABLES}
NAMES = st.text(st.characters(codec="utf-8"), max_size=12) | st.sampled_from(
    ["<b>", "[x](y)", "|", "\\", "`", "]]>", "a"]
)


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
@settings(max_examples=pick_size(20, 200))
@given(data=st.data())
def test_any_rows_give_a_specification_a_plot_and_an_inert_table(table: Table, data: st.DataObject) -> None:
    rows = data.draw(tables(table))
    found = figure(table, rows)
    if found is not None:
        assert json.loads(json.dumps(specification(found), allow_nan=False))
        assert found.alt
    lines = plot(table, rows, 80)
    assert lines is None or all(line.isprintable() and len(line) <= 80 for line in lines)
    text = markdown(table, rows)
    assert strange(text) == set()
    assert len(cells(text)) == rows.num_rows


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
# A failing example is told as it was found: to shrink one takes a picture each time.
@settings(max_examples=pick_size(4, 40), phases=[Phase.explicit, Phase.generate])
@given(data=st.data())
def test_any_rows_give_a_well_formed_picture(table: Table, data: st.DataObject) -> None:
    svg = draw_picture(table, data.draw(tables(table)))
    if svg is not None:
        assert {mark.tag.removeprefix(SVG) for mark in parse_svg(svg).iter()} <= MARKS
