"""One row per frequent sequence of three pieces of GPU work that followed each other on a stream of a rank."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, Moment, divide_to_fraction, join_reasons, number_rows, select_declared, to_expr
from lake.tables import RUN_ID, Table, float64, int32, int64, text
from silver.steps import EVIDENCE

# HolisticTraceAnalysis' `min_pattern_len`, and how many sequences of a rank are kept.
NAMES = ("first_name", "second_name", "third_name")
MOST = 20

TABLE = Table(
    tier="gold",
    name="kernel_sequences",
    grain="One row per rank and place among its 20 most frequent sequences of three; place 0 where it has none.",
    key=("rank", "place_number"),
    inputs=("silver.spans", "silver.steps"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        int64("place_number", "Place by count, then by time, from 1.", minimum=0, maximum=MOST),
        text("first_name", "Name of the kernel, copy or memset that came first; empty where the source gives none."),
        text("second_name", "Name of the next on the same stream."),
        text("third_name", "Name of the one after that."),
        int64("sequences_count", "How often they followed each other so; sequences may share work.", minimum=0),
        int64("total_ns", "Durations of all three, summed over these.", nullable=True, minimum=0),
        float64("share_fraction", "Part of all sequences of the rank.", nullable=True, minimum=0, maximum=1),
        text("evidence", "Whether streams of the GPU were observed.", one_of=EVIDENCE),
        text("reason", "What could not be seen, as sentences.", nullable=True),
    ),
)
_INT = nw.Int64
_RANK = ("run_id", "rank")
_STREAM = (*_RANK, "device_id", "stream_id")
_ORDER = ["ts_ns", "source_sha256", "ordinal"]
_LENGTH = len(NAMES)
_COLUMNS = (*_STREAM, *_ORDER, "_chunk_ns", *NAMES, "sequences_count", "total_ns")


def count_sequences(spans: Frame, low_ns: Moment, high_ns: Moment) -> Frame:
    """The sequences within a chunk of time, and the work at its ends, of which sequences may reach beyond it."""
    work = spans.filter(
        nw.col("is_gpu"), ~nw.col("stream_id").is_null(), nw.col("ts_ns") >= low_ns, nw.col("ts_ns") < high_ns
    ).select(
        *(*_RANK, "stream_id", *_ORDER, "duration_ns"),
        device_id=nw.col("device_id").fill_null(0),
        name=nw.col("name").fill_null(""),
        _chunk_ns=to_expr(low_ns),
    )
    work = number_rows(work, "_place", _STREAM, _ORDER).with_columns(_all=nw.col("ordinal").count().over(*_STREAM))
    edges = work.filter((nw.col("_place") < _LENGTH) | (nw.col("_place") > nw.col("_all") - _LENGTH + 1))
    counted = _join_following(work, "_place")
    nothing = {name: nw.lit(None).cast(nw.String) for name in NAMES[1:]}
    edges = edges.with_columns(
        first_name=nw.col("name"), sequences_count=nw.lit(0).cast(_INT), total_ns=nw.col("duration_ns"), **nothing
    )
    whole = {name: nw.lit(None).cast(_INT) for name in ("device_id", "stream_id", "ts_ns", "ordinal", "_chunk_ns")}
    counted = _sum_sequences(counted).with_columns(**whole, source_sha256=nw.lit(None).cast(nw.String))
    return nw.concat([one.select(*_COLUMNS) for one in (counted, edges)])


def measure(counted: Frame, ranks: Frame) -> Frame:
    """Add the sequences that lie across chunks of time, and keep the most frequent of each rank."""
    edges = counted.filter(nw.col("sequences_count") == 0)
    work = edges.rename({"first_name": "name", "total_ns": "duration_ns"})
    work = number_rows(work.drop(*NAMES[1:], "sequences_count"), "_place", _STREAM, _ORDER)
    across = _join_following(work, "_place", is_across=True)
    sums = ("run_id", "rank", *NAMES, "sequences_count", "total_ns")
    both = nw.concat(
        [counted.filter(nw.col("sequences_count") > 0).select(*sums), _sum_sequences(across).select(*sums)]
    )
    found = both.group_by(*_RANK, *NAMES).agg(nw.col(name).sum().cast(_INT) for name in ("sequences_count", "total_ns"))
    found = found.with_columns(_all=nw.col("sequences_count").sum().over(*_RANK).cast(_INT))
    found = found.with_columns(_less=-nw.col("sequences_count"), _shorter=-nw.col("total_ns"))
    found = number_rows(found, "place_number", _RANK, ["_less", "_shorter", *NAMES])
    found = found.filter(nw.col("place_number") <= MOST)
    found = ranks.select(*_RANK).unique().join(found, on=list(_RANK), how="left")
    is_seen = ~nw.col("place_number").is_null()
    return select_declared(
        found.with_columns(
            nw.col("place_number", "sequences_count").fill_null(0),
            nw.col(*NAMES).fill_null(""),
            share_fraction=divide_to_fraction(nw.col("sequences_count"), nw.col("_all")),
            evidence=nw.when(is_seen).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
            reason=join_reasons((~is_seen, "no stream of a GPU was recorded with three pieces of work")),
        ),
        TABLE,
    )


def _join_following(work: Frame, place: str, *, is_across: bool = False) -> Frame:
    """Give each piece of work the two that follow it on its stream; of ends of chunks only what lies in two of them.

    Three ends that follow each other are neighbours unless they are of one chunk: at most two are of one side of it.
    """
    later = {
        name: [nw.col(name).shift(-step).over(*_STREAM, order_by=place) for step in range(1, _LENGTH)]
        for name in ("name", "duration_ns", "_chunk_ns")
    }
    found = work.with_columns(
        *(one.alias(name) for name, one in zip(NAMES[1:], later["name"], strict=True)),
        first_name=nw.col("name"),
        total_ns=nw.col("duration_ns") + later["duration_ns"][0] + later["duration_ns"][1],
        _last_chunk_ns=later["_chunk_ns"][-1],
    )
    is_whole = ~nw.col(NAMES[-1]).is_null()
    return found.filter(is_whole & (nw.col("_last_chunk_ns") != nw.col("_chunk_ns")) if is_across else is_whole)


def _sum_sequences(found: Frame) -> Frame:
    return found.group_by(*_RANK, *NAMES).agg(
        sequences_count=nw.len().cast(_INT), total_ns=nw.col("total_ns").sum().cast(_INT)
    )
