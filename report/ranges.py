"""Points with their intervals around 1, one line a pair, all on one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING

from report.colours import BLUE, MUTED, NOISE
from report.figure import (
    Figure,
    Row,
    draw_marks,
    format_omitted,
    lines,
    names,
    numbers,
    scale_of,
    shared_scale,
    vertical_labels,
)
from report.sentences import headline, is_concluded
from report.units import finite, format_count, format_percent, format_ratio, legible

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_PAIRS = 24
TIMES = {"labelExpr": "format(datum.value, '~g') + '×'"}  # noqa: RUF001


def step_overhead(rows: Sequence[Row]) -> Figure:
    """A point with its interval per pair, against the line at 1; the band is how far repeats differ."""
    subtitle = "mean step over that of the baseline; the bar is the 95 % interval, the band the noise between runs; hollow: nothing is concluded"  # noqa: E501
    return _pairs(rows, "How much longer a step takes than the baseline's", subtitle)


def throughput_overhead(rows: Sequence[Row]) -> Figure:
    """The same by the training logs: rate of the baseline over that of the run."""
    subtitle = "the baseline's rate over the run's; the bar is the 95 % interval; hollow: nothing is concluded"
    return _pairs(rows, "How much slower training goes than the baseline's, by its logs", subtitle)


def energy_overhead(rows: Sequence[Row]) -> Figure:
    """The same of the energy of a step, as far as the devices were sampled."""
    subtitle = "mean energy of a step over the baseline's; the bar is the 95 % interval; hollow: nothing is concluded"
    ends = {f"slowdown{end}_ratio": f"energy{end}_ratio" for end in ("", "_low", "_high")}
    renamed = [{**row, **{name: row[of] for name, of in ends.items()}} for row in rows]
    return _pairs(renamed, "How much more energy a step takes than the baseline's", subtitle, "energy")


def _pairs(rows: Sequence[Row], title: str, subtitle: str, what: str = "slowdown") -> Figure:
    shown = [_pair(place, row, what) for place, row in enumerate(rows[:MOST_PAIRS])]
    return Figure(title, subtitle, tuple(shown), intervals(shown, what), format_omitted(len(rows) - len(shown), "pair"))


def _pair(place: int, row: Row, what: str) -> Row:
    """A pair's line: its point and interval where it has them, and its evidence in any case."""
    world = row["world_size"]
    facts = ", ".join(filter(None, (row["model"] or "", format_count(world, "rank") if world else "", row["regime"])))
    floor = row["run_noise_fraction"]
    return {
        "line": place,
        "run": legible(row["run_id"]),
        "label": legible(row["run_id"]),
        "under": legible(facts),
        **point(row),
        **({"floor_low": max(0.0, 1 - floor), "floor_high": 1 + floor} if finite(floor) else {}),
        "what": f"{what} against {legible(row['baseline_run_id'])}",
        "noise": f"runs differ by {format_percent(floor)}" if finite(floor) else "noise between runs unknown",
    }


def point(row: Row) -> Row:
    """A ratio with its interval as a mark, a number and a tooltip."""
    at, low, high = (row[f"slowdown{end}_ratio"] for end in ("", "_low", "_high"))
    text = format_ratio(at)
    if finite(low) and finite(high):
        called = "within-run scatter only" if row.get("interval_over") == "within_run" else "95 %"
        text = f"{text}, {called} {format_ratio(low)} to {format_ratio(high)}"
    return {
        **({"at" if is_concluded(row) else "open": at} if finite(at) else {}),
        **({"low": min(low, high), "high": max(low, high)} if finite(low) and finite(high) and finite(at) else {}),
        "value": headline(row),
        "detail": text,
        "evidence": row["evidence"],
        "evidence_text": row["evidence"],
    }


def intervals(shown: Sequence[Row], title: str) -> Row:
    """The plot of ratios around 1."""
    places = [row.get(name) for row in shown for name in ("at", "open", "low", "high", "floor_low", "floor_high")]
    x = shared_scale("at", title, scale=scale_of(places, 1.0), axis=TIMES)
    end = {"type": "tick", "color": BLUE, "thickness": 2, "size": 11}
    return lines(
        draw_marks(
            "floor_low",
            {"type": "bar", "color": NOISE, "height": 22},
            x={**x, "field": "floor_low"},
            x2={"field": "floor_high"},
        ),
        vertical_labels(1.0),
        draw_marks(
            "low", {"type": "rule", "color": BLUE, "strokeWidth": 3}, x={**x, "field": "low"}, x2={"field": "high"}
        ),
        *(draw_marks("low", end, x={**x, "field": name}) for name in ("low", "high")),
        draw_marks("at", {"type": "point", "filled": True, "color": BLUE, "size": 70, "opacity": 1}, x=x),
        draw_marks("open", {"type": "point", "color": BLUE, "size": 70, "strokeWidth": 1.5}, x={**x, "field": "open"}),
        names(dy=-6, weight=600),
        names("under", dy=8, colour=MUTED),
        *numbers(),
        high=36,
    )
