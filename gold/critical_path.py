"""One row per run, rank and step: the chain of host and GPU work that the step waited for, in parts that sum to it."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pyarrow as pa

from gold.covered_time import CoveredTime
from gold.idle_breakdown import CONSECUTIVE_NS
from gold.step_series import read_numbers
from gold.time_breakdown import CLASSES, HOST_PARTS, KERNEL_WAIT, KINDS, split_waits
from lake.tables import RUN_ID, Table, boolean, int32, int64, text
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import numpy.typing as npt

    from lake.frames import Frame

    Numbers = npt.NDArray[np.int64]

PARTS = (*KINDS, "delay", "idle")
_MEANINGS = {
    "compute": "A compute kernel ran.",
    "collective": "A collective kernel moved data.",
    "copy": "A copy ran.",
    "memset": "A memset ran.",
    "crypto": "The host, or a kernel, sealed or opened.",
    "transport": "The host sent or received.",
    "wait": "A collective kernel or the host waited for a peer.",
    "blocking_copy": "The host was in a call that waited for its own copy, beyond the copy.",
    "launch": "The host was in the call that launched the next work of the chain, or launched other work.",
    "sync": "The host was in a call that waits for the GPU, beyond the work that it waited for.",
    "host": "The host did other work.",
    "delay": "Work had been launched and what it followed had ended, and it did not start yet.",
    "idle": "The chain was on the host, and nothing of it was recorded.",
}

TABLE = Table(
    tier="gold",
    name="critical_path",
    grain="One row per run, rank and training step.",
    key=("rank", "step_number"),
    inputs=("silver.spans", "silver.steps", "silver.collectives"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        int64("step_number", "Number of the step.", minimum=0),
        boolean("is_warmup", "Whether it is left out of pairs (R7)."),
        int64("duration_ns", "Duration of the step: the sum of the parts below.", minimum=0),
        *(int64(f"{part}_ns", _MEANINGS[part], nullable=True, minimum=0) for part in PARTS),
        text("bound", "The part of the chain that took longest.", nullable=True, one_of=PARTS),
        int64("work_count", "Pieces of GPU work in the chain.", nullable=True, minimum=0),
        text("evidence", "modelled: times are measured, what waited for what is inferred from them.", one_of=EVIDENCE),
        text("reason", "Why there is no chain, as a sentence.", nullable=True),
    ),
)
NO_GPU = "no GPU rows were recorded, so what the host waited for is unknown"
# Where a class of gold.time_breakdown is told.
_PLACES = tuple(PARTS.index("wait" if name == KERNEL_WAIT else name) for name in CLASSES)
_LAUNCHING, _DELAY = PARTS.index("launch"), PARTS.index("delay")
_BLOCKING = (CLASSES.index("blocking_copy"), CLASSES.index("sync"))
_HOST = ("ts_ns", "duration_ns", "_class")
_LAUNCHED = ("device_id", "stream_id", "ordinal", "launch_ts_ns", "launch_duration_ns")
_GPU = (*_HOST, *_LAUNCHED)
# What is read of a span.
SPAN_COLUMNS = (
    *("run_id", "rank", "source_sha256", "ordinal", "kind", "pattern", "is_gpu", "is_orphan", "ts_ns", "duration_ns"),
    *("device_id", "stream_id", "launch_ts_ns", "launch_duration_ns"),
)


def select_gpu_work(spans: Frame, waits: Frame) -> Frame:
    """What lasts on the GPU, with its class; a collective that waited for a peer is two pieces of work."""
    work = split_waits(spans.filter(nw.col("is_gpu")), waits, *(name for name in _LAUNCHED if name != "ordinal"))
    work = work.filter(~nw.col("_class").is_null(), nw.col("duration_ns") > 0)
    return work.select(*_HOST, **{name: nw.col(name).fill_null(-1) for name in _LAUNCHED})


def select_host_work(spans: Frame, waits: Frame) -> Frame:
    """What lasts on the host, with its class."""
    work = split_waits(spans.filter(~nw.col("is_gpu")), waits)
    return work.filter(~nw.col("_class").is_null(), nw.col("duration_ns") > 0).select(*_HOST)


@dataclass(frozen=True)
class Window:
    """Whole steps of a rank, which begin before a moment, and all work that reaches into them."""

    until_ns: int
    gpu: pa.Table
    host: pa.Table


def find_cuts(steps: pa.Table) -> Numbers:
    """When a step of a rank begins and none before it still runs: there its time may be cut into windows."""
    starts = read_numbers(steps, "ts_ns")
    ends = starts + read_numbers(steps, "duration_ns")
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], np.maximum.accumulate(ends[order])
    return starts[1:][ends[:-1] <= starts[1:]]


def measure(steps: pa.Table, read_windows: Callable[[int], Iterable[Window]]) -> pa.Table:
    """Walk back from the end of each step to whatever ended last among what could have held it up, rank by rank."""
    by_rank: dict[int, list[dict[str, Any]]] = {}
    for step in steps.to_pylist():
        by_rank.setdefault(step["rank"], []).append(step)
    rows = [row for rank, known in by_rank.items() for row in _measure_rank(known, read_windows(rank))]
    return pa.Table.from_pylist(rows, schema=TABLE.arrow_schema)


def _measure_rank(steps: list[dict[str, Any]], windows: Iterable[Window]) -> list[dict[str, Any]]:
    """The rows of a rank, window by window; of work before a window only the last of each stream can matter."""
    waiting = sorted(steps, key=itemgetter("ts_ns"), reverse=True)
    carried: dict[str, Numbers] | None = None
    rows: list[dict[str, Any]] = []
    has_gpu = False
    for window in windows:
        known = []
        while waiting and waiting[-1]["ts_ns"] < window.until_ns:
            known.append(waiting.pop())
        gpu = _take_columns(window.gpu, _GPU)
        has_gpu = has_gpu or window.gpu.num_rows > 0
        if carried is not None:
            gpu = {name: np.concatenate([carried[name], values]) for name, values in gpu.items()}
        gpu = _order_by_end(gpu)
        carried = _take_last(gpu, window.until_ns)
        rows += _Chains(_GpuWork.of(gpu), window.host).charge(known)
    return rows if has_gpu else [_describe(step) for step in steps]


def _order_by_end(gpu: dict[str, Numbers]) -> dict[str, Numbers]:
    """Work in the order of its ends; what begins and ends alike is told apart by its place in the source."""
    keys = (gpu["stream_id"], gpu["_class"], gpu["ordinal"], gpu["ts_ns"], gpu["ts_ns"] + gpu["duration_ns"])
    order = np.lexsort(keys)
    return {name: values[order] for name, values in gpu.items()}


def _take_last(gpu: dict[str, Numbers], before_ns: int) -> dict[str, Numbers]:
    """Of each stream the work that ended last before a moment: what the work after it may have followed."""
    has_ended = np.flatnonzero(gpu["ts_ns"] + gpu["duration_ns"] < before_ns)
    groups = _group(gpu["device_id"][has_ended], gpu["stream_id"][has_ended])
    last = np.array([has_ended[rows[-1]] for rows in groups if len(rows)], np.intp)
    return {name: values[last] for name, values in gpu.items()}


@dataclass(frozen=True)
class _GpuWork:
    """The GPU work of a rank in the order of its ends, with what each piece followed."""

    # Views: to read one number of them makes no array, and they take no room of their own.
    starts: memoryview[int]
    ends: memoryview[int]
    classes: memoryview[int]
    # The piece that each followed, -1 where the host launched it; the call's start is -1 where it is not known.
    causes: memoryview[int]
    launches: memoryview[int]
    launch_ends: memoryview[int]
    # By start: the piece that ends last of those that began up to there.
    starts_in_order: memoryview[int]
    last_to_end: memoryview[int]

    @classmethod
    def of(cls, gpu: Mapping[str, Numbers]) -> _GpuWork:
        """Decide for each piece what it waited for."""
        starts, ends = gpu["ts_ns"], gpu["ts_ns"] + gpu["duration_ns"]
        launched = np.where(gpu["launch_ts_ns"] <= starts, gpu["launch_ts_ns"], -1)
        by_start = np.argsort(starts, kind="stable")
        found = (
            starts,
            ends,
            gpu["_class"],
            _find_causes(gpu, ends, launched),
            launched,
            np.minimum(launched + np.maximum(gpu["launch_duration_ns"], 0), starts),
            starts[by_start],
            # Places are in the order of ends: the greatest ends last.
            np.maximum.accumulate(by_start),
        )
        return cls(*(np.ascontiguousarray(values, np.int64).data for values in found))

    def find_running(self, moment: int) -> int | None:
        """The piece that runs beyond a moment and ends last: there the host has run ahead."""
        place = bisect_right(self.starts_in_order, moment - 1) - 1
        if place < 0 or self.ends[self.last_to_end[place]] <= moment:
            return None
        return self.last_to_end[place]


class _Chains:
    """The GPU work of a rank, calls of the host that waited for it, and what else the host did."""

    def __init__(self, gpu: _GpuWork, work: pa.Table) -> None:
        self._gpu = gpu
        host = _take_columns(work, _HOST)
        is_blocking = np.isin(host["_class"], _BLOCKING)
        starts, ends = host["ts_ns"][is_blocking], (host["ts_ns"] + host["duration_ns"])[is_blocking]
        gpu_ends = np.asarray(gpu.ends)
        # The last work that ended within a call let it return; a call within which none did waited for none.
        released = np.searchsorted(gpu_ends, ends, "right") - 1
        waited = released >= 0
        waited[waited] = gpu_ends[released[waited]] > starts[waited]
        classes, released, ends = host["_class"][is_blocking][waited], released[waited], ends[waited]
        order = np.lexsort((classes, released, ends))
        self._call_ends, self._call_causes, self._call_classes = (
            values[order].tolist() for values in (ends, released, classes)
        )
        # Of each class of the host: when it, or one that comes before it, was running.
        first = CLASSES.index(HOST_PARTS[0])
        self._covers = [_find_running(host, first, CLASSES.index(part)) for part in HOST_PARTS]

    def charge(self, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The parts of each step, and how many pieces of GPU work its chain has."""
        sums = np.zeros((len(steps), len(PARTS)), np.int64)
        counts: list[int] = []
        on_host: list[tuple[int, int, int]] = []
        for place, step in enumerate(steps):
            parts = [0] * len(PARTS)
            alone: list[tuple[int, int]] = []
            counts.append(self._walk(step["ts_ns"], step["ts_ns"] + step["duration_ns"], parts, alone))
            on_host += [(place, low, high) for low, high in alone]
            sums[place] += parts
        if on_host:
            self._charge_host(sums, *np.array(on_host, np.int64).T)
        return [
            _describe(step, dict(zip(PARTS, parts, strict=True)), count)
            for step, parts, count in zip(steps, sums.tolist(), counts, strict=True)
        ]

    def _walk(self, first: int, last: int, parts: list[int], alone: list[tuple[int, int]]) -> int:
        """Go from the end of a step to its start, add up what the GPU took, and list the time of the host alone."""
        gpu = self._gpu
        now, piece, count = last, gpu.find_running(last), 0
        while now > first:
            if piece is None:
                call = bisect_right(self._call_ends, now) - 1
                if call < 0 or self._call_ends[call] <= first:
                    alone.append((first, now))
                    break
                piece, returned = self._call_causes[call], self._call_ends[call]
                alone.append((returned, now))
                now = gpu.ends[piece]
                parts[_PLACES[self._call_classes[call]]] += returned - max(now, first)
                continue
            begun = gpu.starts[piece]
            parts[_PLACES[gpu.classes[piece]]] += now - max(begun, first)
            count += 1
            cause, launched, left = gpu.causes[piece], gpu.launches[piece], gpu.launch_ends[piece]
            if cause >= 0:
                piece, now = cause, gpu.ends[cause]
                parts[_DELAY] += max(begun, first) - max(now, first)
            elif launched >= 0:
                piece, now = None, launched
                parts[_DELAY] += max(begun, first) - max(left, first)
                parts[_LAUNCHING] += max(left, first) - max(now, first)
            else:
                piece, now = None, begun
        return count

    def _charge_host(self, sums: Numbers, places: Numbers, lows: Numbers, highs: Numbers) -> None:
        """Charge the host's own time to the first of its parts that runs, as gold.time_breakdown does."""
        before = np.zeros(len(places), np.int64)
        for part, cover in zip(HOST_PARTS, self._covers, strict=True):
            upto = cover.sum_between(lows, highs)
            np.add.at(sums[:, PARTS.index(part)], places, upto - before)
            before = upto
        np.add.at(sums[:, PARTS.index("idle")], places, highs - lows - before)


