from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

import pytest

from assets.build.catalogue import ANSWERS, TABLES
from lake.tables import Column, Kind, Table, boolean, float64, int64, text

if TYPE_CHECKING:
    from collections.abc import Iterable

SNAKE = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
WHOLE = {Kind.INT32, Kind.INT64}
NUMBERS = {*WHOLE, Kind.FLOAT64}
# The last word of a name, and the kinds that a column so named may have.
UNITS = {
    "ns": {Kind.INT64},
    "bytes": {Kind.INT64},
    "count": {Kind.INT64},
    "mib": {Kind.FLOAT64},
    "w": {Kind.FLOAT64},
    "j": {Kind.FLOAT64},
    "fraction": {Kind.FLOAT64},
    "ratio": {Kind.FLOAT64},
    "bits": {Kind.INT64},
    "error": {Kind.FLOAT64},  # of a logarithm: as a fraction
    "value": {Kind.FLOAT64, Kind.TEXT},  # of a test, such as p_value: a probability; else as the source wrote it
    "level": {Kind.FLOAT64, Kind.TEXT},  # of an interval: a probability; else the size of what was refused
    "second": {Kind.FLOAT64},  # of a rate: samples_per_second
    "step": {Kind.FLOAT64, Kind.BOOL},  # of an amount: samples_per_step; or a question: is_step
    "days": {Kind.FLOAT64},  # of a budget that lasts for years
    "sha256": {Kind.TEXT},
    "id": {Kind.TEXT, *WHOLE},
}
# Numbers that count or place something and have no unit.
PLAIN = {"rank", "ordinal", "size", "length", "number", "sequence"}
# The peers' own names in the table that repeats their numbers (docs/decisions/0008).
PEERS = {"gold.trace_summary.gpu_events", "gold.trace_summary.hta_overlap_pct"}
QUESTIONS = ("is_", "has_", "must_")
DECLARED = {**TABLES, **ANSWERS}
COLUMNS = {f"{table.full_name}.{column.name}": column for table in DECLARED.values() for column in table.columns}


def faults(column: Column) -> list[str]:
    """What of a column's name or meaning is against the law of names."""
    last = column.name.rpartition("_")[2]
    found = []
    if not SNAKE.fullmatch(column.name):
        found.append("it is not in snake_case")
    if column.name.startswith(QUESTIONS) != (column.kind is Kind.BOOL):
        found.append(f"a yes or no, and nothing else, begins with one of {', '.join(QUESTIONS)}")
    if last in UNITS and column.kind not in UNITS[last]:
        found.append(f"a column in {last} is of {', '.join(sorted(UNITS[last]))}, not of {column.kind}")
    if column.kind in NUMBERS and last not in {*UNITS, *PLAIN}:
        found.append("a number says its unit last")
    if not column.meaning.endswith("."):
        found.append("its meaning is no sentence")
    return found


def differing(tables: Iterable[Table]) -> dict[str, set[Kind]]:
    """The names that have more than one kind."""
    kinds = defaultdict(set)
    for table in tables:
        for column in table.columns:
            kinds[column.name].add(column.kind)
    return {name: found for name, found in kinds.items() if len(found) > 1}


def test_columns_are_named_by_the_law() -> None:
    assert {name for name, column in COLUMNS.items() if faults(column)} == PEERS


@pytest.mark.parametrize(
    "column",
    [
        int64("Duration_ns", "Not snake."),
        int64("duration", "No unit."),
        int64("duration_us", "Not our unit."),
        float64("duration_ns", "Time is whole."),
        float64("power", "No unit."),
        float64("load_pct", "Not a fraction."),
        int64("source_sha256", "A digest is text."),
        text("payload_bytes", "Bytes are counted."),
        boolean("valid", "No question."),
        text("is_valid", "No answer."),
        int64("rows_count", "No sentence"),
    ],
    ids=lambda column: column.name,
)
def test_a_column_named_otherwise_would_be_found(column: Column) -> None:
    assert len(faults(column)) == 1


def test_the_same_name_is_the_same_kind_in_every_table() -> None:
    assert differing(DECLARED.values()) == {}


def test_one_name_with_two_kinds_would_be_found() -> None:
    run_id = text("run_id", "Run.")
    one = Table("gold", "one", "One row per run.", ("run_id",), (run_id, int64("steps_count", "Steps.")))
    two = Table("gold", "two", "One row per run.", ("run_id",), (run_id, float64("steps_count", "Steps.")))
    assert differing([one, two]) == {"steps_count": {Kind.INT64, Kind.FLOAT64}}


@pytest.mark.parametrize("table", DECLARED.values(), ids=DECLARED.keys())
def test_a_table_says_what_one_row_is(table: Table) -> None:
    assert table.grain.startswith("One row per ")
    assert table.grain.endswith(".")


def test_ranges_are_for_numbers_and_closed_sets_for_texts() -> None:
    ranged = {column.kind for column in COLUMNS.values() if (column.minimum, column.maximum) != (None, None)}
    assert ranged <= NUMBERS
    assert {column.kind for column in COLUMNS.values() if column.one_of} == {Kind.TEXT}
