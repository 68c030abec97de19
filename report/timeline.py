"""One step of a run, rank by rank on one clock: what each moment was spent on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from report.colours import COLOURS, WORDS
from report.figure import TOOLTIP, Figure, Row, format_omitted, legend, ms
from report.units import format_duration, legible

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_RANKS = 16
_WIDTH = 720


def step_timeline(rows: Sequence[Row]) -> Figure:
    """A panel per run, a bar per rank; `rows` are those of gold.step_timeline, already merged to pixels."""
    ranks = {(row["run_id"], row["rank"]) for row in rows}
    kept = [row for row in rows if row["rank"] < MOST_RANKS]
    shown = tuple(_describe_interval(row) for row in kept)
    used = [(WORDS[part], colour) for part, colour in COLOURS.items() if any(row["part"] == part for row in kept)]
    totals = [_tell_total(run_id, rank, kept) for run_id, rank in dict.fromkeys((r["run_id"], r["rank"]) for r in kept)]
    left = len(ranks) - len({(row["run_id"], row["rank"]) for row in kept})
    notes = (*totals, *format_omitted(left, "rank"))
    subtitle = "one step of median length, ranks on one clock; every pixel shows what took most of it; measured"
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


def _tell_total(run_id: str, rank: int, rows: Sequence[Row]) -> str:
    """What a rank did in words: the text beside the picture."""
    sums: dict[str, int] = {}
    for row in rows:
        if (row["run_id"], row["rank"]) == (run_id, rank):
            sums[row["part"]] = sums.get(row["part"], 0) + row["end_ns"] - row["begin_ns"]
    ordered = sorted(sums.items(), key=lambda one: -one[1])
    return f"{legible(run_id)}, rank {rank}: " + ", ".join(
        f"{WORDS[part]} {format_duration(time)}" for part, time in ordered
    )


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
