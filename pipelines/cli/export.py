"""`teetotal export`: a run, or some steps of it, as a trace for a viewer, read and written a chunk at a time."""

from __future__ import annotations

import gzip
import re
from contextlib import ExitStack
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import click
import polars as pl

from lake.errors import EvidenceRejected, nearest
from pipelines.cli.whole_files import open_whole
from report.perfetto import (
    CROSSING_COLUMNS,
    SEAL_COLUMNS,
    SPAN_COLUMNS,
    SPAN_PLACE,
    STEP_COLUMNS,
    WAITS,
    TraceWriter,
    cut_exposed,
    describe_crossing,
    describe_seal,
    describe_span,
    describe_step,
    describe_wait,
    merge_kernels,
)
from silver import clock_offsets, crossings, spans, steps

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lake.store import Lake
    from lake.tables import Table
    from report.perfetto import Slice

    Row = dict[str, Any]

MOST_EVENTS = 1_000_000
_CHUNK_ROWS = 65_536
_COLUMNS = {
    steps.TABLE: STEP_COLUMNS,
    crossings.TABLE: (*CROSSING_COLUMNS, *SEAL_COLUMNS),
    spans.TABLE: (*SPAN_COLUMNS, *SPAN_PLACE),
}
_AT = pl.coalesce("aligned_ts_ns", "ts_ns").alias("at_ns")
_STEP = pl.coalesce("launch_step_number", "step_number")


@dataclass(frozen=True)
class Written:
    """What a trace holds: how many events of each kind, and its size."""

    counts: dict[str, int]
    size_bytes: int
    notes: tuple[str, ...]


