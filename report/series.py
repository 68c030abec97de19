"""What changes over the time of a trace, a panel per rank: memory handed out, the rate of copies, work that waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from report.colours import BLUE, FAINT, GREEN, INK, ORANGE, PINK, PURPLE, RED
from report.figure import Figure, Row, draw_marks, format_omitted, legend, ms, powers, ticks
from report.units import finite, format_duration, format_number, format_size, legible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Panels = dict[str, list[Row]]

# A panel has at most 100 slices: what is drawn is bounded, whatever was recorded.
MOST_PANELS = 4
_WIDTH, _HEIGHT = 330, 110
_UNITS = (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))
_THOUSAND = 1000
# Kinds of copies as a person says them, each with its colour.
_KINDS = {
    "host_to_gpu": ("host to GPU", BLUE),
    "gpu_to_host": ("GPU to host", RED),
    "on_gpu": ("on one GPU", GREEN),
    "gpu_to_gpu": ("GPU to GPU", ORANGE),
    "on_host": ("on the host", PINK),
    "memset": ("memset", PURPLE),
}
_OTHER = ("unknown", FAINT)
_X: Row = {"field": "begin", "type": "quantitative", "title": "ms from the first", "axis": {"grid": False}}
_X2: Row = {"field": "end"}


def memory_timeline(rows: Sequence[Row]) -> Figure:
    """What was handed out at most in each slice of time, and what the allocator held: of GPUs, else of the host."""
    seen = [row for row in rows if finite(row["peak_allocated_bytes"])]
    of_gpus = [row for row in seen if row["device"] != "cpu"]
    panels, notes = _choose(of_gpus or seen, lambda row: legible(row["device"]))
    kept = [row for of in panels.values() for row in of]
    most = max((max(row["peak_allocated_bytes"], row["peak_reserved_bytes"] or 0) for row in kept), default=0)
    unit, size = next((one for one in _UNITS if most >= one[1]), ("bytes", 1))
    shown, told = [], []
    for name, of in panels.items():
        shown += [_describe_memory(name, row, _find_start(of), size) for row in of if row["period"] == "slice"]
        told += [f"{name}: {_tell_peak(row)}" for row in of if row["period"] == "trace"]
    y: Row = {"field": "peak", "type": "quantitative", "title": unit, "axis": {"tickCount": 4}, "scale": {"zero": True}}
    bar = draw_marks("peak", {"type": "rect", "color": BLUE}, x=_X, x2=_X2, y=y, y2={"datum": 0})
    stroke = {"type": "rule", "color": INK, "strokeWidth": 1.5}
    held = draw_marks("held", stroke, x=_X, x2=_X2, y={"field": "held", "type": "quantitative"})
    subtitle = "most that was handed out in each slice of a rank's time, measured; the stroke: held by the allocator"
    blank = ("blank: nothing was handed out or taken back in that slice",) if shown else ()
    return Figure("Memory over time", subtitle, tuple(shown), _facet([bar, held], panels), (*told, *blank, *notes))


def copy_bandwidth(rows: Sequence[Row]) -> Figure:
    """The rate of each kind of copy in each slice of time, while it moved something."""
    timed = [row for row in rows if finite(row["bytes_per_second"]) and row["bytes_per_second"] > 0]
    panels, notes = _choose(timed, lambda row: f"GPU {row['device_id']}")
    shown, told = [], []
    for name, of in panels.items():
        shown += [_describe_copies(name, row, _find_start(of)) for row in of if row["period"] == "slice"]
        kinds = [_tell_copies(row) for row in of if row["period"] == "trace"]
        told += [f"{name}: {'; '.join(kinds)}"] if kinds else []
    used = [named for named in (*_KINDS.values(), _OTHER) if any(row["what"] == named[0] for row in shown)]
    scale = powers([row["rate"] for row in shown])
    y: Row = {"field": "rate", "type": "quantitative", "title": "GB/s", "scale": scale}
    y["axis"] = {**ticks(scale), "format": "~g"}
    layer = draw_marks("rate", {"type": "rule", "strokeWidth": 5}, x=_X, x2=_X2, y=y, color=legend("what", used))
    subtitle = "bytes over the time during which any copy of the kind ran, in each slice of a rank's time, measured"
    title = "How fast copies were, and when"
    return Figure(title, subtitle, tuple(shown), _facet([layer], panels), (*told, *notes))


def queue_timeline(rows: Sequence[Row]) -> Figure:
    """How much launched work waited to start, on the mean of each slice of time."""
    timed = [{**row, "period": "slice"} for row in rows if finite(row["mean_length"])]
    panels, notes = _choose(timed, lambda row: f"GPU {row['device_id']}")
    shown, told = [], []
    for name, of in panels.items():
        shown += [_describe_queue(name, row, _find_start(of)) for row in of]
        most = max(of, key=lambda row: row["mean_length"])
        at = format_duration(most["ts_ns"] - _find_start(of))
        told.append(f"{name}: at most {most['mean_length']:.3g} on the mean of a slice, {at} after the first launch")
    y: Row = {"field": "length", "type": "quantitative", "title": "waiting", "axis": {"tickCount": 4}}
    bar = draw_marks("length", {"type": "rect", "color": BLUE}, x=_X, x2=_X2, y=y, y2={"datum": 0})
    subtitle = "launched work that had not started yet, on the mean of each slice of a rank's time, measured"
    return Figure("Queues over time", subtitle, tuple(shown), _facet([bar], panels), (*told, *notes))


def _choose(rows: Sequence[Row], name_part: Callable[[Row], str]) -> tuple[Panels, tuple[str, ...]]:
    """A panel per run, rank and device: the first of each run before the second of any, and how many were left out."""
    timed = [row for row in rows if finite(row["ts_ns"]) and finite(row["duration_ns"])]
    panels: dict[tuple[str, int, str], list[Row]] = {}
    for row in timed:
        panels.setdefault((row["run_id"], row["rank"], name_part(row)), []).append(row)
    drawn = {place: of for place, of in panels.items() if any(row["period"] == "slice" for row in of)}
    counts: dict[str, int] = {}
    order: list[tuple[int, int, tuple[str, int, str]]] = []
    for place in drawn:
        counts[place[0]] = counts.get(place[0], 0) + 1
        order.append((counts[place[0]], len(order), place))
    kept = [place for _, _, place in sorted(order)[:MOST_PANELS]]
    named = {f"{legible(run)}, rank {rank}, {part}": drawn[run, rank, part] for run, rank, part in kept}
    return named, format_omitted(len(drawn) - len(kept), "panel")


def _find_start(rows: Sequence[Row]) -> int:
    return min(int(row["ts_ns"]) for row in rows)


def _place(panel: str, row: Row, start_ns: int) -> Row:
    begin = row["ts_ns"] - start_ns
    return {
        "panel": panel,
        "run": legible(row["run_id"]),
        "label": f"{panel}, {format_duration(begin)} to {format_duration(begin + row['duration_ns'])}",
        "begin": ms(begin),
        "end": ms(begin + row["duration_ns"]),
        "evidence": row["evidence"],
    }


def _describe_memory(panel: str, row: Row, start_ns: int, unit: int) -> Row:
    peak, held = row["peak_allocated_bytes"], row["peak_reserved_bytes"]
    of = f" of {format_size(held)} held" if finite(held) else ""
    step = f", in step {row['peak_allocated_step_number']}" if row["peak_allocated_step_number"] is not None else ""
    text = f"{format_size(peak)}{of}{step}"
    found = {**_place(panel, row, start_ns), "peak": peak / unit, "what": "handed out at most", "value": text}
    return {**found, "detail": text, **({"held": held / unit} if finite(held) else {})}


def _describe_queue(panel: str, row: Row, start_ns: int) -> Row:
    text = f"{row['mean_length']:.3g} waiting"
    counts = f"{format_number(row['launched_count'])} launched, {format_number(row['started_count'])} started"
    found = {**_place(panel, row, start_ns), "length": row["mean_length"], "what": "waiting", "value": text}
    return {**found, "detail": f"{text}: {counts}"}


def _tell_peak(row: Row) -> str:
    step, held = row["peak_allocated_step_number"], row["peak_reserved_bytes"]
    where = "between steps" if step is None else f"in step {step}"
    more = f", {format_size(held)} held by the allocator" if finite(held) else ""
    return f"at most {format_size(row['peak_allocated_bytes'])} {where}{more}; {legible(row['evidence'])}"


def _describe_copies(panel: str, row: Row, start_ns: int) -> Row:
    rate = _tell_rate(row)
    text = f"{rate}: {format_size(row['payload_bytes'])}, {format_number(row['copies_count'])} of them"
    what = _KINDS.get(row["copy_kind"], _OTHER)[0]
    at = row["bytes_per_second"] / 1e9
    return {**_place(panel, row, start_ns), "rate": at, "what": what, "value": rate, "detail": text}


def _tell_copies(row: Row) -> str:
    what = _KINDS.get(row["copy_kind"], _OTHER)[0]
    return f"{what} {_tell_rate(row)} over {format_size(row['payload_bytes'])}"


def _tell_rate(row: Row) -> str:
    rate = row["bytes_per_second"] / 1e9
    return f"{format_number(round(rate)) if rate >= _THOUSAND else format(rate, '.3g')} GB/s"


def _facet(layers: list[Row], panels: Panels) -> Row:
    header = {"labelLimit": _WIDTH}
    return {
        "facet": {"field": "panel", "type": "nominal", "title": None, "sort": list(panels), "header": header},
        "columns": min(2, max(1, len(panels))),
        "spacing": {"row": 24, "column": 50},
        "resolve": {"scale": {"x": "independent", "y": "independent"}},
        "spec": {"width": _WIDTH, "height": _HEIGHT, "layer": layers},
    }
