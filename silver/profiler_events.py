"""The events of all profilers in one shape: rows of Nsight Systems as the events that a PyTorch trace would hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw

from lake.frames import Frame
from silver.nsys_ranks import NSYS_FORMATS, join_ranks
from silver.patterns import PATTERNS

if TYPE_CHECKING:
    from silver.nsys_ranks import Placement

__all__ = ["COLUMNS", "NOTES", "NSYS_FORMATS", "PROFILES", "adapt_nsys_events", "adapt_trace_events", "merge_profilers"]
PROFILES = ("kineto", *NSYS_FORMATS)
# Plans that put frames on top of each other read every column of both: only these go in.
COLUMNS = (
    *("run_id", "rank", "source_sha256", "ordinal", "offset_bytes", "phase", "category", "name", "process_id"),
    *("thread_id", "ts_ns", "duration_ns", "correlation_id", "external_id", "device_id", "stream_id", "payload_bytes"),
)
# What a transform knows of an event beyond its columns: what ties calls to work, the rule that settles it unseen, and
# whether it is the second of one row, counts from its session's start, or has a rounded size.
NOTES = ("_recording", "_fate", "_is_split", "_is_session_clock", "_is_rounded")

_LAUNCHES = "cuda_kern_exec_trace"
_SHORT = {
    "host_to_gpu": "HtoD",
    "gpu_to_host": "DtoH",
    "gpu_to_gpu": "PtoP",
    "on_gpu": "DtoD",
    "on_host": "HtoH",
}
_REPORTS = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "kernel",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "kernel",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "gpu_memcpy",
    "CUPTI_ACTIVITY_KIND_MEMSET": "gpu_memset",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "cuda_runtime",
    "CUPTI_ACTIVITY_KIND_DRIVER": "cuda_driver",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "cuda_sync",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "overhead",
    "PROFILER_OVERHEAD": "overhead",
    "NVTX_EVENTS": "user_annotation",
    "OSRT_API": "os_runtime",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": "page_fault",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": "page_fault",
    "GPU_METRICS": "gpu_metric",
}
# Rows that have a start and no end: marks, readings, and faults that were not timed.
_UNTIMED = ("user_annotation", "page_fault", "gpu_metric")
# A start beyond it is no time, and one more would not fit.
_LATEST_NS = 1 << 62


def adapt_trace_events(events: Frame) -> Frame:
    """Events of traces alone: each file is a recording of its own, and nothing is settled yet."""
    return events.with_columns(
        _recording=nw.col("source_sha256"),
        _fate=nw.lit(None).cast(nw.String),
        _is_split=nw.lit(False),
        _is_session_clock=nw.lit(False),
        _is_rounded=nw.lit(False),
    )


def merge_profilers(events: Frame, nsys_events: Frame, placement: Placement) -> Frame:
    """All events; a rank that has a trace is timed by that alone, and what two reports tell is taken once."""
    return nw.concat(
        [adapt_trace_events(events.select(COLUMNS)).select(*COLUMNS, *NOTES), adapt_nsys_events(nsys_events, placement)]
    )


def adapt_nsys_events(nsys_events: Frame, placement: Placement) -> Frame:
    """Rows of Nsight Systems as events; a launch with its kernel is two of them."""
    rows = join_ranks(nsys_events, placement)
    # Reports of launches have no correlation: the row itself ties the two events that it is.
    tie = nw.when(nw.col("report") == _LAUNCHES).then(-nw.col("ordinal") - 1).otherwise(nw.col("correlation_id"))
    rows = rows.with_columns(correlation_id=tie)
    is_launch = nw.col("report") == _LAUNCHES
    first = rows.with_columns(
        name=nw.when(is_launch).then(nw.col("api_name")).otherwise(nw.col("name")),
        category=_category(),
        _start_ns=nw.when(is_launch).then(nw.col("api_start_ns")).otherwise(nw.col("start_ns")),
        duration_ns=nw.when(is_launch).then(nw.col("api_duration_ns")).otherwise(nw.col("duration_ns")),
        _is_split=nw.lit(False),
    )
    second = rows.filter(is_launch & nw.col("_fate").is_null()).with_columns(
        category=nw.lit("kernel"),
        _start_ns=nw.col("start_ns"),
        ordinal=nw.col("ordinal") + nw.col("_file_rows"),
        _is_split=nw.lit(True),
    )
    columns = [*(name for name in COLUMNS if name not in {"phase", "external_id"}), "_start_ns", "source_memory"]
    columns += ["target_memory", "copy_kind", "is_payload_rounded", "_recording", "_fate", "_is_split"]
    both = nw.concat([first.select(columns), second.select(columns)])
    is_mark = nw.col("category").is_in(_UNTIMED) & nw.col("duration_ns").is_null()
    is_start = nw.col("_start_ns") < _LATEST_NS
    is_rounded = nw.col("is_payload_rounded").fill_null(False)
    return both.with_columns(
        phase=nw.when(is_mark).then(nw.lit("i")).otherwise(nw.lit("X")),
        external_id=nw.lit(None).cast(nw.Int64),
        _is_session_clock=nw.col("ts_ns").is_null() & ~nw.col("_start_ns").is_null(),
        # A session begins at 0, and an event there is as real as any: its clock is set one nanosecond ahead.
        ts_ns=nw.coalesce(nw.col("ts_ns"), nw.when(is_start).then(nw.col("_start_ns") + 1)),
        name=_name(),
        _is_rounded=is_rounded,
        payload_bytes=nw.when(~(is_rounded & (nw.col("payload_bytes") == 0))).then(nw.col("payload_bytes")),
    ).select(*COLUMNS, *NOTES)


def _category() -> nw.Expr:
    """The category that a trace would give the row, by its report, and in mixed reports by its name."""
    name, called = nw.col("name").fill_null(""), nw.col("api_name").fill_null("")
    on_gpu = (
        nw.when(name.str.contains("^\\[CUDA [A-Za-z ]*memcpy"))
        .then(nw.lit("gpu_memcpy"))
        .otherwise(
            nw.when(name.str.contains("^\\[CUDA [A-Za-z ]*memset"))
            .then(nw.lit("gpu_memset"))
            .otherwise(nw.lit("kernel"))
        )
    )
    spelled = nw.when(nw.col("report") == _LAUNCHES).then(called).otherwise(name)
    call = nw.when(spelled.str.starts_with("cuda")).then(nw.lit("cuda_runtime")).otherwise(nw.lit("cuda_driver"))
    found = nw.when(nw.col("report") == "cuda_gpu_trace").then(on_gpu).otherwise(call)
    for report, category in _REPORTS.items():
        found = nw.when(nw.col("report") == report).then(nw.lit(category)).otherwise(found)
    return found


def _name() -> nw.Expr:
    """The name as a trace spells it: a copy with its direction and memories, a call without its version."""
    category, name = nw.col("category"), nw.col("name")
    reported = PATTERNS.word("direction", nw.coalesce(nw.col("copy_kind"), name).fill_null(""))
    short = nw.lit(None).cast(nw.String)
    for word, letters in _SHORT.items():
        short = nw.when(reported == word).then(nw.lit(letters)).otherwise(short)
    memories = (nw.col("source_memory").fill_null("Unknown"), nw.col("target_memory").fill_null("Unknown"))
    copied = nw.concat_str(
        nw.lit("Memcpy "),
        short.fill_null("Unknown"),
        nw.lit(" ("),
        memories[0],
        nw.lit(" -> "),
        memories[1],
        nw.lit(")"),
    )
    is_call = category.is_in(["cuda_runtime", "cuda_driver"])
    return (
        nw.when(category == "gpu_memcpy")
        .then(copied)
        .otherwise(
            nw.when(category == "gpu_memset")
            .then(nw.lit("Memset (Device)"))
            .otherwise(nw.when(is_call).then(name.str.replace_all("_v[0-9]{3,6}\\z", "")).otherwise(name))
        )
    )
