"""The silver tables of one run, made from its bronze ones in chunks that bound memory whatever a rank recorded."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl
import pyarrow as pa

from assets import freshness
from assets.chunking import chunks, part_of
from bronze import attestations as tokens
from bronze import (
    collective_records,
    nsys_events,
    source_files,
    trace_events,
    training_log,
    unreadable,
)
from bronze import device_samples as readings
from bronze import runs as claimed
from bronze.ahead import ahead
from lake.errors import ContractBroken
from lake.frames import Frame
from lake.shares import Shares
from silver import (
    attestations,
    cc_evidence,
    clock_offsets,
    collectives,
    crossings,
    device_samples,
    nonce_budgets,
    recorded,
    rejects,
    rule_counts,
    runs,
    spans,
    steps,
    throughput,
)
from silver.patterns import PATTERNS
from silver.policy import POLICY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from assets.chunking import Chunk
    from lake.engines import Engine
    from lake.snapshot import Written
    from lake.staging import Stage
    from lake.store import Lake
    from lake.tables import Table

# `runs` last: its mark is what makes a run's silver fresh.
TABLES = (
    clock_offsets.TABLE,
    steps.TABLE,
    spans.TABLE,
    collectives.TABLE,
    crossings.TABLE,
    nonce_budgets.TABLE,
    rejects.TABLE,
    rule_counts.TABLE,
    throughput.TABLE,
    attestations.TABLE,
    device_samples.TABLE,
    runs.TABLE,
)
# Raise with every change of what a transform makes of the same rows: every run is then conformed again.
TRANSFORMS_VERSION = 6
CHUNK_EVENTS = 125_000
_SIGNS = {"kept": 1, "merged": 1, "rejected": 1, "split": -1, "flagged": 0}


def made_from(mark: int | None) -> str:
    """The fingerprint of a run's silver: what its bronze was made from, and all that decides here."""
    parts = [mark, TRANSFORMS_VERSION, CHUNK_EVENTS, PATTERNS.sha256, POLICY.sha256, device_samples.METRICS_SHA256]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _landed(source: dict[str, Any]) -> int:
    """What of a source must be settled: its events; rows of Nsight Systems are events too."""
    count: int = source["rows_count" if source["format"] in recorded.NSYS_FORMATS else "events_count"]
    return count


def fresh(lake: Lake, run_ids: Iterable[str]) -> set[str]:
    """Those runs whose silver tables were all made from their bronze as it is; one look a table for all."""
    return freshness.fresh(lake, claimed.TABLE, TABLES, made_from, run_ids)


def materialise(lake: Lake, run_id: str, engine: Engine) -> list[Written]:
    """Conform a run; every table is replaced whole, `silver.runs` last."""
    return _Conforming(lake, run_id, engine).materialise()


