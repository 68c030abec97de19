"""Points with their ranges, one line a pair, a rank or a source, all on one scale."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Any

from report.colours import BLUE, ORANGE, PALE
from report.svg import FAINT, INK, MARGIN, MUTED, RIGHT, SMALL, Drawing, Scale
from report.units import counted, duration, finite, number, percent, ratio

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Row = dict[str, Any]

MOST_PAIRS, MOST_RANKS, MOST_SOURCES = 10, 16, 24
_PAIR = 74
_FAR = 12  # times as far as the nearest: a scale of powers shows both
_CLASSES = {
    "primary": (BLUE, False, "their own text"),
    "secondary": (BLUE, True, "quoted by others"),
    "computed": (ORANGE, False, "by us, from their data"),
}


def step_overhead(rows: Sequence[Row]) -> str:
    """A point with its interval per pair, against the line at 1; the band is how far repeats of the twin differ."""
    subtitle = "median step over that of the twin; the bar is the 95 % interval, 1× is no difference"  # noqa: RUF001
    return _pairs(rows, Drawing("How much longer a step takes in the TEE", subtitle))


def throughput_overhead(rows: Sequence[Row]) -> str:
    """The same by the training logs: median rate of the twin over that of the run."""
    subtitle = "the twin's median rate over the run's; the bar is the 95 % interval, 1× is no difference"  # noqa: RUF001
    return _pairs(rows, Drawing("How much slower training goes in the TEE, by its logs", subtitle))


def _pairs(rows: Sequence[Row], drawing: Drawing) -> str:
    """Draw a line a pair, all on one scale."""
    shown = rows[:MOST_PAIRS]
    places = ("slowdown_ratio", "slowdown_low_ratio", "slowdown_high_ratio")
    floors = [row["noise_floor_fraction"] for row in shown if finite(row["noise_floor_fraction"])]
    noise = [max(0.0, 1 + sign * floor) for floor in floors for sign in (-1, 1)]
    scale = _scale([*noise, *(row[name] for row in shown for name in places)], 1.0, MARGIN + 4, RIGHT - 150)
    bands = [(drawing.y + _PAIR * place + 40, drawing.y + _PAIR * place + 64) for place in range(len(shown))]
    if any(finite(row["slowdown_ratio"]) for row in shown):
        drawing.axis(scale, bands, ratio)
    for row in shown:
        _pair(drawing, row, scale)
    drawing.y += 10
    drawing.more(len(rows) - len(shown), "pair")
    return drawing.finished()


def launches(rows: Sequence[Row]) -> str:
    """Median to 99th percentile of launching and of queueing per rank, on a scale of powers; the first one apart."""
    drawing = Drawing("What a launch costs, and how long its kernel queues", "from the median over p95 to p99, by rank")
    drawing.legend(
        [("launch on the host", BLUE), ("queue before the kernel", ORANGE), ("hollow: the first launch", FAINT)]
    )
    shown = rows[:MOST_RANKS]
    columns = [f"{what}_p{percentile}_ns" for what in ("launch", "queue") for percentile in (50, 95, 99)]
    found = [row[name] for row in shown for name in (*columns, "first_launch_ns") if row[name]]
    low, high = 10 ** (len(str(min(found, default=1))) - 1), 10 ** len(str(max(found, default=9) - 1))
    scale = Scale(low, high, 84, 390, is_log=True)
    grouped = [(run_id, list(ranks)) for run_id, ranks in groupby(shown, key=lambda row: row["run_id"])]
    bands, top = [], drawing.y
    for _, ranks in grouped:
        bands.append((top + 20, top + 24 + 30 * len(ranks)))
        top += 24 + 30 * len(ranks)
    if found:
        drawing.axis(scale, bands, duration)
    for run_id, ranks in grouped:
        drawing.text(MARGIN, drawing.y + 15, run_id, weight=600)
        drawing.y += 24
        for row in ranks:
            _rank(drawing, row, scale)
    drawing.y += 24
    drawing.more(len(rows) - len(shown), "rank")
    return drawing.finished()


def published(rows: Sequence[Row]) -> str:
    """All published slowdowns of whole workloads, a line per source and regime, by how well each is known."""
    drawing = Drawing("What others have published", "slowdown of whole workloads, on a logarithmic scale; none is ours")
    for x, name in zip((MARGIN, 200, 420), _CLASSES, strict=True):
        colour, hollow, meaning = _CLASSES[name]
        drawing.dot(x + 5, drawing.y + 5, colour, "", radius=4, hollow=hollow)
        drawing.text(x + 15, drawing.y + 9, f"{name}: {meaning}", px=SMALL)
    drawing.y += 24
    told = [row for row in rows if finite(row["slowdown_ratio"]) and row["slowdown_ratio"] > 0]
    told.sort(key=lambda row: (row["source"], row["regime"] or "", row["entry_id"]))
    lines = [list(of) for _, of in groupby(told, key=lambda row: (row["source"], row["regime"]))]
    lines.sort(key=lambda line: max(row["slowdown_ratio"] for row in line), reverse=True)
    shown = lines[:MOST_SOURCES]
    scale = _scale((row["slowdown_ratio"] for line in shown for row in line), 1.0, 330, RIGHT - 90, is_log=True)
    top, bottom = drawing.y, drawing.y + 34 * len(shown)
    if shown:
        drawing.axis(scale, [(top, bottom)], ratio)
        drawing.line(scale.at(1), top, scale.at(1), bottom, INK, px=1.5)
    for line in shown:
        _source(drawing, line, scale)
    drawing.y = bottom + 24
    drawing.more(len(lines) - len(shown), "source")
    if len(told) < len(rows):
        drawing.note(f"{counted(len(rows) - len(told), 'published number')} of a part of the work, not drawn")
    return drawing.finished()


def _pair(drawing: Drawing, row: Row, scale: Scale) -> None:
    """Draw a pair: its names, its point and interval, its verdict under them."""
    drawing.text(MARGIN, drawing.y + 15, row["run_id"], weight=600, most_px=250)
    against = f"against {row['baseline_run_id']}, {row['regime']}"
    drawing.text(RIGHT, drawing.y + 15, against, px=SMALL, colour=MUTED, anchor="end", most_px=400)
    drawing.text(MARGIN, drawing.y + 31, row["verdict"], px=SMALL)
    middle, slowdown = drawing.y + 52, row["slowdown_ratio"]
    if finite(slowdown):
        floor = row["noise_floor_fraction"]
        if finite(floor):
            left, end = scale.at(1 - floor), scale.at(1 + floor)
            drawing.rect(left, middle - 9, end - left, 18, PALE, f"repeats of the twin differ by {percent(floor)}")
        drawing.line(scale.at(1), middle - 12, scale.at(1), middle + 12, INK, px=1.5)
        low, high = row["slowdown_low_ratio"], row["slowdown_high_ratio"]
        if finite(low) and finite(high):
            left, right = sorted((scale.at(low), scale.at(high)))
            drawing.rect(left, middle - 1.5, right - left, 3, BLUE, _interval(row))
            for end in (low, high):
                drawing.line(scale.at(end), middle - 6, scale.at(end), middle + 6, BLUE, px=1.5)
        title = f"{row['run_id']}: {ratio(slowdown)}, {row['evidence']}"
        drawing.dot(scale.at(slowdown), middle, BLUE, title, radius=4)
    drawing.text(RIGHT - 84, middle + 4, ratio(slowdown), weight=600, anchor="end")
    drawing.text(RIGHT, middle + 4, row["evidence"], px=SMALL, colour=MUTED, anchor="end")
    drawing.y += _PAIR


def _interval(row: Row) -> str:
    return f"95 % {ratio(row['slowdown_low_ratio'])} to {ratio(row['slowdown_high_ratio'])}, {row['evidence']}"


def _rank(drawing: Drawing, row: Row, scale: Scale) -> None:
    """Draw a rank: two ranges one under another, and what they mean for its kernels."""
    drawing.text(MARGIN, drawing.y + 15, f"rank {row['rank']}", px=SMALL)
    for what, colour, middle in (("launch", BLUE, drawing.y + 5), ("queue", ORANGE, drawing.y + 17)):
        of = [(p, row[f"{what}_p{p}_ns"]) for p in (50, 95, 99) if row[f"{what}_p{p}_ns"] is not None]
        evidence = row["evidence" if what == "launch" else "gpu_evidence"]
        if of:
            drawing.line(scale.at(of[0][1]), middle, scale.at(of[-1][1]), middle, colour, px=2)
        for radius, (p, time_ns) in zip((4.5, 3, 3), of, strict=False):
            title = f"rank {row['rank']}: {what} p{p} {duration(time_ns)}, {evidence}"
            drawing.dot(scale.at(time_ns), middle, colour, title, radius=radius)
    if row["first_launch_ns"] is not None:
        title = f"rank {row['rank']}: first launch {duration(row['first_launch_ns'])}, {row['evidence']}"
        drawing.dot(scale.at(row["first_launch_ns"]), drawing.y + 5, FAINT, title, radius=3.5, hollow=True)
    of_launch = (row["launches_count"], "launch", row["launch_p50_ns"], row["evidence"])
    of_queue = (row["kernels_count"], "kernel", row["queue_p50_ns"], row["gpu_evidence"])
    for base, (count, noun, median, evidence) in ((9, of_launch), (22, of_queue)):
        plural = "es" if noun == "launch" else "s"
        told = f"{number(count)} {noun}{plural}, median {duration(median)}" if count is not None else "not observed"
        drawing.text(RIGHT - 84, drawing.y + base, told, px=SMALL, anchor="end", most_px=215)
        drawing.text(RIGHT, drawing.y + base, evidence, px=SMALL, colour=MUTED, anchor="end")
    drawing.y += 30


def _source(drawing: Drawing, line: list[Row], scale: Scale) -> None:
    """Draw a source: who, under which regime, and each of its numbers."""
    drawing.text(MARGIN, drawing.y + 12, line[0]["source"], px=SMALL, most_px=290)
    regime = line[0]["regime"] or "regime not clear"
    drawing.text(MARGIN, drawing.y + 25, regime, px=SMALL, colour=MUTED)
    values = sorted(row["slowdown_ratio"] for row in line)
    drawing.line(scale.at(values[0]), drawing.y + 15, scale.at(values[-1]), drawing.y + 15, FAINT)
    for row in line:
        colour, hollow, _ = _CLASSES[row["evidence_class"]]
        title = f"{row['workload']}, {row['statistic']}: {ratio(row['slowdown_ratio'])}, {row['evidence_class']}"
        drawing.dot(scale.at(row["slowdown_ratio"]), drawing.y + 15, colour, title, radius=4, hollow=hollow)
    told = ratio(values[0]) if len(values) == 1 else f"{ratio(values[0])} to {ratio(values[-1])}"
    drawing.text(RIGHT, drawing.y + 19, told, px=SMALL, anchor="end")
    drawing.y += 34


def _scale(values: Iterable[float | None], mark: float, left: float, right: float, *, is_log: bool = False) -> Scale:
    """A scale that holds all values and the mark; of powers where they are far apart."""
    found = [value for value in values if value is not None and finite(value)]
    low, high = min((mark, *found)), max((mark, *found))
    is_log = is_log or (low > 0 and high / low > _FAR)
    if is_log and low > 0:
        return Scale(
            max(low / 1.1, 1e-300), min(max(high, 2 * mark) * 1.1, 1e308), left, right, is_log=True, marked=mark
        )
    room = (high / 2 - low / 2) * 0.1 or mark * 0.05
    return Scale(max(0.0, low - room), min(high + room, 1e308), left, right, marked=mark)
