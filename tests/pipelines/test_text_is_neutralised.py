"""Texts that would steer a terminal or start a formula: shown, never acted on; JSON and Parquet stay exact."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from lake.landed_files import LandedFile
from pipelines.cli import progress, show
from pipelines.cli.main import main
from report.terminal_text import CSV_UNSAFE, make_csv_safe, make_printable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from lake.landing_zone import LandingZone

HOSTILE = {
    "colour": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "8-bit": "\x9b2Jgone",
    "backspace": "rm\x08\x08ls",
    "return": "bad\rgood",
    "new line": "one\ntwo",
    "direction": "abc\u202efdp.exe",
    "isolate": "a\u2066b\u2069",
    "invisible": "a\u200bb\ufeffc",
    "line separator": "a\u2028b",
    "markup": "[/nothing] [bold]x[/bold]",
}
FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0", '=HYPERLINK("http://x")']
PLAIN = ["", "a=b", "1.5", "-1.5", "+2", "-3e-7", "run-1", "ü 🙂", "a, b", 'a "b"', "two\nlines"]


@pytest.fixture
def teetotal(tmp_path: Path) -> Callable[..., Result]:
    """The command, in this process."""
    places = ["--lake", str(tmp_path / "lake"), "--landing", str(tmp_path / "landing")]
    return lambda *words: CliRunner().invoke(main, [*places, *map(str, words)], catch_exceptions=False)


def rows(*texts: str, alias: str = "text") -> pa.RecordBatchReader:
    """A table of texts beside numbers."""
    frame = pl.DataFrame({alias: list(texts), "n": [-1.5] * len(texts), "i": [-2] * len(texts)}).lazy().collect()
    return duckdb.from_arrow(frame.to_arrow()).to_arrow_reader()


def write(batches: pa.RecordBatchReader, form: str) -> bytes:
    out = io.BytesIO()
    show.write_rows(batches, form, out)
    return out.getvalue()


def draw(batches: pa.RecordBatchReader, width: int) -> str:
    out = io.StringIO()
    show.draw_table(batches, 1, Console(file=out, width=width))
    return out.getvalue()


def is_harmless(text: str) -> bool:
    """Whether nothing in it steers a terminal, the ends of its lines aside."""
    return all(line.isprintable() for line in text.split("\n"))


# -- the functions ----------------------------------------------------------------------------------------------------


@given(st.text())
def test_whatever_is_printable_stays_and_nothing_else_reaches_a_terminal(text: str) -> None:
    shown = make_printable(text)
    assert make_printable(shown) == shown
    assert shown == text or not text.isprintable()
    assert not set(shown) & {chr(code) for code in (*range(32), *range(127, 160), 0x202E, 0x2028, 0x200B, 0xD800)}


@given(st.text(st.characters(codec="utf-8")))
def test_a_cell_is_quoted_or_begins_no_formula(text: str) -> None:
    cell = make_csv_safe(text)
    assert cell[:1] not in {"=", "@", "\t", "\r"}
    assert cell in {text, f"'{text}"} or not text.isprintable()
    is_unsafe = pc.match_substring_regex(pa.array([text]), pattern=CSV_UNSAFE)[0].as_py()
    assert is_unsafe or cell == text, "a whole batch is left as it is by this expression"


# -- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("width", [30, 200], ids=["blocks", "grid"])
def test_a_table_shows_hostile_cells_and_column_names_as_escapes(text: str, width: int) -> None:
    seen = draw(rows(text, alias=text), width)
    assert is_harmless(seen)
    assert make_printable(text)[:20].rstrip() in seen


@pytest.mark.parametrize("text", FORMULAS)
def test_a_cell_or_a_name_that_begins_a_formula_gets_a_quote(text: str) -> None:
    lines = list(csv.reader(io.StringIO(write(rows(text, alias=text), "csv").decode(), newline="")))
    assert lines == [[f"'{text}", "n", "i"], [f"'{text}", "-1.5", "-2"]]


def test_texts_and_numbers_that_are_none_stay_as_they_are() -> None:
    lines = list(csv.reader(io.StringIO(write(rows(*PLAIN), "csv").decode(), newline="")))
    assert lines == [["text", "n", "i"], *([text, "-1.5", "-2"] for text in PLAIN)]


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_csv_on_a_terminal_steers_nothing(text: str) -> None:
    assert is_harmless(write(rows(text, alias=text), "csv").decode().replace("\r", ""))


@pytest.mark.parametrize("text", [*HOSTILE.values(), *FORMULAS])
def test_json_and_parquet_are_exact(text: str) -> None:
    (row,) = json.loads(write(rows(text), "json"))
    assert row["text"] == text
    assert pl.read_parquet(io.BytesIO(write(rows(text), "parquet")))["text"].to_list() == [text]


# -- commands ---------------------------------------------------------------------------------------------------------


def test_an_error_names_a_hostile_path_in_one_harmless_line(teetotal: Callable[..., Result], tmp_path: Path) -> None:
    for text in HOSTILE.values():
        done = teetotal("land", tmp_path / text.replace("/", ""))
        assert done.exit_code == 2
        assert is_harmless(done.stderr)
        assert done.stderr.count("\n") == 1


def test_land_shows_what_a_hostile_trace_says_of_itself(teetotal: Callable[..., Result], tmp_path: Path) -> None:
    answer = {"deviceProperties": [{"name": "H200\x1b[2J\nlanded b: 1 files"}], "traceEvents": []}
    (tmp_path / "a.json").write_text(json.dumps(answer))
    done = teetotal("land", tmp_path / "a.json")
    assert done.exit_code == 0, done.output
    assert "  gpu = H200\\x1b[2J\\nlanded b: 1 files\n" in done.output
    assert is_harmless(done.output)


def test_status_shows_hostile_directory_names_as_escapes(teetotal: Callable[..., Result], tmp_path: Path) -> None:
    for text in HOSTILE.values():
        (tmp_path / "landing" / text.replace("/", "")).mkdir(parents=True)
    done = teetotal("status")
    assert "\\x1b[31mred\\x1b[0m: not a run yet" in done.output
    assert is_harmless(done.output)


def test_a_query_may_name_a_column_as_it_likes(teetotal: Callable[..., Result], tmp_path: Path) -> None:
    (tmp_path / "lake" / "bronze" / "runs").mkdir(parents=True)
    asked = "SELECT '\x1b[31mred' AS \"\x1b]0;owned\x07\", '=1+1' AS \"=2+2\""
    drawn, csv_text = (teetotal("query", asked, "--format", form) for form in ("table", "csv"))
    for done in (drawn, csv_text):
        assert done.exit_code == 0, done.output
        assert is_harmless(done.output), done.output
    assert "'=2+2" in csv_text.output
    assert json.loads(teetotal("query", asked, "--format", "json").stdout) == [
        {"\x1b]0;owned\x07": "\x1b[31mred", "=2+2": "=1+1"}
    ]


class Screen(io.StringIO):
    """A terminal that remembers."""

    def isatty(self) -> bool:
        return True


def test_a_bar_shows_hostile_file_names_as_escapes(zone: LandingZone, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "300")
    screen = Screen()
    files = [LandedFile(zone.place, "run-1", text, 10, "") for text in HOSTILE.values()]
    with progress._bars(screen, "run-1", files) as tell:
        tell(HOSTILE["markup"], 5, 1)
    seen = screen.getvalue()
    assert "run-1/\\x1b[31mred\\x1b[0m" in seen
    assert "run-1/[/nothing] [bold]x[/bold]" in seen
    assert not set(seen) & set("\x07\x08\x9b\u202e\u2066\u2028\u200b")
