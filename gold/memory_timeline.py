"""One row per device, and one per slice of time: the most memory that was handed out, when and in which step."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, compute_once, divide_down, join_reasons, select_declared, to_flag
from lake.tables import RUN_ID, Table, int32, int64, text
from silver.span_context import assign_steps
from silver.steps import EVIDENCE

# The time of a rank is cut into so many slices at most, whatever it recorded.
SLICES = 100
PERIODS = ("trace", "slice")
LEVELS = ("allocated", "reserved")
NO_DEVICE = "none"

TABLE = Table(
    tier="gold",
    name="memory_timeline",
    grain="One row per rank, device and slice of time in which memory was handed out or taken back, one for the whole.",
    key=("rank", "device", "period", "period_number"),
    inputs=("silver.memory_events", "silver.steps"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        text("device", "Whose memory, as torch names it: cpu, cuda:0; none where nothing of it was recorded."),
        text("period", "The whole trace, or one of at most 100 equal slices of the rank's time.", one_of=PERIODS),
        int64("period_number", "Place of the slice, from 1; 0 for the whole.", minimum=0),
        int64("ts_ns", "Its start, UTC: of the whole the first event.", nullable=True, minimum=1),
        int64("duration_ns", "Its length.", nullable=True, minimum=0),
        int64("allocations_count", "Blocks handed out.", minimum=0),
        int64("frees_count", "Blocks taken back.", minimum=0),
        *(
            column
            for level, what in zip(
                LEVELS, ("handed out at once", "held by the allocator itself; null of the host"), strict=True
            )
            for column in (
                int64(f"peak_{level}_bytes", f"The most that was {what}.", nullable=True, minimum=0),
                int64(
                    f"peak_{level}_ts_ns",
                    "The period's first event before or after which it was so.",
                    nullable=True,
                    minimum=1,
                ),
                int64(f"peak_{level}_step_number", "The step in which that was, null between steps.", nullable=True),
            )
        ),
        text("evidence", "Whether allocators were observed.", one_of=EVIDENCE),
        text("reason", "What could not be seen, as sentences.", nullable=True),
    ),
)
_INT = nw.Int64
_RANK = ("run_id", "rank")
_KEYS = (*_RANK, "device", "period_number")
_COUNTS = ("allocations_count", "frees_count")
_PEAKS = tuple(f"peak_{level}_{what}" for level in LEVELS for what in ("bytes", "ts_ns"))


def measure(events: Frame, steps: Frame) -> Frame:
    """Read the total before and after each event: the level of a slice is then known without what came earlier."""
    bounds = events.group_by(*_RANK).agg(_first_ns=nw.col("ts_ns").min(), _last_ns=nw.col("ts_ns").max())
    length = nw.col("_last_ns") - nw.col("_first_ns")
    width = divide_down(length, nw.lit(SLICES).cast(_INT)) + 1
    slices = _find_peaks(events.join(compute_once(bounds.with_columns(_width_ns=width)), on=list(_RANK), how="inner"))
    slices = compute_once(slices)
    columns = (*_KEYS, *_COUNTS, *_PEAKS, "ts_ns", "duration_ns", "period")
    periods = (_add_up(slices), slices.with_columns(period=nw.lit("slice")))
    found = nw.concat([one.select(*columns) for one in periods])
    for level in LEVELS:
        found = _assign_step(found, steps, level)
    found = steps.select(*_RANK).unique().join(found, on=list(_RANK), how="left")
    is_seen = ~nw.col("period").is_null()
    is_host = nw.col("device") == "cpu"
    return select_declared(
        found.with_columns(
            nw.col("period_number", *_COUNTS).fill_null(0),
            device=nw.col("device").fill_null(NO_DEVICE),
            period=nw.col("period").fill_null("trace"),
            evidence=nw.when(is_seen).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
            reason=join_reasons(
                (~is_seen, "the profiler recorded no allocations (profile_memory=True records them)"),
                (is_host, "of the host only what was handed out while the profiler ran is counted"),
            ),
        ),
        TABLE,
    )


def _find_peaks(events: Frame) -> Frame:
    """The peaks of each slice, and the first event before or after which the total was that."""
    number = divide_down(nw.col("ts_ns") - nw.col("_first_ns"), nw.col("_width_ns"))
    is_given = nw.col("block_bytes") >= 0
    device = nw.concat_str(nw.lit("cuda:"), nw.col("device_id").cast(nw.String))
    device = nw.when(nw.col("device_type") == "cuda").then(device).otherwise(nw.col("device_type"))
    before = nw.col("allocated_bytes") - nw.col("block_bytes")
    events = events.with_columns(
        device=device,
        period_number=number + 1,
        _start_ns=nw.col("_first_ns") + number * nw.col("_width_ns"),
        allocations_count=to_flag(is_given),
        frees_count=to_flag(~is_given),
        _allocated=nw.when(is_given).then(nw.col("allocated_bytes")).otherwise(before),
        # The host's allocator reserves nothing.
        _reserved=nw.when(nw.col("device_type") != "cpu").then(nw.col("reserved_bytes")),
    )
    most = events.group_by(*_KEYS).agg(
        *(nw.col(name).sum().cast(_INT) for name in _COUNTS),
        *(nw.col(f"_{level}").max().alias(f"peak_{level}_bytes") for level in LEVELS),
        *(nw.col(name).min() for name in ("_first_ns", "_last_ns", "_width_ns", "_start_ns")),
    )
    reached = events.join(
        most.select(*_KEYS, *(f"peak_{level}_bytes" for level in LEVELS)), on=list(_KEYS), how="inner"
    )
    moments = reached.group_by(*_KEYS).agg(
        nw.when(nw.col(f"_{level}") == nw.col(f"peak_{level}_bytes"))
        .then(nw.col("ts_ns"))
        .min()
        .alias(f"peak_{level}_ts_ns")
        for level in LEVELS
    )
    found = most.join(moments, on=list(_KEYS), how="inner")
    return found.rename({"_start_ns": "ts_ns", "_width_ns": "duration_ns"})


def _add_up(slices: Frame) -> Frame:
    """The whole from its slices: the greatest of their peaks, and the first moment at which one was that."""
    keys = [*_RANK, "device"]
    slices = slices.with_columns(nw.col(f"peak_{level}_bytes").max().over(*keys).alias(f"_{level}") for level in LEVELS)
    found = slices.group_by(*keys).agg(
        *(nw.col(name).sum().cast(_INT) for name in _COUNTS),
        *(nw.col(f"_{level}").max().alias(f"peak_{level}_bytes") for level in LEVELS),
        *(
            nw.when(nw.col(f"peak_{level}_bytes") == nw.col(f"_{level}"))
            .then(nw.col(f"peak_{level}_ts_ns"))
            .min()
            .alias(f"peak_{level}_ts_ns")
            for level in LEVELS
        ),
        ts_ns=nw.col("_first_ns").min(),
        _last_ns=nw.col("_last_ns").max(),
    )
    return found.with_columns(
        duration_ns=nw.col("_last_ns") - nw.col("ts_ns"),
        period_number=nw.lit(0).cast(_INT),
        period=nw.lit("trace"),
    )


def _assign_step(found: Frame, steps: Frame, level: str) -> Frame:
    """The step that holds the moment of a peak."""
    placed = assign_steps(found.rename({"ts_ns": "_ts_ns", f"peak_{level}_ts_ns": "ts_ns"}), steps)
    return placed.rename(
        {"ts_ns": f"peak_{level}_ts_ns", "_ts_ns": "ts_ns", "step_number": f"peak_{level}_step_number"}
    )
