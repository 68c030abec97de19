from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gold import source_lines
from lake.engines import engine as lake_engine
from tests.support.gold_rows import measure_rows

if TYPE_CHECKING:
    import polars as pl

    from tests.support.silver_rows import Bench

POLARS = lake_engine("polars")
CALLS = {"synchronisation": "sync_call", "launch": "launch_call"}


def frame(label: str, start: int, end: int, ordinal: int, **fields: Any) -> dict[str, Any]:
    known = {"kind": "host", "pattern": "python_line", "category": "python_function", "thread_id": "7"}
    return {**known, "label": label, "ts_ns": start, "duration_ns": end - start, "ordinal": ordinal, **fields}


def call(operation: str, start: int, duration_ns: int, ordinal: int, **fields: Any) -> dict[str, Any]:
    known = {"kind": "sync", "pattern": CALLS[operation], "category": "cuda_runtime", "thread_id": "7"}
    return {**known, "ts_ns": start, "duration_ns": duration_ns, "ordinal": ordinal, **fields}


def copy(start: int, duration_ns: int, ordinal: int, memory: str, **fields: Any) -> list[dict[str, Any]]:
    """A call that starts a copy, and the copy on the GPU."""
    called = call("launch", start, duration_ns, ordinal, correlation_id=ordinal, **fields)
    moved = {"is_gpu": True, "kind": "copy", "pattern": "memcpy", "memory": memory, "payload_bytes": 4096}
    moved |= {"correlation_id": ordinal, "launch_ts_ns": start, "ts_ns": start + 1, "ordinal": ordinal + 1000}
    return [{**called, "kind": "launch", "pattern": "copy_call"}, {**called, **moved}]


def list_lines(engine: Bench, *rows: dict[str, Any]) -> list[tuple[Any, ...]]:
    found: pl.DataFrame = measure_rows(engine, source_lines, spans=list(rows))
    columns = ("operation", "ordinal", "calls_count", "total_ns", "share_fraction")
    return found.sort(columns).select(columns).rows()


def test_a_call_is_of_the_innermost_frame_that_has_not_ended(engine: Bench) -> None:
    frames = [frame("main", 100, 1000, 1), frame("step", 200, 500, 2), frame("fetch", 250, 300, 3)]
    calls = [call("synchronisation", at, 10, 50 + at) for at in (150, 260, 400, 600, 700)]
    assert list_lines(engine, *frames, *calls) == [
        ("synchronisation", 1, 3, 30, 0.6),
        ("synchronisation", 2, 1, 10, 0.2),
        ("synchronisation", 3, 1, 10, 0.2),
    ]


def test_frames_of_libraries_are_passed_over_and_calls_of_no_line_count_in_the_share(engine: Bench) -> None:
    rows = [
        frame("train", 100, 500, 1),
        frame("torch", 200, 400, 2, pattern="python_library"),
        frame("<built-in>", 210, 390, 3, pattern="python_frame"),
        call("launch", 300, 30, 4),
        call("launch", 900, 10, 5),
    ]
    assert list_lines(engine, *rows) == [("launch", 1, 1, 30, 0.75)]


def test_threads_ranks_and_files_are_apart_and_one_line_of_all_is_one_row(engine: Bench) -> None:
    rows = [frame("train", 100, 500, 1), call("launch", 200, 10, 2), call("launch", 300, 10, 3, thread_id="8")]
    rows += [
        frame("train", 100, 500, 1, rank=1, source_sha256="b"),
        call("launch", 200, 20, 2, rank=1, source_sha256="b"),
    ]
    found = measure_rows(engine, source_lines, spans=rows)
    assert found.select("ordinal", "calls_count", "ranks_count", "total_ns").rows() == [(1, 2, 2, 30)]


def test_only_copies_of_pageable_memory_are_told(engine: Bench) -> None:
    rows = [frame("fetch", 100, 500, 1), *copy(200, 40, 2, "pageable"), *copy(300, 50, 3, "pinned")]
    assert list_lines(engine, *rows) == [("pageable_copy", 1, 1, 40, 1.0)]
    assert measure_rows(engine, source_lines, spans=rows)["payload_bytes"].to_list() == [4096]


def test_a_run_without_python_frames_has_no_rows(engine: Bench) -> None:
    assert list_lines(engine, call("launch", 200, 10, 2), *copy(200, 40, 3, "pageable")) == []


@st.composite
def nested(draw: st.DrawFn) -> list[tuple[int, int]]:
    """Frames that lie within each other or apart, as those of a thread do."""
    found: list[tuple[int, int]] = []

    def split(low: int, high: int, depth: int) -> None:
        at = low
        while depth and at < high and draw(st.booleans()):
            begin = draw(st.integers(at, high - 1))
            end = draw(st.integers(begin + 1, high))
            found.append((begin, end))
            split(begin, end, depth - 1)
            at = end

    split(100, 160, 4)
    return found


@settings(max_examples=60)
@given(nested(), st.lists(st.integers(95, 165), min_size=1, max_size=8, unique=True))
def test_the_innermost_frame_is_the_last_to_begin_of_those_that_hold_the_call(
    intervals: list[tuple[int, int]], starts: list[int]
) -> None:
    frames = [frame(f"line {place}", begin, end, place) for place, (begin, end) in enumerate(intervals)]
    calls = [call("launch", at, 1, 500 + at) for at in starts]
    wanted: dict[int, int] = {}
    for at in starts:
        holding = [(begin, -end, place) for place, (begin, end) in enumerate(intervals) if begin <= at < end]
        if holding:
            wanted[max(holding)[2]] = wanted.get(max(holding)[2], 0) + 1
    found = list_lines(POLARS, *frames, *calls)
    assert {ordinal: count for _, ordinal, count, _, _ in found} == wanted
