"""The few largest of many: kernels by their time, collectives by how far apart their ranks arrived."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING

from report.colours import BLUE, COLOURS, FAINT, INK, MUTED, ORANGE, WORDS
from report.figure import (
    NAME,
    PLOT,
    Figure,
    Row,
    draw_marks,
    format_omitted,
    legend,
    lines,
    ms,
    names,
    select_rows,
    shared_scale,
    words,
)
from report.units import format_count, format_duration, format_number, format_percent, format_size, legible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Few, since every letter of a picture costs time, and each run has its pictures drawn.
MOST, MOST_EACH, MOST_RUNS = 6, 3, 12
_NAMES = 460  # pixels
_NOISE = re.compile(r"^void |\(anonymous namespace\)::|at::native::")
_TIMES = [("transfer", BLUE), ("skew of arrivals", ORANGE)]


def kernel_breakdown(rows: Sequence[Row]) -> Figure:
    """The six kernels that took most of a run's GPU time; of several runs the first three each."""
    chosen, notes = _choose_rows(rows, lambda row: (-row["total_ns"], row["kind"], row["name"]), "kernel")
    shown = tuple(mark for place, row in enumerate(chosen) for mark in _kernel(place, row, chosen))
    kinds = sorted({row["kind"] for row in chosen})
    colours = [(_kind(kind), COLOURS.get(kind, FAINT)) for kind in kinds]
    spec = lines(
        draw_marks(
            "at",
            {"type": "bar", "height": 8, "yOffset": 7},
            x=shared_scale("at", "ms, all launches and ranks together"),
            color=legend("what", colours),
        ),
        words("name", -NAME - 10, _NAMES, dy=-7),
        names("group", weight=600, dy=4),
        words("value", PLOT + 10, 190, dy=7),
        high=34,
    )
    subtitle = "time of all launches of a kernel together, over all ranks, and its share of the GPU's time"
    return Figure("What the GPU's time went into", subtitle, shown, spec, notes)


def stragglers(rows: Sequence[Row]) -> Figure:
    """The collectives whose ranks arrived furthest apart, that skew with its doubt beside the transfer itself."""
    chosen, notes = _choose_rows(
        rows, lambda row: (-(row["skew_ns"] or 0), -(row["transfer_ns"] or 0), row["match_id"]), "collective"
    )
    shown = tuple(mark for place, row in enumerate(chosen) for mark in _collective(place, row, chosen))
    x = shared_scale("at", "ms", scale={"domainMin": 0, "clamp": True})
    layers: list[Row] = []
    for what, shift in (("transfer", -5), ("skew of arrivals", 5)):
        bar = draw_marks("at", {"type": "bar", "height": 8, "yOffset": shift}, x=x, color=legend("what", _TIMES))
        side = words("side", PLOT + 10, 194, dy=shift, size=10)
        layers += [select_rows(what, layer) for layer in (bar, side)]
    doubt = {"type": "rule", "color": INK, "strokeWidth": 1.5, "yOffset": 5}
    spec = lines(
        *layers,
        draw_marks("low", doubt, x={**x, "field": "low"}, x2={"field": "high"}),
        names(dy=-6, weight=600),
        names("under", dy=7, colour=MUTED),
        high=32,
    )
    late = [f"{run_id}: {_late(list(of))}" for run_id, of in groupby(rows, key=lambda row: legible(row["run_id"]))]
    return Figure(
        "Is it the transfer, or the rank that comes late?",
        "collectives with the largest skew; the thin line is how wrong the clocks may make it",
        shown,
        spec,
        (*(late if len(late) == 1 else ()), *notes),
    )


