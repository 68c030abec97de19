from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from lake.digest import ContentDigest, combine
from tests.support.sample_tables import READINGS

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEMA = READINGS.file_schema
ROW = st.fixed_dictionaries({
    "ordinal": st.integers(-(1 << 63), (1 << 63) - 1),
    "slot": st.integers(-(1 << 31), (1 << 31) - 1),
    "label": st.none() | st.text(max_size=12),
    "power_w": st.none() | st.floats(allow_nan=False),
    "is_valid": st.booleans(),
})  # fmt: skip
ROWS = st.lists(ROW, max_size=40)
NULLABLE = ("label", "power_w")


def table(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


def digest(batches: Iterable[pa.RecordBatch], schema: pa.Schema = SCHEMA) -> str:
    found = ContentDigest(schema)
    for batch in batches:
        found.update(batch)
    return found.hexdigest()


def of(rows: list[dict[str, Any]], schema: pa.Schema = SCHEMA) -> str:
    return digest(table(rows, schema).to_batches(), schema)


@given(ROWS, st.lists(st.integers(0, 40), max_size=12))
def test_the_digest_does_not_depend_on_how_rows_are_chunked(rows: list[dict[str, Any]], cuts: list[int]) -> None:
    whole = table(rows)
    edges = [0, *sorted(min(cut, len(rows)) for cut in cuts), len(rows)]
    slices = [whole.slice(start, end - start) for start, end in itertools.pairwise(edges)]
    views = [batch for part in slices for batch in (part.combine_chunks().to_batches() or [])]
    copies = [batch for part in slices for batch in pa.Table.from_pylist(part.to_pylist(), SCHEMA).to_batches()]
    assert digest(views) == digest(copies) == of(rows)


@given(ROWS, st.integers(0, 10))
def test_empty_batches_change_nothing(rows: list[dict[str, Any]], place: int) -> None:
    batches = table(rows).to_batches(max_chunksize=3)
    batches.insert(min(place, len(batches)), pa.RecordBatch.from_pylist([], SCHEMA))
    assert digest(batches) == of(rows)


@given(st.lists(ROW, min_size=1, max_size=20), st.data())
def test_any_changed_value_changes_the_digest(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    other = data.draw(ROW)
    place = data.draw(st.integers(0, len(rows) - 1))
    column = data.draw(st.sampled_from(SCHEMA.names))
    assume(repr(rows[place][column]) != repr(other[column]))
    altered = [dict(row) for row in rows]
    altered[place][column] = other[column]
    assert of(altered) != of(rows)


@given(st.lists(ROW, min_size=2, max_size=20), st.sampled_from(NULLABLE), st.randoms(use_true_random=False))
def test_a_null_that_moves_changes_the_digest(rows: list[dict[str, Any]], column: str, chance: random.Random) -> None:
    first, second = chance.sample(range(len(rows)), 2)
    value = {"label": "same", "power_w": 1.5}[column]
    here = [{**row, column: None if place == first else value} for place, row in enumerate(rows)]
    there = [{**row, column: None if place == second else value} for place, row in enumerate(rows)]
    assert of(here) != of(there)


@given(st.lists(ROW, min_size=2, max_size=20, unique_by=lambda row: row["ordinal"]), st.data())
def test_the_order_of_rows_is_part_of_the_content(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    other = data.draw(st.permutations(rows))
    assume(other != rows)
    assert of(other) != of(rows)


@given(st.lists(st.text(max_size=4), min_size=1, max_size=8), st.integers(0, 30))
def test_where_one_text_ends_and_the_next_begins_is_part_of_the_content(texts: list[str], cut: int) -> None:
    schema = pa.schema([pa.field("label", pa.string())])
    joined = "".join(texts)
    cut = min(cut, len(joined))
    other = [joined[:cut], joined[cut:], *[""] * (len(texts) - 2)][: len(texts)]
    assume(other != texts)
    assert of([{"label": text} for text in other], schema) != of([{"label": text} for text in texts], schema)


def test_null_is_not_the_empty_text_nor_zero_nor_false() -> None:
    kinds = {pa.string(): "", pa.int64(): 0, pa.float64(): 0.0, pa.bool_(): False}
    for kind, nothing in kinds.items():
        schema = pa.schema([pa.field("value", kind)])
        assert of([{"value": None}], schema) != of([{"value": nothing}], schema) != of([], schema)


def test_how_many_rows_is_part_of_the_content_even_where_all_are_null() -> None:
    schema = pa.schema([pa.field("value", pa.string())])
    assert len({of([{"value": None}] * count, schema) for count in range(5)}) == 5


@pytest.mark.parametrize(
    "other",
    [
        pa.schema([pa.field("renamed", pa.int64()), pa.field("b", pa.int64())]),
        pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.float64())]),
        pa.schema([pa.field("b", pa.int64()), pa.field("a", pa.int64())]),
    ],
    ids=["renamed", "retyped", "reordered"],
)
@pytest.mark.parametrize("value", [0, None])
def test_the_names_and_types_of_columns_are_part_of_the_content(other: pa.Schema, value: int | None) -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.int64())])
    rows = [{"a": value, "b": value}]
    assert of([dict.fromkeys(other.names, value)], other) != of(rows, schema)


@given(
    st.lists(st.text("0123456789abcdef", min_size=4, max_size=4), max_size=8),
    st.randoms(use_true_random=False),
)
def test_the_digest_of_a_partition_does_not_depend_on_the_order_of_its_units(
    parts: list[str], chance: random.Random
) -> None:
    shuffled = parts.copy()
    chance.shuffle(shuffled)
    assert combine(shuffled) == combine(parts)
    assert combine([*parts, "more"]) != combine(parts)
