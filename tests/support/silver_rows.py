"""Bronze rows as short literals, and the whole way to silver: shared by the tests of silver."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from dataclasses import fields as columns_of
from typing import TYPE_CHECKING, Any, Protocol

import polars as pl
import pyarrow as pa

from assets.build.silver import TABLES
from bronze import attestations as tokens
from bronze import (
    collective_records,
    nsys_events,
    recording_statements,
    source_files,
    trace_events,
    training_log,
    unreadable,
)
from bronze import device_samples as readings
from bronze import runs as claimed
from lake.contract import require_declared
from lake.tables import Kind
from silver import (
    attestations,
    cc_evidence,
    clock_offsets,
    collectives,
    crossings,
    device_samples,
    memory_events,
    nonce_budgets,
    nsys_ranks,
    operator_shapes,
    profiler_events,
    recordings,
    rejects,
    rule_counts,
    runs,
    spans,
    steps,
    throughput,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lake.frames import Frame
    from lake.store import Lake
    from lake.tables import Table

_NOTHING = {Kind.TEXT: "", Kind.INT32: 0, Kind.INT64: 0, Kind.FLOAT64: 0.0, Kind.BOOL: False}
RUN = "run-1"
_OTHERS = (readings.TABLE, collective_records.TABLE, tokens.TABLE, recording_statements.TABLE)
# The tables of `Bronze`, in its order.
_TABLES = (
    *(trace_events.TABLE, source_files.TABLE, unreadable.TABLE, claimed.TABLE, training_log.TABLE, nsys_events.TABLE),
    *_OTHERS,
)
# Ranks of runs that go through one chain together are this far apart.
APART = 1000


class Bench(Protocol):
    """What the tests need of an engine: rows in, rows out."""

    name: str

    def wrap(self, rows: pa.Table) -> Frame:
        """Rows as a frame."""
        ...

    def rows(self, frame: Frame) -> pa.Table:
        """Run the plan."""
        ...


# -- literals ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """A row of a bronze table, as far as a test cares."""

    table: Table
    fields: dict[str, Any]


def event(name: str | None, category: str | None, ts_ns: int | None, duration_ns: int | None, **fields: Any) -> Row:
    """A complete event of rank 0, unless it says otherwise."""
    known = {"name": name, "category": category, "ts_ns": ts_ns, "duration_ns": duration_ns}
    return Row(trace_events.TABLE, {"run_id": RUN, "rank": 0, "phase": "X", "thread_id": "1", **known, **fields})


def kernel(name: str, ts_ns: int, duration_ns: int, **fields: Any) -> Row:
    """GPU work."""
    return event(name, "kernel", ts_ns, duration_ns, **fields)


def note(name: str, ts_ns: int, duration_ns: int, **fields: Any) -> Row:
    """An annotation of the host."""
    return event(name, "user_annotation", ts_ns, duration_ns, **fields)


def copy(name: str, ts_ns: int, duration_ns: int, **fields: Any) -> Row:
    """A copy on the GPU's track."""
    return event(name, "gpu_memcpy", ts_ns, duration_ns, **fields)


def call(name: str, ts_ns: int, duration_ns: int, **fields: Any) -> Row:
    """A call of the CUDA runtime."""
    return event(name, "cuda_runtime", ts_ns, duration_ns, **fields)


def all_reduce(ts_ns: int, duration_ns: int, **fields: Any) -> Row:
    """The kernel of an all-reduce of 1,000 floats over two ranks, unless it says otherwise."""
    known = {"collective_name": "allreduce", "dtype": "Float", "in_elements_count": 1000, "group_size": 2}
    return kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", ts_ns, duration_ns, **{**known, **fields})


def in_turn(*rows: Row) -> list[Row]:
    """The same events a microsecond apart, so that none is simultaneous with another."""
    return [Row(row.table, {**row.fields, "ts_ns": 1000 * (place + 1)}) for place, row in enumerate(rows)]