def _choose_rows(rows: Sequence[Row], order: Callable[[Row], object], noun: str) -> tuple[list[Row], tuple[str, ...]]:
    """The first few of each run, and how many were left out."""
    runs = [list(of) for _, of in groupby(rows, key=lambda row: row["run_id"])]
    most = MOST if len(runs) == 1 else MOST_EACH
    shown = [row for of in runs[:MOST_RUNS] for row in sorted(of, key=order)[:most]]  # type: ignore[arg-type]
    left = sum(len(of) for of in runs[:MOST_RUNS]) - len(shown)
    return shown, (*format_omitted(left, noun), *format_omitted(len(runs) - MOST_RUNS, "run"))


def _kernel(place: int, row: Row, chosen: list[Row]) -> Iterator[Row]:
    """A line for the name of a run, then one a kernel."""
    name = legible(_NOISE.sub("", row["name"]) or "(no name)")
    share = f", {format_percent(row['share_fraction'])}" if row["share_fraction"] is not None else ""
    ran = f"{format_count(row['kernels_count'], 'time')}, median {format_duration(row['p50_ns'])}"
    group = _heading(place, chosen)
    if group:
        yield {"line": 2 * place, "run": group["label"], "group": group["label"]}
    yield {
        "line": 2 * place + 1,
        "run": legible(row["run_id"]),
        "label": name,
        "name": name,
        "at": ms(row["total_ns"]),
        "what": _kind(row["kind"]),
        "value": f"{format_duration(row['total_ns'])}{share}, {row['evidence']}",
        "detail": f"{name}: {format_duration(row['total_ns'])}{share}; {ran}",
        "evidence": row["evidence"],
    }


def _kind(kind: str) -> str:
    """What a kernel does, in words where there are some."""
    return WORDS.get(kind, kind.replace("_", " "))


def _heading(place: int, chosen: list[Row]) -> Row:
    """A run is named at the first of its lines."""
    is_first = not place or chosen[place - 1]["run_id"] != chosen[place]["run_id"]
    return {"label": legible(chosen[place]["run_id"])} if is_first else {}


def _collective(place: int, row: Row, chosen: list[Row]) -> Iterator[Row]:
    """Two bars, transfer over skew; what could not be seen is said in its place."""
    facts = [row["collective"].replace("_", " ")]
    facts += [f"step {row['step_number']}"] if row["step_number"] is not None else []
    facts += [format_size(row["buffer_bytes"])] if row["buffer_bytes"] is not None else []
    facts += [f"rank {row['late_rank']} last"] if row["late_rank"] is not None else []
    under = legible(", ".join(facts))
    skew, doubt = row["skew_ns"], row["skew_uncertainty_ns"]
    for what, time_ns in (("transfer", row["transfer_ns"]), ("skew of arrivals", skew)):
        is_skew = what != "transfer"
        side = _describe_row(row, "skew" if is_skew else "transfer")
        yield {
            "line": place,
            "run": legible(row["run_id"]),
            **({} if is_skew else {**_heading(place, chosen), "under": under, "value": side}),
            **({"at": ms(time_ns)} if time_ns is not None else {}),
            **(
                {"low": ms(max(0, skew - doubt)), "high": ms(skew + doubt)}
                if is_skew and skew is not None and doubt is not None
                else {}
            ),
            "what": what,
            "side": side,
            "detail": f"{under}: {side}",
            "evidence": row["evidence"],
        }


def _describe_row(row: Row, name: str) -> str:
    time_ns = row[f"{name}_ns"]
    if time_ns is None:
        return legible(f"{name} not known: {row['reason'] or 'not observed'}")
    if name == "transfer":
        return f"{format_duration(time_ns)}, {row['evidence']}"
    doubt = "" if row["skew_uncertainty_ns"] is None else f" ± {format_duration(row['skew_uncertainty_ns'])}"
    return f"{format_duration(time_ns)}{doubt}" + ("" if row["is_skew_certain"] else ", within doubt")


def _late(of: list[Row]) -> str:
    """How many collectives have a skew that the clocks cannot explain."""
    certain = sum(bool(row["is_skew_certain"]) for row in of)
    return (
        f"{format_number(certain)} of {format_count(len(of), 'collective')} with a skew beyond the doubt of the clocks"
    )
