"""The few largest of many: kernels by their time, collectives by how far apart their ranks arrived."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Any

from report.colours import BLUE, COLOURS, ORANGE, WORDS
from report.svg import FAINT, INK, MARGIN, MUTED, RIGHT, SMALL, Drawing, Scale
from report.units import counted, duration, number, percent, size

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = dict[str, Any]

MOST, MOST_EACH, MOST_RUNS = 10, 3, 6
_END = 330
_NOISE = re.compile(r"^void |\(anonymous namespace\)::|at::native::")


def kernel_breakdown(rows: Sequence[Row]) -> str:
    """The ten kernels that took most of a run's GPU time; of several runs the first three each."""
    drawing = Drawing("What the GPU's time went into", "time of all launches of a kernel together, over all ranks")
    kinds = {row["kind"] for row in rows}
    drawing.legend([(WORDS[kind], colour) for kind, colour in COLOURS.items() if kind in kinds])
    runs = _runs(rows)
    scale = Scale(0.0, max((row["total_ns"] for row in rows), default=0) or 1, MARGIN, _END)
    for run_id, of in runs[:MOST_RUNS]:
        shown = sorted(of, key=lambda row: (-row["total_ns"], row["kind"], row["name"]))[: _most(runs)]
        _heading(drawing, run_id, "")
        for row in shown:
            _kernel(drawing, row, scale)
        drawing.more(len(of) - len(shown), "kernel")
    drawing.more(len(runs) - MOST_RUNS, "run")
    return drawing.finished()


def stragglers(rows: Sequence[Row]) -> str:
    """The collectives whose ranks arrived furthest apart, that skew with its doubt beside the transfer itself."""
    subtitle = "collectives with the largest skew; the thin line is how wrong the clocks may make it"
    drawing = Drawing("Is it the transfer, or the rank that comes late?", subtitle)
    drawing.legend([("transfer", BLUE), ("skew of arrivals", ORANGE)])
    runs = _runs(rows)
    chosen = [(run_id, of, _latest(of)[: _most(runs)]) for run_id, of in runs[:MOST_RUNS]]
    found = [_reach(row) for _, _, shown in chosen for row in shown]
    scale = Scale(0.0, max(found, default=0) or 1, MARGIN, _END)
    for run_id, of, shown in chosen:
        _heading(drawing, run_id, _late(of))
        for row in shown:
            _collective(drawing, row, scale)
        drawing.more(len(of) - len(shown), "collective")
    drawing.more(len(runs) - MOST_RUNS, "run")
    return drawing.finished()


def _runs(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    return [(run_id, list(of)) for run_id, of in groupby(rows, key=lambda row: row["run_id"])]


def _most(runs: list[tuple[str, list[Row]]]) -> int:
    return MOST if len(runs) == 1 else MOST_EACH


def _heading(drawing: Drawing, run_id: str, told: str) -> None:
    drawing.text(MARGIN, drawing.y + 15, run_id, weight=600, most_px=240)
    drawing.text(RIGHT, drawing.y + 15, told, px=SMALL, colour=MUTED, anchor="end", most_px=420)
    drawing.y += 26


def _kernel(drawing: Drawing, row: Row, scale: Scale) -> None:
    """Draw a kernel: its name, shortened, over its bar; its share and how often it ran beside."""
    name = _NOISE.sub("", row["name"]) or "(no name)"
    drawing.text(MARGIN, drawing.y + 10, name, px=SMALL, most_px=RIGHT - MARGIN)
    wide = scale.at(row["total_ns"]) - MARGIN
    title = f"{row['name']}: {duration(row['total_ns'])}, {row['evidence']}"
    drawing.rect(MARGIN, drawing.y + 16, wide, 10, COLOURS.get(row["kind"], FAINT), title)
    share = f", {percent(row['share_fraction'])}" if row["share_fraction"] is not None else ""
    base = drawing.y + 25
    drawing.text(MARGIN + wide + 6, base, f"{duration(row['total_ns'])}{share}", px=SMALL, weight=600)
    ran = f"{counted(row['kernels_count'], 'time')}, median {duration(row['p50_ns'])}"
    drawing.text(RIGHT - 84, base, ran, px=SMALL, anchor="end", most_px=180)
    drawing.text(RIGHT, base, row["evidence"], px=SMALL, colour=MUTED, anchor="end")
    drawing.y += 38


def _collective(drawing: Drawing, row: Row, scale: Scale) -> None:
    """Draw a collective: two bars, transfer over skew; what could not be seen is said in its place."""
    told = [row["collective"].replace("_", " ")]
    told += [f"step {row['step_number']}"] if row["step_number"] is not None else []
    told += [size(row["buffer_bytes"])] if row["buffer_bytes"] is not None else []
    told += [f"rank {row['late_rank']} last of {row['ranks_count']}"] if row["late_rank"] is not None else []
    drawing.text(MARGIN, drawing.y + 10, ", ".join(told), px=SMALL)
    drawing.text(RIGHT, drawing.y + 10, row["match_id"], px=SMALL, colour=MUTED, anchor="end", most_px=300)
    for name, colour, y in (("transfer", BLUE, drawing.y + 16), ("skew", ORANGE, drawing.y + 28)):
        time_ns = row[f"{name}_ns"]
        if time_ns is not None:
            drawing.rect(MARGIN, y, scale.at(time_ns) - MARGIN, 9, colour, f"{row['match_id']}: {_told(row, name)}")
        end = _doubt(drawing, row, scale, y + 4.5) if name == "skew" else scale.at(time_ns or 0)
        drawing.text(end + 6, y + 9, _told(row, name), px=SMALL, most_px=RIGHT - 90 - end)
    # It speaks of the transfer; how sure the skew is, its doubt says.
    drawing.text(RIGHT, drawing.y + 25, row["evidence"], px=SMALL, colour=MUTED, anchor="end")
    drawing.y += 50


def _doubt(drawing: Drawing, row: Row, scale: Scale, y: float) -> float:
    """Draw how far the skew may be wrong; give where the drawing ends."""
    skew, doubt = row["skew_ns"], row["skew_uncertainty_ns"]
    if skew is None or doubt is None:
        return scale.at(skew or 0)
    drawing.line(scale.at(skew - doubt), y, scale.at(skew + doubt), y, INK, px=1.5)
    return scale.at(skew + doubt)


def _told(row: Row, name: str) -> str:
    time_ns = row[f"{name}_ns"]
    if time_ns is None:
        return f"{name} not known: {row['reason'] or 'not observed'}"
    if name == "transfer":
        wait = row["total_wait_ns"]
        return f"{duration(time_ns)} transfer" + (f", {duration(wait)} waited in all" if wait is not None else "")
    doubt = "" if row["skew_uncertainty_ns"] is None else f" ± {duration(row['skew_uncertainty_ns'])}"
    return f"{duration(time_ns)}{doubt} skew" + ("" if row["is_skew_certain"] else ", within the doubt of the clocks")


def _latest(of: list[Row]) -> list[Row]:
    return sorted(of, key=lambda row: (-(row["skew_ns"] or 0), -(row["transfer_ns"] or 0), row["match_id"]))


def _reach(row: Row) -> int:
    return max(row["transfer_ns"] or 0, (row["skew_ns"] or 0) + (row["skew_uncertainty_ns"] or 0))


def _late(of: list[Row]) -> str:
    """How many collectives have a skew that the clocks cannot explain."""
    certain = sum(bool(row["is_skew_certain"]) for row in of)
    return f"{number(certain)} of {counted(len(of), 'collective')} with a skew beyond the doubt of the clocks"