def source(**fields: Any) -> Row:
    """A file that was kept, of rank 0, unless it says otherwise; its events are counted where it does not say."""
    return Row(source_files.TABLE, {"run_id": RUN, "format": "kineto", "outcome": "kept", "rank": 0, **fields})


def make_log_record(**fields: Any) -> Row:
    """A record of a training table, of rank 0 unless its source says otherwise."""
    return Row(training_log.TABLE, {"run_id": RUN, "record": "csv", **fields})


def nsys(report: str, name: str | None, start_ns: int | None, duration_ns: int | None, **fields: Any) -> Row:
    """A row of a report of Nsight Systems, in a file of that name."""
    known = {"report": report, "name": name, "start_ns": start_ns, "duration_ns": duration_ns}
    return Row(nsys_events.TABLE, {"run_id": RUN, **known, **fields})


def reading(metric: str, value: str | None, tool: str = "conf_compute", **fields: Any) -> Row:
    """A reading of a device."""
    return Row(readings.TABLE, {"run_id": RUN, "tool": tool, "metric": metric, "value": value, **fields})


def nccl_mode(state: str) -> Row:
    """NCCL's line on the mode that it found."""
    return Row(collective_records.TABLE, {"run_id": RUN, "record": "nccl_log_cc", "cc_state": state})


def token(verdict: str, **fields: Any) -> Row:
    """An attestation token as bronze judged it."""
    known = {"run_id": RUN, "verdict": verdict, "verdict_reason": "so it was judged"}
    return Row(tokens.TABLE, {**known, **fields})


def byte_range(**fields: Any) -> Row:
    """A byte range of a source that nobody could read."""
    return Row(unreadable.TABLE, {"run_id": RUN, **fields})


def run(**fields: Any) -> Row:
    """What a run claims."""
    return Row(claimed.TABLE, {"run_id": RUN, **fields})


def rows_of(table: Table, rows: Iterable[dict[str, Any]]) -> pa.Table:
    """Rows of the declared schema: what is left out is null, or the least where null is not allowed."""
    full = []
    for row in rows:
        unknown = set(row) - set(table.column_names)
        assert not unknown, f"{table.full_name} has no {unknown}"
        full.append(
            {c.name: row.get(c.name, None if c.nullable else c.minimum or _NOTHING[c.kind]) for c in table.columns}
        )
    return pa.Table.from_pylist(full, schema=table.arrow_schema)