class _Conforming:
    """One run on its way from bronze to silver."""

    def __init__(self, lake: Lake, run_id: str, engine: Engine) -> None:
        lake.unlock(TABLES)
        self._lake = lake
        self._run_id = run_id
        self._engine = engine
        self._made_from = made_from(lake.snapshot(claimed.TABLE).mark(run_id))
        self._runs = self._at_hand(claimed.TABLE)
        self._sources = self._at_hand(source_files.TABLE)
        self._traces = self._read(trace_events.TABLE)
        self._events_by_rank, has_nsys = self._counted()
        self._nsys = recorded.adapted(self._read(nsys_events.TABLE), self._sources) if has_nsys else None
        self._events = self._beside(recorded.plain(self._traces), self._nsys)

    def materialise(self) -> list[Written]:
        events, sources, run = self._events, self._sources, self._runs
        offsets, wrote_offsets = self._small(clock_offsets.TABLE, clock_offsets.conform(self._traces, sources))
        stepped, wrote_steps = self._small(steps.TABLE, steps.conform(events, sources, run, offsets))
        refused, wrote_rejects = self._small(
            rejects.TABLE, rejects.conform(events, sources, self._read(unreadable.TABLE))
        )
        plan = list(chunks(self._events_by_rank, CHUNK_EVENTS))
        with self._lake.stage(spans.TABLE, self._run_id) as stage:
            shares = self._shares(plan, stage)
            frames = (spans.conform(share, sources, run, stepped, offsets) for share in shares)
            wrote_spans = self._filled(stage, frames)
        intervals = self._read(spans.TABLE)
        counted = rule_counts.conform(events, sources, run, intervals, stepped, refused)
        counts = self._engine.rows(counted)
        self._lose_nothing(counts)
        together, wrote_collectives = self._small(collectives.TABLE, collectives.conform(intervals, self._traces, run))
        whole = {chunk.ranks: chunk for chunk in plan}.values()
        wrote_crossings = self._large(
            crossings.TABLE,
            (crossings.conform(chunk.of(intervals), chunk.of(together), run) for chunk in whole),
        )
        crossed = self._read(crossings.TABLE)
        _, wrote_budgets = self._small(nonce_budgets.TABLE, nonce_budgets.conform(crossed))
        wrote_counts = self._replace(rule_counts.TABLE, counts)
        logged, wrote_throughput = self._small(
            throughput.TABLE, throughput.conform(self._read(training_log.TABLE), sources, run)
        )
        attested, wrote_attestations = self._small(
            attestations.TABLE, attestations.conform(self._read(tokens.TABLE), stepped, logged)
        )
        samples, records = self._read(readings.TABLE), self._read(collective_records.TABLE)
        _, wrote_samples = self._small(device_samples.TABLE, device_samples.conform(samples, run, stepped, logged))
        evidence = cc_evidence.found(samples, records, attested, run)
        _, wrote_runs = self._small(runs.TABLE, runs.conform(run, intervals, stepped, crossed, logged, evidence))
        return [
            wrote_offsets,
            wrote_steps,
            wrote_spans,
            wrote_collectives,
            wrote_crossings,
            wrote_budgets,
            wrote_rejects,
            wrote_counts,
            wrote_throughput,
            wrote_attestations,
            wrote_samples,
            wrote_runs,
        ]

    def _shares(self, plan: list[Chunk], stage: Stage) -> Iterator[Frame]:
        """The events of each chunk; a rank in parts is read once and shared out on disk, not read once a part."""
        for chunk in plan:
            if chunk.parts == 1:
                yield chunk.of(self._events)
            elif chunk.part == 0:
                (rank,) = chunk.ranks
                yield from self._parts(rank, chunk.parts, stage)

    def _parts(self, rank: int, parts: int, stage: Stage) -> Iterator[Frame]:
        schema = pa.schema([trace_events.TABLE.arrow_schema.field(name) for name in spans.READ])
        with Shares(stage.spool, schema, parts) as shares:
            for batch in self._lake.batches(trace_events.TABLE, self._run_id, spans.READ, rank=rank):
                placed = nw.from_native(pl.DataFrame(batch)).select(part=part_of(parts).cast(nw.Int64))
                shares.add(batch, placed["part"].to_numpy())
        for part in range(parts):
            mine = None
            if self._nsys is not None:
                mine = self._nsys.filter(nw.col("rank") == rank, part_of(parts) == part)
            yield self._beside(recorded.plain(self._engine.wrap(shares.read(part))), mine)

    @staticmethod
    def _beside(traced: Frame, nsys: Frame | None) -> Frame:
        """Events of traces and of Nsight Systems on top of each other; traces alone where there is nothing else."""
        if nsys is None:
            return traced
        columns = [name for name in nsys.collect_schema().names() if name in set(traced.collect_schema().names())]
        return nw.concat([traced.select(columns), nsys.select(columns)])

    def _counted(self) -> tuple[dict[int, int], bool]:
        """How many events each rank has, as bronze counted them, and whether any are of Nsight Systems."""
        counts: Counter[int] = Counter()
        has_nsys = False
        is_profile = (nw.col("outcome") == "kept") & nw.col("format").is_in(recorded.PROFILES)
        for row in self._engine.rows(self._sources.filter(is_profile)).to_pylist():
            counts[row["rank"] or 0] += _landed(row)
            has_nsys |= row["format"] in recorded.NSYS_FORMATS
        return dict(counts), has_nsys

    def _lose_nothing(self, counts: pa.Table) -> None:
        """Hold law 2 before anything downstream is made: landed + split = kept + merged + rejected, per file."""
        settled: Counter[str] = Counter()
        for row in counts.to_pylist():
            settled[row["source_sha256"]] += row["events_count"] * _SIGNS[row["effect"]]
        for row in self._engine.rows(self._sources.filter(nw.col("outcome") == "kept")).to_pylist():
            if settled[row["source_sha256"]] != _landed(row):
                raise ContractBroken(
                    f"run {self._run_id}: of {_landed(row):,} events of source {row['source_sha256'][:12]}, "
                    f"{settled[row['source_sha256']]:,} were kept, merged or rejected",
                    "this is a fault of teetotal, please report it: the run stays stale, nothing is measured from it",
                )

    # -- reading and writing ----------------------------------------------------------------------------------

    def _read(self, table: Table) -> Frame:
        return self._engine.read(self._lake, table, [self._run_id])

    def _at_hand(self, table: Table) -> Frame:
        """A small table, read once."""
        return self._engine.wrap(self._engine.rows(self._read(table)))

    def _small(self, table: Table, frame: Frame) -> tuple[Frame, Written]:
        """Run a plan whose rows are few, write them, and keep them at hand for what follows."""
        rows = self._engine.rows(frame)
        return self._engine.wrap(rows), self._replace(table, rows)

    def _replace(self, table: Table, rows: pa.Table) -> Written:
        return self._lake.replace(table, self._run_id, rows, self._made_from)

    def _large(self, table: Table, frames: Iterable[Frame]) -> Written:
        with self._lake.stage(table, self._run_id) as stage:
            return self._filled(stage, frames)

    def _filled(self, stage: Stage, frames: Iterable[Frame]) -> Written:
        """Run plans one after another, the next while the last is written, and commit them together."""
        for rows in ahead((self._engine.rows(frame) for frame in frames), most=1):
            self._lake.add(stage, rows)
        return self._lake.commit(stage, self._made_from)
