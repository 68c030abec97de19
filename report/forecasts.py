"""What a change would do, how far such predictions were off, and where sealing becomes free."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from report.colours import BLUE
from report.figure import Figure, Row, draw_marks, format_omitted, ms
from report.ranges import intervals
from report.units import finite, format_duration, format_percent, format_ratio, legible

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_LINES = 24
MOST_PANELS = 6
RATE = "sealing_gb_per_second="


def what_if(rows: Sequence[Row]) -> Figure:
    """A line per run and change, the largest saving first; hollow where the gain is within the model's error."""
    known = [row for row in rows if finite(row["slowdown_ratio"]) and RATE not in row["change"]]
    known.sort(key=lambda row: (-(row["saved_ns"] or 0), row["run_id"], row["change"]))
    shown = [_describe_change(place, row) for place, row in enumerate(known[:MOST_LINES])]
    refused = sum(row["predicted_step_ns"] is None for row in rows)
    notes = (
        *format_omitted(len(known) - len(shown), "change"),
        *((f"{refused:,} could not be predicted; their reasons are in gold.what_if",) if refused else ()),
    )
    subtitle = "predicted step over the present one; the bar is the interval; hollow: within model error"
    return Figure("What a change would do", subtitle, tuple(shown), intervals(shown, "predicted over present"), notes)


def _describe_change(place: int, row: Row) -> Row:
    now, low, high = row["current_step_ns"], row["predicted_low_ns"], row["predicted_high_ns"]
    ratio, level = row["slowdown_ratio"], row["interval_level"]
    text = f"{format_duration(row['predicted_step_ns'])} instead of {format_duration(now)}"
    if low is not None and high is not None:
        text += f", {format_percent(level)} {format_duration(low)} to {format_duration(high)}"
    is_decided = row["verdict"] in {"worth it", "costs more"}
    return {
        "line": place,
        "run": legible(row["run_id"]),
        "label": legible(row["change"]),
        "under": legible(row["run_id"]),
        "at" if is_decided else "open": ratio,
        **({"low": low / now, "high": high / now} if low is not None and high is not None and now else {}),
        "value": format_ratio(ratio),
        "detail": f"{text}; {row['verdict']}",
        "what": "predicted step",
        "evidence": row["evidence"],
        "evidence_text": row["evidence"],
    }


def prediction_checks(rows: Sequence[Row]) -> Figure:
    """A line per run that was predicted without its model: predicted over measured, against the line at 1."""
    checked = [row for row in rows if row["scheme"] == "model" and row["measured_step_ns"]]
    checked.sort(key=lambda row: (row["regime"], row["task"], row["predicted_run_id"]))
    shown = [_describe_check(place, row) for place, row in enumerate(checked[:MOST_LINES])]
    subtitle = "predicted step over the measured one; the bar is the stated interval, the band the noise between runs"
    return Figure(
        "How far predictions were off, without any run of the same model",
        subtitle,
        tuple(shown),
        intervals(shown, "predicted over measured"),
        format_omitted(len(checked) - len(shown), "run"),
    )


def _describe_check(place: int, row: Row) -> Row:
    measured, noise = row["measured_step_ns"], row["noise_fraction"]
    low, high = row["predicted_low_ns"], row["predicted_high_ns"]
    ratio = row["predicted_step_ns"] / measured
    return {
        "line": place,
        "run": legible(row["predicted_run_id"]),
        "label": legible(row["predicted_run_id"]),
        "under": f"{row['task'].replace('_', ' ')}, without {legible(row['left_out'])}",
        "at": ratio,
        **({"low": low / measured, "high": high / measured} if low is not None and high is not None else {}),
        **({"floor_low": max(0.0, 1 - noise), "floor_high": 1 + noise} if finite(noise) else {}),
        "value": format_ratio(ratio),
        "detail": f"{format_duration(row['predicted_step_ns'])} predicted, {format_duration(measured)} measured",
        "what": "predicted over measured",
        "evidence": row["evidence"],
        "evidence_text": row["evidence"],
    }


def sealing_rates(rows: Sequence[Row]) -> Figure:
    """The step against the rate of sealing, one panel per run: where the line is flat, sealing is free."""
    known = [row for row in rows if row["change"].startswith(RATE) and row["predicted_step_ns"]]
    panels = [list(of) for _, of in groupby(known, key=lambda row: row["run_id"])]
    shown = [_describe_rate(row) for panel in panels[:MOST_PANELS] for row in panel]
    shown.sort(key=lambda row: (row["run"], row["rate"]))
    x: Row = {"field": "rate", "type": "quantitative", "title": "sealing, GB/s", "scale": {"type": "log"}}
    x["axis"] = {"values": [2, 5, 10, 20, 50], "grid": False, "format": "~g"}
    y = {
        "field": "step",
        "type": "quantitative",
        "title": "step, ms",
        "scale": {"zero": False},
        "axis": {"tickCount": 5},
    }
    spec = {
        "facet": {"field": "run", "type": "nominal", "title": None, "header": {"labelLimit": 360}},
        "columns": 2,
        "spacing": {"row": 30, "column": 40},
        "resolve": {"scale": {"y": "independent"}},
        "spec": {
            "width": 340,
            "height": 150,
            "layer": [
                draw_marks("step", {"type": "line", "color": BLUE, "strokeDash": [5, 4]}, x=x, y=y),
                draw_marks("step", {"type": "point", "filled": True, "color": BLUE, "size": 60}, x=x, y=y),
            ],
        },
    }
    subtitle = "predicted step if a byte were sealed and opened at this rate; modelled"
    return Figure(
        "Where sealing becomes free", subtitle, tuple(shown), spec, format_omitted(len(panels) - MOST_PANELS, "run")
    )


def _describe_rate(row: Row) -> Row:
    rate = float(row["change"].removeprefix(RATE))
    text = format_duration(row["predicted_step_ns"])
    return {
        "run": legible(row["run_id"]),
        "label": f"{legible(row['run_id'])} at {rate:g} GB/s",
        "rate": rate,
        "step": ms(row["predicted_step_ns"]),
        "value": text,
        "detail": text,
        "what": f"step at {rate:g} GB/s",
        "evidence": row["evidence"],
    }


def format_interval(row: Row) -> str:
    """Both ends of a predicted step and the level between them; nothing where there is no interval."""
    if row["predicted_low_ns"] is None:
        return ""
    ends = f"{format_duration(row['predicted_low_ns'])} to {format_duration(row['predicted_high_ns'])}"
    return f"{ends} ({format_percent(row['interval_level'])})"
