"""One row per slice of a rank's time: how much work that the host had launched was waiting to start, on the mean."""

from __future__ import annotations

import narwhals as nw

from gold.time_slices import bound_slices
from lake.frames import Frame, Moment, divide_down, divide_to_fraction, join_reasons, select_declared
from lake.tables import RUN_ID, Table, float64, int32, int64, text
from silver.steps import EVIDENCE

TABLE = Table(
    tier="gold",
    name="queue_timeline",
    grain="One row per rank, GPU and slice of time in which work was launched or started; it lasts to the next such.",
    key=("rank", "device_id", "period_number"),
    inputs=("silver.spans", "silver.steps"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        int64("device_id", "GPU on which the work ran, 0 where the source names none."),
        int64(
            "period_number",
            "Place among at most 100 equal slices of the rank's time, from 1; 0 where nothing was seen to wait.",
            minimum=0,
        ),
        int64("ts_ns", "Start of the slice, UTC: of the first the first launch.", nullable=True, minimum=1),
        int64("duration_ns", "From there to the next slice that has a row.", nullable=True, minimum=1),
        int64("launched_count", "Kernels, copies and memsets whose wait began in it.", minimum=0),
        int64("started_count", "Those whose wait ended in it.", minimum=0),
        int64("waiting_count", "Those that waited at its end.", nullable=True, minimum=0),
        int64("queued_ns", "What any of them waited within it, summed.", nullable=True, minimum=0),
        float64("mean_length", "That over its duration: the mean length of the queue.", nullable=True, minimum=0),
        text("evidence", "Whether launches and their work were observed.", one_of=EVIDENCE),
        text("reason", "What could not be seen, as a sentence.", nullable=True),
    ),
)
_INT = nw.Int64
_ZERO = nw.lit(0).cast(_INT)
_ONE = nw.lit(1).cast(_INT)
_RANK = ("run_id", "rank")
_QUEUE = (*_RANK, "device_id")
_SUMS = ("launched_count", "started_count", "_waited_ns")


def find_queue_times(spans: Frame) -> Frame:
    """When the first wait of each rank began and the last one ended, and how long a slice between them is."""
    return bound_slices(_select_waits(spans), "launch_ts_ns", "ts_ns")


def sum_waits(spans: Frame, times: Frame, low_ns: Moment, high_ns: Moment) -> Frame:
    """The waits that begin and those that end in this chunk of time, by slices, each with its place in its slice."""
    begun, ended = ((nw.col(name) >= low_ns) & (nw.col(name) < high_ns) for name in ("launch_ts_ns", "ts_ns"))
    waits = _select_waits(spans).filter(begun | ended).join(times, on=list(_RANK), how="inner")
    waits = waits.with_columns(nw.col("device_id").fill_null(0))
    parts = []
    for name, is_there, sign in (("launch_ts_ns", begun, -1), ("ts_ns", ended, 1)):
        offset = nw.col(name) - nw.col("_first_ns")
        number = divide_down(offset, nw.col("_width_ns"))
        parts.append(
            waits.filter(is_there).select(
                *_QUEUE,
                period_number=number + 1,
                launched_count=_ONE if sign < 0 else _ZERO,
                started_count=_ONE if sign > 0 else _ZERO,
                _waited_ns=(offset - number * nw.col("_width_ns")) * sign,
            )
        )
    changes = nw.concat(parts)
    return changes.group_by(*_QUEUE, "period_number").agg(nw.col(name).sum().cast(_INT) for name in _SUMS)


def measure(sums: Frame, times: Frame, ranks: Frame) -> Frame:
    """Add up what chunks of time found, and follow how many waited from slice to slice."""
    found = sums.group_by(*_QUEUE, "period_number").agg(nw.col(name).sum().cast(_INT) for name in _SUMS)
    found = found.join(times, on=list(_RANK), how="inner")
    number, width = nw.col("period_number"), nw.col("_width_ns")
    found = found.with_columns(
        waiting_count=(nw.col("launched_count") - nw.col("started_count"))
        .cum_sum()
        .over(*_QUEUE, order_by="period_number")
        .cast(_INT),
        _next=nw.col("period_number").shift(-1).over(*_QUEUE, order_by="period_number"),
    )
    found = found.with_columns(_slices=(nw.col("_next") - number).fill_null(1))
    # Who waits at the end waited in the slices without a row too; in its own, less what lay before it began to.
    found = found.with_columns(
        queued_ns=nw.col("waiting_count") * width * nw.col("_slices") + nw.col("_waited_ns"),
        ts_ns=nw.col("_first_ns") + (number - 1) * width,
        duration_ns=width * nw.col("_slices"),
    )
    found = ranks.select(*_RANK).unique().join(found, on=list(_RANK), how="left")
    is_seen = ~nw.col("launched_count").is_null()
    return select_declared(
        found.with_columns(
            nw.col("device_id", "period_number", "launched_count", "started_count").fill_null(0),
            mean_length=divide_to_fraction(nw.col("queued_ns"), nw.col("duration_ns")),
            evidence=nw.when(is_seen).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
            reason=join_reasons(
                (~is_seen, "no work has a recorded launch before its start, so none was seen to queue")
            ),
        ),
        TABLE,
    )


def _select_waits(spans: Frame) -> Frame:
    """Work of a GPU that waited from its launch to its start."""
    return spans.filter(nw.col("is_gpu"), (nw.col("launch_ts_ns") <= nw.col("ts_ns")).fill_null(False))
