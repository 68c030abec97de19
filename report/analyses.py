"""What the peers show too: idle time and queues of each GPU, bandwidth of collectives, operators under their roof."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from report.colours import BLUE, INK, MUTED
from report.figure import Figure, Row, draw_marks, format_omitted, lines, names, numbers, shared_scale
from report.units import finite, format_count, format_number, format_percent, format_size, legible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Small, because each stands for a table that has all of it.
MOST, MOST_EACH, MOST_RUNS = 6, 2, 12
_GPU = "all"


def queue_length(rows: Sequence[Row]) -> Figure:
    """The mean queue of each GPU over all of its streams."""
    chosen, notes = _choose([row for row in rows if row["stream"] == _GPU and finite(row["mean_length"])], _place)
    shown = [
        _mark(
            place,
            row,
            f"rank {row['rank']}, GPU {row['device_id']}",
            row["mean_length"],
            f"mean {row['mean_length']:.3g}, at most {format_number(row['p99_length'])} for 99 % of the time, "
            f"peak {format_number(row['peak_length'])}, empty {format_percent(row['empty_fraction'])} of the time",
            f"mean {row['mean_length']:.3g}",
        )
        for place, row in enumerate(chosen)
    ]
    titles = ("How much work waits for the GPU", "launched kernels, copies and memsets that have not begun; mean")
    return _draw(titles, shown, "length of the queue", notes)


def collective_bandwidth(rows: Sequence[Row]) -> Figure:
    """The bus bandwidth of the largest collectives of each run, as nccl-tests defines it."""
    timed = [row for row in rows if finite(row["bus_bytes_per_second"])]
    chosen, notes = _choose(timed, lambda row: (-row["buffer_bytes"], row["collective"], row["library"], row["dtype"]))
    shown = []
    for place, row in enumerate(chosen):
        at = row["bus_bytes_per_second"] / 1e9
        rate = f"{'≥ ' if row['is_lower_bound'] else ''}{at:.3g} GB/s"
        called = f"{row['collective'].replace('_', ' ')}, {format_size(row['buffer_bytes'])}"
        counted = f"{format_count(row['collectives_count'], 'collective')} of {format_count(row['group_size'], 'rank')}"
        shown.append(_mark(place, row, called, at, f"{rate} over {counted}, {row['library']}", rate))
    subtitle = (
        "bus bandwidth by the rank that came last, as nccl-tests defines it; ≥: not all ranks were recorded, so that "
        "waiting may be in it"
    )
    titles = ("How fast the largest collectives are", subtitle)
    return _draw(titles, shown, "GB/s on the bus", notes)


def roofline(rows: Sequence[Row]) -> Figure:
    """The operators that took most of a run's time, by what they reach, and a stroke at their roof."""
    timed = [row for row in rows if finite(row["operations_per_second"])]
    chosen, notes = _choose(timed, lambda row: (-row["total_ns"], row["operator"], row["input_shapes"]))
    shown = []
    for place, row in enumerate(chosen):
        at, roof = row["operations_per_second"] / 1e12, row["roof_operations_per_second"]
        reached = f"{at:.3g} TFLOP/s"
        share = f", {format_percent(row['roof_fraction'])} of its roof" if finite(row["roof_fraction"]) else ""
        bound = f", bound by {row['bound']}, {row['roof_evidence']}" if share and row["bound"] else ""
        shapes = legible(row["input_shapes"] or "shapes not recorded")
        mark = _mark(place, row, legible(row["operator"]), at, f"{reached}{share}{bound}; {shapes}", reached)
        shown.append({**mark, **({"roof": roof / 1e12} if finite(roof) else {})})
    titles = (
        "How near matrix products come to what the GPU can do",
        "operators that took most time, measured; the stroke is the roof by the GPU's data sheet, modelled",
    )
    stroke = {"type": "tick", "color": INK, "thickness": 2, "size": 18}
    return _draw(titles, shown, "TFLOP/s", notes, lambda x: [draw_marks("roof", stroke, x={**x, "field": "roof"})])


def _place(row: Row) -> tuple[int, int]:
    return row["rank"], row["device_id"]


def _choose(rows: Sequence[Row], order: Callable[[Row], object]) -> tuple[list[Row], tuple[str, ...]]:
    """The first few of each run, and how many were left out."""
    runs = [sorted(of, key=order) for _, of in groupby(rows, key=lambda row: row["run_id"])]  # type: ignore[arg-type]
    kept = [row for of in runs[:MOST_RUNS] for row in of[: MOST if len(runs) == 1 else MOST_EACH]]
    left = sum(len(of) for of in runs[:MOST_RUNS]) - len(kept)
    return kept, (*format_omitted(left, "line"), *format_omitted(len(runs) - MOST_RUNS, "run"))


def _mark(place: int, row: Row, label: str, at: float, detail: str, value: str) -> Row:
    run_id = legible(row["run_id"])
    return {
        "line": place,
        "run": run_id,
        "label": label,
        "under": run_id,
        "at": at,
        "value": value,
        "what": run_id,
        "detail": f"{label}: {detail}",
        "evidence": row["evidence"],
        "evidence_text": row["evidence"],
    }


def _draw(
    titles: tuple[str, str],
    shown: Sequence[Row],
    axis: str,
    notes: tuple[str, ...],
    more: Callable[[Row], list[Row]] = lambda _: [],
) -> Figure:
    x = shared_scale("at", axis)
    spec = lines(
        draw_marks("at", {"type": "bar", "color": BLUE, "height": 10}, x=x),
        *more(x),
        names(dy=-6, weight=600),
        names("under", dy=8, colour=MUTED),
        *numbers(),
        high=30,
    )
    return Figure(*titles, tuple(shown), spec, notes)
