"""One row per kind of call or copy in a run: what one of them takes, once the first is over."""

from __future__ import annotations

import narwhals as nw

from gold.percentiles import count_values, find_medians
from lake.frames import (
    Frame,
    Moment,
    divide_down,
    divide_to_fraction,
    drop_matching,
    join_reasons,
    keep_first,
    select_declared,
    to_flag,
)
from lake.tables import RUN_ID, Table, float64, int64, text
from silver.spans import DIRECTIONS, MEMORIES
from silver.spans import TABLE as SPANS
from silver.steps import EVIDENCE

TOO_FEW = "fewer than 9 have no interval"
OPERATIONS = ("call", "copy", "copy_call", "first_call")
NONE, UNKNOWN = "none", "unknown"
_KIB = 1024
# Copies are compared with copies of their size: a small one costs its setup, a large one its bytes.
SIZES = {
    "up to 4 KiB": 4 * _KIB,
    "up to 64 KiB": 64 * _KIB,
    "up to 1 MiB": _KIB**2,
    "up to 16 MiB": 16 * _KIB**2,
    "up to 256 MiB": 256 * _KIB**2,
}
_LARGEST = "over 256 MiB"

TABLE = Table(
    tier="gold",
    name="operation_costs",
    grain="One row per run and kind of operation: a call of the CUDA API, or copies of one direction, memory and size.",
    key=("operation", "name", "direction", "memory", "size_class"),
    inputs=("silver.spans", "silver.steps"),
    columns=(
        RUN_ID,
        text(
            "operation",
            "call: of the CUDA API, on the host, but for the first of its name on each rank; copy: on the GPU's own "
            "track; copy_call: the call of such a copy, which under CC also seals it on the host, but for that first; "
            "first_call: that first, which may set up the GPU and is no part of the steady state (R7).",
            one_of=OPERATIONS,
        ),
        text("name", "Name of the call; empty for copies."),
        text("direction", "Where a copy really went.", one_of=(*DIRECTIONS, UNKNOWN, NONE)),
        text("memory", "Host memory of a copy.", one_of=(*MEMORIES, UNKNOWN, NONE)),
        text("size_class", "Size of a copy.", one_of=(*SIZES, _LARGEST, UNKNOWN, NONE)),
        int64("operations_count", "How many.", minimum=1),
        int64("median_ns", "Median duration: the observed one at rank ceil(n / 2).", minimum=0),
        int64(
            "median_low_ns",
            "Observed duration below which the true median lies with at most 1.25 %; null below 9 operations.",
            nullable=True,
            minimum=0,
        ),
        int64("median_high_ns", "The same above.", nullable=True, minimum=0),
        int64("total_ns", "Time of all of them.", minimum=0),
        int64("steps_count", "Ranks times steps outside warm-up.", minimum=0),
        int64(
            "step_total_ns",
            "Time of those that began in a step outside warm-up, per rank and step, rounded down; a copy is of its "
            "call's step. Null without steps.",
            nullable=True,
            minimum=0,
        ),
        int64("payload_bytes", "Bytes of all; null for calls and where one is unknown.", nullable=True, minimum=0),
        float64("bytes_per_second", "Those bytes over that time.", nullable=True, minimum=0),
        text("evidence", "Where the numbers come from.", one_of=EVIDENCE),
        text("reason", "What the numbers do not say, as sentences.", nullable=True),
    ),
)
_KEYS = ("run_id", *TABLE.key)
_CALLS = ("cuda_runtime", "cuda_driver")
_SUMS = ("_bytes", "_known", "_queued", "_stepped_ns")
MOST_BYTES = 1 << 40
_NAMED = ("run_id", "rank", "name")
_INT = nw.Int64


def measure(counted: Frame, steps: Frame, first: Frame) -> Frame:
    """Time a copy on the GPU and its call on the host apart: under CC the seal is paid in the call, which may queue.

    `counted` are the operations of all slices of time, `first` those of `find_first_calls`.
    """
    work = nw.concat([counted, _count_operations(_describe_calls(first, "first_call"), steps)])
    found = find_medians(work, _KEYS, "duration_ns", _SUMS)
    cells = steps.filter(~nw.col("is_warmup")).group_by("run_id").agg(steps_count=nw.len().cast(_INT))
    found = found.join(cells, on="run_id", how="left").with_columns(nw.col("steps_count").fill_null(0))
    is_stepped = nw.col("steps_count") > 0
    divisor = nw.when(is_stepped).then(nw.col("steps_count")).otherwise(nw.lit(1).cast(_INT))
    found = found.with_columns(step_total_ns=nw.when(is_stepped).then(divide_down(nw.col("_stepped_ns"), divisor)))
    is_whole = nw.col("_known") == nw.col("operations_count")
    found = found.with_columns(payload_bytes=nw.when(is_whole).then(nw.col("_bytes")))
    is_queued = nw.col("_queued") > 0
    is_few = nw.col("median_low_ns").is_null()
    is_call = nw.col("operation") == "copy_call"
    return select_declared(
        found.with_columns(
            bytes_per_second=divide_to_fraction(nw.col("payload_bytes"), nw.col("total_ns")) * 1e9,
            evidence=nw.lit("measured"),
            reason=join_reasons(
                (is_queued, "under CC such a call holds queued work: it is not the time of a copy"),
                (is_call, "the call may have waited for work that was queued before it"),
                (is_few, TOO_FEW),
            ),
        ),
        TABLE,
    )


