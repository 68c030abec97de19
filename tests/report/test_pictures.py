from __future__ import annotations

import re
import threading
from dataclasses import replace

import pytest

from assets.build import gold
from gold import (
    cost_model,
    critical_path,
    exposure,
    kernel_breakdown,
    kernel_sequences,
    module_time,
    operator_time,
    pairs,
    source_lines,
    step_energy,
    step_overhead,
    step_times,
)
from report.drawing import specification, svg
from report.pictures import FIGURES, figure
from tests.support.drawn_figures import SVG, draw_picture, parse_svg, rows_of
from tests.support.report_answers import answers

TABLES = {table.full_name: table for table in gold.TABLES}
DRAWN = [name for name, rows in answers().items() if rows and name in FIGURES]
MS = 1_000_000
EVIL = '</text><script>alert(1)</script><image href="https://evil.example/x"/>'
MARKS = {"svg", "rect", "g", "path", "text", "tspan", "line", "defs", "clipPath"}


@pytest.mark.parametrize("name", DRAWN)
def test_every_specification_is_vega_lite_by_its_own_schema(name: str) -> None:
    import altair as alt  # takes as long to import as all of ours

    found = figure(TABLES[name], rows_of(TABLES[name], answers()[name]))
    assert found is not None
    for is_titled in (False, True):
        alt.Chart.from_dict(specification(found, is_titled=is_titled), validate=True)


@pytest.mark.parametrize("name", DRAWN)
def test_a_picture_has_its_title_its_words_and_marks_and_is_the_same_each_time(name: str) -> None:
    rows = rows_of(TABLES[name], answers()[name])
    drawn = draw_picture(TABLES[name], rows)
    tree = parse_svg(drawn)
    found = figure(TABLES[name], rows)
    assert found is not None
    words = ["".join(mark.itertext()) for mark in tree.iter(f"{SVG}text")]
    assert found.title in words
    assert {mark.tag.removeprefix(SVG) for mark in tree.iter()} <= MARKS
    assert "NaN" not in (drawn or "")
    assert draw_picture(TABLES[name], rows) == drawn


def test_all_tables_but_those_of_rows_alone_have_a_picture() -> None:
    rows_alone = (
        cost_model.TABLE,
        critical_path.TABLE,
        exposure.TABLE,
        kernel_sequences.TABLE,
        module_time.TABLE,
        operator_time.TABLE,
        pairs.TABLE,
        source_lines.TABLE,
        step_energy.TABLE,
        step_times.TABLE,
    )
    assert set(TABLES) - set(FIGURES) == {table.full_name for table in rows_alone}
    for name in FIGURES:
        said = "".join(parse_svg(draw_picture(TABLES[name], rows_of(TABLES[name], []))).itertext())
        assert f"{name}: no rows" in said
        assert TABLES[name].grain in said


def test_a_name_is_a_text_whatever_it_says() -> None:
    row = {"run_id": EVIL, "name": f"{EVIL}\x00\x1b[31m\u202e", "total_ns": MS}
    tree = parse_svg(draw_picture(kernel_breakdown.TABLE, rows_of(kernel_breakdown.TABLE, [row])))
    assert {mark.tag.removeprefix(SVG) for mark in tree.iter()} <= MARKS
    assert any("".join(mark.itertext()).startswith("</text><script>") for mark in tree.iter(f"{SVG}text"))
    assert not any(re.search("href|^on", name) for mark in tree.iter() for name in mark.attrib)


@pytest.mark.parametrize("outside", ["\x00", "\x01", "\x1b", "\ufffe", "\ud800"])
def test_what_no_svg_can_hold_is_left_out_wherever_it_stands(outside: str) -> None:
    """Drawn as it is, it ends the process, which may be the web interface's."""
    found = figure(kernel_breakdown.TABLE, rows_of(kernel_breakdown.TABLE, [{"name": "gemm", "total_ns": MS}]))
    assert found is not None
    *others, row = found.rows
    strange = replace(
        found, title=f"a{outside}title", notes=(f"a{outside}note",), rows=(*others, {**row, "name": f"a{outside}name"})
    )
    said = "".join(parse_svg(svg(specification(strange, is_titled=True))).itertext())
    assert {"a title", "a note", "a name"} <= set(re.findall("a (?:title|note|name)", said))


def test_a_long_name_does_not_widen_the_picture() -> None:
    table = kernel_breakdown.TABLE
    short, long = (
        parse_svg(draw_picture(table, rows_of(table, [{"run_id": name, "name": name, "total_ns": MS}])))
        for name in ("a", "漢W" * 300)
    )
    assert float(long.attrib["width"]) <= float(short.attrib["width"]) * 1.05


def test_threads_may_draw_at_once() -> None:
    rows = rows_of(step_overhead.TABLE, answers()["gold.step_overhead"])
    drawn: list[str | None] = []
    threads = [threading.Thread(target=lambda: drawn.append(draw_picture(step_overhead.TABLE, rows))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == 4
    assert len(set(drawn)) == 1
