"""One step of a run, rank by rank on one clock: what each moment was spent on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gold.time_breakdown import PARTS
from report.colours import COLOURS, WORDS
from report.figure import TOOLTIP, Figure, Row, format_omitted, legend, ms
from report.units import format_duration, legible

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_RANKS = 16
_WIDTH = 720


def step_timeline(rows: Sequence[Row], cells: Sequence[Row]) -> Figure:
    """A panel per run, a bar per rank: rows of gold.step_timeline; `cells`, of gold.time_breakdown, say it in words."""
    places = dict.fromkeys((row["run_id"], row["rank"], row["step_number"]) for row in rows)
    kept = [row for row in rows if row["rank"] < MOST_RANKS]
    shown = tuple(_describe_interval(row) for row in kept)
    used = [(WORDS[part], colour) for part, colour in COLOURS.items() if any(row["part"] == part for row in kept)]
    by_place = {(cell["run_id"], cell["rank"], cell["step_number"]): cell for cell in cells}
    told = [_tell_total(by_place[place]) for place in places if place in by_place and place[1] < MOST_RANKS]
    notes = (*told, *format_omitted(sum(rank >= MOST_RANKS for _, rank, _ in places), "rank"))
    subtitle = "one step of median length, ranks on one clock, measured; every pixel shows what took most of it"
    return Figure("One step, moment by moment", subtitle, shown, _spec(used), notes)


def _describe_interval(row: Row) -> Row:
    text = format_duration(row["end_ns"] - row["begin_ns"])
    own = "" if row["is_aligned"] else ", on its own clock"
    return {
        "panel": f"{legible(row['run_id'])}, step {row['step_number']}",
        "run": legible(row["run_id"]),
        "rank": f"rank {row['rank']}",
        "begin": ms(row["begin_ns"]),
        "end": ms(row["end_ns"]),
        "what": WORDS[row["part"]],
        "detail": f"{text} from {format_duration(row['begin_ns'])} on{own}",
        "evidence": "measured",
    }


def _tell_total(cell: Row) -> str:
    """What a rank did in words and to the nanosecond, which pixels cannot show: the text beside the picture."""
    sums = {part: cell[f"{part}_ns"] or 0 for part in PARTS}
    told = [
        f"{WORDS[part]} {format_duration(time)}" for part, time in sorted(sums.items(), key=lambda one: -one[1]) if time
    ]
    return f"{legible(cell['run_id'])}, rank {cell['rank']}, step {cell['step_number']}: {', '.join(told)}"


def _spec(used: list[tuple[str, str]]) -> Row:
    x = {"field": "begin", "type": "quantitative", "title": "ms from the start of the step", "axis": {"grid": False}}
    y = {"field": "rank", "type": "nominal", "title": None, "sort": None, "axis": {"ticks": False, "domain": False}}
    return {
        "facet": {"field": "panel", "type": "nominal", "title": None, "sort": None},
        "columns": 1,
        "spacing": {"row": 20},
        "resolve": {"scale": {"y": "independent"}},
        "spec": {
            "width": _WIDTH,
            "height": {"step": 20},
            "layer": [
                {
                    "mark": {"type": "bar", "height": 15},
                    "encoding": {
                        "x": x,
                        "x2": {"field": "end"},
                        "y": y,
                        "color": legend("what", used, columns=5),
                        "tooltip": TOOLTIP,
                    },
                }
            ],
        },
    }
