"""Stacked bars, one a rank or a boundary: the pieces of a whole, beside each other in a fixed order."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

from gold.time_breakdown import PARTS
from report import colours
from report.colours import BLUE, GREEN, ORANGE, PALE, SKY
from report.svg import BAD, FAINT, MARGIN, MUTED, RIGHT, SMALL, Drawing, Scale, text_on
from report.units import NOTHING, counted, duration, percent, size, width

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Row = dict[str, Any]

MOST_BARS = 16
_PITCH, _HIGH, _HEADING = 24, 16, 24
_LEFT, _EVIDENCE_PX = 110, 84


@dataclass(frozen=True)
class Piece:
    """One piece of a bar."""

    name: str
    amount: float
    colour: str
    told: str


@dataclass(frozen=True)
class Bar:
    """One bar: where it belongs, its pieces, its number and where that comes from; a note stands for a missing bar."""

    group: str
    label: str
    pieces: tuple[Piece, ...]
    value: str
    evidence: str
    note: str = ""
    under: str = ""
    is_broken: bool = False


def time_breakdown(rows: Sequence[Row]) -> str:
    """Bars of the mean step of each rank; warm-up counts only where there is nothing else."""
    drawing = Drawing("Where the time of a step goes", "mean over the steps of a rank, warm-up left out")
    ranks = [
        _step(run_id, rank, list(steps))
        for (run_id, rank), steps in groupby(rows, key=lambda row: (row["run_id"], row["rank"]))
    ]
    names = [(colours.WORDS[part], colours.COLOURS[part]) for part in PARTS if _occurs(ranks, colours.WORDS[part])]
    return _drawn(drawing, ranks, names, "rank", duration, value_px=70)


def trace_summary(rows: Sequence[Row]) -> str:
    """Bars of the whole trace in TraceLens' words, where the pieces sum to it; hidden communication is shown apart."""
    drawing = Drawing(
        "What the GPU did over the whole trace", "from its first to its last work, as TraceLens defines it"
    )
    names = [
        ("compute alone", BLUE),
        ("compute that hides communication", SKY),
        ("exposed communication", ORANGE),
        ("exposed copies", GREEN),
        ("idle", PALE),
    ]
    return _drawn(drawing, [_trace(row, names) for row in rows], names, "rank", duration, value_px=70)


def sealing_coverage(rows: Sequence[Row]) -> str:
    """Bars of the promised bytes: what a record shows as sealed, what only the regime claims, and what is neither."""
    drawing = Drawing(
        "How much of what must be sealed was sealed", "share of the bytes that the regime promises to seal"
    )
    names = [
        ("sealed, recorded", BLUE),
        ("sealed, claimed by the regime", SKY),
        ("in plaintext", colours.RED),
        ("unknown", FAINT),
    ]
    bars = [_coverage(row, names) for row in rows]
    return _drawn(drawing, bars, names, "boundary", percent, value_px=190, full=1.0)


def _step(run_id: str, rank: int, steps: list[Row]) -> Bar:
    """The mean of each part; a part that some step lacks goes into what is not attributed."""
    kept = [step for step in steps if not step["is_warmup"]] or steps
    blind = {part for part in PARTS if any(step[f"{part}_ns"] is None for step in kept)}
    sums = {part: 0 if part in blind else sum(step[f"{part}_ns"] for step in kept) for part in PARTS}
    whole = sum(step["duration_ns"] for step in kept)
    sums["unattributed"] += max(0, whole - sum(sums.values())) if blind else 0
    pieces = tuple(
        Piece(colours.WORDS[part], sums[part] / len(kept), colours.COLOURS[part], duration(sums[part] / len(kept)))
        for part in PARTS
        if sums[part] > 0
    )
    only = "only warm-up was recorded" if all(step["is_warmup"] for step in kept) else ""
    under = "; ".join(filter(None, (only, _reason(kept))))
    return Bar(run_id, f"rank {rank}", pieces, duration(whole / len(kept)), _weakest(kept), under=under)


def _trace(row: Row, names: list[tuple[str, str]]) -> Bar:
    label, evidence = f"rank {row['rank']}", row["evidence"]
    columns = ("total_ns", "tl_compute_ns", "tl_comm_ns", "tl_exposed_comm_ns", "tl_exposed_memcpy_ns", "idle_ns")
    if any(row[name] is None for name in columns):
        return Bar(row["run_id"], label, (), "", evidence, row["reason"] or "not observed")
    hidden = max(0, row["tl_comm_ns"] - row["tl_exposed_comm_ns"])
    alone = max(0, row["tl_compute_ns"] - hidden)
    amounts = (alone, hidden, row["tl_exposed_comm_ns"], row["tl_exposed_memcpy_ns"], row["idle_ns"])
    pieces = tuple(
        Piece(name, amount, colour, duration(amount))
        for (name, colour), amount in zip(names, amounts, strict=True)
        if amount > 0
    )
    return Bar(row["run_id"], label, pieces, duration(row["total_ns"]), evidence)


