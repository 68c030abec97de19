from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from markdown_it import MarkdownIt

from assets.build import gold
from gold import kernel_breakdown, overhead_breakdown, pairs, scaling, step_overhead
from report.markdown import TELLING, markdown
from tests.support.drawn_figures import rows_of

if TYPE_CHECKING:
    from markdown_it.token import Token

    from lake.tables import Table

MS = 1_000_000
TABLES = {table.full_name: table for table in gold.TABLES}
# Raw HTML is let through, as a careless renderer would: that there is none is for us to see to.
READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
READER.validateLink = bool  # type: ignore[assignment,method-assign]  # nor does it mind where a link leads
HARMLESS = {
    "text",
    "table_open",
    "thead_open",
    "tbody_open",
    "tr_open",
    "th_open",
    "td_open",
    "paragraph_open",
    "inline",
}
EVIL = [
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "![x](https://evil.example/x)",
    "<javascript:alert(1)>",
    "a | b \\| c \\",
    "`code` *em* __strong__ ~~gone~~",
    "&lt;b&gt; &#124;",
    "[x]: https://evil.example",
    "line\nbreak\r\n# heading",
]


def tokens(text: str) -> list[Token]:
    found = READER.parse(text)
    return [*found, *(child for token in found for child in token.children or [])]


def strange(text: str) -> set[str]:
    """The kinds of what a reader makes of it that are neither tables nor plain text."""
    return {token.type for token in tokens(text) if not token.type.endswith("_close")} - HARMLESS


def cells(text: str) -> list[list[str]]:
    """What a reader finds in the rows under the heading."""
    found: list[list[str]] = []
    for before, token in zip([*(all_of := READER.parse(text))], all_of[1:], strict=False):
        if before.type == "tr_open":
            found.append([])
        if before.type in {"th_open", "td_open"}:
            found[-1].append("".join(child.content for child in token.children or []))
    return found[1:]


def test_a_table_is_in_human_units_with_the_most_telling_columns_first() -> None:
    times = {"step_ns": 587_317_277, "baseline_step_ns": 129_171_839, "slowdown_ratio": 4.54679}
    row = {"run_id": "tee", "baseline_run_id": "plain", "verdict": "4.55x slower", "runs_count": 3, **times}
    row |= {"regime": "hopper_ppcie", "baseline_regime": "cc_off"}
    assert markdown(step_overhead.TABLE, rows_of(step_overhead.TABLE, [{**row, "evidence": "measured"}])) == (
        "| run id | baseline run id | verdict | verdict class | source | slowdown | slowdown low | slowdown high "
        "| interval over | runs count | baseline runs count | more runs count | step | baseline step | dominant part "
        "| regime | baseline regime | evidence |\n"
        "| --- | --- | --- | --- | --- | ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: | --- | --- | --- "
        "| --- |\n"
        "| tee | plain | 4.55x slower | slower | – | 4.55× | – | – | – | 3 | 0 | – | 587 ms | 129 ms | – "  # noqa: RUF001
        "| hopper\\_ppcie | cc\\_off | measured |\n"
    )


def test_a_change_has_its_sign_and_a_share_its_percent() -> None:
    row = {"run_id": "a", "overhead_ns": -5 * MS, "share_fraction": -0.0128, "step_ns": MS, "baseline_step_ns": 6 * MS}
    text = markdown(overhead_breakdown.TABLE, rows_of(overhead_breakdown.TABLE, [row]))
    assert cells(text)[0][4:8] == ["−5.00 ms", "−1.28 %", "1.00 ms", "6.00 ms"]  # noqa: RUF001


def test_a_slope_is_said_to_be_modelled_though_its_row_is_measured() -> None:
    text = markdown(scaling.TABLE, rows_of(scaling.TABLE, [{"family_id": "f", "evidence": "measured"}]))
    assert "| slope (modelled) | slope low (modelled) | slope high (modelled) |" in text


def test_the_first_rows_are_shown_and_the_others_counted() -> None:
    rows = rows_of(pairs.TABLE, [{"run_id": f"run-{n:02}"} for n in reversed(range(13))])
    text = markdown(pairs.TABLE, rows, most=3)
    assert [row[0] for row in cells(text)] == ["run-00", "run-01", "run-02"]
    assert text.endswith("\n\nand 10 more rows\n")
    assert "more row" not in markdown(pairs.TABLE, rows, most=13)


def test_kernels_come_by_their_time() -> None:
    rows = [{"run_id": "a", "name": name, "total_ns": time_ns} for name, time_ns in (("a", 1), ("b", 3), ("c", 2))]
    assert [row[1] for row in cells(markdown(kernel_breakdown.TABLE, rows_of(kernel_breakdown.TABLE, rows)))] == list(
        "bca"
    )


@pytest.mark.parametrize("name", EVIL)
def test_whatever_a_name_says_is_shown_and_not_obeyed(name: str) -> None:
    text = markdown(kernel_breakdown.TABLE, rows_of(kernel_breakdown.TABLE, [{"run_id": "a", "name": name}]))
    assert strange(text) == set()
    shown = cells(text)[0][1].replace("\N{WORD JOINER}", "")
    assert shown == " ".join(name.splitlines()).replace("break ", "break  ").strip()
    assert cells(text)[0][2] == "compute"  # no cell more, none less


@pytest.mark.parametrize(
    "address", ["http://evil.example", "HTTPS://evil.example", "www.evil.example", "me@evil.example"]
)
def test_no_renderer_finds_an_address_to_link(address: str) -> None:
    text = markdown(pairs.TABLE, rows_of(pairs.TABLE, [{"run_id": address}]))
    # What GitHub's extension looks for, after escapes are resolved, as Dagster's renderer does.
    assert address.lower() not in cells(text)[0][0].lower()
    assert cells(text)[0][0].replace("\N{WORD JOINER}", "") == address


def test_every_telling_column_is_one_of_its_table_and_evidence_is_among_them() -> None:
    assert set(TELLING) == set(TABLES)
    for name, columns in TELLING.items():
        assert [TABLES[name].column(column).name for column in columns] == list(columns)
        assert {c for c in TABLES[name].column_names if c in {"evidence", "evidence_class"}} <= set(columns)


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_no_rows_is_said_with_what_would_be_one(table: Table) -> None:
    assert markdown(table, rows_of(table, [])).startswith("no rows: One row per ")