def read_steps(text: str | None) -> tuple[int, int] | None:
    """The first and the last step as a person types them: 10:12, or 10 for one."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,15})(?::(\d{1,15}))?", text)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
    if last < first:
        raise click.BadParameter(f"{text[:80]!r}: expected FIRST:LAST, for example 10:12", param_hint="--steps")
    return first, last


def export_trace(
    lake: Lake, run_id: str, out: Path, wanted: tuple[int, int] | None = None, most: int = MOST_EVENTS
) -> Written:
    """Write the trace of a run, ranks on one clock; too many events are refused before anything is written."""
    known = lake.snapshot(spans.TABLE).run_ids
    if run_id not in known:
        raise EvidenceRejected(f"no run {run_id[:160]!r} with a trace", nearest(run_id[:160], known))
    source = _Source(lake, run_id, wanted)
    source.require_few(most)
    counts: dict[str, int] = {}
    with ExitStack() as stack:
        file: IO[bytes] | gzip.GzipFile = stack.enter_context(open_whole(out, "the trace"))
        if out.suffix == ".gz":
            # Without a name and a time, so that the same run gives the same bytes.
            file = stack.enter_context(gzip.GzipFile(filename="", mode="wb", compresslevel=6, fileobj=file, mtime=0))
        file.write(source.head())
        lead = b"\n"
        for line in _list_events(source, counts):
            file.write(lead + line.encode())
            lead = b",\n"
        file.write(b"\n]}\n")
    return Written(counts, out.stat().st_size, source.notes)


class _Source:
    """The rows of one run, or of some of its steps, rank by rank and in the order of their start."""

    def __init__(self, lake: Lake, run_id: str, wanted: tuple[int, int] | None) -> None:
        self._lake, self._run_id, self._wanted = lake, run_id, wanted
        clocks = lake.scan(clock_offsets.TABLE, [run_id]).sort("rank").collect().to_dicts()
        self.clocks = {row["rank"]: row for row in clocks}
        self.ranks: list[int] = self._rows(spans.TABLE).select("rank").unique().sort("rank").collect()["rank"].to_list()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the trace must know of its clocks."""
        return tuple(
            f"rank {rank} is on its own clock: {self.clocks.get(rank, {}).get('reason') or 'its offset is not known'}"
            for rank in self.ranks
            if self.clocks.get(rank, {}).get("offset_ns") is None
        )

    def find_base(self) -> int:
        """The start of the first event: times in the trace count from it."""
        firsts = [
            self._rows(table).select(_AT.min()).collect().item()
            for table in (spans.TABLE, steps.TABLE, crossings.TABLE)
        ]
        return min((first for first in firsts if first is not None), default=0)

    def require_few(self, most: int) -> None:
        """Refuse more events than are allowed, and a choice without any."""
        count = sum(self._rows(table).select(pl.len()).collect().item() for table in (spans.TABLE, crossings.TABLE))
        there = self._lake.scan(steps.TABLE, [self._run_id])
        first, last = there.select(pl.min("step_number"), pl.max("step_number").alias("last")).collect().row(0)
        has = "it has no steps" if first is None else f"it has steps {first} to {last}"
        if not count:
            raise EvidenceRejected(f"{self._run_id} has no events there", has)
        if count > most:
            raise EvidenceRejected(
                f"{self._run_id} has {count:,} events there, and at most {most:,} are written",
                f"choose steps, for example --steps {first or 0} ({has}), or allow more: --limit {count}",
            )

    def head(self) -> bytes:
        """What stands before the events: whose they are, and what time 0 is."""
        base = self.find_base()
        facts = f'"run_id":"{self._run_id}","base_ts_ns":"{base}","written_by":"teetotal"'
        return f'{{"displayTimeUnit":"ns","otherData":{{{facts}}},"traceEvents":['.encode()

    def read(self, table: Table, rank: int, *conditions: pl.Expr) -> Iterator[Row]:
        """Rows of a rank in the order of their start, the longer one first, a chunk at a time."""
        rows = self._rows(table).filter(pl.col("rank") == rank, *conditions)
        rows = rows.select(*dict.fromkeys(("at_ns", "duration_ns", *_COLUMNS[table], *table.row_key)))
        ordered = rows.sort("at_ns", -pl.col("duration_ns").fill_null(0), *table.row_key)
        for chunk in ordered.collect(engine="streaming").iter_slices(_CHUNK_ROWS):
            yield from chunk.iter_rows(named=True)

    def read_kernels(self, rank: int) -> tuple[Any, Any]:
        """The union of all compute kernels of a rank: those of other steps hide crossings too."""
        rows = self._lake.scan(spans.TABLE, [self._run_id]).filter(
            pl.col("rank") == rank, "is_gpu", pl.col("kind") == "compute"
        )
        found = rows.select(_AT, "duration_ns").sort("at_ns").collect(engine="streaming")
        return merge_kernels(found["at_ns"].to_numpy(), found["duration_ns"].to_numpy())

    def _rows(self, table: Table) -> pl.LazyFrame:
        rows = self._lake.scan(table, [self._run_id]).with_columns(_AT)
        if self._wanted is None:
            return rows
        step = _STEP if table is spans.TABLE else pl.col("step_number")
        return rows.filter(step.is_between(*self._wanted))


def _list_events(source: _Source, counts: dict[str, int]) -> Iterator[str]:
    writer = TraceWriter(source.find_base())
    for rank in source.ranks:
        offset = source.clocks.get(rank, {}).get("offset_ns")
        yield from writer.name_rank(rank, "" if offset is not None else " (its own clock)")
        for kind, slices in _list_slices(source, rank):
            yield from writer.write(rank, _count(slices, kind, counts))


def _list_slices(source: _Source, rank: int) -> Iterator[tuple[str, Iterator[Slice]]]:
    """What a rank recorded, and our annotation of it, a kind at a time."""
    threads: dict[str, int] = {}
    is_wait = pl.col("kind").is_in(WAITS)
    yield "steps", map(describe_step, source.read(steps.TABLE, rank))
    yield "crossings", map(describe_crossing, source.read(crossings.TABLE, rank))
    is_sealed = pl.col("sealed_by").is_not_null()
    yield "sealed", map(describe_seal, source.read(crossings.TABLE, rank, is_sealed))
    timed = list(source.read(crossings.TABLE, rank, pl.col("exposed_ns") > 0))
    yield "exposed", iter(cut_exposed(timed, *source.read_kernels(rank)))
    yield "waiting", map(describe_wait, source.read(spans.TABLE, rank, is_wait))
    yield "spans", (describe_span(row, threads) for row in source.read(spans.TABLE, rank))


def _count(slices: Iterator[Slice], kind: str, counts: dict[str, int]) -> Iterator[Slice]:
    counts.setdefault(kind, 0)
    for one in slices:
        counts[kind] += 1
        yield one
