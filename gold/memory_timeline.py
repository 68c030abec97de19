"""One row per device, and one per slice of time: the most memory that was handed out, when and in which step."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any

import narwhals as nw
import pyarrow as pa

from gold.time_slices import bound_slices
from lake.frames import Frame, compute_once, divide_down, to_flag
from lake.tables import RUN_ID, Table, int32, int64, text
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
NOT_RECORDED = "the profiler recorded no allocations (profile_memory=True records them)"
OF_THE_HOST = "of the host only what was handed out while the profiler ran is counted"


def find_peaks(events: Frame) -> Frame:
    """The peaks of each slice, and the first event before or after which the total was that.

    The total before an event is that after it less the block: what a slice begins with is known without earlier ones.
    """
    bounds = bound_slices(events, "ts_ns", "ts_ns")
    events = events.join(compute_once(bounds), on=list(_RANK), how="inner")
    number = divide_down(nw.col("ts_ns") - nw.col("_first_ns"), nw.col("_width_ns"))
    is_given = nw.col("block_bytes") >= 0
    device = nw.concat_str(nw.lit("cuda:"), nw.col("device_id").cast(nw.String))
    before = nw.col("allocated_bytes") - nw.col("block_bytes")
    events = events.with_columns(
        device=nw.when(nw.col("device_type") == "cuda").then(device).otherwise(nw.col("device_type")),
        period_number=number + 1,
        allocations_count=to_flag(is_given),
        frees_count=to_flag(~is_given),
        _allocated=nw.when(is_given).then(nw.col("allocated_bytes")).otherwise(before),
        # The host's allocator reserves nothing.
        _reserved=nw.when(nw.col("device_type") != "cpu").then(nw.col("reserved_bytes")),
    )
    most = events.group_by(*_KEYS).agg(
        *(nw.col(name).sum().cast(_INT) for name in _COUNTS),
        *(nw.col(f"_{level}").max().alias(f"peak_{level}_bytes") for level in LEVELS),
        *(nw.col(name).min() for name in ("_first_ns", "_last_ns", "_width_ns")),
    )
    peaks = most.select(*_KEYS, *(f"peak_{level}_bytes" for level in LEVELS))
    moments = (
        events.join(peaks, on=list(_KEYS), how="inner")
        .group_by(*_KEYS)
        .agg(
            nw.when(nw.col(f"_{level}") == nw.col(f"peak_{level}_bytes"))
            .then(nw.col("ts_ns"))
            .min()
            .alias(f"peak_{level}_ts_ns")
            for level in LEVELS
        )
    )
    return most.join(moments, on=list(_KEYS), how="inner")


def measure(peaks: pa.Table, steps: pa.Table) -> pa.Table:
    """Put the slices of each device together, and name the step of each peak; there are few rows, whatever ran."""
    stepped: dict[int, list[dict[str, Any]]] = {}
    for step in sorted(steps.to_pylist(), key=lambda step: step["ts_ns"]):
        stepped.setdefault(step["rank"], []).append(step)
    devices: dict[tuple[int, str], list[dict[str, Any]]] = {}
    for row in sorted(peaks.to_pylist(), key=lambda row: row["period_number"]):
        devices.setdefault((row["rank"], row["device"]), []).append(row)
    rows = [
        _describe(period, stepped.get(rank, []), device)
        for (rank, device), slices in devices.items()
        for period in (_add_up(slices), *(_place(one) for one in slices))
    ]
    seen = {rank for rank, _ in devices}
    rows += [
        _describe({"run_id": known[0]["run_id"], "rank": rank, "period": "trace", "period_number": 0}, known, NO_DEVICE)
        for rank, known in stepped.items()
        if rank not in seen
    ]
    return pa.Table.from_pylist(rows, schema=TABLE.arrow_schema)


def _place(row: Mapping[str, Any]) -> dict[str, Any]:
    """A slice with its bounds."""
    begun = row["_first_ns"] + (row["period_number"] - 1) * row["_width_ns"]
    return {**row, "period": "slice", "ts_ns": begun, "duration_ns": row["_width_ns"]}


def _add_up(slices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The whole from its slices, in their order: the first of the greatest peaks."""
    whole = dict(slices[0])
    for level in LEVELS:
        names = [f"peak_{level}_bytes", f"peak_{level}_ts_ns"]
        most = max(slices, key=lambda row: -1 if row[names[0]] is None else row[names[0]])
        whole |= {name: most[name] for name in names}
    whole |= {name: sum(row[name] for row in slices) for name in _COUNTS}
    length = whole["_last_ns"] - whole["_first_ns"]
    return whole | {"period": "trace", "period_number": 0, "ts_ns": whole["_first_ns"], "duration_ns": length}


def _describe(period: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], device: str) -> dict[str, Any]:
    """One row of the table; a rank without allocations has the reason alone."""
    is_seen = device != NO_DEVICE
    found = {name: period.get(name) for name in TABLE.column_names}
    found |= {name: period.get(name, 0) for name in _COUNTS}
    found |= {f"peak_{level}_step_number": _find_step(found[f"peak_{level}_ts_ns"], steps) for level in LEVELS}
    return found | {
        "device": device,
        "evidence": "measured" if is_seen else "unobservable",
        "reason": OF_THE_HOST if device == "cpu" else None if is_seen else NOT_RECORDED,
    }


def _find_step(moment: int | None, steps: Sequence[Mapping[str, Any]]) -> int | None:
    """The step that holds a moment: the last that had begun, if it had not ended."""
    if moment is None:
        return None
    place = bisect_right(steps, moment, key=lambda step: step["ts_ns"]) - 1
    if place < 0 or steps[place]["ts_ns"] + steps[place]["duration_ns"] <= moment:
        return None
    number: int = steps[place]["step_number"]
    return number
