"""One row per stream, and one per GPU: how much work that the host had launched was waiting to start, and when most."""

from __future__ import annotations

import narwhals as nw

from gold.idle_breakdown import ALL
from lake.frames import Frame, Moment, divide_to_fraction, join_reasons, select_declared, to_flag
from lake.tables import RUN_ID, Table, float64, int32, int64, text
from silver.steps import EVIDENCE

PERCENTS = (50, 95, 99)

TABLE = Table(
    tier="gold",
    name="queue_length",
    grain="One row per rank, GPU and stream, and one per GPU over all of its streams.",
    key=("rank", "device_id", "stream"),
    inputs=("silver.spans", "silver.steps"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        int64("device_id", "GPU on which the work ran, 0 where the source names none."),
        text("stream", "Number of the stream; all: the GPU with all of its streams."),
        int64("queued_count", "Kernels, copies and memsets that waited from their launch to their start.", minimum=0),
        int64("unqueued_count", "Others: without a recorded launch, or begun before it.", minimum=0),
        int64("total_ns", "From the first launch to the last start.", nullable=True, minimum=0),
        int64("queued_ns", "What all of them waited, summed.", nullable=True, minimum=0),
        float64("mean_length", "That over the whole time: the mean length of the queue.", nullable=True, minimum=0),
        int64("peak_length", "The greatest length that lasted, as HTA counts it.", nullable=True, minimum=0),
        int64("peak_ts_ns", "When it was first reached, UTC, as the rank's own clock says.", nullable=True, minimum=1),
        *(
            int64(
                f"p{percent}_length", f"Length that is not exceeded {percent} % of the time.", nullable=True, minimum=0
            )
            for percent in PERCENTS
        ),
        float64("empty_fraction", "Part of the time during which nothing waited.", nullable=True, minimum=0, maximum=1),
        text("evidence", "Whether launches and their work were observed.", one_of=EVIDENCE),
        text("reason", "What could not be seen, as sentences.", nullable=True),
    ),
)
_INT = nw.Int64
_ZERO = nw.lit(0).cast(_INT)
_ONE = nw.lit(1).cast(_INT)
_KEYS = ("run_id", "rank", "device_id", "_is_all", "_stream")
_OF_SLICE = ("queued_count", "unqueued_count", "_change", "_first_ns", "_last_ns")


def count_queued(spans: Frame, low_ns: Moment, high_ns: Moment) -> Frame:
    """How long each length lasted within a slice of time, counted from the unknown one with which the slice begins.

    The length grows by one where a launch begins and falls by one where its work starts; changes at one moment are one.
    """
    started, launched = ((nw.col(name) >= low_ns) & (nw.col(name) < high_ns) for name in ("ts_ns", "launch_ts_ns"))
    work = spans.filter(nw.col("is_gpu"), started | launched.fill_null(False)).select(
        *("run_id", "rank", "ts_ns", "launch_ts_ns", "stream_id"),
        device_id=nw.col("device_id").fill_null(0),
        _is_started=started,
        _is_launched=launched.fill_null(False),
    )
    by_stream = work.filter(~nw.col("stream_id").is_null()).with_columns(_is_all=_ZERO, _stream=nw.col("stream_id"))
    work = nw.concat([one.drop("stream_id") for one in (by_stream, work.with_columns(_is_all=_ONE, _stream=_ZERO))])
    is_queued = (nw.col("launch_ts_ns") <= nw.col("ts_ns")).fill_null(False)
    start = work.filter(nw.col("_is_started")).with_columns(
        _at_ns=nw.col("ts_ns"),
        queued_count=to_flag(is_queued),
        unqueued_count=to_flag(~is_queued),
        _change=nw.when(is_queued).then(_ONE * -1).otherwise(_ZERO),
    )
    launch = work.filter(is_queued, nw.col("_is_launched")).with_columns(
        _at_ns=nw.col("launch_ts_ns"), queued_count=_ZERO, unqueued_count=_ZERO, _change=_ONE
    )
    sums = ("queued_count", "unqueued_count", "_change")
    changes = nw.concat([one.select(*_KEYS, "_at_ns", *sums) for one in (start, launch)])
    changes = changes.group_by(*_KEYS, "_at_ns").agg(*(nw.col(name).sum().cast(_INT) for name in sums))
    changes = changes.with_columns(
        _length=nw.col("_change").cum_sum().over(*_KEYS, order_by="_at_ns").cast(_INT),
        _next_ns=nw.col("_at_ns").shift(-1).over(*_KEYS, order_by="_at_ns"),
        _first_ns=nw.col("_at_ns").min().over(*_KEYS),
        _last_ns=nw.col("_at_ns").max().over(*_KEYS),
    )
    # Each length of a slice is a row; what is of the whole slice is of its rows together.
    return (
        changes.with_columns(_lasted_ns=(nw.col("_next_ns") - nw.col("_at_ns")).fill_null(0))
        .group_by(*_KEYS, "_length")
        .agg(
            *(nw.col(name).sum().cast(_INT) for name in (*sums, "_lasted_ns")),
            *(nw.col(name).max() for name in ("_first_ns", "_last_ns")),
            _at_ns=nw.when(nw.col("_lasted_ns") > 0).then(nw.col("_at_ns")).min(),
        )
    )


