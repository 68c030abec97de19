"""The figures that fit a terminal, in plain letters and blocks: the same rows as the pictures, without a colour."""

from __future__ import annotations

from itertools import groupby
from textwrap import wrap
from typing import TYPE_CHECKING

from gold import (
    collective_bandwidth,
    energy_overhead,
    idle_breakdown,
    kernel_breakdown,
    operation_overhead,
    overhead_breakdown,
    queue_length,
    roofline,
    scaling,
    sealing_coverage,
    step_overhead,
    throughput_overhead,
    time_breakdown,
    trace_summary,
)
from report.pictures import figure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import pyarrow as pa

    from lake.tables import Table
    from report.figure import Row

_MOST_NAME, _LEAST_PLOT, _SIDE = 48, 20, 30
_FILLS = "█▓▒░▞▚╬#=+-"


def plot(table: Table, rows: pa.Table, width: int) -> list[str] | None:
    """The lines of a small chart; None where a table has none."""
    draw = _PLOTS.get(table.full_name)
    found = figure(table, rows)
    if draw is None or found is None:
        return None
    if not any("run" in row for row in found.rows):
        lines = [found.title, *(str(row["value"]) for row in found.rows)]
        return [line[:width] for line in lines]
    names = [_name_line(row) for row in found.rows]
    name = min(_MOST_NAME, max(map(len, names), default=0))
    bar_width = max(_LEAST_PLOT, width - name - _SIDE - 4)
    said = [line for text in (found.title, found.subtitle) for line in wrap(text, width)]
    lines = [
        *said,
        "",
        *draw(found.rows, name, bar_width),
        *(line for note in found.notes for line in wrap(note, width)),
    ]
    return [line[:width].replace("\N{NO-BREAK SPACE}", " ").rstrip() for line in lines]


def _intervals(rows: Sequence[Row], name: int, bar_width: int) -> Iterator[str]:
    """A point with its interval on a line, and a stroke where nothing differs."""
    ends = [row[key] for row in rows for key in ("at", "open", "low", "high") if key in row]
    low, high = min([1.0, *ends]), max([1.0, *ends])

    def place(value: float) -> int:
        return round((value - low) / (high - low) * (bar_width - 1)) if high > low else 0

    for row in rows:
        cells = [" "] * bar_width
        cells[place(1.0)] = "│"
        if "low" in row:
            first, last = place(row["low"]), place(row["high"])
            cells[first : last + 1] = "─" * (last + 1 - first)
        for key, mark in (("at", "●"), ("open", "○")):
            if key in row:
                cells[place(row[key])] = mark
        yield f"{_clip(_name_line(row), name)}  {''.join(cells)}  {row['value']:>12} {row['evidence']}"
    yield f"{'':{name}}  {_axis(low, high, bar_width)}"


def _waterfall(rows: Sequence[Row], name: int, bar_width: int) -> Iterator[str]:
    """Each part from where the last one ended: full blocks where time was added, light ones where it was saved."""
    for panel, marks in groupby(rows, key=lambda row: str(row["panel"])):
        of = list(marks)
        most = max((max(row["start"], row["end"]) for row in of if "end" in row), default=0.0) or 1.0
        yield panel
        for row in of:
            if "end" not in row:
                yield f"{_clip(row['label'], name)}  {row['unseen']}"
                continue
            # Clipped to the width: where a step is below zero beside a short one, the bar would be of any length.
            first, last = sorted(min(max(round(row[key] / most * bar_width), 0), bar_width) for key in ("start", "end"))
            fill = {"mean step": "█", "takes longer": "▓", "takes less": "░"}[row["kind"]]
            bar = " " * first + fill * max(last - first, row["start"] != row["end"])
            yield f"{_clip(row['label'], name)}  {bar:{bar_width}.{bar_width}}  {row['value']} {row['evidence']}"
        yield ""


def _draw_stacked(rows: Sequence[Row], name: int, bar_width: int) -> Iterator[str]:
    """One bar a rank, a sign a part, and what the signs stand for under them."""
    parts = list(dict.fromkeys(row["what"] for row in rows if "what" in row))
    fills = {part: _FILLS[place % len(_FILLS)] for place, part in enumerate(parts)}
    most = max((row["end"] for row in rows if "end" in row), default=0.0) or 1.0
    for _, marks in groupby(rows, key=lambda row: int(row["line"])):
        of = list(marks)
        if "group" in of[0]:
            yield str(of[0]["group"])
            continue
        bar = ""
        for row in of:
            if "end" in row:
                bar += fills[row["what"]] * (round(row["end"] / most * bar_width) - len(bar))
        text = f"{of[0]['value']} {of[0]['evidence']}" if bar or "note" not in of[0] else ""
        yield f"{_clip(of[0]['label'], name)}  {bar or of[0].get('note', ''):{bar_width}}  {text}"
    yield ""
    signs = [f"{fill} {part}".replace(" ", "\N{NO-BREAK SPACE}") for part, fill in fills.items()]
    yield from wrap("  ".join(signs), name + bar_width + _SIDE)


def _bars(rows: Sequence[Row], name: int, bar_width: int) -> Iterator[str]:
    """One bar a row that has a number."""
    most = max((abs(row[key]) for row in rows for key in ("at", "overhead") if key in row), default=0.0) or 1.0
    for row in rows:
        amount = row.get("at", row.get("overhead"))
        if amount is not None:
            bar = ("█" if amount >= 0 else "░") * round(abs(amount) / most * bar_width)
            text = row["value"] if row["evidence"] in row["value"] else f"{row['value']}, {row['evidence']}"
            yield f"{_clip(row['label'], name)}  {bar:{bar_width}}  {text}"


def _axis(low: float, high: float, bar_width: int) -> str:
    left, right = f"{low:.3g}×", f"{high:.3g}×"  # noqa: RUF001
    return f"{left}{right:>{max(bar_width - len(left), len(right) + 1)}}"


def _name_line(row: Row) -> str:
    """What a line is called; an operation by its run as well."""
    label = str(row.get("label") or row.get("group") or "")
    return f"{row['run']}: {label}" if row.get("under") == row.get("run") and row.get("run") else label


def _clip(text: str, most: int) -> str:
    return f"{text:{most}}" if len(text) <= most else text[: most - 1] + "…"


_PLOTS: dict[str, Callable[[Sequence[Row], int, int], Iterator[str]]] = {
    energy_overhead.TABLE.full_name: _intervals,
    collective_bandwidth.TABLE.full_name: _bars,
    idle_breakdown.TABLE.full_name: _draw_stacked,
    kernel_breakdown.TABLE.full_name: _bars,
    operation_overhead.TABLE.full_name: _intervals,
    queue_length.TABLE.full_name: _bars,
    roofline.TABLE.full_name: _bars,
    scaling.TABLE.full_name: _bars,
    sealing_coverage.TABLE.full_name: _draw_stacked,
    step_overhead.TABLE.full_name: _intervals,
    throughput_overhead.TABLE.full_name: _intervals,
    time_breakdown.TABLE.full_name: _draw_stacked,
    overhead_breakdown.TABLE.full_name: _waterfall,
    trace_summary.TABLE.full_name: _draw_stacked,
}
PLOTTED = tuple(_PLOTS)
