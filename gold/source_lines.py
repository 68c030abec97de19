"""One row per kind of call and own line of Python: how often that line copied, waited or launched, and how long."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, compute_once, divide_to_fraction, keep_first, number_rows, select_declared
from lake.tables import RUN_ID, Table, float64, int64, text
from silver.patterns import PATTERNS
from silver.span_context import find_containing
from silver.steps import EVIDENCE

OPERATIONS = ("pageable_copy", "synchronisation", "launch")

TABLE = Table(
    tier="gold",
    name="source_lines",
    grain="One row per run, kind of call and line of the run's own Python; none where no trace has Python frames.",
    key=("operation", "source_sha256", "ordinal"),
    inputs=("silver.spans",),
    columns=(
        RUN_ID,
        text(
            "operation",
            "pageable_copy: the call of a copy from or to pageable memory; synchronisation: a call that waits for the "
            "GPU; launch: of a kernel or a graph.",
            one_of=OPERATIONS,
        ),
        text("source_sha256", "The trace that shows the line, by the digest of its bytes as they landed."),
        int64(
            "ordinal",
            "Place in that trace of the line's first frame: the sealed `label` of that row of silver.spans names it, "
            "`file.py(12): function`, where 12 is the line at which the function begins.",
            minimum=0,
        ),
        int64("calls_count", "Calls during such a frame and during no frame of their own within it.", minimum=1),
        int64("ranks_count", "Ranks that made any.", minimum=1),
        int64("total_ns", "Time of those calls on the host.", minimum=0),
        float64(
            "share_fraction",
            "Their share of the run's time of such calls, those of no line included.",
            nullable=True,
            minimum=0,
            maximum=1,
        ),
        int64("payload_bytes", "Bytes that they copied; null for calls that copy nothing.", nullable=True, minimum=0),
        text("evidence", "Where the numbers come from.", one_of=EVIDENCE),
    ),
)
_THREAD = ["run_id", "rank", "source_sha256", "_thread"]
_LINE = ["run_id", "operation", "label"]
_INT = nw.Int64


def measure(spans: Frame) -> Frame:
    """A call is of the innermost own frame of its thread: frames of libraries in between say not what to change."""
    spans = spans.with_columns(_thread=nw.col("thread_id").fill_null(""))
    calls = _select_calls(spans)
    frames = spans.filter(PATTERNS.has_pattern("pattern", "python_line"), nw.col("duration_ns") > 0)
    frames = compute_once(frames.select(*_THREAD, "ordinal", "ts_ns", "duration_ns", "label"))
    # Only threads that recorded frames: most runs have none, and their calls are not to be held.
    framed = compute_once(calls.join(frames.select(*_THREAD).unique(), on=_THREAD, how="semi"))
    placed = compute_once(_place_calls(framed, frames))
    sums = placed.group_by(*_LINE).agg(
        calls_count=nw.len().cast(_INT),
        ranks_count=nw.col("rank").n_unique().cast(_INT),
        total_ns=nw.col("_call_ns").sum().cast(_INT),
        payload_bytes=nw.col("payload_bytes").sum().cast(_INT),
    )
    first = keep_first(placed, _LINE, ["source_sha256", "_frame_ordinal"])
    first = first.select(*_LINE, "source_sha256", ordinal=nw.col("_frame_ordinal"))
    whole = calls.group_by("run_id", "operation").agg(_whole_ns=nw.col("_call_ns").sum().cast(_INT))
    found = sums.join(first, on=_LINE, how="inner").join(whole, on=["run_id", "operation"], how="inner")
    return select_declared(
        found.with_columns(
            share_fraction=divide_to_fraction(nw.col("total_ns"), nw.col("_whole_ns")),
            payload_bytes=nw.when(nw.col("operation") == "pageable_copy").then(nw.col("payload_bytes")),
            evidence=nw.lit("measured"),
        ),
        TABLE,
    )


def _select_calls(spans: Frame) -> Frame:
    """Calls that launch, that wait, and that start a copy whose memory is pageable."""
    started = ["run_id", "rank", "correlation_id", "ts_ns"]
    calls = spans.filter(~nw.col("is_gpu")).select(
        *_THREAD, "pattern", "correlation_id", "ts_ns", _call_ns=nw.col("duration_ns")
    )
    none = nw.lit(None).cast(_INT)
    kinds = {"synchronisation": "sync_call", "launch": "launch_call"}
    plain = [
        calls.filter(PATTERNS.has_pattern("pattern", pattern)).with_columns(
            operation=nw.lit(operation), payload_bytes=none
        )
        for operation, pattern in kinds.items()
    ]
    copies = spans.filter(nw.col("is_gpu"), nw.col("kind") == "copy", nw.col("memory") == "pageable").select(
        "run_id", "rank", "correlation_id", "payload_bytes", ts_ns=nw.col("launch_ts_ns")
    )
    copying = calls.filter(PATTERNS.has_pattern("pattern", "copy_call", "blocking_copy_call"))
    copying = copying.join(copies, on=started, how="inner").with_columns(operation=nw.lit("pageable_copy"))
    columns = [*_THREAD, "ts_ns", "_call_ns", "operation", "payload_bytes"]
    return nw.concat([part.select(columns) for part in (*plain, copying)])


def _place_calls(calls: Frame, frames: Frame) -> Frame:
    """Give each call its innermost frame: the last that began as deep as the call lies, where that has not ended."""
    zero = nw.lit(0).cast(_INT)
    ends = frames.select(
        *_THREAD, "ordinal", _at_ns=nw.col("ts_ns") + nw.col("duration_ns"), _turn=zero, _short=zero, _change=zero - 1
    )
    # Of frames that begin at once the longest is the outermost.
    starts = frames.select(
        *_THREAD, "ordinal", _at_ns=nw.col("ts_ns"), _turn=zero + 1, _short=-nw.col("duration_ns"), _change=zero + 1
    )
    numbered = number_rows(calls, "ordinal", _THREAD, ["ts_ns", "operation", "_call_ns"])
    asked = numbered.select(*_THREAD, "ordinal", _at_ns=nw.col("ts_ns"), _turn=zero + 2, _short=zero, _change=zero)
    order = ["_at_ns", "_turn", "_short", "ordinal"]
    depths = nw.concat([ends, starts, asked]).with_columns(
        _depth=nw.col("_change").cum_sum().over(*_THREAD, order_by=order).cast(_INT)
    )
    on, keys = [*_THREAD, "ordinal"], [*_THREAD, "_depth"]
    deep = frames.join(depths.filter(nw.col("_turn") == 1).select(*on, "_depth"), on=on, how="inner")
    deep = compute_once(number_rows(deep, "_frame", keys, ["ts_ns", "ordinal"]))
    deep = deep.with_columns(_frame_ordinal=nw.col("ordinal"))
    held = numbered.join(depths.filter(nw.col("_turn") == 2).select(*on, "_depth"), on=on, how="inner")
    held = held.filter(nw.col("_depth") > 0).drop("ordinal")
    placed = find_containing(compute_once(held), deep, keys, "_frame", "label", "_frame_ordinal")
    return placed.filter(~nw.col("_frame_ordinal").is_null())
