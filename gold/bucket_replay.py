"""A traced step of a distributed run, replayed with other costs: buckets are reduced one after the other, when ready.

The tail of a step cannot begin before the last bucket is reduced, so what a cost adds shows only where compute does not
hide it. A bucket's ready time is when its data was there on all ranks; its service is what its reduction takes then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from gold.exposure import AT_ONCE_NS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Row = Mapping[str, Any]

MIB = 1 << 20
# The last steps of a recording that are replayed: more of them would say little more.
MOST_STEPS = 4
# DDP fills its first bucket to this size only, so that communication begins early.
FIRST_BUCKET_BYTES = MIB
# A bucket so many times larger than the cap holds a layer that no smaller cap can split.
_INDIVISIBLE = 2.0
# A backward pass takes about twice as long as its forward pass: gradients come in the last two thirds of both.
_FORWARD_FRACTION = 1 / 3
# What a reduction takes beside its bytes: 13 buckets of the same gradients instead of 5 took so much longer.
_BUCKET_NS = 150_000
# The profiler slows the host; none of our recordings needs a scale beyond these.
PROFILER_SCALES = (0.2, 3.0)
# Another batch size may make any number of times the compute.
ANY_SCALE = (0.0, 10_000.0)
# A time as close to zero as this is zero; it takes about ten trials, and this many bound it.
_EXACT_NS = 1e-6
_MOST_TRIALS = 200


@dataclass(frozen=True)
class Bucket:
    """The reduction of one bucket of gradients, in nanoseconds from the start of the step."""

    ready_ns: float
    service_ns: float
    # Time after the end of the bucket before, where it began right then: its own data was ready at some earlier time.
    gap_ns: float | None
    host_copy_ns: float
    buffer_bytes: int
    group_size: int

    @property
    def sealed_bytes(self) -> float:
        """Bytes that a rank sends around the ring, each of them sealed and opened once."""
        return 2 * (self.group_size - 1) * self.buffer_bytes / self.group_size


@dataclass(frozen=True)
class TracedStep:
    """A step that was recorded: its buckets in the order of their reduction, and what follows the last."""

    buckets: tuple[Bucket, ...]
    tail_ns: float
    step_ns: float


def read_steps(rows: Iterable[Row]) -> tuple[TracedStep, ...]:
    """The steps of the first rank that recorded any, from rows of gold.exposure, but for warm-up and unsized ones."""
    usable = [row for row in rows if row["path"] == "hook" and row["collective"] == "all_reduce"]
    usable = [row for row in usable if not row["is_warmup"]]
    if not usable:
        return ()
    first = min(row["rank"] for row in usable)
    mine = sorted((row for row in usable if row["rank"] == first), key=itemgetter("step_number", "collective_number"))
    steps = (_read_step(list(of_step)) for _, of_step in groupby(mine, key=itemgetter("step_number")))
    return tuple(step for step in steps if step is not None)[-MOST_STEPS:]


def _read_step(rows: Sequence[Row]) -> TracedStep | None:
    if any(row["buffer_bytes"] is None or (row["group_size"] or 0) < 2 for row in rows):
        return None
    buckets: list[Bucket] = []
    before: int | None = None
    for row in rows:
        gap = None if before is None else max(0, row["ready_ns"] - before)
        buckets.append(
            Bucket(
                row["ready_ns"],
                row["end_ns"] - row["ready_ns"],
                gap if gap is not None and gap < AT_ONCE_NS else None,
                row["host_copy_ns"],
                row["buffer_bytes"],
                row["group_size"],
            )
        )
        before = row["end_ns"]
    return TracedStep(tuple(buckets), rows[-1]["step_ns"] - rows[-1]["end_ns"], rows[-1]["step_ns"])


def replay(step: TracedStep, scale: float = 1.0, added: Callable[[Bucket], float] | None = None) -> float:
    """How long the step takes where compute takes `scale` times as long and each bucket has something added."""
    return _follow_chain(step, scale, added)[1] + step.tail_ns * scale


def replay_alone(step: TracedStep, scale: float = 1.0) -> float:
    """How long the step takes where nothing is reduced: until its last gradients are there, and what follows."""
    # The ready time of a bucket that queued holds the reductions before it, which do not take longer when compute does.
    ready = min(step.buckets[-1].ready_ns * scale, _follow_chain(step, scale)[0])
    return ready + step.tail_ns * scale


def _follow_chain(
    step: TracedStep, scale: float, added: Callable[[Bucket], float] | None = None
) -> tuple[float, float]:
    """When the last bucket's reduction begins, and when it ends."""
    begin = end = 0.0
    for bucket in step.buckets:
        begin = max(bucket.ready_ns * scale if bucket.gap_ns is None else end + bucket.gap_ns, end)
        end = begin + bucket.service_ns + (added(bucket) if added else 0.0)
    return begin, end


@lru_cache(maxsize=4096)  # asked again for every cost that is tried
def fit_scale(step: TracedStep, step_ns: float, bounds: tuple[float, float] = PROFILER_SCALES) -> float:
    """What the time of compute must be multiplied with so that the replay takes as long as a step without profiler."""

    def miss(scale: float) -> float:
        return replay(step, scale) - step_ns

    low, high = bounds
    if miss(low) >= 0:
        return low
    if miss(high) <= 0:
        return high
    return find_root(miss, low, high)