def measure(counted: Frame, ranks: Frame) -> Frame:
    """Give every slice the length with which it begins, and weigh each length by the time that it lasted."""
    slices = counted.group_by(*_KEYS, "_first_ns", "_last_ns").agg(
        *(nw.col(name).sum().cast(_INT) for name in _OF_SLICE[:3])
    )
    slices = slices.with_columns(
        _after=nw.col("_change").cum_sum().over(*_KEYS, order_by="_first_ns").cast(_INT),
        _next_ns=nw.col("_first_ns").shift(-1).over(*_KEYS, order_by="_first_ns"),
    )
    between = slices.filter(~nw.col("_next_ns").is_null()).select(
        *_KEYS, _length=nw.col("_after"), _lasted_ns=nw.col("_next_ns") - nw.col("_last_ns"), _at_ns=nw.col("_last_ns")
    )
    begun = slices.select(*_KEYS, "_first_ns", _before=nw.col("_after") - nw.col("_change"))
    within = counted.join(begun, on=[*_KEYS, "_first_ns"], how="inner").select(
        *_KEYS, "_lasted_ns", "_at_ns", _length=nw.col("_length") + nw.col("_before")
    )
    columns = (*_KEYS, "_length", "_lasted_ns", "_at_ns")
    lengths = nw.concat([one.select(*columns) for one in (within, between)]).filter(nw.col("_lasted_ns") > 0)
    lengths = lengths.group_by(*_KEYS, "_length").agg(nw.col("_lasted_ns").sum().cast(_INT), nw.col("_at_ns").min())
    sums = slices.group_by(*_KEYS).agg(
        *(nw.col(name).sum().cast(_INT) for name in _OF_SLICE[:2]),
        total_ns=(nw.col("_last_ns").max() - nw.col("_first_ns").min()).cast(_INT),
    )
    found = sums.join(_weigh_lengths(lengths), on=list(_KEYS), how="left")
    number = nw.col("_stream").cast(nw.String)
    found = found.with_columns(stream=nw.when(nw.col("_is_all") == 1).then(nw.lit(ALL)).otherwise(number))
    found = ranks.select("run_id", "rank").unique().join(found, on=["run_id", "rank"], how="left")
    return select_declared(_add_evidence(found), TABLE)


def _weigh_lengths(lengths: Frame) -> Frame:
    """Peak, percentiles and sums of each queue, by time."""
    lengths = lengths.with_columns(
        _upto=nw.col("_lasted_ns").cum_sum().over(*_KEYS, order_by="_length").cast(_INT),
        _all=nw.col("_lasted_ns").sum().over(*_KEYS).cast(_INT),
        _most=nw.col("_length").max().over(*_KEYS),
        queued_ns=nw.col("_length") * nw.col("_lasted_ns"),
    )
    before, length = nw.col("_upto") - nw.col("_lasted_ns"), nw.col("_length")
    return (
        lengths.with_columns(
            **{
                f"p{percent}_length": nw.when(
                    (nw.col("_upto") * 100 >= nw.col("_all") * percent) & (before * 100 < nw.col("_all") * percent)
                ).then(length)
                for percent in PERCENTS
            },
            peak_ts_ns=nw.when(length == nw.col("_most")).then(nw.col("_at_ns")),
            _empty_ns=nw.when(length == 0).then(nw.col("_lasted_ns")).otherwise(_ZERO),
        )
        .group_by(*_KEYS)
        .agg(
            *(nw.col(f"p{percent}_length").max() for percent in PERCENTS),
            *(nw.col(name).sum().cast(_INT) for name in ("queued_ns", "_empty_ns")),
            peak_length=nw.col("_most").max(),
            peak_ts_ns=nw.col("peak_ts_ns").min(),
        )
    )


def _add_evidence(found: Frame) -> Frame:
    """Numbers where work queued, else the reason; a rank without GPU rows was not seen to have an empty queue (R4)."""
    found = found.with_columns(_is_seen=~nw.col("unqueued_count").is_null())
    is_seen, is_queued = nw.col("_is_seen"), (nw.col("queued_count") > 0).fill_null(False)
    names = ("total_ns", "queued_ns", "peak_length", "peak_ts_ns", *(f"p{percent}_length" for percent in PERCENTS))
    found = found.with_columns(
        *(nw.when(is_queued).then(nw.col(name)).alias(name) for name in names),
        nw.col("device_id", "queued_count", "unqueued_count").fill_null(0),
        stream=nw.col("stream").fill_null(ALL),
    )
    return found.with_columns(
        mean_length=divide_to_fraction(nw.col("queued_ns"), nw.col("total_ns")),
        empty_fraction=nw.when(is_queued).then(divide_to_fraction(nw.col("_empty_ns"), nw.col("total_ns"))),
        evidence=nw.when(is_queued).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
        reason=join_reasons(
            (~is_seen, "no GPU rows were recorded, so nothing of the GPU can be told"),
            (is_seen & ~is_queued, "no work has a recorded launch before its start, so none was seen to queue"),
            (
                is_queued & (nw.col("unqueued_count") > 0),
                "some work has no recorded launch, or began before it: it is in no length",
            ),
        ),
    )
