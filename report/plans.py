"""Which strategy on which cluster: a grid of strategies and regimes, the step against GPUs, sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from report.colours import BLUE, FAINT, GREEN, INK, LIGHT_LETTERS, MUTED, NOISE, ORANGE, PAPER, PURPLE, RED
from report.figure import Figure, Row, draw_marks
from report.units import format_duration, format_number, format_ratio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gold.strategy_crossovers import Crossover
    from gold.strategy_question import Question

STRATEGIES = {
    "none": "no replicas",
    "ring_ddp": "ring DDP",
    "parameter_server": "parameter server",
    "asynchronous_server": "asynchronous server",
    "decentralised": "decentralised all-reduce",
    "gossip": "gossip",
    "zero_1": "ZeRO-1",
    "zero_2": "ZeRO-2",
    "zero_3": "ZeRO-3 (FSDP)",
}
_OFF = "cc_off"
_COLOURS = {
    _OFF: INK,
    "hopper_spt_cc": RED,
    "hopper_ppcie": BLUE,
    "blackwell_mpt_nvle": PURPLE,
    "tee_io_tdisp": GREEN,
    "sw_per_hop_aesgcm": ORANGE,
}
_CELL_WIDTH, _CELL_HEIGHT, _NAMES_WIDTH, _HATCHES = 150, 44, 165, 9
PALE_BLUE = "#cfe5f3"  # of `BLUE`, so light that letters and strokes on it are both read
_AXES = {"parameters": "model size", "gpus": "GPU count", "link": "link speed"}
_UNITS = {"parameters": "billion parameters", "gpus": "GPUs", "link": "GB/s per GPU"}


def name_layout(data: int, tensor: int, pipeline: int) -> str:
    """The degrees as people say them."""
    return f"{data} × {tensor} × {pipeline}"  # noqa: RUF001


def name_strategy(place: tuple[str, int, int, int]) -> str:
    """A strategy with its degrees: data, tensor, pipeline."""
    return f"{STRATEGIES[place[0]]} {name_layout(*place[1:])}"


def select_best(rows: Sequence[Row]) -> list[Row]:
    """Of each regime and strategy the fastest layout that fits, in the order of the rows."""
    kept: dict[tuple[str, str], Row] = {}
    for row in rows:
        if row["is_fitting"]:
            kept.setdefault((row["regime"], row["strategy"]), row)
    return list(kept.values())


def describe_crossovers(found: Sequence[Crossover], question: Question) -> list[str]:
    """A sentence per range in which the strategy must change; and one for each axis and regime without any."""
    lines = []
    for regime in question.regimes:
        mine = [one for one in found if one.regime == regime]
        lines += [f"{regime}: {_describe_range(one, question)}" for one in mine]
        if regime != _OFF:
            never = [_AXES[axis] for axis in _AXES if axis not in {one.axis for one in mine}]
            if never:
                lines.append(f"{regime}: the choice stays along {' and '.join(never)}")
    return lines


def _describe_range(one: Crossover, question: Question) -> str:
    low, high = (_format_place(one.axis, value, question) for value in (one.low, one.high))
    unit = _UNITS[one.axis]
    if one.is_low_bounded and one.is_high_bounded:
        where = f"from {low} to {high} {unit}"
    elif one.is_low_bounded:
        where = f"from {low} {unit} on (searched up to {high})"
    elif one.is_high_bounded:
        where = f"up to {high} {unit} (searched down to {low})"
    else:
        where = f"from {low} to {high} {unit}, as far as searched,"
    return f"{where} another choice: {name_strategy(one.under)} instead of {name_strategy(one.without)}"


def _format_place(axis: str, value: float, question: Question) -> str:
    if axis == "gpus":
        return format_number(int(value))
    if axis == "parameters":
        return format_number(float(f"{question.work.parameters_count * value / 1e9:.3g}"))
    link = question.cluster.link("node" if question.cluster.network is None else "network")
    return format_number(float(f"{link.bytes_per_second * value / 1e9:.3g}"))


def draw_grid(rows: Sequence[Row], title: str) -> Figure:
    """A cell per strategy and regime: its best step; hatched where it ties with the best, grey where it is slower."""
    regimes = list(dict.fromkeys(row["regime"] for row in rows))
    best = {(row["regime"], row["strategy"]): row for row in select_best(rows)}
    names = [name for name in STRATEGIES if any(row["strategy"] == name for row in rows)]
    shown: list[Row] = []
    for line, name in enumerate(names):
        shown.append({"name": STRATEGIES[name], "y": line + 0.5})
        for place, regime in enumerate(regimes):
            shown += _draw_cell(best.get((regime, name)), regime, name, place, line)
    shown += [{"head": regime, "x": place + 0.5} for place, regime in enumerate(regimes)]
    notes = (
        "below it the best layout: data × tensor × pipeline; all modelled",  # noqa: RUF001
        "blue: best; hatched: tie with the best; grey: slower; white: not exact",
    )
    subtitle = "the step of each strategy under each regime"
    return Figure(title, subtitle, tuple(shown), _specify_grid(len(regimes), len(names)), notes)


def _draw_cell(row: Row | None, regime: str, name: str, place: int, line: int) -> list[Row]:
    box = {"x": place + 0.02, "x2": place + 0.98, "y": line + 0.04, "y2": line + 0.96}
    label = f"{STRATEGIES[name]}, {regime}"
    if row is None:
        return [
            {
                **box,
                "fill": "none",
                "step": "does not fit",
                "mid": place + 0.5,
                "top": line + 0.5,
                "label": label,
                "value": "does not fit",
                "run": regime,
                "what": STRATEGIES[name],
                "detail": "does not fit",
                "evidence": "modelled",
            }
        ]
    step = format_duration(row["predicted_step_ns"])
    fill = {"best": "best", "tie": "tie", "slower": "slower"}.get(row["verdict"], "inexact")
    text = f"{step}, {row['verdict']}, mostly {row['dominant_term']}"
    cut = name_layout(row["data_size"], row["tensor_size"], row["pipeline_size"])
    cell = {
        **box,
        "fill": fill,
        "step": step,
        "cut": cut,
        "mid": place + 0.5,
        "top": line + 0.34,
        "low": line + 0.7,
        "label": label,
        "value": text,
        "run": regime,
        "what": f"{STRATEGIES[name]} {cut}",
        "detail": text,
        "evidence": row["evidence"],
    }
    return [cell, *(_hatch(place, line) if fill == "tie" else ())]


def _hatch(place: int, line: int) -> list[Row]:
    """Slanted strokes inside of a cell, at the same angle whatever its shape."""
    low, high, slant = 0.02, 0.98, _CELL_HEIGHT * 0.92 / _CELL_WIDTH
    strokes = []
    for step in range(-2, _HATCHES):
        start, end = low + step / _HATCHES * (high - low), low + step / _HATCHES * (high - low) + slant
        first, last = max(start, low), min(end, high)
        if last > first:
            strokes.append(
                {
                    "hx": place + first,
                    "hx2": place + last,
                    "hy": line + 0.96 - (first - start) / slant * 0.92,
                    "hy2": line + 0.96 - (last - start) / slant * 0.92,
                }
            )
    return strokes


def _specify_grid(columns: int, lines: int) -> Row:
    x: Row = {"field": "x", "type": "quantitative", "axis": None, "scale": {"domain": [0, columns], "nice": False}}
    y: Row = {"field": "y", "type": "quantitative", "axis": None}
    y["scale"] = {"domain": [lines, 0], "nice": False}
    fills = {"best": BLUE, "tie": PALE_BLUE, "slower": NOISE, "inexact": PAPER, "none": PAPER}
    colour = {
        "field": "fill",
        "type": "nominal",
        "scale": {"domain": list(fills), "range": list(fills.values())},
        "legend": None,
    }
    ink: Row = {"condition": {"test": "datum.fill === 'best'", "value": LIGHT_LETTERS}, "value": INK}

    def write(field: str, y_field: str, size: int, weight: int) -> Row:
        return {
            "transform": [{"filter": f"isValid(datum.{field}) && isValid(datum.{y_field})"}],
            "mark": {"type": "text", "fontSize": size, "fontWeight": weight, "tooltip": None},
            "encoding": {
                "x": {**x, "field": "mid"},
                "y": {**y, "field": y_field},
                "text": {"field": field, "type": "nominal"},
                "color": ink,
            },
        }

    hatch = {
        "transform": [{"filter": "isValid(datum.hx)"}],
        "mark": {"type": "rule", "color": BLUE, "opacity": 0.35, "strokeWidth": 1.5, "tooltip": None},
        "encoding": {
            "x": {**x, "field": "hx"},
            "x2": {"field": "hx2"},
            "y": {**y, "field": "hy"},
            "y2": {"field": "hy2"},
        },
    }
    name = {
        "transform": [{"filter": "isValid(datum.name)"}],
        "mark": {"type": "text", "align": "left", "fontSize": 12, "color": INK, "tooltip": None},
        "encoding": {"x": {"value": -_NAMES_WIDTH}, "y": y, "text": {"field": "name", "type": "nominal"}},
    }
    head = {
        "transform": [{"filter": "isValid(datum.head)"}],
        "mark": {"type": "text", "fontSize": 12, "fontWeight": 600, "color": INK, "tooltip": None},
        "encoding": {"x": x, "y": {"value": -12}, "text": {"field": "head", "type": "nominal"}},
    }
    box = {"type": "rect", "stroke": FAINT, "strokeWidth": 1}
    return {
        "width": columns * _CELL_WIDTH,
        "height": lines * _CELL_HEIGHT,
        "layer": [
            draw_marks("x2", box, x=x, x2={"field": "x2"}, y=y, y2={"field": "y2"}, fill=colour),
            hatch,
            write("step", "top", 13, 600),
            write("cut", "low", 11, 400),
            name,
            head,
        ],
    }


def draw_counts(rows: Sequence[Mapping[str, Any]], title: str, asked: int) -> Figure:
    """The best step of each regime against the number of GPUs, both in powers; the number asked about is marked."""
    shown = [
        {
            "regime": row["regime"],
            "gpus": row["gpus"],
            "step": row["step_ns"] / 1e9,
            "label": f"{row['regime']} on {row['gpus']} GPUs",
            "value": f"{format_duration(row['step_ns'])} with {name_strategy(row['place'])}",
            "run": row["regime"],
            "what": f"{format_number(row['gpus'])} GPUs, {name_strategy(row['place'])}",
            "detail": format_duration(row["step_ns"]),
            "evidence": "modelled",
        }
        for row in rows
    ]
    regimes = list(dict.fromkeys(row["regime"] for row in shown))
    counts = sorted({row["gpus"] for row in shown})
    x: Row = {"field": "gpus", "type": "quantitative", "title": "GPUs", "scale": {"type": "log", "base": 2}}
    x["axis"] = {"values": counts, "format": ",d", "grid": False}
    y: Row = {"field": "step", "type": "quantitative", "title": "best step, s", "scale": {"type": "log"}}
    y["axis"] = {"format": "~g", "tickCount": 4}
    colour = {
        "field": "regime",
        "type": "nominal",
        "scale": {"domain": regimes, "range": [_COLOURS[regime] for regime in regimes]},
        "legend": {"orient": "right", "title": None, "symbolType": "circle"},
    }
    spec = {
        "width": 560,
        "height": 300,
        "layer": [
            {
                "data": {"values": [{}]},
                "mark": {"type": "rule", "color": MUTED, "strokeDash": [3, 3], "tooltip": None},
                "encoding": {"x": {"datum": asked, **{key: x[key] for key in ("type", "scale")}}},
            },
            draw_marks("step", {"type": "line", "strokeWidth": 2}, x=x, y=y, color=colour),
            draw_marks("step", {"type": "point", "filled": True, "size": 50, "opacity": 1}, x=x, y=y, color=colour),
        ],
    }
    ends = _describe_ends(shown, asked)
    subtitle = "the same batch, each point at its best strategy that fits; dashed: the number asked about; modelled"
    return Figure(title, subtitle, tuple(shown), spec, ends)


def _describe_ends(shown: Sequence[Row], asked: int) -> tuple[str, ...]:
    here = {row["regime"]: row for row in shown if row["gpus"] == asked}
    off = here.get(_OFF)
    if off is None:
        return ()
    ratios = [f"{name} {format_ratio(row['step'] / off['step'])}" for name, row in here.items() if name != _OFF]
    return (f"on {format_number(asked)} GPUs, over {_OFF}: {', '.join(ratios)}",) if ratios else ()