@dataclass(frozen=True)
class Bronze:
    """The bronze tables of a run, complete and consistent: every event has a source that counts it."""

    events: pa.Table
    sources: pa.Table
    unreadable: pa.Table
    runs: pa.Table
    training: pa.Table
    nsys: pa.Table
    samples: pa.Table
    records: pa.Table
    tokens: pa.Table
    statements: pa.Table

    @classmethod
    def of(cls, *rows: Row, adapt: Callable[[dict[str, Any]], dict[str, Any]] = dict) -> Bronze:
        """Fill in what the literals leave out; `adapt` may change a complete row."""
        by_table: dict[str, list[dict[str, Any]]] = {}
        for literal in rows:
            by_table.setdefault(literal.table.name, []).append(dict(literal.fields))
        events, counts = by_table.get("trace_events", []), Counter[str]()
        for row in events:
            sha256 = row.setdefault("source_sha256", f"source-{row['rank']}")
            row.setdefault("ordinal", counts[sha256])
            counts[sha256] += 1
        sources = by_table.get("source_files", [])
        for row in sources:
            row.setdefault("source_sha256", f"source-{row['rank']}")
        known = {row["source_sha256"] for row in sources}
        ranks = {row["source_sha256"]: row["rank"] for row in events}
        training = by_table.get("training_log", [])
        for row in training:
            sha256 = row.setdefault("source_sha256", "log")
            row.setdefault("ordinal", counts[sha256])
            counts[sha256] += 1
        profiled = by_table.get("nsys_events", [])
        for row in profiled:
            sha256 = row.setdefault("source_sha256", f"a_{row['report']}.csv")
            row.setdefault("ordinal", counts[sha256])
            counts[sha256] += 1
        reports = {row["source_sha256"] for row in profiled} - known
        sources += [
            source(source_sha256=sha, file_name=sha, format="nsys_csv", events_count=0, rows_count=counts[sha]).fields
            for sha in sorted(reports)
        ]
        logs = {row["source_sha256"] for row in training} - known
        sources += [
            source(rank=0, source_sha256=sha, format="training_csv", events_count=0, rows_count=counts[sha]).fields
            for sha in sorted(logs)
        ]
        sources += [source(rank=rank, source_sha256=sha).fields for sha, rank in ranks.items() if sha not in known]
        for row in sources:
            row.setdefault("file_name", f"{row['source_sha256']}.json")
            row.setdefault("events_count", counts[row["source_sha256"]])
        others = {table.name: by_table.get(table.name, []) for table in _OTHERS}
        for name, rows_found in others.items():
            for place, row in enumerate(rows_found):
                row.setdefault("source_sha256", name)
                row.setdefault("ordinal", place)
        claims = by_table.get("runs", [run().fields])
        byte_ranges = by_table.get("unreadable", [])
        return cls(
            rows_of(trace_events.TABLE, map(adapt, events)),
            rows_of(source_files.TABLE, map(adapt, sources)),
            rows_of(unreadable.TABLE, map(adapt, byte_ranges)),
            rows_of(claimed.TABLE, map(adapt, claims)),
            rows_of(training_log.TABLE, map(adapt, training)),
            rows_of(nsys_events.TABLE, map(adapt, profiled)),
            *(rows_of(table, map(adapt, others[table.name])) for table in _OTHERS),
        )

    @classmethod
    def read(cls, lake: Lake, places: Iterable[int]) -> Bronze:
        """Runs of a lake that are named `case-0`, `case-1` and so on, by their places, set apart from each other."""
        adapts = [(f"case-{place}", apart(place)) for place in places]
        return cls(
            *(
                rows_of(table, (adapt(row) for run_id, adapt in adapts for row in scan_rows(lake, table, run_id)))
                for table in _TABLES
            )
        )

    @classmethod
    def joined(cls, parts: Iterable[Bronze]) -> Bronze:
        """Several runs as one set of tables."""
        parts = list(parts)
        names = [column.name for column in columns_of(cls)]
        return cls(*(pa.concat_tables([getattr(part, name) for part in parts]) for name in names))


