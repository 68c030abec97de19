"""What changed between two groups of runs as tables: kernels, calls and collectives, the largest change first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold.work_changes import CHANGES
from report.markup import table
from report.section import Section
from report.units import format_change, format_duration, format_number, format_percent, format_ratio, legible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from report.markup import Markup

    Row = dict[str, Any]
    Rows = Sequence[Row]

MOST_ROWS = 40
_LONGEST_NAME = 48
WORDS = {name: name.replace("_", " ") for name in CHANGES}


def list_changes(name: str, title: str, rows: Rows, most: int = MOST_ROWS) -> Section:
    """The largest changes of a step's time; what only one side has is new or gone."""
    if not rows:
        return Section(name, title, "Not recorded on both sides.")
    has_exposed = any(row.get("step_exposed_ns") is not None for row in rows)
    columns = [("what", False), ("change", False), ("A per step", True), ("B per step", True), ("difference", True)]
    columns += [("ratio", True), ("q", True), ("times A", True), ("times B", True)]
    columns += [("exposed A", True), ("exposed B", True)] if has_exposed else []
    lines = [(None, _format_cells(row, has_exposed=has_exposed)) for row in rows[:most]]
    left = len(rows) - len(lines)
    lead = f"{summarise_changes(rows)}. Time per rank and step, measured"
    lead += f"; the {most} largest changes of {len(rows)}." if left > 0 else "."
    return Section(name, title, lead, (table(title, columns, lines),))


def list_source_lines(rows: Rows, most: int = MOST_ROWS) -> Markup:
    """The lines of runs' own code that copied, waited and launched longest; their names are sealed."""
    title = "Where own code copies pageable memory, waits for the GPU and launches (measured, on the host)"
    columns = [("run", False), ("what", False), ("line, by its span", False), ("calls", True), ("time", True)]
    columns += [("share", True), ("evidence", False)]
    longest = sorted(rows, key=lambda row: (-row["total_ns"], row["run_id"], row["operation"], row["ordinal"]))
    cells = [
        (
            legible(row["run_id"]),
            [
                *(row["run_id"], row["operation"].replace("_", " "), f"{row['source_sha256'][:8]} {row['ordinal']}"),
                *(format_number(row["calls_count"]), format_duration(row["total_ns"])),
                *(format_percent(row["share_fraction"]), row["evidence"]),
            ],
        )
        for row in longest[:most]
    ]
    return table(f"{title}; `teetotal what-if RUN --reveal` names the lines", columns, cells)


def _format_cells(row: Row, *, has_exposed: bool) -> list[str]:
    cells = [
        cut_text(describe_work(row), _LONGEST_NAME),
        WORDS[row["change"]],
        format_duration(row["baseline_step_total_ns"]),
        format_duration(row["step_total_ns"]),
        format_change(row["overhead_ns"]),
        format_ratio(row["slowdown_ratio"]),
        format_number(row["q_value"]),
        format_number(row["baseline_step_count"]),
        format_number(row["step_count"]),
    ]
    if has_exposed:
        cells += [format_duration(row.get(name)) for name in ("baseline_step_exposed_ns", "step_exposed_ns")]
    return cells


def describe_work(row: Row) -> str:
    """The name of a kind of work, with what sets it apart from others of that name."""
    kind = "" if row["kind"] in {"compute", "call"} else f" ({row['kind'].replace('_', ' ')})"
    return f"{row['name'] or 'unnamed'}{kind}{': ' + row['detail'] if row['detail'] else ''}"


def cut_text(text: str, longest: int) -> str:
    """A text of at most so many letters."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def summarise_changes(rows: Rows) -> str:
    """How many kinds of work changed, and how."""
    counts = {name: sum(row["change"] == name for row in rows) for name in WORDS}
    return f"{len(rows)} compared: " + ", ".join(f"{count} {WORDS[name]}" for name, count in counts.items() if count)
