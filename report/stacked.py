"""Stacked bars, one a rank or a boundary: the pieces of a whole, beside each other in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from gold.time_breakdown import PARTS
from report.colours import BAD, BLUE, COLOURS, FAINT, GREEN, MUTED, ORANGE, PALE, RED, SKY, WORDS, letters_on
from report.figure import (
    PLOT,
    Figure,
    Row,
    draw_marks,
    format_omitted,
    legend,
    lines,
    ms,
    names,
    numbers,
    shared_scale,
    words,
)
from report.units import NOTHING, format_count, format_duration, format_percent, format_size, legible, width

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_BARS = 40
_SMALL = 11
_TRACE = [
    ("compute alone", BLUE),
    ("compute that hides communication", SKY),
    ("exposed communication", ORANGE),
    ("exposed copies", GREEN),
    ("idle", PALE),
]
_IDLE = [
    ("busy", BLUE),
    ("idle: the host had launched nothing", ORANGE),
    ("idle between launched kernels", SKY),
    ("idle: other", PALE),
]
_SEALED = [
    ("sealed, recorded", BLUE),
    ("sealed, claimed by the regime", SKY),
    ("in plaintext", RED),
    ("unknown", FAINT),
]


@dataclass(frozen=True)
class Bar:
    """One bar: its pieces by name, its number and where that comes from; a note stands for a missing bar."""

    run_id: str
    label: str
    pieces: tuple[tuple[str, float, str], ...]
    value: str
    evidence: str
    note: str = ""
    broken: str = ""


def time_breakdown(rows: Sequence[Row]) -> Figure:
    """Bars of the mean step of each rank; warm-up counts only where there is nothing else."""
    bars = [
        _step(run_id, rank, list(steps))
        for (run_id, rank), steps in groupby(rows, key=lambda row: (row["run_id"], row["rank"]))
    ]
    named = [(WORDS[part], COLOURS[part]) for part in PARTS]
    return _figure(
        ("Where the time of a step goes", "mean over the steps of a rank, warm-up left out; the parts sum to the step"),
        bars,
        named,
        shared_scale("start", "ms per step"),
        "rank",
    )


def trace_summary(rows: Sequence[Row]) -> Figure:
    """Bars of the whole trace in TraceLens' words, where the pieces sum to it; hidden communication is shown apart."""
    titles = ("What the GPU did over the whole trace", "from its first to its last work, as TraceLens defines it")
    return _figure(titles, [_trace(row) for row in rows], _TRACE, shared_scale("start", "ms of the trace"), "rank")


def idle_breakdown(rows: Sequence[Row]) -> Figure:
    """Bars of the time from a GPU's first to its last work, over all streams, as HolisticTraceAnalysis splits it."""
    titles = ("Why the GPU is idle", "from its first to its last work; definitions of HolisticTraceAnalysis")
    bars = [_idle(row) for row in rows if row["stream"] == "all"]
    return _figure(titles, bars, _IDLE, shared_scale("start", "ms of the trace"), "GPU")


def sealing_coverage(rows: Sequence[Row]) -> Figure:
    """Bars of the promised bytes: what a record shows as sealed, what only the regime claims, and what is neither."""
    titles = ("How much of what must be sealed was sealed", "share of the bytes that the regime promises to seal")
    share = shared_scale("start", "share of the promised bytes", scale={"domain": [0, 1]}, axis={"format": ".0%"})
    return _figure(titles, [_coverage(row) for row in rows], _SEALED, share, "boundary")


def _step(run_id: str, rank: int, steps: list[Row]) -> Bar:
    """The mean of each part; a part that some step lacks goes into what is not attributed."""
    kept = [step for step in steps if not step["is_warmup"]] or steps
    blind = {part for part in PARTS if any(step[f"{part}_ns"] is None for step in kept)}
    sums = {part: 0 if part in blind else sum(step[f"{part}_ns"] for step in kept) for part in PARTS}
    whole = sum(step["duration_ns"] for step in kept)
    sums["unattributed"] += max(0, whole - sum(sums.values())) if blind else 0
    means = {part: sums[part] / len(kept) for part in PARTS}
    pieces = tuple((WORDS[part], ms(means[part]), format_duration(means[part])) for part in PARTS if means[part] > 0)
    only = "only warm-up was recorded" if all(step["is_warmup"] for step in kept) else ""
    note = "; ".join(filter(None, (only, _reason(kept))))
    return Bar(run_id, f"rank {rank}", pieces, format_duration(whole / len(kept)), _weakest(kept), note)


def _trace(row: Row) -> Bar:
    label, evidence = f"rank {row['rank']}", row["evidence"]
    columns = ("total_ns", "tl_compute_ns", "tl_comm_ns", "tl_exposed_comm_ns", "tl_exposed_memcpy_ns", "idle_ns")
    if any(row[name] is None for name in columns):
        return Bar(row["run_id"], label, (), NOTHING, evidence, row["reason"] or "not observed")
    hidden = max(0, row["tl_comm_ns"] - row["tl_exposed_comm_ns"])
    alone = max(0, row["tl_compute_ns"] - hidden)
    amounts = (alone, hidden, row["tl_exposed_comm_ns"], row["tl_exposed_memcpy_ns"], row["idle_ns"])
    pieces = tuple(
        (name, ms(amount), format_duration(amount))
        for (name, _), amount in zip(_TRACE, amounts, strict=True)
        if amount > 0
    )
    return Bar(row["run_id"], label, pieces, format_duration(row["total_ns"]), evidence)