def find_root(miss: Callable[[float], float], low: float, high: float) -> float:
    """Where a time that grows from below zero to above it is zero, by false position (the Illinois rule).

    Not by scipy.optimize, which takes longer to import than `teetotal what-if` takes for all else.
    """
    at_low, at_high, found, was_above = miss(low), miss(high), low, None
    for _ in range(_MOST_TRIALS):
        found = high - at_high * (high - low) / (at_high - at_low)
        value = miss(found)
        if abs(value) < _EXACT_NS or found in {low, high}:
            break
        is_above = value > 0
        # An end that stays twice counts half, so that the next trial lies beyond the root.
        weight = 0.5 if is_above is was_above else 1.0
        if is_above:
            high, at_high, at_low = found, value, at_low * weight
        else:
            low, at_low, at_high = found, value, at_high * weight
        was_above = is_above
    return found


def predict(steps: Sequence[TracedStep], step_ns: float, added: Callable[[Bucket], float]) -> float:
    """A step's time with something added to each bucket: what the replays grow by, over a step without profiler."""
    grown = 0.0
    for step in steps:
        scale = fit_scale(step, step_ns)
        grown += replay(step, scale, added) - replay(step, scale)
    return step_ns + grown / len(steps)


def seal_ring(ns_per_byte: float) -> Callable[[Bucket], float]:
    """What sealing adds to a bucket of the plain ring: each sealed byte's cost, less the copies that it replaces."""
    return lambda bucket: bucket.sealed_bytes * ns_per_byte - bucket.host_copy_ns


# -- other buckets --------------------------------------------------------------------------------------------------


def rebucket(step: TracedStep, cap_mib: float, known_cap_mib: float) -> TracedStep:
    """The same gradients in buckets of another cap: data arrives evenly between two known ready times.

    A bucket of more than twice its own cap holds a layer that cannot be split, and stays whole.
    """
    pieces = [piece for bucket in _time_buckets(step) for piece in _split(bucket, cap_mib, known_cap_mib)]
    merged: list[list[_Piece]] = [[]]
    for piece in pieces:
        cap = FIRST_BUCKET_BYTES if len(merged) == 1 else cap_mib * MIB
        merged[-1].append(piece)
        if sum(one.size for one in merged[-1]) >= cap:
            merged.append([])
    fixed, rate = _fit_service(step)
    copied = sum(bucket.host_copy_ns for bucket in step.buckets) / max(1, sum(b.buffer_bytes for b in step.buckets))
    group = step.buckets[0].group_size
    buckets = tuple(
        Bucket(some[-1].ready_ns, fixed + rate * size, None, copied * size, round(size), group)
        for some in merged
        if some and (size := sum(one.size for one in some))
    )
    return replace(step, buckets=buckets)


@dataclass(frozen=True)
class _Piece:
    size: float
    ready_ns: float


def _time_buckets(step: TracedStep) -> list[tuple[float, float, float]]:
    """Size of each bucket, and when its first and its last data came; a bucket that queued came evenly before."""
    known = [bucket.ready_ns if bucket.gap_ns is None else None for bucket in step.buckets]
    # The last bucket holds the first layers' gradients: backward ends with it, at the latest when it was served.
    if known[-1] is None:
        known[-1] = step.buckets[-1].ready_ns
    ready: list[float] = []
    for place, value in enumerate(known):
        if value is not None:
            ready.append(value)
            continue
        following = next(index for index in range(place, len(known)) if known[index] is not None)
        before = ready[-1] if ready else 0.0
        size = sum(bucket.buffer_bytes for bucket in step.buckets[place : following + 1])
        share = step.buckets[place].buffer_bytes / max(1, size)
        ready.append(before + share * (float(known[following] or 0.0) - before))
    begins = [min(ready[0], ready[-1] * _FORWARD_FRACTION), *ready[:-1]]
    return [(bucket.buffer_bytes, begin, end) for bucket, begin, end in zip(step.buckets, begins, ready, strict=True)]


def _split(spread: tuple[float, float, float], cap_mib: float, known_cap_mib: float) -> list[_Piece]:
    size, begin, end = spread
    if size > _INDIVISIBLE * known_cap_mib * MIB:
        return [_Piece(size, end)]
    count = max(1, round(size / (min(cap_mib, known_cap_mib) * MIB)))
    return [_Piece(size / count, begin + (end - begin) * (place + 1) / count) for place in range(count)]


def _fit_service(step: TracedStep) -> tuple[float, float]:
    """A fixed time per bucket and a time per byte; the sum over the step's own buckets is right."""
    sizes = [bucket.buffer_bytes for bucket in step.buckets]
    times = [bucket.service_ns for bucket in step.buckets]
    total = sum(sizes)
    fixed = min(*times, _BUCKET_NS)
    return fixed, max(0.0, sum(times) - fixed * len(times)) / max(1, total)
