"""What one operation takes, and how much more than in the baseline: calls, copies, launches and their queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from report import ranges
from report.colours import BLUE, FAINT, MUTED, ORANGE
from report.figure import (
    PLOT,
    Figure,
    Row,
    draw_marks,
    format_omitted,
    legend,
    lines,
    names,
    numbers,
    powers,
    select_rows,
    shared_scale,
    words,
)
from report.units import finite, format_count, format_duration, format_number, legible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MOST_RANKS, MOST_OPERATIONS = 16, 8
_UNSAID = {"", "none", "unknown"}


def operation_overhead(rows: Sequence[Row]) -> Figure:
    """The operations whose change weighs most, each as a point with its interval against the line at 1."""
    drawn_rows = [row for row in rows if finite(row["slowdown_ratio"])]
    drawn_rows.sort(
        key=lambda row: (-abs(row["overhead_ns"] * row["operations_count"]), _operation(row), row["run_id"])
    )
    shown = [
        {
            "line": place,
            "run": legible(row["run_id"]),
            "label": _operation(row),
            "under": legible(row["run_id"]),
            "what": f"{_operation(row)}, {format_count(row['operations_count'], 'time')}, "
            f"{format_duration(row['baseline_median_ns'])} to {format_duration(row['median_ns'])}",
            **ranges.point(row),
        }
        for place, row in enumerate(drawn_rows[:MOST_OPERATIONS])
    ]
    notes = (*format_omitted(len(drawn_rows) - len(shown), "operation"), *_format_unknown(len(rows) - len(drawn_rows)))
    subtitle = (
        "median of one call or copy over the baseline's, with its 95 % interval over runs; the largest change in all "
        "comes first; hollow: nothing is concluded"
    )
    title = "How much longer one operation takes than the baseline's"
    return Figure(title, subtitle, tuple(shown), ranges.intervals(shown, "ratio"), notes)


def operation_costs(rows: Sequence[Row]) -> Figure:
    """The operations that took most time in all: what one of them takes, on a scale of powers."""
    ordered = sorted(rows, key=lambda row: (-row["total_ns"], _operation(row), row["run_id"]))
    shown = [_cost(place, row) for place, row in enumerate(ordered[:MOST_OPERATIONS])]
    found = [row.get(name) for row in shown for name in ("at", "low", "high")]
    known = [value for value in found if finite(value)]
    x = shared_scale("at", "one operation, µs", scale=powers(known), axis={"format": "~s"})
    spec = lines(
        draw_marks(
            "low", {"type": "rule", "color": BLUE, "strokeWidth": 3}, x={**x, "field": "low"}, x2={"field": "high"}
        ),
        draw_marks("at", {"type": "point", "filled": True, "color": BLUE, "size": 60, "opacity": 1}, x=x),
        names(dy=-6, weight=600),
        names("under", dy=8, colour=MUTED),
        *numbers(),
        high=36,
    )
    subtitle = "median of a call or a copy with its 95 % interval; the largest in all comes first"
    return Figure(
        "What one operation takes", subtitle, tuple(shown), spec, format_omitted(len(rows) - len(shown), "operation")
    )


def _cost(place: int, row: Row) -> Row:
    low, high = row["median_low_ns"], row["median_high_ns"]
    has_interval = finite(low) and finite(high) and low > 0
    text = f"{format_duration(row['median_ns'])}, 95 % {format_duration(low)} to {format_duration(high)}"
    count = format_count(row["operations_count"], "time")
    return {
        "line": place,
        "run": legible(row["run_id"]),
        "label": _operation(row),
        "under": legible(row["run_id"]),
        **({"at": row["median_ns"] / 1e3} if row["median_ns"] > 0 else {}),
        **({"low": low / 1e3, "high": high / 1e3} if has_interval else {}),
        "value": format_duration(row["median_ns"]),
        "what": f"{_operation(row)}, {count}, {format_duration(row['total_ns'])} in all",
        "detail": text if has_interval else format_duration(row["median_ns"]),
        "evidence": row["evidence"],
        "evidence_text": row["evidence"],
    }


def launches(rows: Sequence[Row]) -> Figure:
    """Median to 99th percentile of launching and of queueing per rank, on a scale of powers; the first one apart."""
    kept = rows[:MOST_RANKS]
    shown = [mark for place, row in enumerate(kept) for mark in _rank(place, row)]
    found = [mark[name] for mark in shown for name in ("p50", "p95", "p99", "first") if name in mark]
    x = shared_scale("p50", "µs", scale=powers(found), axis={"format": "~s"})
    colour = legend("what", [("launch on the host", BLUE), ("queue before the kernel", ORANGE)])
    first = {"type": "point", "color": FAINT, "size": 40, "strokeWidth": 1.5, "yOffset": -6}
    layers: list[Row] = []
    for what, shift in (("launch on the host", -6), ("queue before the kernel", 6)):
        rule = {"type": "rule", "strokeWidth": 2, "yOffset": shift}
        point = {"type": "point", "filled": True, "opacity": 1, "yOffset": shift}
        marks = [draw_marks("p99", rule, x=x, x2={"field": "p99"}, color=colour)]
        for name, size in (("p50", 60), ("p95", 26), ("p99", 26)):
            marks.append(draw_marks(name, {**point, "size": size}, x={**x, "field": name}, color=colour))
        layers += [select_rows(what, layer) for layer in (*marks, words("side", PLOT + 10, 190, dy=shift))]
    spec = lines(*layers, draw_marks("first", first, x={**x, "field": "first"}), names(), high=32)
    return Figure(
        "What a launch costs, and how long its kernel queues",
        "from the median over p95 to p99, by rank; hollow: the first launch",
        tuple(shown),
        spec,
        format_omitted(len(rows) - len(kept), "rank"),
    )


def _rank(place: int, row: Row) -> Iterator[Row]:
    """A rank's two ranges, one under another."""
    label = f"{legible(row['run_id'])}, rank {row['rank']}"
    for what, name, count, noun, evidence in (
        ("launch on the host", "launch", row["launches_count"], "launch", row["evidence"]),
        ("queue before the kernel", "queue", row["kernels_count"], "kernel", row["gpu_evidence"]),
    ):
        of = {p: row[f"{name}_{p}_ns"] for p in ("p50", "p95", "p99")}
        many = f"{format_number(count)} {noun}"
        many += "" if count == 1 else "es" if noun == "launch" else "s"
        side = f"median {format_duration(of['p50'])}, {evidence}"
        first = row["first_launch_ns"] if name == "launch" else None
        yield {
            "line": place,
            "run": legible(row["run_id"]),
            **({"label": label, "value": side} if name == "launch" else {}),
            **{p: time_ns / 1e3 for p, time_ns in of.items() if time_ns},
            **({"first": first / 1e3} if first else {}),
            "side": side if count is not None else f"{name} not observed, {evidence}",
            "what": what,
            "detail": ", ".join([*(f"{p} {format_duration(time_ns)}" for p, time_ns in of.items()), many]),
            "evidence": evidence,
        }


def _operation(row: Row) -> str:
    """An operation in words: what it is, which way it goes, how large it is."""
    way = row["direction"].replace("_", " ").replace("gpu", "GPU")
    memory = row["memory"] if row["memory"] in _UNSAID else f"{row['memory']} memory"
    words = [row["name"] or row["operation"].replace("_", " "), way, row["size_class"], memory]
    return legible(", ".join(part for part in words if part not in _UNSAID))


def _format_unknown(count: int) -> tuple[str, ...]:
    return (f"{format_count(count, 'operation')} without a ratio, not drawn",) if count else ()
