"""How a run's events are shared out, so that memory holds one share whatever a rank recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import narwhals as nw
import numpy as np
import pyarrow.compute as pc

from assets.build.declarations import find_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt
    import pyarrow as pa

    from lake.frames import Frame
    from lake.store import Lake
    from lake.tables import Table

# Events of a chunk of silver, and spans of a slice of gold: they bound memory, and change no row.
CHUNK_EVENTS = 62_500
SLICE_SPANS = 125_000
_PRIME = 1_000_003


@dataclass(frozen=True)
class Chunk:
    """A share of a run's events that fits memory: some ranks, or one part of one rank."""

    ranks: tuple[int, ...]
    part: int = 0
    parts: int = 1

    def of(self, frame: Frame) -> Frame:
        """The chunk's ranks."""
        return frame.filter(nw.col("rank").is_in(self.ranks))


def has_no_source(lake: Lake, table: Table, run_id: str) -> bool:
    """Whether a table can have no row of a run, because its first input has no file of it: most runs lack most data.

    Files are asked about, not their rows: Delta's count of those is optional. An input of another version has none
    that we can read, which is for its reader to say.
    """
    if not table.is_empty_without_first_input:
        return False
    first = lake.snapshot(find_table(table.inputs[0]))
    return not first.outdated and not first.partition(run_id).files


def is_small(rows: int) -> bool:
    """Whether a run of so many rows fits a chunk: memory may hold all of it at once."""
    return rows <= CHUNK_EVENTS


def part_of(parts: int, where: nw.Expr | None = None) -> nw.Expr:
    """The part that an event falls into, by its call, else by its start: a call and its work stay together."""
    where = (nw.coalesce(nw.col("correlation_id"), nw.col("ts_ns")) if where is None else where).fill_null(0)
    # Times are often whole microseconds: a prime comes first, or all of them would fall into one part. Engines disagree
    # on the sign of a remainder: it is made positive by hand.
    return (((where % _PRIME) + _PRIME) % _PRIME) % parts


def plan_chunks(events_by_rank: dict[int, int], most: int) -> Iterator[Chunk]:
    """Group small ranks, split large ones; the same counts give the same chunks on every engine."""
    group: list[int] = []
    size = 0
    for rank, events in sorted(events_by_rank.items()):
        if events > most:
            parts = -(-events // most)
            yield from (Chunk((rank,), part, parts) for part in range(parts))
            continue
        if group and size + events > most:
            yield Chunk(tuple(group))
            group, size = [], 0
        group.append(rank)
        size += events
    if group:
        yield Chunk(tuple(group))


def select_slice(spans: Frame, low_ns: int, high_ns: int) -> Frame:
    """The spans that reach into a slice of time, their launches counted in, as `assign_slices` shares them out."""
    launched = nw.coalesce("launch_ts_ns", "ts_ns")
    end = nw.col("ts_ns") + nw.col("duration_ns")
    return spans.filter(nw.min_horizontal("ts_ns", launched) < high_ns, nw.max_horizontal(end, launched) >= low_ns)


def assign_slices(
    batch: pa.RecordBatch, bounds: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.int64]]:
    """Which spans to put into which slices of time: each into every one that it reaches, its launch counted in."""
    starts = batch.column("ts_ns").to_numpy()
    ends = starts + batch.column("duration_ns").to_numpy()
    launches = pc.coalesce(batch.column("launch_ts_ns"), batch.column("ts_ns")).to_numpy()
    first = np.searchsorted(bounds, np.minimum(starts, launches), "right")
    last = np.searchsorted(bounds, np.maximum(ends, launches), "right")
    counts = last - first + 1
    rows = np.repeat(np.arange(len(starts)), counts)
    before = np.repeat(np.cumsum(counts) - counts, counts)
    return rows, first[rows] + np.arange(len(rows)) - before