def _find_running(host: Mapping[str, Numbers], low: int, high: int) -> CoveredTime:
    """When any of some classes was running."""
    rows = (host["_class"] >= low) & (host["_class"] <= high)
    starts = host["ts_ns"][rows]
    return CoveredTime.of(starts, starts + host["duration_ns"][rows])


def _take_columns(work: pa.Table, names: Sequence[str]) -> dict[str, Numbers]:
    return {name: read_numbers(work, name) for name in names}


def _find_causes(gpu: Mapping[str, Numbers], ends: Numbers, launched: Numbers) -> Numbers:
    """What each piece of GPU work followed: its stream's last, its launch, or another stream's if neither explains it.

    Work is in the order of its ends.
    """
    starts = gpu["ts_ns"]
    causes, others = np.full(len(ends), -1), np.full(len(ends), -1)
    for found, columns in ((causes, ("device_id", "stream_id")), (others, ("device_id",))):
        for rows in _group(*(gpu[name] for name in columns)):
            place = np.searchsorted(ends[rows], starts[rows], "right") - 1
            found[rows] = np.where(place >= 0, rows[place], -1)
    ended = np.where(causes >= 0, ends[causes], -1)
    ready = np.maximum(ended, launched)
    is_held = (ready >= 0) & (starts - ready >= CONSECUTIVE_NS) & (others >= 0) & (ends[others] > ready)
    return np.where(is_held, others, np.where(ended >= launched, causes, -1))


def _group(*columns: Numbers) -> Iterator[npt.NDArray[np.intp]]:
    """The rows of each combination of values, in their order."""
    order = np.lexsort(columns)
    is_new = np.zeros(len(order), bool)
    for column in columns:
        is_new[1:] |= np.diff(column[order]) != 0
    yield from np.split(order, np.flatnonzero(is_new))


def _describe(
    step: Mapping[str, Any], parts: Mapping[str, int] | None = None, count: int | None = None
) -> dict[str, Any]:
    """One row of the table; without a chain the reason alone."""
    return {
        **{name: step[name] for name in ("run_id", "rank", "step_number", "is_warmup", "duration_ns")},
        **{f"{part}_ns": None if parts is None else parts[part] for part in PARTS},
        "bound": max(parts, key=lambda part: parts[part]) if parts and step["duration_ns"] else None,
        "work_count": count,
        "evidence": "unobservable" if parts is None else "modelled",
        "reason": NO_GPU if parts is None else None,
    }
