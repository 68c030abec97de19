"""Which rank was slow in which step: a heat map of one run per panel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from report.figure import TOOLTIP, Figure, Row, format_omitted, ms
from report.units import format_duration, legible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_RUNS = 4
# A cell is a few pixels wide: more steps are drawn together, by their mean; more ranks are left out.
MOST_CELLS, MOST_RANKS = 60, 64
_WIDTH, _CELL = 330, 14


def step_heat_map(rows: Sequence[Row], run_ids: Sequence[str]) -> Figure:
    """Steps of each rank of some runs, warm-up aside; the darker, the longer, each panel to its own scale."""
    panels = {name: [row for row in rows if row["run_id"] == name and not row["is_warmup"]] for name in run_ids}
    there = {name: of for name, of in panels.items() if len({row["rank"] for row in of}) > 1}
    kept = list(there)[:MOST_RUNS]
    shown = tuple(cell for name in kept for cell in _list_cells(name, there[name]))
    notes = (
        *(f"{legible(name)}: {_tell_slowest(there[name])}" for name in kept),
        *format_omitted(len(there) - len(kept), "run"),
        *(note for name in kept for note in _tell_left_out(name, there[name])),
    )
    subtitle = "step of each rank, warm-up aside, measured; each panel has its own scale, in ms"
    return Figure("Which rank was slow in which step", subtitle, shown, _spec(), notes)


def _list_cells(name: str, rows: Sequence[Row]) -> Iterator[Row]:
    numbers = sorted({row["step_number"] for row in rows})
    width = -(-len(numbers) // MOST_CELLS)
    groups = {number: place // width for place, number in enumerate(numbers)}
    cells: dict[tuple[int, int], list[Row]] = {}
    for row in rows:
        if row["rank"] in _choose_ranks(rows):
            cells.setdefault((row["rank"], groups[row["step_number"]]), []).append(row)
    for (rank, _), some in sorted(cells.items()):
        first, last = some[0]["step_number"], some[-1]["step_number"]
        mean = sum(row["duration_ns"] for row in some) / len(some)
        waits = [row["wait_ns"] for row in some if row["wait_ns"] is not None]
        waited = f", of it waiting for peers {format_duration(sum(waits) / len(waits))}" if waits else ""
        yield {
            "panel": legible(name),
            "run": legible(name),
            "label": f"rank {rank}, step {first}" + (f" to {last}" if last != first else ""),
            "rank": rank,
            "step": first,
            "step_ms": ms(mean),
            "value": format_duration(mean),
            "what": f"rank {rank}, step {first}" + (f" to {last}" if last != first else ""),
            "detail": f"{format_duration(mean)}{waited}",
            "evidence": "measured",
        }


def _choose_ranks(rows: Sequence[Row]) -> set[int]:
    return set(sorted({row["rank"] for row in rows})[:MOST_RANKS])


def _tell_slowest(rows: Sequence[Row]) -> str:
    longest = max(rows, key=lambda row: (row["duration_ns"], -row["rank"], -row["step_number"]))
    shortest = min(row["duration_ns"] for row in rows)
    return (
        f"steps of {format_duration(shortest)} to {format_duration(longest['duration_ns'])}, the longest by rank "
        f"{longest['rank']} in step {longest['step_number']}"
    )


def _tell_left_out(name: str, rows: Sequence[Row]) -> tuple[str, ...]:
    return tuple(
        f"{legible(name)}: {text}" for text in format_omitted(len({row["rank"] for row in rows}) - MOST_RANKS, "rank")
    )


def _spec() -> Row:
    axis = {"grid": False, "domain": False, "ticks": False, "labelOverlap": True}
    colour: Row = {"field": "step_ms", "type": "quantitative", "title": "ms per step"}
    # Cividis is read alike with and without red and green, and prints in order of grey.
    colour["scale"] = {"scheme": "cividis", "reverse": True, "zero": False}
    colour["legend"] = {"orient": "bottom", "gradientLength": 200, "gradientThickness": 10, "titleFontWeight": "normal"}
    return {
        "facet": {"field": "panel", "type": "nominal", "title": None, "sort": None, "header": {"labelLimit": 330}},
        "columns": 2,
        "spacing": {"row": 24, "column": 50},
        "resolve": {"scale": {"x": "independent", "y": "independent", "color": "independent"}},
        "spec": {
            "width": _WIDTH,
            "height": {"step": _CELL},
            "layer": [
                {
                    "mark": {"type": "rect"},
                    "encoding": {
                        "x": {"field": "step", "type": "ordinal", "title": "step", "axis": {**axis, "labelAngle": 0}},
                        "y": {"field": "rank", "type": "ordinal", "title": "rank", "axis": axis},
                        "color": colour,
                        "tooltip": TOOLTIP,
                    },
                }
            ],
        },
    }
