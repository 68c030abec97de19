"""One row per rank: what launching GPU work cost its host, how long the work queued, and what had no launch."""

from __future__ import annotations

import narwhals as nw

from gold.percentiles import find_percentiles
from lake.frames import (
    Frame,
    Moment,
    divide_to_fraction,
    drop_matching,
    join_reasons,
    keep_first,
    select_declared,
    to_flag,
)
from lake.tables import RUN_ID, Column, Table, float64, int32, int64, text
from silver.patterns import PATTERNS
from silver.spans import TABLE as SPANS
from silver.steps import EVIDENCE


def _declare_delays(prefix: str, what: str) -> tuple[Column, ...]:
    return tuple(
        int64(f"{prefix}_p{percent}_ns", f"{what} at rank ceil({percent} n / 100).", nullable=True, minimum=0)
        for percent in (50, 95, 99)
    )


TABLE = Table(
    tier="gold",
    name="launches",
    grain="One row per run and rank.",
    key=("rank",),
    inputs=("silver.spans",),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        int64("launches_count", "Calls that launch a kernel or a graph.", nullable=True, minimum=0),
        int64("copy_calls_count", "Calls that start a copy or a memset and return.", nullable=True, minimum=0),
        int64(
            "first_launch_ns",
            "Duration of the rank's first launch, which may set up the GPU (R7).",
            nullable=True,
            minimum=0,
        ),
        int64("launch_total_ns", "Time of all launches, the first included.", nullable=True, minimum=0),
        *_declare_delays("launch", "Duration of the launches after the first,"),
        text("evidence", "Where the numbers of launches come from.", one_of=EVIDENCE),
        int64("kernels_count", "Kernels with a recorded launch.", nullable=True, minimum=0),
        *_declare_delays("queue", "Time from the end of the launch to the start of its kernel, 0 where they overlap,"),
        int64(
            "short_kernels_count",
            "Compute kernels shorter than their launch, or than their part of one that they share with others.",
            nullable=True,
            minimum=0,
        ),
        float64(
            "short_kernels_fraction",
            "Their share of the compute kernels with a recorded launch.",
            nullable=True,
            minimum=0,
            maximum=1,
        ),
        int64("orphans_count", "GPU work without a recorded launch.", nullable=True, minimum=0),
        int64("orphan_ns", "Time of that work.", nullable=True, minimum=0),
        int64("before_launch_count", "GPU work that starts before its launch.", nullable=True, minimum=0),
        text("gpu_evidence", "Whether the GPU was observed at all.", one_of=EVIDENCE),
        text("reason", "What could not be seen, and why, as sentences.", nullable=True),
    ),
)
_KEYS = ("run_id", "rank")
_CALLS = ("launch_call", "copy_call", "sync_call", "blocking_copy_call", "other_call")
_KERNELS = ("compute", "collective", "crypto")
_INT = nw.Int64


def measure(short: Frame, spans: Frame) -> Frame:
    """Time launches without the first, and kernels against their own launch; what no row shows is null, never 0.

    `short` are the short kernels of all slices of time.
    """
    ranks = spans.select(*_KEYS).unique()
    launches = spans.filter(PATTERNS.has_pattern("pattern", "launch_call")).select(
        *_KEYS, *SPANS.key, "ts_ns", "duration_ns"
    )
    first = keep_first(launches, _KEYS, ["ts_ns", *SPANS.key])
    steady = drop_matching(launches, first, _KEYS, SPANS.key)
    work = _select_work(spans.filter(nw.col("is_gpu")))
    for part in (
        _select_calls(spans),
        first.select(*_KEYS, first_launch_ns=nw.col("duration_ns")),
        find_percentiles(steady, _KEYS, "duration_ns", "launch_"),
        _sums(work),
        short.group_by(*_KEYS).agg(nw.col("short_kernels_count").sum().cast(_INT)),
        find_percentiles(work.filter(nw.col("kernels_count") == 1), _KEYS, "_queue_ns", "queue_"),
    ):
        ranks = ranks.join(part, on=list(_KEYS), how="left")
    return select_declared(_add_evidence(ranks), TABLE)


