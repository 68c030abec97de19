"""The overhead against ranks or bucket cap: measured points, and the modelled line through them."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from report.colours import BLUE, FAINT, INK, NOISE
from report.figure import Figure, Row, draw_marks, format_omitted, ms
from report.units import finite, format_change, format_number, format_ratio, legible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_FAMILIES = 8
_AXES = {"world_size": "ranks", "bucket_cap_mib": "MiB of bucket cap"}
# Where a number stands beside its point, so that the line between the points, rising mostly, does not cross it.
_SIDES = {"left": ("left", 8, 13), "middle": ("center", 0, -12), "right": ("right", -8, -10)}
_SPEAKING = ("model", "dtype")


def scaling(rows: Sequence[Row]) -> Figure:
    """One panel per family, regime and axis; the slope is dashed, since it is modelled, and fanned out where known."""
    rows = [row for row in rows if row["axis"] in _AXES]  # what must be sealed follows from these
    known = [row for row in rows if finite(row["axis_number"])]
    panels = [list(of) for _, of in groupby(known, key=lambda row: (row["family_id"], row["regime"], row["axis"]))]
    # One place of an axis says nothing of how the overhead grows along it.
    several = [panel for panel in panels if len({row["axis_number"] for row in panel}) > 1]
    kept = several[:MOST_FAMILIES]
    shown = tuple(mark for panel in kept for mark in _panel(panel))
    notes = (
        *(f"{_name(panel[0])}: {_describe_slope(panel[0])}" for panel in kept),
        *format_omitted(len(several) - len(kept), "panel"),
        *_is_lone_point(len(panels) - len(several)),
        *format_omitted(len(rows) - len(known), "run without a place on its axis"),
    )
    subtitle = "median step less that of the baseline; points measured, dashed line modelled"
    return Figure("How the overhead grows", subtitle, shown, _spec(shown, len(kept)), notes)


def _spec(shown: Sequence[Row], panels: int) -> Row:
    x: Row = {"field": "place", "type": "quantitative", "title": None, "scale": {"zero": False, "padding": 24}}
    x["axis"] = {"tickMinStep": 1, "tickCount": 4, "grid": False, "format": "~g"}
    y = {"field": "overhead", "type": "quantitative", "title": "overhead, ms per step", "axis": {"tickCount": 5}}
    beside: Row = {name: {"expr": f"datum.{name}"} for name in ("align", "dx", "dy")}
    fan = {"type": "area", "color": NOISE, "opacity": 1}
    line = {"type": "line", "color": BLUE, "strokeDash": [5, 4], "strokeWidth": 1.5}
    layers = [
        draw_marks("fan_low", fan, x=x, y={**y, "field": "fan_low"}, y2={"field": "fan_high"}),
        {
            "mark": {"type": "rule", "color": FAINT, "tooltip": None},
            "encoding": {"y": {"datum": 0}},
        },
        draw_marks("line", line, x=x, y={**y, "field": "line"}),
        draw_marks("overhead", {"type": "point", "filled": True, "color": BLUE, "size": 70, "opacity": 1}, x=x, y=y),
        {
            "transform": [{"filter": "isValid(datum.align)"}],
            "mark": {"type": "text", "fontSize": 11, "tooltip": None, "color": INK, **beside},
            "encoding": {"x": x, "y": y, "text": {"field": "value", "type": "nominal"}},
        },
    ]
    # A layer without rows would have no scale to stand on.
    layers = [
        layer
        for layer, field in zip(layers, ("fan_low", "overhead", "line", "overhead", "align"), strict=True)
        if any(field in row for row in shown)
    ]
    return {
        "facet": {"field": "panel", "type": "nominal", "title": None, "sort": None, "header": {"labelLimit": 360}},
        "columns": min(2, max(1, panels)),
        "spacing": {"row": 30, "column": 40},
        "resolve": {"scale": {"x": "independent", "y": "independent"}},
        "spec": {"width": 340, "height": 170, "layer": layers},
    }


def _panel(panel: list[Row]) -> Iterator[Row]:
    """The points of a family, and where the modelled line and its fan begin and end."""
    first, named = panel[0], _name(panel[0])
    common = {"panel": named}
    lowest, highest = (edge(row["axis_number"] for row in panel) for edge in (min, max))
    span = max(abs(row["overhead_ns"]) for row in panel) or 1
    written: list[Row] = []
    for row in sorted(panel, key=lambda row: (row["axis_number"], -row["overhead_ns"], row["tee_run_id"])):
        text = f"{format_change(row['overhead_ns'])}, {format_ratio(row['slowdown_ratio'])}"
        yield {
            **common,
            "run": legible(row["tee_run_id"]),
            "label": f"{legible(row['tee_run_id'])} at {format_number(row['axis_number'])} {_AXES[row['axis']]}",
            "place": row["axis_number"],
            "overhead": ms(row["overhead_ns"]),
            "value": text,
            **_place_label(row, written, span, {lowest: "left", highest: "right"}.get(row["axis_number"], "middle")),
            "what": f"{legible(row['tee_run_id'])}, {format_number(row['axis_number'])} {_AXES[row['axis']]}",
            "detail": text,
            "evidence": row["evidence"],
        }
    ends = sorted({row["axis_number"] for row in panel})
    if first["slope_ns"] is None or len(ends) < 2:
        return
    middle = sum(row["axis_number"] / len(panel) for row in panel)
    overhead = sum(row["overhead_ns"] for row in panel) / len(panel)
    slopes = {name: first[f"slope{end}_ns"] for name, end in (("line", ""), ("fan_low", "_low"), ("fan_high", "_high"))}
    # The lines that the interval allows cross where least squares puts the middle: the fan needs that corner too.
    for at in sorted({ends[0], middle, ends[-1]}):
        yield {
            **common,
            "place": at,
            **{name: ms(overhead + slope * (at - middle)) for name, slope in slopes.items() if slope is not None},
            "what": "slope",
            "detail": _describe_slope(first),
            "evidence": "modelled",
        }


def _place_label(row: Row, written: list[Row], span: float, side: str) -> Row:
    """On which side of its point a number is written; nowhere where it would touch another."""
    if any(
        row["axis_number"] == other["axis_number"] and abs(row["overhead_ns"] - other["overhead_ns"]) < span / 8
        for other in written
    ):
        return {}
    written.append(row)
    return dict(zip(("align", "dx", "dy"), _SIDES[side], strict=True))


def _is_lone_point(count: int) -> tuple[str, ...]:
    many = "1 family has its" if count == 1 else f"{format_number(count)} families have their"
    return (f"{many} runs at one place of an axis, which gives no slope",) if count else ()


def _name(row: Row) -> str:
    """What the runs of a panel share, in short: the model, the number format, the regime, the axis."""
    fields = dict(part.partition("=")[::2] for part in row["family"].split("|"))
    shared = [fields.get(name, "") for name in _SPEAKING]
    return legible(", ".join(filter(None, [*shared, row["regime"], f"by {_AXES[row['axis']]}"])))


def _describe_slope(row: Row) -> str:
    """The slope with its interval, or why there is none."""
    if row["slope_ns"] is None:
        return f"no slope: {row['reason'] or 'not known'}"
    unit = "rank" if row["axis"] == "world_size" else "MiB"
    slope = f"{format_change(row['slope_ns'])} per {unit}, modelled"
    if row["slope_low_ns"] is None or row["slope_high_ns"] is None:
        return f"{slope}; {row['reason'] or 'no interval'}"
    return f"{slope}; 95 % {format_change(row['slope_low_ns'])} to {format_change(row['slope_high_ns'])}"
