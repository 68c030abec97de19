"""One row per run and rank over the whole trace, in the definitions of both peers: their users find their numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw

from gold.interval_sweep import clip_to_slice, cut_segments, is_running, merge_intervals
from lake.frames import select_declared
from lake.tables import RUN_ID, Table, float64, int32, int64, text
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from lake.frames import Frame, Moment

TABLE = Table(
    tier="gold",
    name="trace_summary",
    grain="One row per run and rank, over the whole trace.",
    key=("rank",),
    inputs=("silver.spans", "silver.steps"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        int64("gpu_events", "Kernels, copies and memsets.", minimum=0),
        int64("total_ns", "Last end minus first start of GPU work.", nullable=True, minimum=0),
        int64("busy_ns", "Time during which the GPU did anything.", nullable=True, minimum=0),
        int64("idle_ns", "The rest.", nullable=True, minimum=0),
        int64("hta_compute_ns", "Compute, as HolisticTraceAnalysis defines it.", nullable=True, minimum=0),
        int64("hta_noncompute_ns", "Total less compute less idle, as HTA defines it.", nullable=True),
        int64("hta_comm_ns", "Communication (nccl…Kernel…), as HTA defines it.", nullable=True, minimum=0),
        int64("hta_overlap_ns", "Communication during compute.", nullable=True, minimum=0),
        float64("hta_overlap_pct", "The same in percent of communication; null without any.", nullable=True, minimum=0),
        int64(
            "tl_compute_ns",
            "Compute, as TraceLens defines it: neither copy nor communication.",
            nullable=True,
            minimum=0,
        ),
        int64("tl_comm_ns", "Communication, as TraceLens defines it.", nullable=True, minimum=0),
        int64("tl_exposed_comm_ns", "Communication outside compute.", nullable=True, minimum=0),
        int64("tl_memcpy_ns", "Copies, as TraceLens defines them.", nullable=True, minimum=0),
        int64("tl_exposed_memcpy_ns", "Copies outside compute and communication.", nullable=True, minimum=0),
        text("evidence", "Whether the GPU was observed.", one_of=EVIDENCE),
        text("reason", "Why there is no number, as a sentence.", nullable=True),
    ),
)
# Peers' definitions cross: each combination of (HTA, TraceLens) is a class of its own, unions are made of them.
# TraceLens looks for these in any case; written out, since engines do not agree on the lower case of every letter.
_TL_COMM = "|".join(
    "".join(f"[{c.upper()}{c}]" if c.isalpha() else c for c in name) for name in ("nccl", "rccl", "cross_device_reduce")
)
_HTA = ("compute", "comm", "other")
_TL = ("compute", "comm", "memcpy")
_CLASSES = {(hta, tl): index for index, (hta, tl) in enumerate((h, t) for h in _HTA for t in _TL)}


def _list_categories(hta: str | None = None, tl: str | None = None) -> tuple[int, ...]:
    return tuple(index for (one, other), index in _CLASSES.items() if hta in {None, one} and tl in {None, other})


# Which classes each union is made of.
UNIONS = {
    "busy_ns": tuple(_CLASSES.values()),
    "hta_compute_ns": _list_categories(hta="compute"),
    "hta_comm_ns": _list_categories(hta="comm"),
    "_hta_both_ns": (*_list_categories(hta="compute"), *_list_categories(hta="comm")),
    "tl_compute_ns": _list_categories(tl="compute"),
    "tl_comm_ns": _list_categories(tl="comm"),
    "tl_memcpy_ns": _list_categories(tl="memcpy"),
    "_tl_both_ns": (*_list_categories(tl="compute"), *_list_categories(tl="comm")),
}


def unite_intervals(spans: Frame, low_ns: Moment, high_ns: Moment) -> Frame:
    """The unions of GPU work within a slice of time, by category and by name as both peers look at them."""
    gpu = clip_to_slice(spans.filter(nw.col("is_gpu")), low_ns, high_ns).with_columns(_class=_class())
    zero = nw.lit(0).cast(nw.Int64)
    swept = cut_segments(merge_intervals(gpu)).with_columns(
        **{
            name: nw.when(is_running(*classes)).then(nw.col("_length_ns")).otherwise(zero)
            for name, classes in UNIONS.items()
        }
    )
    return swept.group_by("run_id", "rank").agg(*(nw.col(name).sum().cast(nw.Int64) for name in UNIONS))


def measure(unions: Frame, spans: Frame, ranks: Frame) -> Frame:
    """Sum the unions of all slices per rank; both peers' numbers follow from the same exact intervals."""
    extent = (
        spans.filter(nw.col("is_gpu"))
        .with_columns(_end_ns=nw.col("ts_ns") + nw.col("duration_ns"))
        .group_by("run_id", "rank")
        .agg(gpu_events=nw.len().cast(nw.Int64), _first_ns=nw.col("ts_ns").min(), _last_ns=nw.col("_end_ns").max())
    )
    sums = unions.group_by("run_id", "rank").agg(*(nw.col(name).sum().cast(nw.Int64) for name in UNIONS))
    found = ranks.select("run_id", "rank").unique().join(extent, on=["run_id", "rank"], how="left")
    found = found.join(sums, on=["run_id", "rank"], how="left")
    # Work of no length at all leaves no segment: its unions are zero, not unknown.
    is_seen = ~nw.col("gpu_events").is_null()
    found = found.with_columns(
        *(nw.when(is_seen).then(nw.col(name).fill_null(0)).alias(name) for name in UNIONS),
        total_ns=nw.col("_last_ns") - nw.col("_first_ns"),
    )
    return select_declared(_derive_summary(found), TABLE)


