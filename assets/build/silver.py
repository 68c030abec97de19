"""The silver tables of one run, made from its bronze ones in chunks that bound memory whatever a rank recorded."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from assets.build import chunking
from assets.build.catalogue import TABLES as CATALOGUE
from assets.build.catalogue import find_transform, select, sort_tables
from assets.build.chunking import part_of, plan_chunks
from assets.build.freshness import Look, fingerprint_run
from assets.build.table_tasks import hand_out
from bronze import (
    collective_records,
    nsys_events,
    source_files,
    span_patterns,
    trace_events,
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
    memory_events,
    nsys_ranks,
    profiler_events,
    rejects,
    rule_counts,
    runs,
    spans,
    steps,
    throughput,
)
from silver.event_rules import COMPLETE
from silver.site_patterns import combine_patterns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from assets.build.chunking import Chunk
    from assets.build.table_tasks import TableOrder
    from lake.engines import Engine, Plan
    from lake.executors import Site
    from lake.snapshot import Written
    from lake.staging import Stage, Staged
    from lake.store import Lake
    from lake.tables import Table
    from silver.site_patterns import SitedPatterns

TABLES = select("silver")
_SIGNS = {"kept": 1, "merged": 1, "rejected": 1, "split": -1, "flagged": 0}


def _count_landed(source: dict[str, Any]) -> int:
    """What of a source must be settled: its events; rows of Nsight Systems are events too."""
    count: int = source["rows_count" if source["format"] in profiler_events.NSYS_FORMATS else "events_count"]
    return count


_LARGE = (spans.TABLE, crossings.TABLE, memory_events.TABLE)


def materialise(lake: Lake, run_id: str, engine: Engine, tables: Sequence[Table] = TABLES) -> list[Written]:
    """Conform a run; every table is replaced whole, in the order in which they need each other."""
    if engine.executors is None:
        return SilverBuild(lake, run_id, engine).materialise(tables)
    local = SilverBuild(lake, run_id, PolarsEngine())
    return hand_out(engine.executors, lake, run_id, build_portion, local.waves(tables), local.made_from.__getitem__)


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
        look = Look(lake)
        self.made_from = {table: fingerprint_run(look, table, run_id) for table in TABLES}
        self._runs = self._wrap_rows(claimed.TABLE)
        # All files, and those that count: of an open run its earlier cycles may not.
        landed = self._wrap_rows(source_files.TABLE)
        self._sources = landed.filter(nw.col("is_counted"))
        self._counted = _list_counted(engine.rows(landed))
        self._counting = lake if self._counted is None else lake.of_sources(self._counted)
        self._traces = self._engine.read(self._counting, trace_events.TABLE, [run_id])
        self._profiled = self._read(nsys_events.TABLE) if self._has_nsys() else None
        rows = self._profiled if self._profiled is not None else self._engine.wrap(_no_rows(nsys_events.TABLE))
        self._placement = nsys_ranks.conform(rows, self._sources, engine.rows, engine.wrap)
        self._at_hand = {
            claimed.TABLE: self._runs,
            source_files.TABLE: landed,
            trace_events.TABLE: self._traces,
            nsys_ranks.TABLE: self._engine.wrap(self._placement.table),
        }
        self._events_by_rank = self._count_events()
        self._events = self._concat_profilers(
            profiler_events.adapt_trace_events(self._traces), self._adapt_profiled(self._profiled)
        )
        self._site = self._patterns(look.site_patterns)
        self._chunks = list(plan_chunks(self._events_by_rank, chunking.CHUNK_EVENTS))
        (row,) = engine.rows(self._runs.select("events_count", "records_count")).to_pylist()
        self._compute = partial(engine.compute, is_small=chunking.is_small(sum(row.values())))
        self._made: dict[str, Frame] = {}

    def materialise(self, tables: Sequence[Table]) -> list[Written]:
        """The tables in this process, the large ones chunk by chunk, the small ones kept at hand for what follows."""
        written: dict[str, Written] = {}
        with ThreadPoolExecutor(self._engine.tables_at_once, thread_name_prefix="silver") as pool:
            for wave in sort_tables(tables):
                written |= {one.table: one for one in pool.map(self._find_written, wave)}
        return [written[table.full_name] for table in tables]

    def _find_written(self, table: Table) -> Written:
        with naming(f"making {table.full_name}"), self._lake.stage(table, self._run_id) as stage:
            self.fill(stage, self._chunks if table in _LARGE else [])
            return self._lake.commit(stage, self.made_from[table])

    def waves(self, tables: Sequence[Table]) -> list[list[tuple[Table, list[tuple[Chunk, ...]]]]]:
        """What executors are told to make: large tables by their ranks, so that a rank is read once, others whole."""
        by_ranks: dict[tuple[int, ...], list[Chunk]] = {}
        for chunk in self._chunks:
            by_ranks.setdefault(chunk.ranks, []).append(chunk)
        portions = [tuple(group) for group in by_ranks.values()]
        return [[(table, portions if table in _LARGE else [()]) for table in wave] for wave in sort_tables(tables)]

    def fill(self, stage: Stage, plan: Sequence[Chunk]) -> None:
        """Put a table's rows on a stage: the given chunks of a large one, a small one whole."""
        if stage.table == spans.TABLE:
            self._fill_stage(stage, self._spans(plan, stage))
        elif stage.table == crossings.TABLE:
            intervals, together = self._read(spans.TABLE), self._small(collectives.TABLE)
            whole = {chunk.ranks: chunk for chunk in plan}.values()
            found = (
                self._compute(crossings.conform, chunk.of(intervals), chunk.of(together), self._runs) for chunk in whole
            )
            self._fill_stage(stage, found)
        elif stage.table == memory_events.TABLE:
            whole = {chunk.ranks: chunk for chunk in plan}.values()
            self._fill_stage(stage, (self._compute(memory_events.conform, chunk.of(self._traces)) for chunk in whole))
        else:
            rows = self._build_small(stage.table)
            if stage.table == rule_counts.TABLE:
                self._require_no_loss(rows)
            self._made[stage.table.name] = self._engine.wrap(rows)
            self._lake.add(stage, rows)

    def _build_small(self, table: Table) -> pa.Table:
        """A small table, from what came before it."""
        read, small, run = self._read, self._small, self._runs
        placed = self._at_hand[nsys_ranks.TABLE]
        # What takes more than its inputs; any other table is its transform, given its inputs in their order.
        builds: dict[str, Callable[[], pa.Table]] = {
            nsys_ranks.TABLE.name: lambda: self._placement.table,
            steps.TABLE.name: lambda: self._compute(
                steps.conform,
                *(self._events, self._sources, self._run_of_steps(), small(clock_offsets.TABLE), placed),
                site=self._site,
                is_profiled=self._profiled is not None,
            ),
            rejects.TABLE.name: lambda: self._compute(
                rejects.conform,
                *(self._events, self._sources, self._leave_earlier(read(unreadable.TABLE)), placed),
            ),
            rule_counts.TABLE.name: lambda: self._compute(
                rule_counts.conform,
                *(self._events, self._sources, run, read(spans.TABLE), small(steps.TABLE), small(rejects.TABLE)),
            ),
            runs.TABLE.name: lambda: self._compute(
                _conform_run,
                *(run, read(spans.TABLE), small(steps.TABLE), read(crossings.TABLE), small(throughput.TABLE)),
                *(read(readings.TABLE), read(collective_records.TABLE), small(attestations.TABLE)),
            ),
        }

        def transform_inputs() -> pa.Table:
            if chunking.has_no_source(self._lake, table, self._run_id):
                return _no_rows(table)
            return self._compute(find_transform(table), *(self._find_input(CATALOGUE[name]) for name in table.inputs))

        return builds.get(table.name, transform_inputs)()

    def _find_input(self, table: Table) -> Frame:
        """What a table is made from: at hand where it is small and was read or made before, else from the lake."""
        if table in self._at_hand:
            return self._at_hand[table]
        return self._read(table) if table.tier == "bronze" or table in _LARGE else self._small(table)

    def _small(self, table: Table) -> Frame:
        """A small table that was made before: at hand where this process made it, else from the lake."""
        if table.name not in self._made:
            self._made[table.name] = self._wrap_rows(table)
        return self._made[table.name]

    def _spans(self, plan: Sequence[Chunk], stage: Stage) -> Iterator[pa.Table]:
        """The spans of each chunk; a rank in parts is read once and shared out on disk, not read once a part."""
        known = (self._sources, self._runs, self._small(steps.TABLE), self._small(clock_offsets.TABLE))

        def conform(events: Frame) -> Frame:
            return spans.conform(events, *known, self._site)

        for chunk in plan:
            if chunk.parts == 1:
                traced = profiler_events.adapt_trace_events(chunk.of(self._traces))
                mine = self._adapt_profiled(self._select_profiled(chunk.ranks))
                mine = None if mine is None else chunk.of(mine)
                events = self._concat_profilers(traced, mine)
                yield self._engine.compute(spans.conform, events, *known, is_small=True, site=self._site)
            elif chunk.part == 0:
                (rank,) = chunk.ranks
                yield from self._build_by_chunk(rank, chunk.parts, stage, conform)

    def _build_by_chunk(self, rank: int, parts: int, stage: Stage, conform: Plan) -> Iterator[pa.Table]:
        is_sealed = self._lake.seals_bronze or self._lake.has_sealed_source(trace_events.TABLE, [self._run_id])
        schema = trace_events.TABLE.arrow_schema_of(spans.READ)
        with SpilledRows(stage.spool, schema, parts, is_sealed=is_sealed) as shares:
            read = self._counting.batches(trace_events.TABLE, self._run_id, spans.READ, rank=rank)
            for batch in prefetch((batch.filter(pc.field("phase") == COMPLETE) for batch in read), most=1):
                placed = nw.from_native(pl.DataFrame(batch)).select(part=part_of(parts).cast(nw.Int64))
                shares.add(batch, placed["part"].to_numpy())
        if self._profiled is None:
            traced = map(shares.read, range(parts))
            yield from self._engine.each(lambda events: conform(profiler_events.adapt_trace_events(events)), traced)
            return
        folder, schema = _folder(stage.spool, "nsys"), nsys_events.TABLE.arrow_schema
        with SpilledRows(folder, schema, parts, is_sealed=is_sealed) as profiled:
            for batch in prefetch(self._read_profiled(rank), most=1):
                where = nw.coalesce(nw.col("correlation_id"), nw.col("start_ns"))
                placed = nw.from_native(pl.DataFrame(batch)).select(part=part_of(parts, where).cast(nw.Int64))
                profiled.add(batch, placed["part"].to_numpy())
        for part in range(parts):
            mine = self._adapt_profiled(self._engine.wrap(profiled.read(part)))
            mine = None if mine is None else mine.filter(nw.col("rank") == rank)
            traced_part = profiler_events.adapt_trace_events(self._engine.wrap(shares.read(part)))
            yield self._engine.rows(conform(self._concat_profilers(traced_part, mine)), is_small=True)

    def _leave_earlier(self, rows: Frame) -> Frame:
        """Rows of files that count."""
        return rows if self._counted is None else rows.filter(nw.col("source_sha256").is_in(self._counted))

    def _run_of_steps(self) -> Frame:
        """The run as its steps take it: the warm-up that it claims lies in cycles that are left aside, if any are."""
        none = nw.lit(0).cast(nw.Int64)
        return self._runs if self._counted is None else self._runs.with_columns(warmup_steps_count=none)

    def _adapt_profiled(self, rows: Frame | None) -> Frame | None:
        """Rows of Nsight Systems as events."""
        return None if rows is None else profiler_events.adapt_nsys_events(rows, self._placement)

    def _select_profiled(self, ranks: Sequence[int]) -> Frame | None:
        """The rows of Nsight Systems that processes of these ranks recorded, and rows that name no process."""
        sources, processes = self._placement.recorded_by(ranks)
        if self._profiled is None or not sources:
            return None
        is_mine = nw.col("source_sha256").is_in(sources) & nw.col("process_id").fill_null("").is_in(processes)
        return self._profiled.filter(is_mine)

    def _read_profiled(self, rank: int) -> Iterator[pa.RecordBatch]:
        """The same, a batch at a time."""
        sources, processes = self._placement.recorded_by([rank])
        columns = nsys_events.TABLE.column_names
        for source in sources:
            for batch in self._lake.batches(nsys_events.TABLE, self._run_id, columns, source_sha256=source):
                named = pc.fill_null(batch.column("process_id"), "")
                yield batch.filter(pc.is_in(named, value_set=pa.array(processes, pa.string())))

    @staticmethod
    def _concat_profilers(traced: Frame, nsys: Frame | None) -> Frame:
        """Events of traces and of Nsight Systems on top of each other; traces alone where there is nothing else."""
        if nsys is None:
            return traced
        columns = [name for name in nsys.collect_schema().names() if name in set(traced.collect_schema().names())]
        return nw.concat([traced.select(columns), nsys.select(columns)])

    def _patterns(self, site: bytes) -> SitedPatterns:
        """The site's patterns, those beside the lake before those of the run."""
        beside = span_patterns.parse_patterns(site, f"{span_patterns.FILE_NAME} beside the lake") if site else []
        own = self._engine.rows(self._read(span_patterns.TABLE)).sort_by([("ordinal", "ascending")]).to_pylist()
        files = [
            (f"{span_patterns.FILE_NAME} beside the lake", beside),
            (f"{span_patterns.FILE_NAME} of run {self._run_id}", own),
        ]
        return combine_patterns(files)

    def _has_nsys(self) -> bool:
        """Whether any file of the run is of Nsight Systems."""
        is_nsys = (nw.col("outcome") == "kept") & nw.col("format").is_in(profiler_events.NSYS_FORMATS)
        return bool(self._engine.rows(self._sources.filter(is_nsys).select("source_sha256")).num_rows)

    def _count_events(self) -> dict[int, int]:
        """How many events each rank has, as bronze counted them."""
        counts: Counter[int] = Counter()
        is_trace = (nw.col("outcome") == "kept") & (nw.col("format") == "kineto")
        for row in self._engine.rows(self._sources.filter(is_trace)).to_pylist():
            counts[row["rank"] or 0] += row["events_count"]
        counts.update(self._placement.rows_by_rank)
        return dict(counts)

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


def _conform_run(
    run: Frame,
    spanned: Frame,
    stepped: Frame,
    crossed: Frame,
    logged: Frame,
    sampled: Frame,
    records: Frame,
    attested: Frame,
) -> Frame:
    """`silver.runs`, with what was recorded beside the traces as evidence of the regime."""
    evidence = cc_evidence.count_evidence(sampled, records, attested, run)
    return runs.conform(run, spanned, stepped, crossed, logged, evidence)


def _list_counted(files: pa.Table) -> list[str] | None:
    """The digests of the files that count; none where all do."""
    if pc.all(files["is_counted"]).as_py() is not False:
        return None
    # A copy of a file goes with the one that was kept.
    counted = files.filter(pc.field("is_counted") & (pc.field("outcome") != "merged"))
    return sorted(counted["source_sha256"].drop_null().to_pylist())


def _folder(spool: Path, name: str) -> Path:
    """A directory of its own within a stage's spool."""
    folder = spool / name
    folder.mkdir(exist_ok=True)
    return folder


def _no_rows(table: Table) -> pa.Table:
    return table.arrow_schema.empty_table()


_TABLES = {table.name: table for table in TABLES}