def apart(place: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Gives a row of one run among many a run id, a rank and a source that no other has."""

    def adapt(row: dict[str, Any]) -> dict[str, Any]:
        adapted = {**row, "run_id": f"case-{place}"}
        if row.get("source_sha256") is not None:
            adapted["source_sha256"] = f"case-{place}/{row['source_sha256']}"
        if row.get("rank") is not None:
            adapted["rank"] = row["rank"] + place * APART
        return adapted

    return adapt


def scan_rows(lake: Lake, table: Table, run_id: str) -> list[dict[str, Any]]:
    """The rows of a run in a lake."""
    return lake.scan(table, [run_id]).collect().to_dicts()


def take_run(frame: pl.DataFrame, place: int) -> pl.DataFrame:
    """The rows of one run among many, with the ranks and sources that it had before it was set apart."""
    mine = frame.filter(pl.col("run_id") == f"case-{place}").with_columns(run_id=pl.lit(RUN))
    if "source_sha256" in mine.columns:
        mine = mine.with_columns(pl.col("source_sha256").str.strip_prefix(f"case-{place}/"))
    for name in ("rank", "reference_rank"):
        if name in mine.columns:
            mine = mine.with_columns(pl.col(name) - place * APART)
    if "key_scope" in mine.columns:
        mine = mine.with_columns(
            key_scope=pl.col("key_scope").str.replace(r"^rank \d+", pl.format("rank {}", pl.col("rank")))
        )
    return mine


# -- the way to silver -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Silver:
    """The silver tables, each sorted by its key."""

    tables: dict[str, pl.DataFrame] = field(default_factory=dict)

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Some columns of a table."""
        return self.tables[table].select(columns).rows()

    def only(self, table: str, *columns: str) -> tuple[Any, ...]:
        """The same of a table that must have one row."""
        (row,) = self.rows(table, *columns)
        return row

    def by(self, table: str, key: str, *columns: str) -> dict[Any, tuple[Any, ...]]:
        """The same by the value of another column, which must be distinct."""
        found = {row[0]: row[1:] for row in self.rows(table, key, *columns)}
        assert len(found) == len(self.tables[table]), f"{key} repeats"
        return found


def run_plan(bench: Bench, frame: Frame, table: Table) -> pa.Table:
    """Run a plan and hold what comes out to the declaration, as the store does, but all runs at once."""
    rows = bench.rows(frame)
    assert not rows.column("run_id").null_count, f"{table.full_name}: a row is of no run"
    one_run = pa.repeat(pa.scalar(RUN, table.arrow_schema.field("run_id").type), rows.num_rows)
    require_declared(table, rows.set_column(rows.column_names.index("run_id"), "run_id", one_run), RUN)
    return rows.cast(pa.schema([field.remove_metadata() for field in table.arrow_schema]))


def sort_rows(table: Table, rows: pa.Table) -> pl.DataFrame:
    """Rows as the door orders them: by run and key."""
    frame = pl.DataFrame(rows)
    assert frame.schema == table.polars_schema
    return frame.sort(*table.row_key, *frame.columns, nulls_last=False)


def conform_chain(
    bench: Bench, bronze: Bronze, shares: Callable[[Frame], Iterable[Frame]] = lambda events: [events]
) -> Silver:
    """The whole chain, settled at every table as the asset does; `shares` may hand the spans their events in parts."""
    found: dict[str, pl.DataFrame] = {}

    def keep(table: Table, *frames: Frame) -> Frame:
        rows = pa.concat_tables([run_plan(bench, frame, table) for frame in frames])
        found[table.name] = sort_rows(table, rows)
        return bench.wrap(rows)

    traces, files = bench.wrap(bronze.events), bench.wrap(bronze.sources)
    profiled = bench.wrap(bronze.nsys)
    placement = nsys_ranks.conform(profiled, files, bench.rows, bench.wrap)
    events = profiler_events.merge_profilers(traces, profiled, placement)
    placed = keep(nsys_ranks.TABLE, bench.wrap(placement.table))
    claims, broken = bench.wrap(bronze.runs), bench.wrap(bronze.unreadable)
    offsets = keep(clock_offsets.TABLE, clock_offsets.conform(traces, files, placed))
    stepped = keep(steps.TABLE, steps.conform(events, files, claims, offsets, placed))
    refused = keep(rejects.TABLE, rejects.conform(events, files, broken, placed))
    parts = (spans.conform(share, files, claims, stepped, offsets) for share in shares(events))
    kept = keep(spans.TABLE, *parts)
    keep(rule_counts.TABLE, rule_counts.conform(events, files, claims, kept, stepped, refused))
    together = keep(collectives.TABLE, collectives.conform(kept, traces, claims))
    crossed = keep(crossings.TABLE, crossings.conform(kept, together, claims))
    keep(operator_shapes.TABLE, operator_shapes.conform(traces))
    keep(memory_events.TABLE, memory_events.conform(traces))
    keep(nonce_budgets.TABLE, nonce_budgets.conform(crossed))
    paces = keep(throughput.TABLE, throughput.conform(bench.wrap(bronze.training), files, claims))
    attested = keep(attestations.TABLE, attestations.conform(bench.wrap(bronze.tokens), claims, stepped, paces))
    keep(recordings.TABLE, recordings.conform(bench.wrap(bronze.statements), files, claims, attested))
    keep(device_samples.TABLE, device_samples.conform(bench.wrap(bronze.samples), claims, stepped, paces))
    evidence = cc_evidence.count_evidence(bench.wrap(bronze.samples), bench.wrap(bronze.records), attested, claims)
    keep(runs.TABLE, runs.conform(claims, kept, stepped, crossed, paces, evidence))
    assert set(found) == {table.name for table in TABLES}
    return Silver(found)
