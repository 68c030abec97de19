"""One row per stream, and one per GPU: how long it stood idle, and whether for the host, between kernels, or else."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, Moment, add_latest_end, join_reasons, select_declared, to_flag
from lake.tables import RUN_ID, Table, int32, int64, text
from silver.steps import EVIDENCE

# HolisticTraceAnalysis' `consecutive_kernel_delay`: its default of 30 is compared with microseconds.
CONSECUTIVE_NS = 30_000
# Stands for a number of a stream: the GPU with all of its streams.
ALL = "all"
PARTS = ("host_wait", "kernel_wait", "other")

TABLE = Table(
    tier="gold",
    name="idle_breakdown",
    grain="One row per rank, GPU and stream, and one per GPU over all of its streams.",
    key=("rank", "device_id", "stream"),
    inputs=("silver.spans", "silver.steps"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        int64("device_id", "GPU on which the work ran, 0 where the source names none."),
        text("stream", "Number of the stream; all: the GPU, which is idle while none of its streams works."),
        int64("work_count", "Kernels, copies and memsets.", minimum=0),
        int64("total_ns", "Last end minus first start of them.", nullable=True, minimum=0),
        int64("busy_ns", "Time during which any of them ran.", nullable=True, minimum=0),
        int64("idle_ns", "The rest: the gaps between them.", nullable=True, minimum=0),
        int64(
            "host_wait_ns",
            "Gaps before work whose launch began after the gap did, as HTA defines host wait.",
            nullable=True,
            minimum=0,
        ),
        int64(
            "kernel_wait_ns",
            "Other gaps shorter than 30 µs, as HTA defines kernel wait by default.",
            nullable=True,
            minimum=0,
        ),
        int64(
            "other_ns",
            "The remaining gaps: work that had been launched, or whose launch was not recorded, and did not start.",
            nullable=True,
            minimum=0,
        ),
        *(
            int64(f"{part}_count", f"Gaps that are {what}.", nullable=True, minimum=0)
            for part, what in zip(PARTS, ("host wait", "kernel wait", "neither"), strict=True)
        ),
        int64("longest_ns", "The longest gap.", nullable=True, minimum=0),
        int64("orphans_count", "Work without a recorded launch: it ends no gap that is host wait.", minimum=0),
        text("evidence", "Whether the GPU was observed.", one_of=EVIDENCE),
        text("reason", "What could not be seen, as sentences.", nullable=True),
    ),
)
_INT = nw.Int64
_ZERO = nw.lit(0).cast(_INT)
_KEYS = ("run_id", "rank", "device_id", "_is_all", "_stream")
_SUMS = (
    *("work_count", "busy_ns", "orphans_count"),
    *(f"{part}_{unit}" for part in PARTS for unit in ("ns", "count")),
)


def find_gaps(spans: Frame, low_ns: Moment, high_ns: Moment) -> Frame:
    """Charge each gap to the work that ends it, where that starts in this slice of time.

    The first work of a slice that nothing reaches into is left open: what came before it is known to earlier slices.
    """
    end = nw.col("ts_ns") + nw.col("duration_ns")
    gpu = spans.filter(nw.col("is_gpu"), nw.col("ts_ns") < high_ns, (nw.col("ts_ns") >= low_ns) | (end > low_ns))
    # Work without a launch comes before any that has one: it is never taken for work that the host was late with.
    work = gpu.select(
        *("run_id", "rank", "stream_id", "ts_ns"),
        device_id=nw.col("device_id").fill_null(0),
        _end_ns=end,
        _launch_ns=nw.col("launch_ts_ns").fill_null(0),
        orphans_count=to_flag(nw.col("launch_ts_ns").is_null()),
        _is_begun=nw.col("ts_ns") >= low_ns,
    )
    by_stream = work.filter(~nw.col("stream_id").is_null()).with_columns(_is_all=_ZERO, _stream=nw.col("stream_id"))
    together = work.with_columns(_is_all=nw.lit(1).cast(_INT), _stream=_ZERO)
    work = nw.concat([frame.drop("stream_id") for frame in (by_stream, together)])
    work = add_latest_end(work, _KEYS, ["ts_ns", "_end_ns", "_launch_ns"]).filter(nw.col("_is_begun"))
    begun = nw.max_horizontal(nw.col("ts_ns"), nw.col("_before_ns"))
    is_open = nw.col("_before_ns") == 0
    work = _split_gaps(work, nw.col("ts_ns")).with_columns(
        work_count=nw.lit(1).cast(_INT),
        busy_ns=nw.when(nw.col("_end_ns") > begun).then(nw.col("_end_ns") - begun).otherwise(_ZERO),
        _open_ns=nw.when(is_open).then(nw.col("ts_ns")),
        _open_launch_ns=nw.when(is_open).then(nw.col("_launch_ns")),
    )
    return work.group_by(*_KEYS).agg(
        *(nw.col(name).sum().cast(_INT) for name in _SUMS),
        *(nw.col(name).max() for name in ("longest_ns", "_open_ns", "_open_launch_ns", "_end_ns")),
        _first_ns=nw.col("ts_ns").min(),
    )


def measure(gaps: Frame, ranks: Frame) -> Frame:
    """Close the gaps between slices, and add up: the parts are gaps, so they sum to the idle time."""
    gaps = add_latest_end(gaps, _KEYS, ["_first_ns"]).rename(
        {name: f"_{name}" for name in (*_SUMS[3:], "longest_ns")} | {"_open_launch_ns": "_launch_ns"}
    )
    gaps = _split_gaps(gaps, nw.col("_open_ns"))
    found = gaps.group_by(*_KEYS).agg(
        *(nw.col(name).sum().cast(_INT) for name in _SUMS[:3]),
        *((nw.col(name) + nw.col(f"_{name}")).sum().cast(_INT).alias(name) for name in _SUMS[3:]),
        longest_ns=nw.max_horizontal(nw.col("longest_ns"), nw.col("_longest_ns")).max(),
        _first_ns=nw.col("_first_ns").min(),
        _last_ns=nw.col("_end_ns").max(),
    )
    number = nw.col("_stream").cast(nw.String)
    found = found.with_columns(stream=nw.when(nw.col("_is_all") == 1).then(nw.lit(ALL)).otherwise(number))
    found = ranks.select("run_id", "rank").unique().join(found, on=["run_id", "rank"], how="left")
    is_seen = ~nw.col("work_count").is_null()
    return select_declared(
        found.with_columns(
            nw.col("device_id", "orphans_count", "work_count").fill_null(0),
            stream=nw.col("stream").fill_null(ALL),
            total_ns=nw.col("_last_ns") - nw.col("_first_ns"),
            idle_ns=nw.col("host_wait_ns") + nw.col("kernel_wait_ns") + nw.col("other_ns"),
            evidence=nw.when(is_seen).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
            reason=join_reasons(
                (~is_seen, "no GPU rows were recorded, so nothing of the GPU can be told"),
                (
                    nw.col("orphans_count") > 0,
                    "some work has no recorded launch: a gap before it may have been waiting for the host",
                ),
            ),
        ),
        TABLE,
    )


def _split_gaps(work: Frame, start: nw.Expr) -> Frame:
    """The gap before each start, if any, as one of the three parts; `_before_ns` is 0 where nothing came before."""
    is_gap = ((nw.col("_before_ns") > 0) & (start > nw.col("_before_ns"))).fill_null(False)
    gap = nw.when(is_gap).then(start - nw.col("_before_ns")).otherwise(_ZERO)
    work = work.with_columns(longest_ns=gap)
    is_host = is_gap & (nw.col("_launch_ns") > nw.col("_before_ns"))
    is_short = is_gap & ~is_host & (nw.col("longest_ns") < CONSECUTIVE_NS)
    is_part = {"host_wait": is_host, "kernel_wait": is_short, "other": is_gap & ~is_host & ~is_short}
    return work.with_columns(
        **{f"{part}_count": to_flag(condition) for part, condition in is_part.items()},
        **{
            f"{part}_ns": nw.when(condition).then(nw.col("longest_ns")).otherwise(_ZERO)
            for part, condition in is_part.items()
        },
    )
