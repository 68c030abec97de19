from __future__ import annotations

import io

import duckdb
from rich.console import Console

from pipelines.cli import show

SENTENCE = "a verdict that says more than sixty characters can hold, and whose end is the part that matters most"


def draw(width: int) -> str:
    out = io.StringIO()
    rows = duckdb.connect().sql("SELECT $text AS verdict, NULL AS reason, 7 AS n", params={"text": SENTENCE})
    show.draw_table(rows.to_arrow_reader(), 1, Console(file=out, width=width))
    return out.getvalue()


def test_a_row_that_does_not_fit_the_width_is_a_block_with_its_texts_whole() -> None:
    lines = draw(60).splitlines()
    answer = " ".join(" ".join(lines).split())
    assert answer.startswith(f"verdict {SENTENCE} n 7 ")
    assert lines[-1] == "1 of 1 rows; 1 columns without a value are not shown"


def test_in_a_grid_a_long_text_is_cut_and_says_so() -> None:
    assert f"{SENTENCE[:59]}…" in draw(200)
