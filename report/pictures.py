"""Which picture a gold table has: one a table where a picture says more than its rows do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold import (
    attested_runs,
    kernel_breakdown,
    launches,
    published,
    scaling,
    sealing_coverage,
    step_overhead,
    stragglers,
    throughput_overhead,
    time_breakdown,
    toll_breakdown,
    trace_summary,
)
from report import ranges, rankings, slopes, stacked, waterfall
from report.colours import BLUE, ORANGE
from report.svg import BAD, MARGIN, MUTED, RIGHT, SMALL, Drawing
from report.units import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from lake.tables import Table

    Row = dict[str, Any]

MOST_RUNS = 12
_MARKS = {"agrees": (BLUE, False), "unproven": (ORANGE, True), "contradicted": (BAD, False)}


def picture(table: Table, rows: pa.Table) -> str | None:
    """Draw the rows of a table, in whatever order they come; None where the rows themselves say it best."""
    drawn = _PICTURES.get(table.full_name)
    if drawn is None:
        return None
    if not rows.num_rows:
        return _empty(table)
    return drawn(sorted(rows.to_pylist(), key=lambda row: tuple(row[name] for name in ("run_id", *table.key))))


def _empty(table: Table) -> str:
    """No rows is an answer as well: what would have had one is said."""
    drawing = Drawing(f"{table.full_name}: no rows", "there is nothing to draw")
    drawing.note(table.grain)
    return drawing.finished()


def _attested(rows: Sequence[Row]) -> str:
    """A mark and the verdict per run; a contradicted claim is red, an unproven one hollow."""
    drawing = Drawing(
        "Does the recording show what the run claims?", "claim against recording; nothing here is attested"
    )
    if any(row["has_attestation"] for row in rows):
        drawing = Drawing("Does the recording show what the run claims?", "claim against recording and attestation")
    for row in rows[:MOST_RUNS]:
        colour, hollow = _MARKS[row["agreement"]]
        drawing.dot(MARGIN + 6, drawing.y + 11, colour, f"{row['run_id']}: {row['agreement']}", hollow=hollow)
        attested = ", attested" if row["has_attestation"] else ""
        drawing.text(MARGIN + 20, drawing.y + 15, row["run_id"], weight=600, most_px=300)
        claim = f"{row['regime'] or 'no regime'}, {row['agreement']}{attested}"
        drawing.text(RIGHT - 84, drawing.y + 15, claim, px=SMALL, anchor="end", most_px=280)
        drawing.text(RIGHT, drawing.y + 15, row["evidence"], px=SMALL, colour=MUTED, anchor="end")
        drawing.text(MARGIN + 20, drawing.y + 30, row["verdict"], px=SMALL, colour=MUTED)
        drawing.y += 42
        if row["found_violations_count"]:
            drawing.note(counted(row["found_violations_count"], "violation"), colour=BAD, x=MARGIN + 20)
    drawing.more(len(rows) - MOST_RUNS, "run")
    return drawing.finished()


_PICTURES: dict[str, Callable[[Sequence[Row]], str]] = {
    attested_runs.TABLE.full_name: _attested,
    kernel_breakdown.TABLE.full_name: rankings.kernel_breakdown,
    launches.TABLE.full_name: ranges.launches,
    published.TABLE.full_name: ranges.published,
    scaling.TABLE.full_name: slopes.scaling,
    sealing_coverage.TABLE.full_name: stacked.sealing_coverage,
    step_overhead.TABLE.full_name: ranges.step_overhead,
    stragglers.TABLE.full_name: rankings.stragglers,
    throughput_overhead.TABLE.full_name: ranges.throughput_overhead,
    time_breakdown.TABLE.full_name: stacked.time_breakdown,
    toll_breakdown.TABLE.full_name: waterfall.toll_breakdown,
    trace_summary.TABLE.full_name: stacked.trace_summary,
}
