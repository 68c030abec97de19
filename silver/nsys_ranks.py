"""One row per file, report, process, GPU and context of Nsight Systems' rows: whose rank they are, or why nobody's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import narwhals as nw
import pyarrow as pa

from lake.tables import RUN_ID, Table, boolean, int32, int64, text
from silver.rank_assignment import CALLS, RANK_SOURCES, WORK, assign_ranks, needs_ties

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lake.frames import Frame

NSYS_FORMATS = ("nsys_csv", "nsys_sqlite")

TABLE = Table(
    tier="silver",
    name="nsys_ranks",
    grain="One row per file, report, process, GPU and context of rows of Nsight Systems.",
    key=("source_sha256", "ordinal"),
    inputs=("bronze.nsys_events", "bronze.source_files"),
    columns=(
        RUN_ID,
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place among those of its source, from 0.", minimum=0),
        text("report", "The report of `nsys stats`, or the table of the export."),
        int64("host_ordinal", "Host of the process, numbered within the run; null where not known.", nullable=True),
        text("process_id", "Process, as the rows say, else as their calls tell.", nullable=True, sensitive=True),
        int64("device_id", "GPU, as the rows say.", nullable=True),
        int64("context_id", "CUDA context, as the rows say.", nullable=True),
        int64("rows_count", "Rows of this kind.", minimum=1),
        int32("rank", "Rank that they belong to; null where they are refused or of no rank.", nullable=True, minimum=0),
        text(
            "rank_source",
            "nccl: NCCL's annotations; file_name: the name of the file; assumed: the order of hosts, GPUs and "
            "processes.",
            nullable=True,
            one_of=RANK_SOURCES,
        ),
        boolean("is_shared", "Whether its process drives several GPUs: each row then goes with the work it launched."),
        text("clock_id", "Equal for rows that one clock timed: processes of one host, else of one recording."),
        text("rule", "Rule by which they are not timed.", nullable=True),
        text("reason", "Why they have no rank, as a sentence.", nullable=True),
    ),
)
# What tells rows apart; a null is written out, because engines do not join nulls.
KEYS: dict[str, str | int] = {"host_id": "", "process_id": "", "device_id": -1, "context_id": -1}
_KEY = ("source_sha256", "report", *(f"_{name}" for name in KEYS))
_SHIFT = 1 << 32
_LOOKUP = pa.schema(
    [
        ("source_sha256", pa.string()),
        ("report", pa.string()),
        ("_host_id", pa.string()),
        ("_process_id", pa.string()),
        ("_device_id", pa.int64()),
        ("_context_id", pa.int64()),
        ("run_id", pa.string()),
        ("rank", pa.int32()),
        ("_recording", pa.string()),
        ("_fate", pa.string()),
        ("_is_shared", pa.bool_()),
        ("_file_rows", pa.int64()),
    ]
)


@dataclass(frozen=True)
class Placement:
    """Where the rows of Nsight Systems belong: the table, and the same as a frame that rows are joined with."""

    table: pa.Table
    groups: list[dict[str, Any]]
    lookup: Frame
    has_shared: bool
    has_graph_nodes: bool

    @property
    def rows_by_rank(self) -> dict[int, int]:
        """How many rows each rank has, those that are not timed aside."""
        counts: Counter[int] = Counter()
        columns = (self.table[name].to_pylist() for name in ("rank", "rule", "rows_count"))
        for rank, rule, count in zip(*columns, strict=True):
            if rank is not None and rule is None:
                counts[rank] += count
        return dict(counts)

    def recorded_by(self, ranks: Sequence[int]) -> tuple[list[str], list[str]]:
        """The files and the processes, as their rows name them, that hold rows of these ranks."""
        mine = [row for row in self.groups if row["rank"] in ranks and row["_fate"] is None]
        # A call of a process that drives several GPUs may belong to any of its ranks.
        recordings = {row["_recording"] for row in mine}
        mine = [row for row in self.groups if row["_recording"] in recordings]
        return sorted({row["source_sha256"] for row in mine}), sorted({row["_process_id"] for row in mine})


def conform(
    nsys_events: Frame, sources: Frame, rows: Callable[[Frame], pa.Table], wrap: Callable[[pa.Table], Frame]
) -> Placement:
    """Decide once, over the few kinds of rows that there are, whose each kind is."""
    files = rows(_profiles(sources)).to_pylist()
    groups = rows(_count_rows(nsys_events, sources)).to_pylist()
    ties = rows(_tie_contexts(nsys_events, sources)).to_pylist() if needs_ties(groups, files) else []
    placed = assign_ranks(groups, files, ties)
    lookup = [{name: row[name] for name in _LOOKUP.names} for row in placed]
    return Placement(
        _make_table(placed),
        lookup,
        wrap(pa.Table.from_pylist(lookup, schema=_LOOKUP)),
        any(row["_is_shared"] for row in placed),
        any(row["nodes_count"] for row in placed)
        and any(row["report"] == "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" for row in placed),
    )


def add_keys(nsys_events: Frame) -> Frame:
    """Rows with what tells them apart, nulls written out."""
    return nsys_events.with_columns(**{f"_{name}": nw.col(name).fill_null(value) for name, value in KEYS.items()})


def join_ranks(nsys_events: Frame, placement: Placement) -> Frame:
    """Give rows their rank, the recording within which ids are unique, and the rule that settles them unseen."""
    rows = add_keys(nsys_events.drop("run_id")).join(placement.lookup, on=list(_KEY), how="inner")
    work_columns = ["_recording", "correlation_id"]
    if placement.has_shared:
        is_work = nw.col("report").is_in(WORK) & ~nw.col("_is_shared")
        work = rows.filter(is_work, ~nw.col("correlation_id").is_null())
        work = work.group_by(*work_columns).agg(_work_rank=nw.col("rank").min())
        rows = rows.join(work, on=work_columns, how="left")
        rows = rows.with_columns(
            rank=nw.when(nw.col("_is_shared")).then(nw.coalesce("_work_rank", "rank")).otherwise(nw.col("rank"))
        ).drop("_work_rank")
    if placement.has_graph_nodes:
        nodes = rows.filter(~nw.col("graph_node_id").is_null(), ~nw.col("correlation_id").is_null())
        nodes = nodes.select(*work_columns, _has_nodes=nw.lit(True)).unique()
        rows = rows.join(nodes, on=work_columns, how="left")
        is_repeated = (nw.col("report") == "CUPTI_ACTIVITY_KIND_GRAPH_TRACE") & nw.col("_has_nodes").fill_null(False)
        is_repeated &= nw.col("_fate").is_null()
        rows = rows.with_columns(_fate=nw.when(is_repeated).then(nw.lit("graph_nodes")).otherwise(nw.col("_fate")))
        rows = rows.drop("_has_nodes")
    return rows.drop(*(f"_{name}" for name in KEYS))


def _profiles(sources: Frame) -> Frame:
    """The profiles of a run: traces tell which ranks are timed already, the others have rows to be placed."""
    return sources.filter(nw.col("outcome") == "kept", nw.col("format").is_in(["kineto", *NSYS_FORMATS])).select(
        "run_id", "source_sha256", "file_name", "format", "rank", "rows_count"
    )


def _count_rows(nsys_events: Frame, sources: Frame) -> Frame:
    """How many rows of each kind there are, when they ran, and which rank NCCL gives their process."""
    kept = sources.filter(nw.col("outcome") == "kept").select("source_sha256").unique()
    nccl = nw.col("nccl_ranks_count") * _SHIFT
    is_node = nw.when(~nw.col("graph_node_id").is_null()).then(nw.lit(1)).otherwise(nw.lit(0)).cast(nw.Int64)
    rows = add_keys(nsys_events).join(kept, on="source_sha256", how="semi")
    rows = rows.with_columns(
        _end_ns=nw.col("ts_ns") + nw.col("duration_ns").fill_null(0),
        _highest=nccl + nw.col("nccl_rank"),
        _lowest=nccl - nw.col("nccl_rank"),
        _node=is_node,
    )
    return rows.group_by(*_KEY).agg(
        rows_count=nw.len().cast(nw.Int64),
        first_ns=nw.col("ts_ns").min(),
        last_ns=nw.col("_end_ns").max(),
        nccl_highest=nw.col("_highest").max(),
        nccl_lowest=nw.col("_lowest").max(),
        nodes_count=nw.col("_node").sum().cast(nw.Int64),
    )


def _tie_contexts(nsys_events: Frame, sources: Frame) -> Frame:
    """For each GPU and context without a process: how many of its correlation ids each process has calls for."""
    kept = sources.filter(nw.col("outcome") == "kept").select("run_id", "source_sha256", "file_name", "format", "rank")
    columns = ["run_id", "rank", "_stem", "correlation_id"]
    rows = add_keys(nsys_events.drop("run_id")).join(kept, on="source_sha256", how="inner")
    rows = rows.filter(~nw.col("correlation_id").is_null()).with_columns(
        rank=nw.col("rank").fill_null(-1),
        _stem=nw.when(nw.col("format") == "nsys_csv").then(stem()).otherwise(nw.col("source_sha256")),
    )
    calls = rows.filter(nw.col("report").is_in(CALLS), nw.col("_process_id") != "")
    calls = calls.select(*columns, _caller_host="_host_id", _caller="_process_id").unique()
    work = rows.filter(nw.col("report").is_in(WORK), nw.col("_process_id") == "")
    work = work.select(*columns, "_device_id", "_context_id").unique()
    place = ["run_id", "rank", "_stem", "_device_id", "_context_id"]
    totals = work.group_by(*place).agg(total_count=nw.len().cast(nw.Int64))
    met = work.join(calls, on=columns, how="inner")
    met = met.group_by(*place, "_caller_host", "_caller").agg(met_count=nw.len().cast(nw.Int64))
    return met.join(totals, on=place, how="inner")


def stem() -> nw.Expr:
    """What `nsys stats` names a recording's reports after; files under other names are of one recording."""
    report = "_?cuda_(api|gpu|kern_exec)_trace.*"
    name = nw.col("file_name")
    return nw.when(name.str.contains(report)).then(name.str.replace_all(report, "")).otherwise(nw.lit(""))


def _make_table(placed: list[dict[str, Any]]) -> pa.Table:
    """The declared table."""
    rows = [{column.name: row[column.name] for column in TABLE.columns} for row in placed]
    return pa.Table.from_pylist(rows, schema=TABLE.arrow_schema)