def find_first_calls(spans: Frame) -> Frame:
    """The first call of each name on each rank, which may set up the GPU: it stands apart from all that follow."""
    calls = _select_named_calls(spans)
    return keep_first(calls, _NAMED, ["ts_ns", *SPANS.key])


def _select_named_calls(spans: Frame) -> Frame:
    calls = spans.filter(nw.col("category").is_in(_CALLS)).with_columns(name=nw.col("name").fill_null(""))
    return calls.select(
        *_NAMED, *SPANS.key, "ts_ns", "duration_ns", "has_queued_work", "correlation_id", _step=nw.col("step_number")
    )


def _select_calls(spans: Frame, first: Frame) -> Frame:
    """Calls after the first of their name on each rank."""
    return _describe_calls(drop_matching(_select_named_calls(spans), first, _NAMED, SPANS.key), "call")


def _describe_calls(calls: Frame, operation: str) -> Frame:
    none = nw.lit(NONE)
    return calls.with_columns(
        operation=nw.lit(operation),
        direction=none,
        memory=none,
        size_class=none,
        _bytes=nw.lit(None).cast(_INT),
        _queued=nw.when(nw.col("has_queued_work")).then(nw.lit(1).cast(_INT)).otherwise(nw.lit(0).cast(_INT)),
    )


def _select_copies(spans: Frame) -> Frame:
    """Copies on the GPU's track, by where they really went, by their memory and by their size."""
    copies = spans.filter(nw.col("is_gpu"), nw.col("kind") == "copy")
    size = nw.col("payload_bytes")
    is_known = ((size >= 0) & (size <= MOST_BYTES)).fill_null(False)
    named = nw.lit(_LARGEST)
    for name, most in reversed(SIZES.items()):
        named = nw.when(size <= most).then(nw.lit(name)).otherwise(named)
    return copies.with_columns(
        operation=nw.lit("copy"),
        name=nw.lit(""),
        direction=nw.col("direction").fill_null(UNKNOWN),
        memory=nw.col("memory").fill_null(UNKNOWN),
        size_class=nw.when(is_known).then(named).otherwise(nw.lit(UNKNOWN)),
        _bytes=nw.when(is_known).then(size),
        _queued=nw.lit(0).cast(_INT),
        _step=nw.coalesce(nw.col("launch_step_number"), nw.col("step_number")),
    )


def count_operations(spans: Frame, steps: Frame, first: Frame, low_ns: Moment, high_ns: Moment) -> Frame:
    """The calls, the copies and the calls of copies that began within a slice of time."""
    began = spans.filter(nw.col("ts_ns") >= low_ns, nw.col("ts_ns") < high_ns)
    some = (_select_calls(began, first), _select_copies(began), _select_copy_calls(spans, first, low_ns, high_ns))
    return nw.concat([_count_operations(each, steps) for each in some])


def _select_copy_calls(spans: Frame, first: Frame, low_ns: Moment, high_ns: Moment) -> Frame:
    """The calls that started one copy each; a graph that holds several has no time for one.

    What the first call of its name took is no time of a copy either.
    """
    started = nw.col("launch_ts_ns")
    called = _select_copies(spans.filter(started >= low_ns, started < high_ns)).with_columns(
        _together=nw.col("duration_ns").count().over("run_id", "rank", "launch_ts_ns", "correlation_id")
    )
    called = called.filter(nw.col("_together") == 1)
    one_time = first.select("run_id", "rank", "correlation_id", launch_ts_ns=nw.col("ts_ns"), _is_first=nw.lit(True))
    one_time = one_time.filter(~nw.col("correlation_id").is_null())
    called = called.join(one_time, on=["run_id", "rank", "correlation_id", "launch_ts_ns"], how="left")
    called = called.filter(nw.col("_is_first").is_null())
    return called.with_columns(operation=nw.lit("copy_call"), duration_ns=nw.col("launch_duration_ns"))


def _count_operations(work: Frame, steps: Frame) -> Frame:
    """What is left of operations to rank and to sum: steps of warm-up are in no total of a step."""
    steady = steps.filter(~nw.col("is_warmup")).select("run_id", "rank", _step=nw.col("step_number")).unique()
    work = work.join(steady.with_columns(_is_steady=nw.lit(True)), on=["run_id", "rank", "_step"], how="left")
    is_steady = nw.col("_is_steady").fill_null(False)
    known = work.with_columns(
        _known=to_flag(~nw.col("_bytes").is_null()),
        _stepped_ns=nw.when(is_steady).then(nw.col("duration_ns")).otherwise(nw.lit(0).cast(_INT)),
    )
    columns = [*_KEYS, "duration_ns", *_SUMS]
    return count_values(known.select(columns), _KEYS, "duration_ns", _SUMS).select(*columns, "_count")
