"""The toll against ranks or bucket cap: measured points, and the modelled line through them."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from report.colours import BLUE, PALE
from report.svg import GRID, INK, MARGIN, MUTED, RIGHT, SMALL, Drawing, Scale, rounded
from report.units import change, duration, finite, number, ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = dict[str, Any]

MOST_FAMILIES = 4
_LEFT, _HIGH, _LABEL = 84, 150, 170
_AXES = {"world_size": "ranks", "bucket_cap_mib": "MiB of bucket cap"}
_SPEAKING = ("model", "dtype", "parallelism", "backend", "gpu", "host_cpu")


def scaling(rows: Sequence[Row]) -> str:
    """One panel per family, regime and axis; the slope is dashed, since it is modelled, and fanned out where known."""
    drawing = Drawing("How the toll grows", "median step less that of the twin; points measured, dashed line modelled")
    rows = [row for row in rows if row["axis"] in _AXES]  # what must be sealed follows from these
    known = [row for row in rows if finite(row["axis_number"])]
    panels = [list(of) for _, of in groupby(known, key=lambda row: (row["run_id"], row["regime"], row["axis"]))]
    for panel in panels[:MOST_FAMILIES]:
        _panel(drawing, panel)
    drawing.more(len(panels) - MOST_FAMILIES, "panel")
    drawing.more(len(rows) - len(known), "run without a place on its axis")
    return drawing.finished()


def _panel(drawing: Drawing, panel: list[Row]) -> None:
    first = panel[0]
    common = ", ".join(filter(None, map(_common, first["family"].split("|"))))
    drawing.text(MARGIN, drawing.y + 15, common, weight=600, most_px=470)
    drawing.text(RIGHT, drawing.y + 15, first["regime"], px=SMALL, colour=MUTED, anchor="end", most_px=200)
    drawing.y += 32
    across = _across(panel)
    tolls = [row["toll_ns"] for row in panel]
    reached = [0, *tolls, *(toll for toll in _line(panel, across, first["slope_ns"]) if finite(toll))]
    room = (max(reached) - min(reached)) * 0.3 or 1
    up = Scale(min(reached), max(reached) + room, drawing.y + _HIGH, drawing.y)
    for tick in up.ticks:
        drawing.line(_LEFT, up.at(tick), RIGHT, up.at(tick), GRID)
        drawing.text(_LEFT - 8, up.at(tick) + 4, rounded(duration(tick)), px=SMALL, colour=MUTED, anchor="end")
    drawing.line(_LEFT, up.at(0), RIGHT, up.at(0), INK)
    _slope(drawing, panel, across, up)
    _points(drawing, sorted(panel, key=lambda row: (row["axis_number"], row["tee_run_id"])), across, up)
    bottom = drawing.y + _HIGH
    last = 0.0
    for place in sorted({row["axis_number"] for row in panel}):
        if across.at(place) - last > 30:
            last = across.at(place)
            drawing.text(last, bottom + 16, number(place), px=SMALL, colour=MUTED, anchor="middle")
    drawing.text(RIGHT, bottom + 16, _AXES[first["axis"]], px=SMALL, colour=MUTED, anchor="end")
    drawing.y = bottom + 22
    drawing.note(_told(first), x=_LEFT)
    drawing.y += 10


def _across(panel: list[Row]) -> Scale:
    places = [row["axis_number"] for row in panel]
    low, high = min(places), max(places)
    left, right = _LEFT + 110, RIGHT - 150
    return Scale(low, high, left, right) if low < high else Scale(low, high, (left + right) / 2, (left + right) / 2)


def _points(drawing: Drawing, panel: list[Row], across: Scale, up: Scale) -> None:
    """Draw the points, and name those whose label touches no other: the first and the last before the rest."""
    taken: list[tuple[float, float]] = []
    for row in (panel[0], panel[-1], *panel[1:-1]) if len(panel) > 1 else panel:
        x, y = across.at(row["axis_number"]), up.at(row["toll_ns"])
        told = f"{change(row['toll_ns'])}, {ratio(row['slowdown_ratio'])}"
        drawing.dot(x, y, BLUE, f"{row['tee_run_id']}: {told}, {row['evidence']}")
        # Over the point, on the side where the line is lower.
        is_rising = (row["slope_ns"] or 0) > 0
        edge, anchor = (x + 5, "end") if is_rising else (x - 5, "start")
        left = edge - _LABEL if is_rising else edge
        if any(abs(left - other) < _LABEL and -26 < y - top < 26 for other, top in taken):
            continue
        taken.append((left, y))
        drawing.text(edge, y - 22, told, px=SMALL, anchor=anchor, weight=600, has_halo=True)
        name = f"{row['tee_run_id']}, {row['evidence']}"
        drawing.text(edge, y - 9, name, px=SMALL, anchor=anchor, colour=MUTED, most_px=_LABEL, has_halo=True)


def _line(panel: list[Row], across: Scale, slope_ns: int | None) -> list[float]:
    """Where a line of that slope ends that goes through the middle of the points, as least squares does."""
    if slope_ns is None or across.left == across.right:
        return []
    middle = sum(row["axis_number"] / len(panel) for row in panel)
    toll = sum(row["toll_ns"] for row in panel) / len(panel)
    return [toll + slope_ns * (place - middle) for place in (across.low, across.high)]


def _slope(drawing: Drawing, panel: list[Row], across: Scale, up: Scale) -> None:
    """Draw the line, over the fan of the lines that its interval allows."""
    first = panel[0]
    low, high = (_line(panel, across, first[name]) for name in ("slope_low_ns", "slope_high_ns"))
    if low and high:
        # From left to right along one line and back along the other: they cross, so this encloses two triangles.
        corners = ((across.left, low[0]), (across.right, low[1]), (across.right, high[1]), (across.left, high[0]))
        fan = [(x, up.beyond(toll)) for x, toll in corners]
        drawing.area(fan, (across, up), PALE, f"95 % interval of the slope: {_told(first)}")
    line = _line(panel, across, first["slope_ns"])
    if line:
        drawing.dashed(across.left, up.at(line[0]), across.right, up.at(line[1]), BLUE, f"slope: {_told(first)}")


def _told(row: Row) -> str:
    """The slope with its interval, or why there is none."""
    if row["slope_ns"] is None:
        return f"no slope: {row['reason'] or 'not known'}"
    unit = "rank" if row["axis"] == "world_size" else "MiB"
    slope = f"{change(row['slope_ns'])} per {unit}, modelled"
    if row["slope_low_ns"] is None or row["slope_high_ns"] is None:
        return f"{slope}; {row['reason'] or 'no interval'}"
    return f"{slope}; 95 % {change(row['slope_low_ns'])} to {change(row['slope_high_ns'])}"


def _common(part: str) -> str:
    """What the runs share, without the name of the field where the value speaks for itself."""
    field, _, value = part.partition("=")
    return value if field in _SPEAKING or not value else f"{field.removesuffix('_version')} {value}"