def _coverage(row: Row, names: list[tuple[str, str]]) -> Bar:
    label, evidence = row["boundary"].replace("_", " ").replace("gpu", "GPU"), row["evidence"]
    broken = counted(row["violations_count"], "violation") if row["violations_count"] else ""
    if not row["promised_crossings_count"]:
        note = f"nothing to seal in {counted(row['crossings_count'], 'crossing')}"
        return Bar(row["run_id"], label, (), "", evidence, note, broken, bool(broken))
    unsized = row["unsized_crossings_count"]
    missing = f"{counted(unsized, 'crossing')} of unknown size in no sum" if unsized else ""
    under = "; ".join(told for told in (broken, missing) if told)
    promised = row["promised_bytes"]
    value = f"{size(promised)} in {counted(row['promised_message_count'], 'message')}"
    if not promised:
        return Bar(row["run_id"], label, (), value, evidence, row["reason"] or "of no known size", under, bool(broken))
    amounts = (row["sealed_bytes"], row["claimed_bytes"], row["plain_bytes"], row["unknown_bytes"])
    pieces = tuple(
        Piece(name, amount / promised, colour, f"{size(amount)}, {percent(amount / promised)}")
        for (name, colour), amount in zip(names, amounts, strict=True)
        if amount > 0
    )
    return Bar(row["run_id"], label, pieces, value, evidence, "", under, bool(broken))


def _drawn(
    drawing: Drawing,
    bars: list[Bar],
    names: list[tuple[str, str]],
    noun: str,
    told: Callable[[float], str],
    *,
    value_px: int,
    full: float | None = None,
) -> str:
    """Draw the bars to one scale, run by run."""
    shown = bars[:MOST_BARS]
    drawing.legend(names)
    right = RIGHT - _EVIDENCE_PX - value_px
    longest = max((sum(piece.amount for piece in bar.pieces) for bar in shown), default=0.0)
    scale = Scale(0.0, full or longest or 1.0, _LEFT, right)
    if longest:
        drawing.axis(scale, _bands(drawing.y, shown), told)
    for group, of in _grouped(shown):
        drawing.text(MARGIN, drawing.y + 15, group, weight=600)
        drawing.y += _HEADING
        for bar in of:
            _bar(drawing, bar, scale)
    drawing.y += 24 if longest else 4
    drawing.more(len(bars) - len(shown), noun)
    return drawing.finished()


def _bar(drawing: Drawing, bar: Bar, scale: Scale) -> None:
    """Draw one bar with its label, its number and its evidence; a piece is labelled where the label fits."""
    base = drawing.y + 12
    drawing.text(MARGIN, base, bar.label, px=SMALL, most_px=_LEFT - MARGIN - 6)
    done = 0.0
    for piece in bar.pieces:
        left, end = scale.at(done), scale.at(done + piece.amount)
        done += piece.amount
        title = f"{bar.group}, {bar.label}: {piece.name} {piece.told}, {bar.evidence}"
        drawing.rect(left, drawing.y, end - left, _HIGH, piece.colour, title)
        if end - left > width(piece.told, SMALL) + 8:
            middle, ink = (left + end) / 2, text_on(piece.colour)
            drawing.text(middle, base, piece.told, px=SMALL, colour=ink, anchor="middle")
    if bar.note:
        room = RIGHT - _EVIDENCE_PX - _LEFT - 6
        drawing.text(_LEFT + 6, base, bar.note, px=SMALL, colour=MUTED, most_px=room, has_halo=True)
    drawing.text(RIGHT - _EVIDENCE_PX, base, bar.value, px=SMALL, anchor="end")
    drawing.text(RIGHT, base, bar.evidence, px=SMALL, colour=MUTED, anchor="end")
    drawing.y += _PITCH
    if bar.under:
        colour = BAD if bar.is_broken else MUTED
        drawing.text(_LEFT + 6, drawing.y + 4, bar.under, px=SMALL, colour=colour, has_halo=True)
        drawing.y += 14


def _bands(top: float, bars: list[Bar]) -> list[tuple[float, float]]:
    """Where the bars of each run will stand, under its name."""
    bands = []
    for _, of in _grouped(bars):
        high = sum(_PITCH + 14 * bool(bar.under) for bar in of)
        bands.append((top + _HEADING - 3, top + _HEADING + high - 5))
        top += _HEADING + high
    return bands


def _grouped(bars: list[Bar]) -> list[tuple[str, list[Bar]]]:
    return [(group, list(of)) for group, of in groupby(bars, key=lambda bar: bar.group)]


def _occurs(bars: list[Bar], name: str) -> bool:
    return any(piece.name == name for bar in bars for piece in bar.pieces)


def _weakest(rows: list[Row]) -> str:
    found = {row["evidence"] for row in rows}
    return next((weak for weak in ("unobservable", "modelled", "measured") if weak in found), NOTHING)


def _reason(rows: list[Row]) -> str:
    return next((row["reason"] for row in rows if row["reason"]), "")
