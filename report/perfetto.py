"""A run as a trace that Perfetto opens (Chrome's JSON trace events): what was recorded, and our annotation of it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Row = dict[str, Any]
    Values = np.ndarray[tuple[int], np.dtype[np.int64]]

# Tracks of our own, in the order in which they stand above what a rank recorded.
ANNOTATIONS = ("step", "crossing", "sealed", "exposed", "waiting")
WAITS = ("wait", "sync")
# What slices are made of.
STEP_COLUMNS = ("step_number", "step_source", "is_warmup", "evidence")
CROSSING_COLUMNS = (
    *("boundary", "path", "collective", "payload_bytes", "message_count", "must_seal", "sealed_by", "violation"),
    *("step_number", "exposed_ns", "size_evidence", "seal_evidence"),
)
SEAL_COLUMNS = ("cipher", "key_bits", "sealed_message_count", "seal_ns", "open_ns")
SPAN_COLUMNS = ("kind", "step_number", "launch_step_number", "correlation_id", "payload_bytes", "direction")
SPAN_PLACE = ("name", "category", "is_gpu", "device_id", "stream_id", "thread_id")
# Names of colours that viewers of such traces know.
_GOOD, _BAD, _OPEN = "good", "terrible", "bad"


@dataclass(frozen=True)
class Slice:
    """One interval on a track of a rank; without a duration it is a moment."""

    track: str
    name: str
    category: str
    ts_ns: int
    duration_ns: int | None
    facts: Row
    colour: str | None = None


class Lanes:
    """Which lane of a track a slice goes to: on one lane, two slices lie apart or one lies within the other."""

    def __init__(self) -> None:
        self._open: list[list[int]] = []

    def place(self, ts_ns: int, duration_ns: int) -> int:
        """The first lane that is free; slices come in the order of their start, the longer one first."""
        end = ts_ns + duration_ns
        for lane, ends in enumerate(self._open):
            while ends and ends[-1] <= ts_ns:
                ends.pop()
            if not ends or end <= ends[-1]:
                ends.append(end)
                return lane
        self._open.append([end])
        return len(self._open) - 1


@dataclass
class TraceWriter:
    """Slices of one rank after another as events, each track named when its first slice comes."""

    base_ns: int
    _tracks: dict[tuple[int, str, int], int] = field(default_factory=dict)
    _lanes: dict[tuple[int, str], Lanes] = field(default_factory=dict)

    def name_rank(self, rank: int, note: str) -> Iterator[str]:
        """The events that name a rank's group of tracks."""
        yield _dump({"ph": "M", "name": "process_name", "pid": rank + 1, "args": {"name": f"rank {rank}{note}"}})
        yield _dump({"ph": "M", "name": "process_sort_index", "pid": rank + 1, "args": {"sort_index": rank}})

    def write(self, rank: int, slices: Iterable[Slice]) -> Iterator[str]:
        """The events of slices that come in the order of their start, the longer one first."""
        for one in slices:
            lanes = self._lanes.setdefault((rank, one.track), Lanes())
            lane = lanes.place(one.ts_ns, one.duration_ns or 0)
            if (rank, one.track, lane) not in self._tracks:
                yield from self._name_track(rank, one.track, lane)
            event: Row = {
                "ph": "X" if one.duration_ns is not None else "i",
                "name": one.name,
                "cat": one.category,
                "pid": rank + 1,
                "tid": self._tracks[rank, one.track, lane],
                "ts": _to_us(one.ts_ns - self.base_ns),
                **({"dur": _to_us(one.duration_ns)} if one.duration_ns is not None else {"s": "t"}),
                **({"cname": one.colour} if one.colour else {}),
                "args": {name: value for name, value in one.facts.items() if value is not None},
            }
            yield _dump(event)

    def _name_track(self, rank: int, track: str, lane: int) -> Iterator[str]:
        place = len(self._tracks) + 1
        self._tracks[rank, track, lane] = place
        order = ANNOTATIONS.index(track) if track in ANNOTATIONS else len(ANNOTATIONS) + place
        names = {
            "thread_name": {"name": f"{track} ({lane + 1})" if lane else track},
            "thread_sort_index": {"sort_index": order},
        }
        for name, facts in names.items():
            yield _dump({"ph": "M", "name": name, "pid": rank + 1, "tid": place, "args": facts})


