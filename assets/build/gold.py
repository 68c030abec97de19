"""The gold tables of one run, built from its silver tables in slices of time that bound memory."""

from __future__ import annotations

from functools import cached_property, partial
from itertools import groupby, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

import narwhals as nw
import numpy as np
import pyarrow as pa

from assets.build import chunking
from assets.build.catalogue import TABLES as CATALOGUE
from assets.build.catalogue import find_transform, select
from assets.build.chunking import assign_slices, plan_chunks, select_slice
from assets.build.freshness import Look, fingerprint_run
from assets.build.slice_sums import SPAN_COLUMNS, SliceSums, combine_sums, select_sliced
from assets.build.table_tasks import hand_out
from gold import (
    attested_runs,
    copy_bandwidth,
    critical_path,
    idle_breakdown,
    kernel_sequences,
    launches,
    logged_steps,
    memory_timeline,
    module_time,
    operation_costs,
    operator_time,
    queue_length,
    queue_timeline,
    roofline,
    step_times,
    time_breakdown,
    trace_summary,
    traced_steps,
    waiting,
)
from lake.engines import PolarsEngine
from lake.errors import naming
from lake.spill import SpilledRows
from lake.tables import Scope
from silver import (
    collectives,
    device_samples,
    memory_events,
    operator_shapes,
    recordings,
    runs,
    spans,
    steps,
    throughput,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    import numpy.typing as npt

    from assets.build.table_tasks import TableOrder, Wave
    from lake.engines import Engine
    from lake.executors import Site
    from lake.frames import Frame
    from lake.snapshot import Written
    from lake.staging import Staged
    from lake.store import Lake
    from lake.tables import Table

TABLES = select("gold")
RUN_TABLES = select("gold", Scope.RUN)
PAIR_TABLES = select("gold", Scope.PAIR)
# One span in so many is looked at to cut time into slices.
SAMPLED = 16
END_OF_TIME = 1 << 62
Slice = tuple[tuple[int, ...], int, int]
# To read a rank's spans so many times takes less than to share them out.
READ_AGAIN = 8


def flag_replays(lake: Lake) -> list[Written]:
    """Bring up to date what attests runs whose tokens are now in other runs too, or no more."""
    look, table, engine = Look(lake), attested_runs.TABLE, PolarsEngine()
    snapshot, written = look.snapshot(table), []
    for run_id, run in sorted(look.snapshot(runs.TABLE).index().items()):
        # A run that has no such row yet gets it when it is measured itself.
        if run["attestation_ids"] is None or snapshot.mark(run_id) is None:
            continue
        others, made_from = look.replays.get(run_id, []), fingerprint_run(look, table, run_id)
        if not snapshot.is_made_from(run_id, made_from):
            own, recording = (engine.read(lake, one, [run_id]) for one in (runs.TABLE, recordings.TABLE))
            rows = engine.rows(attested_runs.measure(own, recording, others))
            written.append(lake.replace(table, run_id, rows, made_from, read=[run_id, *others]))
    return written


def materialise(lake: Lake, run_id: str, engine: Engine, tables: Sequence[Table] = RUN_TABLES) -> list[Written]:
    """Measure one run; every table is replaced whole."""
    # Looked at before anything is read: what is read may be newer than what is then said of it, never older.
    look = Look(lake)
    marks = {table: fingerprint_run(look, table, run_id) for table in tables}
    if engine.executors is None:
        return GoldBuild(lake, run_id, engine).materialise(marks)
    local, summed = GoldBuild(lake, run_id, PolarsEngine()), select_sliced(tables)
    # Of each slice only sums come back; with them every table can be made, all at once.
    slices = [(run_id, summed, one, local.known) for one in local.slices()] if summed else []
    sums = combine_sums(engine.executors.each(measure_slice, slices))
    waves: list[Wave] = [[(table, [()]) for table in tables]]
    return hand_out(engine.executors, lake, run_id, make_table, waves, marks.__getitem__, sums)


def measure_slice(site: Site, order: tuple[str, list[str], Slice, dict[str, pa.Table]]) -> dict[str, pa.Table]:
    """The sums of one slice of a run, on an executor; what only the whole run shows is handed over."""
    run_id, summed, one, known = order
    measuring = GoldBuild(site.lake, run_id, PolarsEngine())
    measuring.known = known
    return measuring.sums_of(one, summed)


def make_table(site: Site, order: TableOrder) -> list[Staged]:
    """One gold table of a run, on an executor: the same plan, run by Polars."""
    (table,) = (table for table in RUN_TABLES if table.name == order.table)
    measuring = GoldBuild(site.lake, order.run_id, PolarsEngine())
    with site.lake.executor_stage(table, order.run_id, order.spool) as stage:
        sums = {} if order.rows is None else {table.name: order.rows}
        site.lake.add(stage, measuring.rows(table, sums, stage.spool))
        return stage.units


class GoldBuild:
    """One run on its way from silver to gold."""

    def __init__(self, lake: Lake, run_id: str, engine: Engine) -> None:
        self._lake = lake
        self._run_id = run_id
        self._engine = engine
        self._at_hand: dict[Table, Frame] = {}
        self._spanned = self._read(spans.TABLE)
        self._steps = engine.rows(self._read(steps.TABLE))
        self._stepped = engine.wrap(self._steps)
        self._at_hand = {spans.TABLE: self._spanned, steps.TABLE: self._stepped}

    @cached_property
    def known(self) -> dict[str, pa.Table]:
        """What slices of time need of the whole run: waits, first calls, when copies ran and work queued, modules."""
        return {
            "waits": self._compute(waiting.find_waits, self._spanned, self._read(collectives.TABLE)),
            "first_calls": self._compute(operation_costs.find_first_calls, self._spanned, is_lean=True),
            "copy_times": self._compute(copy_bandwidth.find_copy_times, self._spanned),
            "queue_times": self._compute(queue_timeline.find_queue_times, self._spanned),
            "module_ranks": self._compute(module_time.find_ranks, self._spanned),
        }

    def _wrap_known(self, name: str) -> Frame:
        return self._engine.wrap(self.known[name])

    @cached_property
    def _compute(self) -> Callable[..., pa.Table]:
        """Runs a plan, and may keep it where what may be large of the run, as the log counts it, is not."""
        large = (spans.TABLE, memory_events.TABLE, device_samples.TABLE)
        rows = (self._lake.snapshot(table).partition(self._run_id).rows for table in large)
        return partial(self._engine.compute, is_small=chunking.is_small(sum(rows)))

    def materialise(self, made_from: Mapping[Table, str]) -> list[Written]:
        """The tables in this process, slice by slice where intervals are merged."""
        summed = select_sliced(made_from)
        by_ranks = groupby(self.slices() if summed else [], key=itemgetter(0))
        sums = combine_sums([part for _, slices in by_ranks for part in self._sums_of_all(list(slices), summed)])
        written = []
        for table, fingerprint in made_from.items():
            with self._lake.stage(table, self._run_id) as stage:
                with naming(f"making {table.full_name}"):
                    rows = self.rows(table, sums, stage.spool)
                self._lake.add(stage, rows)
                written.append(self._lake.commit(stage, fingerprint))
        return written

    def rows(self, table: Table, sums: dict[str, pa.Table], spool: Path) -> pa.Table:
        """One table; `sums` are those of all slices, by the table that they are for."""
        spanned, stepped, compute = self._spanned, self._stepped, partial(self._compute, is_lean=True)
        # What takes more than its inputs; any other table is its transform, given its inputs in their order.
        builds: dict[str, Callable[[], pa.Table]] = {
            trace_summary.TABLE.name: lambda: compute(
                trace_summary.measure, wrap_sums(), spanned, stepped.select("run_id", "rank").unique()
            ),
            idle_breakdown.TABLE.name: lambda: compute(idle_breakdown.measure, wrap_sums(), stepped),
            queue_length.TABLE.name: lambda: compute(queue_length.measure, wrap_sums(), stepped),
            queue_timeline.TABLE.name: lambda: compute(
                queue_timeline.measure, wrap_sums(), self._wrap_known("queue_times"), stepped
            ),
            kernel_sequences.TABLE.name: lambda: compute(kernel_sequences.measure, wrap_sums(), stepped),
            operator_time.TABLE.name: lambda: compute(operator_time.measure, wrap_sums(), stepped),
            module_time.TABLE.name: lambda: compute(module_time.measure, wrap_sums(), stepped),
            copy_bandwidth.TABLE.name: lambda: compute(
                copy_bandwidth.measure, wrap_sums(), self._wrap_known("copy_times"), stepped
            ),
            time_breakdown.TABLE.name: lambda: compute(time_breakdown.measure, wrap_sums(), stepped, seeing()),
            launches.TABLE.name: lambda: compute(launches.measure, wrap_sums(), spanned),
            operation_costs.TABLE.name: lambda: compute(
                operation_costs.measure, wrap_sums(), stepped, self._wrap_known("first_calls")
            ),
            roofline.TABLE.name: lambda: roofline.measure(
                compute(roofline.sum_shapes, wrap_sums(), self._read(operator_shapes.TABLE)),
                self._engine.rows(self._read(runs.TABLE)),
            ),
            memory_timeline.TABLE.name: lambda: memory_timeline.measure(
                compute(memory_timeline.find_peaks, self._read(memory_events.TABLE)), self._engine.rows(stepped)
            ),
            critical_path.TABLE.name: lambda: critical_path.measure(
                self._engine.rows(stepped), partial(self._read_windows, spool)
            ),
            step_times.TABLE.name: lambda: step_times.measure(
                compute(traced_steps.observe_steps, stepped, spanned, self._read(collectives.TABLE)),
                compute(logged_steps.observe_log, self._read(throughput.TABLE)),
                self._engine.rows(self._read(runs.TABLE)),
            ),
            attested_runs.TABLE.name: lambda: self._engine.rows(
                attested_runs.measure(
                    self._read(runs.TABLE), self._read(recordings.TABLE), Look(self._lake).find_replays(self._run_id)
                )
            ),
        }

        def wrap_sums() -> Frame:
            return self._engine.wrap(sums[table.name])

        def seeing() -> Frame:
            return self._compute_once(spanned.filter(nw.col("is_gpu")).select("run_id", "rank").unique())

        def transform_inputs() -> pa.Table:
            if chunking.has_no_source(self._lake, table, self._run_id):
                return table.arrow_schema.empty_table()
            return compute(find_transform(table), *(self._read(CATALOGUE[name]) for name in table.inputs))

        return builds.get(table.name, transform_inputs)()

    def _read_windows(self, spool: Path, rank: int) -> Iterator[critical_path.Window]:
        """The work of a rank around its steps; a rank of many spans is read once and shared out on disk."""
        is_rank = nw.col("rank") == rank
        waits = self._engine.wrap(self._engine.rows(self._wrap_known("waits").filter(is_rank)))
        bounds = self._cut_between_steps(rank)
        shares = iter([self._spanned.filter(is_rank)])
        if len(bounds):
            shares = map(self._engine.wrap, self._share_out(rank, bounds, critical_path.SPAN_COLUMNS, spool))
        for until, spanned in zip([*bounds.tolist(), END_OF_TIME], shares, strict=True):
            yield critical_path.Window(
                until,
                self._engine.rows(critical_path.select_gpu_work(spanned, waits)),
                self._engine.rows(critical_path.select_host_work(spanned, waits)),
            )

    def _cut_between_steps(self, rank: int) -> npt.NDArray[np.int64]:
        """Where the time of a rank is cut so that its steps stay whole and about equally many spans start between."""
        parts = -(-self._spans_by_rank.get(rank, 0) // chunking.SLICE_SPANS)
        allowed = critical_path.find_cuts(self._engine.rows(self._stepped.filter(nw.col("rank") == rank)))
        if parts < 2 or not len(allowed):
            return np.array([], np.int64)
        order = self._some_starts(rank)
        wanted = order[len(order) * np.arange(1, parts) // parts]
        return np.unique(allowed[np.minimum(np.searchsorted(allowed, wanted), len(allowed) - 1)])

    @cached_property
    def _spans_by_rank(self) -> dict[int, int]:
        counted = self._engine.rows(self._spanned.group_by("rank").agg(spans_count=nw.len())).to_pylist()
        return {row["rank"]: row["spans_count"] for row in counted}

    def slices(self) -> list[Slice]:
        """Ranks and slices of time, none of which holds too many spans; one of nothing where there are none."""
        return list(self._slices()) or [((), 0, END_OF_TIME)]

    def sums_of(self, one: Slice, summed: Sequence[str]) -> dict[str, pa.Table]:
        """What is added up over slices, by the table that it is for."""
        ranks, low, high = one
        reaching = select_slice(self._spanned.filter(nw.col("rank").is_in(ranks)), low, high)
        rows = module_time.drop_labels(self._engine.rows(reaching.select(*SPAN_COLUMNS)))
        return self._add_up(rows, low, high, summed)

    def _add_up(self, rows: pa.Table, low: int, high: int, summed: Sequence[str]) -> dict[str, pa.Table]:
        return SliceSums(self._engine, rows, (low, high), self._steps, self.known).add_up(summed)

    def _sums_of_all(self, slices: list[Slice], summed: Sequence[str]) -> Iterator[dict[str, pa.Table]]:
        """The same of all slices of some ranks; one that has many is read once and shared out on disk."""
        if len(slices) <= READ_AGAIN:
            yield from (self.sums_of(one, summed) for one in slices)
            return
        ((rank,), _, _) = slices[0]
        bounds = np.array([high for _, _, high in slices[:-1]])
        with self._lake.stage(trace_summary.TABLE, self._run_id) as stage:
            shares = self._share_out(rank, bounds, SPAN_COLUMNS, stage.spool)
            for (_, low, high), rows in zip(slices, shares, strict=True):
                yield self._add_up(rows, low, high, summed)

    def _share_out(
        self, rank: int, bounds: npt.NDArray[np.int64], columns: Sequence[str], spool: Path
    ) -> Iterator[pa.Table]:
        """A rank's spans by slices of time, each in all that it reaches: read once, and shared out on disk."""
        count = len(bounds) + 1
        with SpilledRows(spool, spans.TABLE.arrow_schema_of(columns), count) as shares:
            for batch in self._lake.batches(spans.TABLE, self._run_id, columns, rank=rank):
                kept = module_time.drop_labels(batch) if "label" in columns else batch
                rows, places = assign_slices(kept, bounds)
                shares.add(kept.take(pa.array(rows)), places)
        for place in range(count):
            yield shares.read(place)

    def _slices(self) -> Iterator[Slice]:
        """Take small ranks together, and cut the time of large ones so that about equally many spans start in each."""
        for chunk in plan_chunks(self._spans_by_rank, chunking.SLICE_SPANS):
            if chunk.parts == 1:
                yield chunk.ranks, 0, END_OF_TIME
            elif chunk.part == 0:
                order = self._some_starts(*chunk.ranks)
                cuts = [int(order[len(order) * part // chunk.parts]) for part in range(1, chunk.parts)]
                yield from ((chunk.ranks, low, high) for low, high in pairwise([0, *cuts, END_OF_TIME]) if low < high)

    def _some_starts(self, rank: int) -> npt.NDArray[np.int64]:
        """The starts of some of a rank's spans, in order: where time is cut changes no sum, so nearly equal will do."""
        batches = self._lake.batches(spans.TABLE, self._run_id, ("ts_ns",), rank=rank)
        # A copy of those: a view would hold the whole batch.
        return np.sort(np.concatenate([batch.column("ts_ns").to_numpy()[::SAMPLED].copy() for batch in batches]))

    def _read(self, table: Table) -> Frame:
        if table not in self._at_hand:
            self._at_hand[table] = self._engine.read(self._lake, table, [self._run_id])
        return self._at_hand[table]

    def _compute_once(self, frame: Frame) -> Frame:
        """Rows computed once and kept."""
        return self._engine.wrap(self._engine.rows(frame))
