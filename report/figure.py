"""A figure: the rows behind it and a Vega-Lite specification over them; how a plot of one line a row is laid out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from report.colours import FAINT, GRID, INK, MUTED
from report.units import finite, legible

Row = dict[str, Any]

# A line: its name to the left, its marks on the plot, its number and evidence to the right.
NAME, PLOT, NUMBER, EVIDENCE = 270, 430, 92, 92
_LONGEST_ALT = 600
_MOST = 1e300  # so that a little room beyond it is still a number
_FAR = 12  # times as far as the nearest: a scale of powers shows both


@dataclass(frozen=True)
class Figure:
    """What a person is shown: rows are all that is drawn, notes say what is not."""

    title: str
    subtitle: str
    rows: tuple[Row, ...]
    spec: Row
    notes: tuple[str, ...] = ()
    # It says in words that there is nothing to draw.
    is_empty: bool = False

    @property
    def alt(self) -> str:
        """The figure in words, for whoever does not see it: each line with its number."""
        values = [f"{row['label']}: {row['value']}" for row in self.rows if row.get("label") and row.get("value")]
        text = legible(f"{self.title}, {self.subtitle}. {'; '.join(values)}".replace("\n", ", "))
        return text if len(text) <= _LONGEST_ALT else text[: _LONGEST_ALT - 1] + "…"


def lines(*layers: Row, high: int = 22) -> Row:
    """A plot of one line a row, in the order of `line`; layers draw on it."""
    return {
        "width": PLOT,
        "height": {"step": high},
        "encoding": {"y": {"field": "line", "type": "ordinal", "axis": None, "scale": {"type": "band", "padding": 0}}},
        "layer": list(layers),
    }


def names(field: str = "label", *, dy: int = 0, colour: str = INK, weight: int = 400, x: int = -NAME - 10) -> Row:
    """The names of the lines, to the left of the plot."""
    return words(field, x, NAME, dy=dy, colour=colour, weight=weight)


def numbers(*, dy: int = 0) -> list[Row]:
    """The numbers of the lines and where they come from, to the right of the plot."""
    right = PLOT + 10 + NUMBER
    return [
        words("value", right, NUMBER, dy=dy, weight=600, align="right"),
        words("evidence_text", right + 12, EVIDENCE, dy=dy, colour=MUTED),
    ]


def words(
    field: str,
    x: float,
    most_px: int,
    *,
    dy: int = 0,
    colour: str = INK,
    weight: int = 400,
    align: str = "left",
    size: int | None = None,
) -> Row:
    """A text of each row that has one, cut where its room ends."""
    style: Row = {"align": align, "baseline": "middle", "limit": most_px, "dy": dy, "fontWeight": weight}
    # What stands beside something else is smaller.
    style["fontSize"] = size or (11 if colour == MUTED else 12)
    return {
        "transform": [{"filter": f"isValid(datum.{field})"}],
        "mark": {"type": "text", "color": colour, "tooltip": None, **style},
        "encoding": {"x": {"value": x}, "text": {"field": field, "type": "nominal"}},
    }


def draw_marks(needs: str, mark: Row, **encoding: Row) -> Row:
    """A mark for each row that has the field it needs, with what it stands for as its tooltip."""
    return {
        "transform": [{"filter": f"isValid(datum.{needs})"}],
        "mark": mark,
        "encoding": {**encoding, "tooltip": TOOLTIP},
    }


def select_rows(what: str, layer: Row) -> Row:
    """A layer of the rows that stand for one thing; what that is, is our own word and no name from outside."""
    return {**layer, "transform": [{"filter": {"field": "what", "equal": what}}, *layer["transform"]]}


TOOLTIP = [
    {"field": "run", "type": "nominal", "title": "run"},
    {"field": "what", "type": "nominal", "title": "what"},
    {"field": "detail", "type": "nominal", "title": "value"},
    {"field": "evidence", "type": "nominal", "title": "evidence"},
]


def shared_scale(field: str, title: str, *, scale: Row | None = None, axis: Row | None = None) -> Row:
    """The scale that all lines share."""
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": scale or {},
        "axis": {**ticks(scale or {}), **(axis or {})},
    }


def vertical_labels(at: float, colour: str = FAINT) -> Row:
    """A line through all rows at one number, such as 1 for no difference."""
    return {
        "data": {"values": [{}]},
        "mark": {"type": "rule", "color": colour, "strokeWidth": 1.5, "tooltip": None},
        "encoding": {"x": {"datum": at}, "y": {"value": 0}, "y2": {"value": "height"}},
    }


def legend(field: str, named: list[tuple[str, str]], columns: int = 6) -> Row:
    """Colours by name, said once over the plot."""
    return {
        "field": field,
        "type": "nominal",
        "scale": {"domain": [name for name, _ in named], "range": [colour for _, colour in named]},
        "legend": {
            "orient": "top",
            "direction": "horizontal",
            "columns": columns,
            "title": None,
            "offset": 14,
            "symbolType": "square",
        },
    }


def scale_of(values: list[float | None], mark: float) -> Row:
    """A scale that holds all values and the mark; of powers where they are far apart."""
    found = [min(value, _MOST) for value in values if finite(value)]
    low, high = min((mark, *found)), max((mark, *found))
    if low > 0 and high / low > _FAR:
        return {"type": "log", "domain": [max(low / 1.1, 1 / _MOST), high * 1.1], "nice": False}
    room = (high - low) * 0.06 or mark * 0.05
    return {"domain": [max(0.0, low - room), high + room], "nice": False, "zero": False}


def powers(found: list[float]) -> Row:
    """A scale of powers over what there is, with a little room."""
    low, high = max(min(found, default=1.0), 1 / _MOST), min(max(found, default=10.0), _MOST)
    return {"type": "log", "domain": [low / 1.3, high * 1.3], "nice": False}


def ticks(scale: Row) -> Row:
    """The round numbers of a scale of powers, few enough to be read; any other scale finds its own."""
    if scale.get("type") != "log":
        return {}
    low, high = scale["domain"]
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, (last - first) // 6)
    parts = (1, 2, 5) if last - first < 4 else (1,)
    return {"values": [float(f"{part}e{power}") for power in range(first, last + 1, every) for part in parts]}


def format_omitted(count: int, noun: str) -> tuple[str, ...]:
    """What was left out, or nothing."""
    return (f"and {count:,} more {noun}{'' if count == 1 else 's'}",) if count > 0 else ()


def ms(time_ns: float) -> float:
    """Nanoseconds as the milliseconds that an axis shows."""
    return time_ns / 1e6


CONFIG: Row = {
    "background": "transparent",
    "font": "Helvetica, Arial, sans-serif",
    "view": {"stroke": None},
    "padding": 12,
    "aria": False,
    "axis": {
        "labelColor": MUTED,
        "titleColor": MUTED,
        "titleFontWeight": "normal",
        "titleFontSize": 11,
        "labelFontSize": 11,
        "gridColor": GRID,
        "domainColor": GRID,
        "tickColor": GRID,
        "labelOverlap": True,
        "tickCount": 6,
    },
    "legend": {"labelColor": INK, "labelFontSize": 11, "labelLimit": 240, "symbolSize": 90},
    "header": {
        "labelColor": INK,
        "labelFontSize": 12,
        "labelFontWeight": 600,
        "labelAnchor": "start",
        "labelLimit": 480,
    },
    "title": {"color": INK, "subtitleColor": MUTED, "anchor": "start", "fontSize": 15, "subtitleFontSize": 12},
}