def describe_span(row: Row, threads: dict[str, int]) -> Slice:
    """An interval as it was recorded: GPU work by stream, the rest by host thread; a person's own text stays sealed."""
    if row["is_gpu"]:
        track = f"GPU {_format_number(row['device_id'])} stream {_format_number(row['stream_id'])}"
    else:
        track = f"host thread {threads.setdefault(row['thread_id'] or '', len(threads) + 1)}"
    facts = {name: row[name] for name in SPAN_COLUMNS} | {"evidence": "measured"}
    return Slice(
        track, row["name"] or row["kind"], row["category"] or row["kind"], row["at_ns"], row["duration_ns"], facts
    )


def describe_wait(row: Row) -> Slice:
    """An interval in which a rank waited for a peer or for its GPU, on a track of its own."""
    return Slice(
        "waiting", row["name"] or row["kind"], "waiting", row["at_ns"], row["duration_ns"], {"kind": row["kind"]}
    )


def describe_step(row: Row) -> Slice:
    """A step, and whether it is warm-up."""
    name = f"step {row['step_number']}{' (warm-up)' if row['is_warmup'] else ''}"
    facts = {name: row[name] for name in ("step_number", "step_source", "evidence")}
    return Slice("step", name, "step", row["at_ns"], row["duration_ns"], facts)


def describe_crossing(row: Row) -> Slice:
    """A transfer across a trust boundary, coloured by whether it was sealed where it had to be."""
    colour = _GOOD if row["sealed_by"] else _OPEN if row["must_seal"] else None
    facts = {name: row[name] for name in CROSSING_COLUMNS}
    name = f"{row['collective'] or 'copy'}: {row['boundary']}, {row['path']}"
    return Slice(
        "crossing", name, "crossing", row["at_ns"], row["duration_ns"], facts, _BAD if row["violation"] else colour
    )


def describe_seal(row: Row) -> Slice:
    """A crossing that was sealed, by what, and whether that was seen or follows from the regime."""
    facts = {name: row[name] for name in SEAL_COLUMNS}
    facts["evidence"] = row["seal_evidence"]
    return Slice("sealed", f"sealed: {row['sealed_by']}", "sealed", row["at_ns"], row["duration_ns"], facts, _GOOD)


def cut_exposed(rows: Sequence[Row], begins: Values, ends: Values) -> list[Slice]:
    """The parts of crossings that no compute kernel hid, which sum to `exposed_ns`; kernels are merged intervals."""
    found = []
    for row in rows:
        if not row["exposed_ns"]:
            continue
        at, end = row["at_ns"], row["at_ns"] + row["duration_ns"]
        first, last = np.searchsorted(ends, at, "right"), np.searchsorted(begins, end, "left")
        for begin, stop in zip(begins[first:last].tolist(), ends[first:last].tolist(), strict=True):
            if begin > at:
                found.append(_expose(row, at, begin))
            at = stop
        if at < end:
            found.append(_expose(row, at, end))
    return sorted(found, key=lambda one: (one.ts_ns, -(one.duration_ns or 0)))


def _expose(row: Row, at: int, end: int) -> Slice:
    facts = {"boundary": row["boundary"], "step_number": row["step_number"], "evidence": "measured"}
    return Slice("exposed", f"exposed {row['collective'] or 'copy'}", "exposed", at, end - at, facts)


def merge_kernels(begins: Values, durations: Values) -> tuple[Values, Values]:
    """The union of intervals that come in the order of their start, as starts and ends."""
    if not len(begins):
        return begins, begins
    ends = np.maximum.accumulate(begins + durations)
    is_first = np.concatenate(([True], begins[1:] > ends[:-1]))
    return begins[is_first], ends[np.append(np.flatnonzero(is_first)[1:] - 1, len(ends) - 1)]


def _format_number(number: int | None) -> str:
    return "?" if number is None else str(number)


def _to_us(time_ns: int) -> float:
    """Microseconds, as such traces count; to the nanosecond, because the first event is at 0."""
    return time_ns / 1000


def _dump(event: Row) -> str:
    return json.dumps(event, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
