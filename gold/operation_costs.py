"""One row per kind of call or copy in a run: what one of them takes, once the first is over."""

from __future__ import annotations

import narwhals as nw

from gold.percentiles import counted, medians
from lake.frames import Frame, firsts, flag, fraction, sentences, shaped, without
from lake.tables import RUN_ID, Table, float64, int64, text
from silver.spans import DIRECTIONS, MEMORIES
from silver.spans import TABLE as SPANS
from silver.steps import EVIDENCE

TOO_FEW = "fewer than 9 have no interval"
OPERATIONS = ("call", "copy", "copy_call")
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
    columns=(
        RUN_ID,
        text(
            "operation",
            "call: of the CUDA API, on the host; copy: on the GPU's own track; copy_call: the call of such a copy, "
            "which under CC also seals it on the host.",
            one_of=OPERATIONS,
        ),
        text("name", "Name of the call; empty for copies."),
        text("direction", "Where a copy really went.", one_of=(*DIRECTIONS, UNKNOWN, NONE)),
        text("memory", "Host memory of a copy.", one_of=(*MEMORIES, UNKNOWN, NONE)),
        text("size_class", "Size of a copy.", one_of=(*SIZES, _LARGEST, UNKNOWN, NONE)),
        int64("operations_count", "How many; of a call without the first on each rank (R7).", minimum=1),
        int64("median_ns", "Median duration: the observed one at rank ceil(n / 2).", minimum=0),
        int64(
            "median_low_ns",
            "Observed duration below which the true median lies with at most 1.25 %; null below 9 operations.",
            nullable=True,
            minimum=0,
        ),
        int64("median_high_ns", "The same above.", nullable=True, minimum=0),
        int64("total_ns", "Time of all of them.", minimum=0),
        int64("payload_bytes", "Bytes of all; null for calls and where one is unknown.", nullable=True, minimum=0),
        float64("bytes_per_second", "Those bytes over that time.", nullable=True, minimum=0),
        text("evidence", "Where the numbers come from.", one_of=EVIDENCE),
        text("reason", "What the numbers do not say, as sentences.", nullable=True),
    ),
)
_KEYS = ("run_id", *TABLE.key)
_CALLS = ("cuda_runtime", "cuda_driver")
_SUMS = ("_bytes", "_known", "_queued")
_MOST_BYTES = 1 << 40
_INT = nw.Int64


def measure(called: Frame, spans: Frame) -> Frame:
    """Time a copy on the GPU and its call on the host apart: under CC the seal is paid in the call, which may queue.

    `called` are the calls of copies of all slices of time.
    """
    work = nw.concat([called, _counted(_calls(spans)), _counted(_copies(spans))])
    found = medians(work, _KEYS, "duration_ns", _SUMS)
    is_whole = nw.col("_known") == nw.col("operations_count")
    found = found.with_columns(payload_bytes=nw.when(is_whole).then(nw.col("_bytes")))
    is_queued = nw.col("_queued") > 0
    is_few = nw.col("median_low_ns").is_null()
    is_call = nw.col("operation") == "copy_call"
    return shaped(
        found.with_columns(
            bytes_per_second=fraction(nw.col("payload_bytes"), nw.col("total_ns")) * 1e9,
            evidence=nw.lit("measured"),
            reason=sentences(
                (is_queued, "under CC such a call holds queued work: it is not the time of a copy"),
                (is_call, "the call may have waited for work that was queued before it"),
                (is_few, TOO_FEW),
            ),
        ),
        TABLE,
    )


def _calls(spans: Frame) -> Frame:
    """Calls after the first of their name on each rank, which may set up the GPU."""
    calls = spans.filter(nw.col("category").is_in(_CALLS)).with_columns(name=nw.col("name").fill_null(""))
    keys = ("run_id", "rank", "name")
    calls = calls.select(*keys, *SPANS.key, "ts_ns", "duration_ns", "has_queued_work")
    none = nw.lit(NONE)
    return without(calls, firsts(calls, keys, ["ts_ns", *SPANS.key]), keys, SPANS.key).with_columns(
        operation=nw.lit("call"),
        direction=none,
        memory=none,
        size_class=none,
        _bytes=nw.lit(None).cast(_INT),
        _queued=nw.when(nw.col("has_queued_work")).then(nw.lit(1).cast(_INT)).otherwise(nw.lit(0).cast(_INT)),
    )


def _copies(spans: Frame) -> Frame:
    """Copies on the GPU's track, by where they really went, by their memory and by their size."""
    copies = spans.filter(nw.col("is_gpu"), nw.col("kind") == "copy")
    size = nw.col("payload_bytes")
    is_known = ((size >= 0) & (size <= _MOST_BYTES)).fill_null(False)
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
    )


def copy_calls(spans: Frame, low_ns: int, high_ns: int) -> Frame:
    """The calls within a slice of time that started one copy each; a graph that holds several has no time for one."""
    started = nw.col("launch_ts_ns")
    called = _copies(spans.filter(started >= low_ns, started < high_ns)).with_columns(
        _together=nw.col("duration_ns").count().over("run_id", "rank", "launch_ts_ns", "correlation_id")
    )
    return _counted(
        called.filter(nw.col("_together") == 1).with_columns(
            operation=nw.lit("copy_call"), duration_ns=nw.col("launch_duration_ns")
        )
    )


def _counted(work: Frame) -> Frame:
    known = work.with_columns(_known=flag(~nw.col("_bytes").is_null()))
    columns = [*_KEYS, "duration_ns", *_SUMS]
    return counted(known.select(columns), _KEYS, "duration_ns", _SUMS).select(*columns, "_count")
