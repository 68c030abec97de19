from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assets.build import gold
from gold import overhead_breakdown, step_overhead, time_breakdown
from report.terminal import PLOTTED, plot
from tests.support.drawn_figures import rows_of
from tests.support.report_answers import answers

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

TABLES = {table.full_name: table for table in gold.TABLES}


@pytest.mark.parametrize("name", [name for name in PLOTTED if answers()[name]])
def test_the_plots_are_what_they_were(name: str, snapshot: SnapshotAssertion) -> None:
    lines = plot(TABLES[name], rows_of(TABLES[name], answers()[name]), 100)
    assert lines is not None
    assert snapshot == "\n".join(lines)


def test_a_point_stands_between_the_ends_of_its_interval_and_right_of_one_where_it_is_slower() -> None:
    lines = plot(step_overhead.TABLE, rows_of(step_overhead.TABLE, answers()["gold.step_overhead"]), 100)
    (line,) = (line for line in lines or () if line.startswith("small-sealed"))
    assert line.index("│") < line.index("─") < line.index("●") < line.rindex("─")


def test_bars_are_as_long_as_their_steps() -> None:
    lines = plot(time_breakdown.TABLE, rows_of(time_breakdown.TABLE, answers()["gold.time_breakdown"]), 100)
    bars = [sum(line.count(sign) for sign in "█▓") for line in lines or () if line.startswith("rank")]
    assert bars == pytest.approx([max(bars) * part for part in (0.8, 1.0, 0.2, 0.3)], abs=1)


def test_a_bar_below_zero_takes_no_more_room_than_there_is() -> None:
    odd = {"baseline_step_ns": 1, "step_ns": 1, "overhead_ns": -(1 << 50)}
    rows = [
        {**row, **{name: value for name, value in odd.items() if name in row}}
        for row in answers()["gold.overhead_breakdown"]
    ]
    lines = plot(overhead_breakdown.TABLE, rows_of(overhead_breakdown.TABLE, rows), 100)
    assert lines
    assert max(map(len, lines)) <= 100
