"""The silver tables of one run, made from its bronze ones in chunks that bound memory whatever a rank recorded."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from assets.build import freshness
from assets.build.chunking import part_of, plan_chunks
from assets.build.table_tasks import hand_out
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
from bronze.prefetch import prefetch
from lake.engines import PolarsEngine
from lake.errors import ContractBroken, naming
from lake.frames import Frame
from lake.spill import SpilledRows
from silver import (
    attestations,
    cc_evidence,
    clock_offsets,
    collectives,
    crossings,
    device_samples,
    nonce_budgets,
    profiler_events,
    rejects,
    rule_counts,
    runs,
    spans,
    steps,
    throughput,
)
from silver.event_rules import COMPLETE
from silver.patterns import PATTERNS
from silver.policy import POLICY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from assets.build.chunking import Chunk
    from assets.build.freshness import Snapshots
    from assets.build.table_tasks import TableOrder
    from lake.engines import Engine, Plan
    from lake.executors import Site
    from lake.snapshot import Written
    from lake.staging import Stage, Staged
    from lake.store import Lake
    from lake.tables import Table

# `runs` last: it is made from the others.
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
TRANSFORMS_VERSION = 8
CHUNK_EVENTS = 62_500
_SIGNS = {"kept": 1, "merged": 1, "rejected": 1, "split": -1, "flagged": 0}


def made_from(mark: int | None) -> str:
    """The fingerprint of a run's silver: what its bronze was made from, and all that decides here."""
    rules = [PATTERNS.sha256, POLICY.sha256, device_samples.METRICS_SHA256, attestations.POLICY_SHA256]
    parts = [mark, TRANSFORMS_VERSION, CHUNK_EVENTS, *rules]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def _count_landed(source: dict[str, Any]) -> int:
    """What of a source must be settled: its events; rows of Nsight Systems are events too."""
    count: int = source["rows_count" if source["format"] in profiler_events.NSYS_FORMATS else "events_count"]
    return count


def find_stale(lake: Snapshots, run_ids: Iterable[str], tables: Sequence[Table] = TABLES) -> dict[str, str]:
    """Those runs of which one of these tables was not made from their bronze as it is, and which; in a few words."""
    landed = lake.snapshot(claimed.TABLE)
    return freshness.find_stale(lake, tables, run_ids, lambda _, run_id: made_from(landed.mark(run_id)))


def find_up_to_date(lake: Snapshots, run_ids: Iterable[str], tables: Sequence[Table] = TABLES) -> set[str]:
    """The other runs: all of these tables were made from their bronze as it is."""
    asked = set(run_ids)
    return asked - find_stale(lake, asked, tables).keys()


# What can be made at the same time, and what only after it: executors find what came before in the lake.
WAVES = (
    (clock_offsets.TABLE, rejects.TABLE, throughput.TABLE),
    (steps.TABLE,),
    (spans.TABLE, attestations.TABLE, device_samples.TABLE),
    (rule_counts.TABLE, collectives.TABLE),
    (crossings.TABLE,),
    (nonce_budgets.TABLE,),
    (runs.TABLE,),
)
_LARGE = (spans.TABLE, crossings.TABLE)


def _select_waves(tables: Sequence[Table]) -> list[list[Table]]:
    """The waves, with no other tables in them."""
    return [[table for table in wave if table in tables] for wave in WAVES]


def materialise(lake: Lake, run_id: str, engine: Engine, tables: Sequence[Table] = TABLES) -> list[Written]:
    """Conform a run; every table is replaced whole, in the order in which they need each other."""
    if engine.executors is None:
        return SilverBuild(lake, run_id, engine).materialise(tables)
    local = SilverBuild(lake, run_id, PolarsEngine())
    return hand_out(engine.executors, lake, run_id, build_portion, local.waves(tables), lambda _: local.made_from)


def build_portion(site: Site, order: TableOrder) -> list[Staged]:
    """One table of a run, or some chunks of it, on an executor: the same plans, run by Polars."""
    conforming = SilverBuild(site.lake, order.run_id, PolarsEngine())
    with site.lake.executor_stage(_TABLES[order.table], order.run_id, order.spool) as stage:
        conforming.fill(stage, order.chunks)
        return stage.units


