"""The text of a table: one row a line, whatever a cell holds, and nothing that moved stays unseen."""

from __future__ import annotations

import polars as pl
import pytest

from lake.tables import RUN_ID, Table, boolean, float64, text
from pipelines.review.text_tables import parse_table
from tests.support.tables_as_text import as_text

TABLE = Table(
    tier="gold",
    name="made_up",
    grain="One row per run.",
    key=("run_id",),
    columns=(
        RUN_ID,
        float64("used_fraction", "A number.", nullable=True),
        text("note", "A text.", nullable=True),
        text("word", "A text that is never null."),
        boolean("is_it", "Yes or no."),
    ),
)


def write_row(used: float | None = 1.0, note: str | None = None, word: str = "w") -> str:
    row = {"run_id": ["a"], "used_fraction": [used], "note": [note], "word": [word], "is_it": [True]}
    return as_text(TABLE, pl.DataFrame(row, TABLE.polars_schema))


@pytest.mark.parametrize(
    ("value", "answer"),
    [
        (4.5467901, "4.546790"),
        (0.0, "0.000000"),
        (-0.0, "0.000000"),
        (1.2107193470001221e-08, "1.21072e-08"),
        (-0.0321271234, "-0.0321271"),
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (None, ""),
    ],
)
def test_six_digits_after_the_point_or_six_that_count(value: float | None, answer: str) -> None:
    assert write_row(used=value).splitlines()[2] == f"a,{answer},,w,True"


def test_null_and_the_empty_text_are_told_apart_where_both_may_be() -> None:
    assert write_row(note=None) != write_row(note="")
    assert write_row(note="", word="").splitlines()[2] == 'a,1.000000,"",,True'


@pytest.mark.parametrize(
    "hostile", ["a\nb", "a\r\nb", "a\u2028b", "a\x85b", "\\n", 'a "b", c', " a ", "a|b", "", "\x1c", "a,b", '"']
)
def test_every_row_is_one_line_and_comes_back_as_it_was_written(hostile: str) -> None:
    answer = write_row(note=hostile, word=hostile)
    assert len(answer.splitlines()) == 3
    table = parse_table(answer)
    assert table is not None
    ((_, _, note, word, _),) = table.rows
    assert note == word
    assert note is not None
    assert note.encode().decode("unicode_escape") == hostile
    assert table.names == TABLE.column_names


def test_texts_that_differ_only_in_how_a_line_ends_are_told_apart() -> None:
    assert len({write_row(note=note) for note in ("a\nb", "a\rb", "a\\nb", "a\r\nb", "a b")}) == 5