def _idle(row: Row) -> Bar:
    label = f"rank {row['rank']}, GPU {row['device_id']}"
    amounts = [row[name] for name in ("busy_ns", "host_wait_ns", "kernel_wait_ns", "other_ns")]
    if None in amounts:
        return Bar(row["run_id"], label, (), NOTHING, row["evidence"], row["reason"] or "not observed")
    pieces = tuple(
        (name, ms(amount), format_duration(amount))
        for (name, _), amount in zip(_IDLE, amounts, strict=True)
        if amount > 0
    )
    return Bar(row["run_id"], label, pieces, format_duration(row["total_ns"]), row["evidence"])


def _coverage(row: Row) -> Bar:
    label, evidence = row["boundary"].replace("_", " ").replace("gpu", "GPU"), row["evidence"]
    broken = format_count(row["violations_count"], "violation") if row["violations_count"] else ""
    if not row["promised_crossings_count"]:
        note = f"nothing to seal in {format_count(row['crossings_count'], 'crossing')}"
        return Bar(row["run_id"], label, (), NOTHING, evidence, note, broken)
    unsized = row["unsized_crossings_count"]
    missing = f"{format_count(unsized, 'crossing')} of unknown size in no sum" if unsized else ""
    promised = row["promised_bytes"]
    if not promised:
        note = missing or row["reason"] or "of no known size"
        return Bar(row["run_id"], label, (), format_size(promised), evidence, note, broken)
    amounts = (row["sealed_bytes"], row["claimed_bytes"], row["plain_bytes"], row["unknown_bytes"])
    pieces = tuple(
        (name, amount / promised, f"{format_size(amount)}, {format_percent(amount / promised)}")
        for (name, _), amount in zip(_SEALED, amounts, strict=True)
        if amount > 0
    )
    return Bar(row["run_id"], label, pieces, format_size(promised), evidence, missing, broken)


def _figure(titles: tuple[str, str], bars: list[Bar], named: list[tuple[str, str]], x: Row, noun: str) -> Figure:
    """The bars to one scale, run by run; only colours that occur are named."""
    shown = bars[:MOST_BARS]
    used = {name for bar in shown for name, _, _ in bar.pieces}
    colours = [(name, colour) for name, colour in named if name in used]
    longest = max((sum(amount for _, amount, _ in bar.pieces) for bar in shown), default=0.0)
    rows = tuple(row for row in _rows(shown, dict(named), longest))
    end = {**x, "field": "start"}
    spec = lines(
        draw_marks("end", {"type": "bar", "height": 15}, x=end, x2={"field": "end"}, color=legend("what", colours, 4)),
        {
            "transform": [{"filter": "isValid(datum.inside)"}],
            "mark": {"type": "text", "fontSize": _SMALL, "baseline": "middle", "tooltip": None},
            "encoding": {
                "x": {**x, "field": "middle"},
                "text": {"field": "inside", "type": "nominal"},
                "color": {"field": "ink", "type": "nominal", "scale": None},
            },
        },
        names("group", weight=600, dy=3),
        names("label"),
        words("note", 6, PLOT, colour=MUTED),
        names("broken", colour=BAD, x=-112),
        *numbers(),
        high=22,
    )
    if not longest:
        # A colour scale of nothing, and an axis without an end, would be drawn all the same.
        spec["layer"] = spec["layer"][2:]
    return Figure(*titles, rows, spec, format_omitted(len(bars) - len(shown), noun))


def _rows(bars: list[Bar], colours: dict[str, str], longest: float) -> Iterator[Row]:
    """A row a piece; the first one of a bar also has what stands beside it; a run has a line for its name."""
    line = 0
    for place, bar in enumerate(bars):
        is_first = not place or bars[place - 1].run_id != bar.run_id
        line += 1 + is_first
        if is_first:
            yield {"line": line - 1, "run": legible(bar.run_id), "group": legible(bar.run_id)}
        beside: Row = {
            "label": bar.label,
            "value": bar.value,
            "evidence_text": bar.evidence,
            **({"note": legible(bar.note)} if bar.note and not bar.pieces else {}),
            **({"broken": bar.broken} if bar.broken else {}),
        }
        start = 0.0
        common: Row = {"line": line, "run": legible(bar.run_id), "evidence": bar.evidence}
        for name, amount, text in bar.pieces or (("", 0.0, ""),):
            piece: Row = {}
            if name:
                piece = {"what": name, "detail": text, "start": start, "end": start + amount}
            inside = text.split(",", maxsplit=1)[0]
            if name and PLOT * amount / longest > width(inside, _SMALL) + 6:
                piece |= {"inside": inside, "middle": start + amount / 2, "ink": letters_on(colours[name])}
            start += amount
            yield {**common, **beside, **piece}
            beside = {}


def _weakest(rows: list[Row]) -> str:
    found = {row["evidence"] for row in rows}
    return next((weak for weak in ("unobservable", "modelled", "measured") if weak in found), NOTHING)


def _reason(rows: list[Row]) -> str:
    return next((row["reason"] for row in rows if row["reason"]), "")
