"""The toll against ranks or bucket cap: measured points, and the modelled line through them."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from report.colours import BLUE, PALE
from report.svg import GRID, INK, MARGIN, MUTED, RIGHT, SMALL, Drawing, Scale
from report.units import change, duration, finite, number, ratio

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = dict[str, Any]

MOST_FAMILIES = 4
_LEFT, _HIGH = 84, 150
_AXES = {"world_size": "ranks", "bucket_cap_mib": "MiB of bucket cap"}
_MOST_TICKS = 8
_SPEAKING = ("model", "dtype", "parallelism", "backend", "gpu", "host_cpu")


def scaling(rows: Sequence[Row]) -> str:
    """One panel per family, regime and axis; the slope is dashed, since it is modelled, and fanned out where known."""
    drawing = Drawing("How the toll grows", "median step less that of the twin; points measured, dashed line modelled")
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
    room = (max(tolls) - min(0, *tolls)) * 0.25 or 1
    up = Scale(min(0, *tolls), max(0, *tolls) + room, drawing.y + _HIGH, drawing.y)
    for tick in up.ticks:
        drawing.line(_LEFT, up.at(tick), RIGHT, up.at(tick), GRID)
        drawing.text(_LEFT - 8, up.at(tick) + 4, duration(tick), px=SMALL, colour=MUTED, anchor="end")
    drawing.line(_LEFT, up.at(0), RIGHT, up.at(0), INK)
    _slope(drawing, panel, across, up)
    for row in panel:
        _point(drawing, row, across, up)
    bottom = drawing.y + _HIGH
    for place in sorted({row["axis_number"] for row in panel})[:_MOST_TICKS]:
        drawing.text(across.at(place), bottom + 16, number(_whole(place)), px=SMALL, colour=MUTED, anchor="middle")
    drawing.text(RIGHT, bottom + 16, _AXES[first["axis"]], px=SMALL, colour=MUTED, anchor="end")
    drawing.y = bottom + 22
    drawing.note(_told(first), x=_LEFT)
    drawing.y += 10


def _across(panel: list[Row]) -> Scale:
    places = [row["axis_number"] for row in panel]
    low, high = min(places), max(places)
    left, right = _LEFT + 60, RIGHT - 110
    return Scale(low, high, left, right) if low < high else Scale(low, high, (left + right) / 2, (left + right) / 2)


def _point(drawing: Drawing, row: Row, across: Scale, up: Scale) -> None:
    x, y = across.at(row["axis_number"]), up.at(row["toll_ns"])
    told = f"{change(row['toll_ns'])}, {ratio(row['slowdown_ratio'])}"
    drawing.dot(x, y, BLUE, f"{row['tee_run_id']}: {told}, {row['evidence']}")
    # Beside the line, never on it: over the point where the line falls away from it, under it where it climbs.
    is_left = x <= (_LEFT + RIGHT) / 2
    base = y - 21 if is_left != ((row["slope_ns"] or 0) > 0) else y + 17
    side = {"x": x - 5 if is_left else x + 5, "anchor": "start" if is_left else "end"}
    for down, text, weight in ((0, f"{told}, {row['evidence']}", 600), (13, row["tee_run_id"], 400)):
        drawing.text(**side, y=base + down, text=text, px=SMALL, weight=weight, has_halo=True)


def _slope(drawing: Drawing, panel: list[Row], across: Scale, up: Scale) -> None:
    """Draw the line through the middle of the points, which least squares goes through."""
    first, count = panel[0], len(panel)
    if first["slope_ns"] is None or across.left == across.right:
        return
    middle = sum(row["axis_number"] / count for row in panel)
    toll = sum(row["toll_ns"] for row in panel) / count
    ends = (across.low, across.high)

    def height(slope: float, place: float) -> float:
        return up.at(toll + slope * (place - middle))

    if first["slope_low_ns"] is not None and first["slope_high_ns"] is not None:
        slopes = (first["slope_low_ns"], first["slope_high_ns"])
        corners = [(place, height(slope, place)) for slope in slopes for place in ends]
        order = (corners[0], corners[2], corners[1], corners[3])
        fan = [(across.at(place), y) for place, y in order]
        drawing.area([fan[0], fan[1], fan[3], fan[2]], PALE, f"95 % interval of the slope, modelled: {_told(first)}")
    left, right = (height(first["slope_ns"], place) for place in ends)
    drawing.dashed(across.left, left, across.right, right, BLUE, f"slope, modelled: {_told(first)}")


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


def _whole(place: float) -> float:
    return int(place) if place.is_integer() and abs(place) < 1e15 else place
