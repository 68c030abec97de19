"""Workloads over time: the step of each run, the level between changes, and what else changed there."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from gold.pairs import read_fields
from report.colours import BLUE, FAINT, INK, RED
from report.figure import Figure, Row, draw_marks, format_omitted, ms
from report.units import finite, format_count, format_duration, format_ratio, legible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_PANELS = 6
_SPEAKING = ("model", "dtype", "gpu")


def history(rows: Sequence[Row]) -> Figure:
    """One panel per workload of several days, those with a change first; a change is a line with its ratio."""
    dated = [row for row in rows if row["step_ns"] is not None and row["session_number"] is not None]
    dated.sort(key=lambda row: (row["workload_id"], row["session_number"], row["recorded_at"] or "", row["run_id"]))
    panels = [list(of) for _, of in groupby(dated, key=lambda row: row["workload_id"])]
    several = [panel for panel in panels if panel[-1]["session_number"] > 1]
    several.sort(key=lambda panel: (-_count_changes(panel), -panel[-1]["session_number"], name_workload(panel[0])))
    kept, alone = several[:MOST_PANELS], len(panels) - len(several)
    shown = tuple(mark for panel in kept for mark in _describe_panel(panel))
    notes = (
        *(f"{name_workload(panel[0])}: {_tell_panel(panel)}" for panel in kept),
        *format_omitted(len(several) - len(kept), "workload"),
        *((f"recorded on one day, so not drawn: {format_count(alone, 'workload')}",) if alone else ()),
    )
    subtitle = "step of each run by the day of its recording, measured; a red line is a change of level"
    return Figure("Workloads over time", subtitle, shown, _spec(shown, len(kept)), notes)


def name_workload(row: Row) -> str:
    """A workload in a few words: model, format, GPU, ranks and regime."""
    fields = read_fields(row["workload"])
    words = [fields.get(name) for name in _SPEAKING]
    ranks = fields.get("world_size")
    words += [format_count(int(ranks), "rank") if ranks and ranks.isdecimal() else None, row["regime"] or "no regime"]
    return legible(", ".join(word for word in words if word))


def _count_changes(panel: Sequence[Row]) -> int:
    return sum(row["is_change_point"] for row in panel)


def _tell_panel(panel: Sequence[Row]) -> str:
    changes = [f"{legible(row['run_id'])} {legible(row['verdict'])}" for row in panel if row["is_change_point"]]
    return "; ".join(changes) or legible(panel[-1]["verdict"])


def _describe_panel(panel: Sequence[Row]) -> Iterator[Row]:
    """The runs of a workload, and the level of each stretch between two changes."""
    named = f"{name_workload(panel[0])} ({legible(panel[0]['workload_id'][-4:])})"
    levels: list[list[Row]] = [[]]
    for row in panel:
        if row["is_change_point"]:
            levels.append([])
        levels[-1].append(row)
    for level, members in enumerate(levels):
        mean = sum(ms(row["step_ns"]) for row in members) / len(members) if members else 0.0
        for row in members:
            text = format_duration(row["step_ns"])
            change = {}
            if row["is_change_point"]:
                ratio = format_ratio(row["change_ratio"]) if finite(row["change_ratio"]) else ""
                change = {
                    "changed_at": row["session_number"] - 0.5,
                    "ratio": f"{ratio} {legible(row['changed'] or '')}",
                }
            yield {
                "panel": named,
                "run": legible(row["run_id"]),
                "label": legible(row["run_id"]),
                "day": row["session_number"],
                "step": ms(row["step_ns"]),
                "level": mean,
                "part": str(level),
                **change,
                "value": text,
                "what": f"recorded {legible(row['recorded_at'] or '')}",
                "detail": f"{text}; {legible(row['verdict'])}",
                "evidence": row["evidence"],
            }


def _spec(shown: Sequence[Row], panels: int) -> Row:
    x: Row = {
        "field": "day",
        "type": "quantitative",
        "title": "day of recording",
        "scale": {"zero": False, "padding": 12},
    }
    x["axis"] = {"tickMinStep": 1, "tickCount": 6, "grid": False, "format": "d"}
    y: Row = {"field": "step", "type": "quantitative", "title": "step, ms", "scale": {"zero": False, "padding": 16}}
    y["axis"] = {"tickCount": 5}
    changed = {**x, "field": "changed_at"}
    part = {"field": "part", "type": "nominal"}
    layers = [
        draw_marks(
            "level", {"type": "line", "color": FAINT, "strokeWidth": 1.5}, x=x, y={**y, "field": "level"}, detail=part
        ),
        draw_marks("step", {"type": "point", "filled": True, "color": BLUE, "size": 45, "opacity": 0.9}, x=x, y=y),
    ]
    if any("changed_at" in row for row in shown):
        text = {
            "type": "text",
            "align": "left",
            "dx": 4,
            "dy": 6,
            "fontSize": 11,
            "color": INK,
            "limit": 230,
            "tooltip": None,
        }
        layers += [
            draw_marks("changed_at", {"type": "rule", "color": RED, "strokeWidth": 1.5}, x=changed),
            {
                "transform": [{"filter": "isValid(datum.changed_at)"}],
                "mark": text,
                "encoding": {"x": changed, "y": {"value": 0}, "text": {"field": "ratio", "type": "nominal"}},
            },
        ]
    return {
        "facet": {"field": "panel", "type": "nominal", "title": None, "sort": None, "header": {"labelLimit": 360}},
        "columns": min(2, max(1, panels)),
        "spacing": {"row": 30, "column": 40},
        "resolve": {"scale": {"x": "independent", "y": "independent"}},
        "spec": {"width": 340, "height": 170, "layer": layers},
    }