def _class() -> nw.Expr:
    """The combination of the peers' classes, by a name's spelling as they look at it."""
    name = nw.col("name").fill_null("")
    is_hta_comm = name.str.starts_with("nccl") & name.str.contains("Kernel", literal=True)
    is_hta_other = name.str.contains("^dma|Memcpy|Memset|Sync")
    is_memcpy = nw.col("category") == "gpu_memcpy"
    is_tl_comm = name.str.contains(_TL_COMM)
    hta = {"comm": is_hta_comm, "other": ~is_hta_comm & is_hta_other, "compute": ~is_hta_comm & ~is_hta_other}
    tl = {"memcpy": is_memcpy, "comm": ~is_memcpy & is_tl_comm, "compute": ~is_memcpy & ~is_tl_comm}
    found = nw.lit(0).cast(nw.Int64)
    for (one, other), index in _CLASSES.items():
        found = nw.when(hta[one] & tl[other]).then(nw.lit(index).cast(nw.Int64)).otherwise(found)
    return found


def _derive_summary(found: Frame) -> Frame:
    """What follows from the unions; an intersection is the sum of two less their union."""
    comm, compute = nw.col("hta_comm_ns"), nw.col("hta_compute_ns")
    is_seen = ~nw.col("gpu_events").is_null()
    found = found.with_columns(
        idle_ns=nw.col("total_ns") - nw.col("busy_ns"),
        hta_overlap_ns=comm + compute - nw.col("_hta_both_ns"),
        tl_exposed_comm_ns=nw.col("_tl_both_ns") - nw.col("tl_compute_ns"),
        tl_exposed_memcpy_ns=nw.col("busy_ns") - nw.col("_tl_both_ns"),
        evidence=nw.when(is_seen).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
        reason=nw.when(~is_seen).then(nw.lit("no GPU rows were recorded")),
        gpu_events=nw.col("gpu_events").fill_null(0),
    )
    return found.with_columns(
        hta_noncompute_ns=nw.col("total_ns") - compute - nw.col("idle_ns"),
        hta_overlap_pct=nw.when(comm > 0).then(nw.col("hta_overlap_ns") * 100.0 / comm),
    )
