from __future__ import annotations

import io

import duckdb
import pytest
from rich.console import Console

from pipelines.cli import show

SENTENCE = "a verdict that says more than sixty characters can hold, and whose end is the part that matters most"


def draw(width: int) -> str:
    out = io.StringIO()
    rows = duckdb.connect().sql("SELECT $text AS verdict, NULL AS reason, 7 AS n", params={"text": SENTENCE})
    show.draw_table(rows.to_arrow_reader(), 1, Console(file=out, width=width))
    return out.getvalue()


def join_words(text: str) -> str:
    return " ".join(text.split())


def test_a_row_that_does_not_fit_the_width_is_a_block_with_its_texts_whole() -> None:
    lines = draw(26).splitlines()
    answer = join_words(" ".join(lines))
    assert answer.startswith("verdict a verdict that")
    assert "…" not in answer


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_in_a_grid_a_long_text_is_wrapped_and_never_cut(width: int) -> None:
    lines = draw(width).splitlines()
    assert lines[0].split() == ["verdict", "n"]
    assert all(len(line) <= width for line in lines)
    words = join_words(" ".join(lines[1:-1])).replace(" 7", "", 1)
    assert words == SENTENCE
    assert lines[-1] == "1 of 1 rows; 1 columns without a value are not shown"


@pytest.mark.parametrize(("width", "is_grid"), [(80, False), (200, True)])
def test_counts_that_do_not_fit_are_a_paragraph_in_which_no_number_is_cut(width: int, is_grid: bool) -> None:
    counts = {name: f"{10**9 + place:,}" for place, name in enumerate(("kept", "merged", "rejected", "events", "rows"))}
    row = {"run": "r" * 40, "state": "up-to-date", "regime": "sw_per_hop_aesgcm", **counts}
    out = io.StringIO()
    show.format_counts(Console(file=out, width=width), [row], 3)
    said = out.getvalue()
    assert all(value in join_words(said) for value in row.values())
    assert max(map(len, said.splitlines())) <= width
    assert said.startswith("run ") is is_grid