def pick_shorter(spans: Frame, low_ns: Moment, high_ns: Moment) -> Frame:
    """Count compute kernels shorter than their launch, or than their part of one that they share, as in a CUDA graph.

    Only launches within a slice of time: which kernels share one is known where all of its work is at hand.
    """
    started, keys = nw.col("launch_ts_ns"), [*_KEYS, "launch_ts_ns", "correlation_id"]
    work = _select_work(spans.filter(nw.col("is_gpu"), started >= low_ns, started < high_ns))
    work = work.with_columns(_together=nw.col("_one").sum().over(*keys).cast(_INT))
    part = (nw.col("launch_duration_ns") + nw.col("_together") - 1) // nw.col("_together")
    short = work.select(*_KEYS, short_kernels_count=to_flag((nw.col("_compute") == 1) & (nw.col("duration_ns") < part)))
    return short.group_by(*_KEYS).agg(nw.col("short_kernels_count").sum().cast(_INT))


def _select_calls(spans: Frame) -> Frame:
    """Count the calls of a rank that recorded any, and what its launches took."""
    is_launch = PATTERNS.has_pattern("pattern", "launch_call")
    calls = spans.filter(PATTERNS.has_pattern("pattern", *_CALLS)).with_columns(
        launches_count=to_flag(is_launch),
        copy_calls_count=to_flag(
            PATTERNS.has_pattern("pattern", "copy_call", "blocking_copy_call") & (nw.col("kind") != "blocking_copy")
        ),
        launch_total_ns=nw.when(is_launch).then(nw.col("duration_ns")),
    )
    sums = calls.group_by(*_KEYS).agg(
        nw.col("launches_count", "copy_calls_count").sum().cast(_INT),
        launch_total_ns=nw.col("launch_total_ns").sum().cast(_INT),
    )
    # The sum of nothing is 0 or null, as engines please: nothing was launched, so there is no time of it.
    total = nw.when(nw.col("launches_count") > 0).then(nw.col("launch_total_ns"))
    return sums.with_columns(launch_total_ns=total)


def _select_work(work: Frame) -> Frame:
    """Every piece of GPU work: which of the counts it belongs to, and how long it queued."""
    zero, is_orphan = nw.lit(0).cast(_INT), nw.col("is_orphan")
    is_kernel = nw.col("kind").is_in(_KERNELS) & ~is_orphan
    waited = nw.col("ts_ns") - nw.col("launch_ts_ns") - nw.col("launch_duration_ns")
    return work.select(
        *_KEYS,
        "launch_ts_ns",
        "correlation_id",
        "duration_ns",
        "launch_duration_ns",
        _one=nw.lit(1).cast(_INT),
        kernels_count=to_flag(is_kernel),
        _compute=to_flag((nw.col("kind") == "compute") & is_kernel),
        orphans_count=to_flag(is_orphan),
        orphan_ns=nw.when(is_orphan).then(nw.col("duration_ns")).otherwise(zero),
        before_launch_count=to_flag(nw.col("is_before_launch")),
        _queue_ns=nw.when(waited > 0).then(waited).otherwise(zero),
    )


def _sums(work: Frame) -> Frame:
    """Sum what a rank's GPU rows show."""
    names = ("kernels_count", "_compute", "orphans_count", "orphan_ns", "before_launch_count")
    return work.group_by(*_KEYS).agg(*(nw.col(name).sum().cast(_INT) for name in names))


def _add_evidence(ranks: Frame) -> Frame:
    """Say what was seen; a rank without GPU rows was not seen to have an idle GPU (R4)."""
    is_called, is_seen = ~nw.col("launches_count").is_null(), ~nw.col("kernels_count").is_null()
    seen = {True: nw.lit("measured"), False: nw.lit("unobservable")}
    # A rank of which no work has a launch has no short kernel: only where no work was seen is that unknown.
    count = nw.when(is_seen).then(nw.col("short_kernels_count").fill_null(0))
    return ranks.with_columns(
        short_kernels_count=count,
        short_kernels_fraction=divide_to_fraction(count, nw.col("_compute")),
        evidence=nw.when(is_called).then(seen[True]).otherwise(seen[False]),
        gpu_evidence=nw.when(is_seen).then(seen[True]).otherwise(seen[False]),
        reason=join_reasons(
            (~is_called, "no calls of the CUDA API were recorded"),
            (nw.col("launches_count") == 0, "the rank launched nothing while it was recorded"),
            (nw.col("launches_count") == 1, "the only launch is the first, which the percentiles leave out"),
            (~is_seen, "no GPU rows were recorded, so nothing of the GPU can be told"),
            (nw.col("kernels_count") == 0, "no kernel has a recorded launch, so how long any queued cannot be told"),
            (
                (nw.col("_compute") == 0) & (nw.col("kernels_count") > 0),
                "no compute kernel has a recorded launch, so none can be held against it",
            ),
        ),
    )