class SilverBuild:
    """One run on its way from bronze to silver."""

    def __init__(self, lake: Lake, run_id: str, engine: Engine) -> None:
        lake.unlock(TABLES)
        self._lake = lake
        self._run_id = run_id
        self._engine = engine
        self.made_from = made_from(lake.snapshot(claimed.TABLE).mark(run_id))
        self._runs = self._wrap_rows(claimed.TABLE)
        self._sources = self._wrap_rows(source_files.TABLE)
        self._traces = self._read(trace_events.TABLE)
        self._events_by_rank, has_nsys = self._count_events()
        self._nsys = (
            profiler_events.adapt_nsys_events(self._read(nsys_events.TABLE), self._sources) if has_nsys else None
        )
        self._events = self._concat_profilers(profiler_events.adapt_trace_events(self._traces), self._nsys)
        self._chunks = list(plan_chunks(self._events_by_rank, CHUNK_EVENTS))
        self._made: dict[str, Frame] = {}

    def materialise(self, tables: Sequence[Table]) -> list[Written]:
        """The tables in this process, the large ones chunk by chunk, the small ones kept at hand for what follows."""
        written: dict[str, Written] = {}
        with ThreadPoolExecutor(self._engine.tables_at_once, thread_name_prefix="silver") as pool:
            for wave in _select_waves(tables):
                written |= {one.table: one for one in pool.map(self._find_written, wave)}
        return [written[table.full_name] for table in tables]

    def _find_written(self, table: Table) -> Written:
        with naming(f"making {table.full_name}"), self._lake.stage(table, self._run_id) as stage:
            self.fill(stage, self._chunks if table in _LARGE else [])
            return self._lake.commit(stage, self.made_from)

    def waves(self, tables: Sequence[Table]) -> list[list[tuple[Table, list[tuple[Chunk, ...]]]]]:
        """What executors are told to make: large tables by their ranks, so that a rank is read once, others whole."""
        by_ranks: dict[tuple[int, ...], list[Chunk]] = {}
        for chunk in self._chunks:
            by_ranks.setdefault(chunk.ranks, []).append(chunk)
        portions = [tuple(group) for group in by_ranks.values()]
        return [[(table, portions if table in _LARGE else [()]) for table in wave] for wave in _select_waves(tables)]

    def fill(self, stage: Stage, plan: Sequence[Chunk]) -> None:
        """Put a table's rows on a stage: the given chunks of a large one, a small one whole."""
        if stage.table == spans.TABLE:
            known = (self._sources, self._runs, self._small(steps.TABLE), self._small(clock_offsets.TABLE))
            self._fill_stage(stage, self._spans(plan, stage, lambda events: spans.conform(events, *known)))
        elif stage.table == crossings.TABLE:
            intervals, together = self._read(spans.TABLE), self._small(collectives.TABLE)
            whole = {chunk.ranks: chunk for chunk in plan}.values()
            found = (crossings.conform(chunk.of(intervals), chunk.of(together), self._runs) for chunk in whole)
            self._fill_stage(stage, map(self._engine.rows, found))
        else:
            rows = self._engine.rows(self._plan(stage.table))
            if stage.table == rule_counts.TABLE:
                self._require_no_loss(rows)
            self._made[stage.table.name] = self._engine.wrap(rows)
            self._lake.add(stage, rows)

    def _plan(self, table: Table) -> Frame:
        """How a small table follows from what came before it."""
        read, small, run = self._read, self._small, self._runs
        plans: dict[str, Callable[[], Frame]] = {
            clock_offsets.TABLE.name: lambda: clock_offsets.conform(self._traces, self._sources),
            steps.TABLE.name: lambda: steps.conform(self._events, self._sources, run, small(clock_offsets.TABLE)),
            rejects.TABLE.name: lambda: rejects.conform(self._events, self._sources, read(unreadable.TABLE)),
            rule_counts.TABLE.name: lambda: rule_counts.conform(
                self._events, self._sources, run, read(spans.TABLE), small(steps.TABLE), small(rejects.TABLE)
            ),
            collectives.TABLE.name: lambda: collectives.conform(read(spans.TABLE), self._traces, run),
            nonce_budgets.TABLE.name: lambda: nonce_budgets.conform(read(crossings.TABLE)),
            throughput.TABLE.name: lambda: throughput.conform(read(training_log.TABLE), self._sources, run),
            attestations.TABLE.name: lambda: attestations.conform(
                read(tokens.TABLE), run, small(steps.TABLE), small(throughput.TABLE)
            ),
            device_samples.TABLE.name: lambda: device_samples.conform(
                read(readings.TABLE), run, small(steps.TABLE), small(throughput.TABLE)
            ),
            runs.TABLE.name: lambda: runs.conform(
                run, read(spans.TABLE), small(steps.TABLE), read(crossings.TABLE), small(throughput.TABLE), evidence()
            ),
        }

        def evidence() -> Frame:
            records = read(collective_records.TABLE)
            return cc_evidence.count_evidence(read(readings.TABLE), records, small(attestations.TABLE), run)

        return plans[table.name]()

    def _small(self, table: Table) -> Frame:
        """A small table that was made before: at hand where this process made it, else from the lake."""
        if table.name not in self._made:
            self._made[table.name] = self._wrap_rows(table)
        return self._made[table.name]

    def _spans(self, plan: Sequence[Chunk], stage: Stage, conform: Plan) -> Iterator[pa.Table]:
        """The spans of each chunk; a rank in parts is read once and shared out on disk, not read once a part."""
        for chunk in plan:
            if chunk.parts == 1:
                yield self._engine.rows(conform(chunk.of(self._events)), is_small=True)
            elif chunk.part == 0:
                (rank,) = chunk.ranks
                yield from self._build_by_chunk(rank, chunk.parts, stage, conform)

    def _build_by_chunk(self, rank: int, parts: int, stage: Stage, conform: Plan) -> Iterator[pa.Table]:
        with SpilledRows(stage.spool, trace_events.TABLE.arrow_schema_of(spans.READ), parts) as shares:
            read = self._lake.batches(trace_events.TABLE, self._run_id, spans.READ, rank=rank)
            for batch in prefetch((batch.filter(pc.field("phase") == COMPLETE) for batch in read), most=1):
                placed = nw.from_native(pl.DataFrame(batch)).select(part=part_of(parts).cast(nw.Int64))
                shares.add(batch, placed["part"].to_numpy())
        if self._nsys is None:
            traced = map(shares.read, range(parts))
            yield from self._engine.each(lambda events: conform(profiler_events.adapt_trace_events(events)), traced)
            return
        for part in range(parts):
            mine = self._nsys.filter(nw.col("rank") == rank, part_of(parts) == part)
            traced_part = profiler_events.adapt_trace_events(self._engine.wrap(shares.read(part)))
            yield self._engine.rows(conform(self._concat_profilers(traced_part, mine)), is_small=True)

    @staticmethod
    def _concat_profilers(traced: Frame, nsys: Frame | None) -> Frame:
        """Events of traces and of Nsight Systems on top of each other; traces alone where there is nothing else."""
        if nsys is None:
            return traced
        columns = [name for name in nsys.collect_schema().names() if name in set(traced.collect_schema().names())]
        return nw.concat([traced.select(columns), nsys.select(columns)])

    def _count_events(self) -> tuple[dict[int, int], bool]:
        """How many events each rank has, as bronze counted them, and whether any are of Nsight Systems."""
        counts: Counter[int] = Counter()
        has_nsys = False
        is_profile = (nw.col("outcome") == "kept") & nw.col("format").is_in(profiler_events.PROFILES)
        for row in self._engine.rows(self._sources.filter(is_profile)).to_pylist():
            counts[row["rank"] or 0] += _count_landed(row)
            has_nsys |= row["format"] in profiler_events.NSYS_FORMATS
        return dict(counts), has_nsys

    def _require_no_loss(self, counts: pa.Table) -> None:
        """Hold law 2 before anything downstream is made: landed + split = kept + merged + rejected, per file."""
        settled: Counter[str] = Counter()
        for row in counts.to_pylist():
            settled[row["source_sha256"]] += row["events_count"] * _SIGNS[row["effect"]]
        for row in self._engine.rows(self._sources.filter(nw.col("outcome") == "kept")).to_pylist():
            if settled[row["source_sha256"]] != _count_landed(row):
                raise ContractBroken(
                    f"run {self._run_id}: of {_count_landed(row):,} events of source {row['source_sha256'][:12]}, "
                    f"{settled[row['source_sha256']]:,} were kept, merged or rejected",
                    "this is a fault of teetotal, please report it: the run stays stale, nothing is measured from it",
                )

    # -- reading and writing ----------------------------------------------------------------------------------

    def _read(self, table: Table) -> Frame:
        return self._engine.read(self._lake, table, [self._run_id])

    def _wrap_rows(self, table: Table) -> Frame:
        """A small table, read once."""
        return self._engine.wrap(self._engine.rows(self._read(table)))

    def _fill_stage(self, stage: Stage, found: Iterable[pa.Table]) -> None:
        """Write rows share by share, while the next are made."""
        for rows in prefetch(found, most=1):
            self._lake.add(stage, rows)


_TABLES = {table.name: table for table in TABLES}
