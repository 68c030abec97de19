"""One row per kind of copy on a rank, and one per slice of time: how many bytes it moved, and how fast while it did."""

from __future__ import annotations

import narwhals as nw

from gold.memory_timeline import PERIODS
from gold.operation_costs import MOST_BYTES
from gold.time_slices import bound_slices
from lake.frames import (
    Frame,
    Moment,
    add_latest_end,
    divide_down,
    divide_to_fraction,
    join_reasons,
    select_declared,
    to_flag,
)
from lake.tables import RUN_ID, Table, float64, int32, int64, text
from silver.spans import DIRECTIONS
from silver.steps import EVIDENCE

MEMSET, UNKNOWN, NONE = "memset", "unknown", "none"
KINDS = (*DIRECTIONS, MEMSET, UNKNOWN, NONE)

TABLE = Table(
    tier="gold",
    name="copy_bandwidth",
    grain="One row per rank, GPU, kind of copy and slice of time in which one began, and one for the whole trace.",
    key=("rank", "device_id", "copy_kind", "period", "period_number"),
    inputs=("silver.spans", "silver.steps"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        int64("device_id", "GPU on which the copies ran, 0 where the source names none."),
        text(
            "copy_kind",
            "Where the copies went, or memset; unknown where CC hides it; none where a rank recorded no copy.",
            one_of=KINDS,
        ),
        text("period", "The whole trace, or one of at most 100 equal slices of the rank's time.", one_of=PERIODS),
        int64("period_number", "Place of the slice, from 1; 0 for the whole.", minimum=0),
        int64("ts_ns", "Its start, UTC: of the whole the first copy or memset.", nullable=True, minimum=1),
        int64("duration_ns", "Its length: of the whole to the last start.", nullable=True, minimum=0),
        int64("copies_count", "Copies that began in it.", minimum=0),
        int64("unsized_count", "Those of them whose size was not recorded.", minimum=0),
        int64("payload_bytes", "Bytes that they moved.", nullable=True, minimum=0),
        int64("busy_ns", "Time during which any of them ran, to their ends.", nullable=True, minimum=0),
        float64("bytes_per_second", "Those bytes over that time, where every size is known.", nullable=True, minimum=0),
        text("evidence", "Whether copies were observed.", one_of=EVIDENCE),
        text("reason", "What could not be seen, as sentences.", nullable=True),
    ),
)
_INT = nw.Int64
_ZERO = nw.lit(0).cast(_INT)
_RANK = ("run_id", "rank")
_KEYS = (*_RANK, "device_id", "copy_kind", "period_number")
_SUMS = ("copies_count", "unsized_count", "payload_bytes", "busy_ns")


def find_copy_times(spans: Frame) -> Frame:
    """When the first and the last copy of each rank began, and how long a slice between them is."""
    return bound_slices(_select_copies(spans), "ts_ns", "ts_ns")


def sum_copies(spans: Frame, times: Frame, low_ns: Moment, high_ns: Moment) -> Frame:
    """Bytes and busy time of the copies that start in this chunk of time, for the whole and for each slice.

    Each copy is busy from where those of its slice that began before it have ended.
    """
    end = nw.col("ts_ns") + nw.col("duration_ns")
    reaching = spans.filter(nw.col("ts_ns") < high_ns, (nw.col("ts_ns") >= low_ns) | (end > low_ns))
    size = nw.col("payload_bytes")
    is_known = ((size >= 0) & (size <= MOST_BYTES)).fill_null(False)
    kind = nw.when(nw.col("kind") == MEMSET).then(nw.lit(MEMSET)).otherwise(nw.col("direction").fill_null(UNKNOWN))
    copies = _select_copies(reaching).join(times, on=list(_RANK), how="inner")
    copies = copies.select(
        *(*_RANK, "ts_ns"),
        device_id=nw.col("device_id").fill_null(0),
        copy_kind=kind,
        period_number=divide_down(nw.col("ts_ns") - nw.col("_first_ns"), nw.col("_width_ns")) + 1,
        payload_bytes=nw.when(is_known).then(size).otherwise(_ZERO),
        unsized_count=to_flag(~is_known),
        copies_count=nw.lit(1).cast(_INT),
        _end_ns=end,
        _is_begun=nw.col("ts_ns") >= low_ns,
    )
    copies = nw.concat([copies, copies.with_columns(period_number=_ZERO).select(copies.collect_schema().names())])
    copies = add_latest_end(copies, _KEYS, ["ts_ns", "_end_ns"]).filter(nw.col("_is_begun"))
    begun = nw.max_horizontal(nw.col("ts_ns"), nw.col("_before_ns"))
    busy = nw.when(nw.col("_end_ns") > begun).then(nw.col("_end_ns") - begun).otherwise(_ZERO)
    return copies.with_columns(busy_ns=busy).group_by(*_KEYS).agg(nw.col(name).sum().cast(_INT) for name in _SUMS)


def measure(sums: Frame, times: Frame, ranks: Frame) -> Frame:
    """Add up what chunks of time found; a rate is of the time during which something moved, not of the slice."""
    found = sums.group_by(*_KEYS).agg(nw.col(name).sum().cast(_INT) for name in _SUMS)
    found = found.join(times, on=list(_RANK), how="inner")
    found = ranks.select(*_RANK).unique().join(found, on=list(_RANK), how="left")
    number, is_seen = nw.col("period_number"), ~nw.col("copies_count").is_null()
    is_slice = (number > 0).fill_null(False)
    is_sized = nw.col("unsized_count") == 0
    length = nw.col("_last_ns") - nw.col("_first_ns")
    return select_declared(
        found.with_columns(
            nw.col("device_id", "period_number", "copies_count", "unsized_count").fill_null(0),
            copy_kind=nw.col("copy_kind").fill_null(NONE),
            period=nw.when(is_slice).then(nw.lit("slice")).otherwise(nw.lit("trace")),
            ts_ns=nw.col("_first_ns") + nw.when(is_slice).then((number - 1) * nw.col("_width_ns")).otherwise(_ZERO),
            duration_ns=nw.when(is_slice).then(nw.col("_width_ns")).otherwise(length),
            bytes_per_second=nw.when(is_sized).then(divide_to_fraction(nw.col("payload_bytes"), nw.col("busy_ns")))
            * 1e9,
            evidence=nw.when(is_seen).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
            reason=join_reasons(
                (~is_seen, "no copies of the GPU were recorded"),
                (~is_sized, "the size of some copies was not recorded: their bytes are missing, and there is no rate"),
            ),
        ),
        TABLE,
    )


def _select_copies(spans: Frame) -> Frame:
    return spans.filter(nw.col("is_gpu"), nw.col("kind").is_in(["copy", MEMSET]))
