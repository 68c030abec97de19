from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import operator_time
from gold.call_nesting import select_launched
from lake.engines import engine as lake_engine
from silver import spans, steps
from tests.support.silver_rows import RUN, rows_of

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

END = 1 << 62
POLARS = lake_engine("polars")
Row = dict[str, Any]


def operator(name: str, at: int, length: int, thread: str = "1") -> Row:
    return {"category": "cpu_op", "name": name, "ts_ns": at, "duration_ns": length, "thread_id": thread}


def call(at: int, length: int, correlation: int = 1, thread: str = "1") -> Row:
    return operator("cudaLaunchKernel", at, length, thread) | {
        "category": "cuda_runtime",
        "correlation_id": correlation,
    }


def kernel(length: int, launch: int | None, correlation: int = 1) -> Row:
    known = {"category": "kernel", "is_gpu": True, "name": "k", "ts_ns": 900, "duration_ns": length}
    return known | {"launch_ts_ns": launch, "correlation_id": correlation}


def sum_operators(bench: Bench, *rows: Row, cuts: tuple[int, ...] = ()) -> dict[str, Row]:
    """The rows of one rank, by name."""
    known = [
        {"run_id": RUN, "rank": 0, "source_sha256": "s", "ordinal": place, **row} for place, row in enumerate(rows)
    ]
    spanned = bench.wrap(rows_of(spans.TABLE, known))
    sums = pa.concat_tables(
        [
            operator_time.sum_calls(
                bench.rows(operator_time.select_calls(spanned, low, high)),
                bench.rows(select_launched(spanned, low, high)),
                low,
                high,
            )
            for low, high in pairwise([0, *sorted(set(cuts)), END])
        ]
    )
    ranks = bench.wrap(rows_of(steps.TABLE, [{"run_id": RUN, "rank": 0}]))
    found = bench.rows(operator_time.measure(bench.wrap(pl.DataFrame(sums).to_arrow()), ranks)).to_pylist()
    return {row["name"]: row for row in found}


def test_an_operator_has_its_own_time_and_the_work_that_it_launched(engine: Bench) -> None:
    found = sum_operators(
        engine,
        operator("aten::linear", 100, 50),
        operator("aten::addmm", 110, 30),
        call(115, 10),
        kernel(70, 115),
        operator("aten::addmm", 200, 20, "2"),
    )
    outer, inner, launch = (found[name] for name in ("aten::linear", "aten::addmm", "cudaLaunchKernel"))
    assert [(row["calls_count"], row["total_ns"], row["self_ns"]) for row in (outer, inner, launch)] == [
        (1, 50, 20),
        (2, 50, 40),
        (1, 10, 10),
    ]
    assert (inner["launched_count"], inner["launched_ns"], outer["launched_count"]) == (1, 70, 0)
    assert (launch["launched_count"], launch["category"], launch["evidence"]) == (0, "cuda_runtime", "measured")


def test_work_launched_outside_of_operators_is_the_calls() -> None:
    found = sum_operators(POLARS, call(10, 5), kernel(7, 10), kernel(9, 10, correlation=2), kernel(3, None))
    assert (found["cudaLaunchKernel"]["launched_count"], found["cudaLaunchKernel"]["launched_ns"]) == (1, 7)


def test_a_call_that_lasts_no_time_is_within_the_operator_around_it() -> None:
    found = sum_operators(POLARS, operator("aten::mm", 10, 5), call(12, 0), kernel(7, 12))
    assert (found["aten::mm"]["launched_ns"], found["cudaLaunchKernel"]["launched_ns"]) == (7, 0)


def test_calls_that_begin_at_one_moment_are_told_apart_by_their_correlation() -> None:
    found = sum_operators(
        POLARS,
        *(operator("a", 10, 5, "1"), call(11, 2, 1, "1"), operator("b", 10, 5, "2"), call(11, 2, 2, "2")),
        *(kernel(7, 11, 2), kernel(3, 11, 1)),
    )
    assert {name: found[name]["launched_ns"] for name in "ab"} == {"a": 3, "b": 7}


def test_what_outlasts_the_call_around_it_leaves_no_negative_time() -> None:
    found = sum_operators(POLARS, operator("a", 10, 10), operator("b", 12, 20), operator("c", 14, 3))
    assert {name: row["self_ns"] for name, row in found.items()} == {"a": 2, "b": 17, "c": 3}


def test_a_rank_without_operators_has_a_reason() -> None:
    (row,) = sum_operators(POLARS, kernel(5, None)).values()
    assert (row["category"], row["name"], row["calls_count"], row["evidence"]) == ("none", "", 0, "unobservable")
    assert row["reason"] == "neither operators nor CUDA calls were recorded"


CALLS = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 25), st.sampled_from("abc"), st.sampled_from("12"), st.booleans()),
    min_size=1,
    max_size=14,
)


@given(CALLS, st.lists(st.integers(2, 90), max_size=3))
@settings(max_examples=30)
def test_own_times_equal_a_look_at_every_moment_however_time_is_chunked(
    drawn: list[tuple[int, int, str, str, bool]], cuts: list[int]
) -> None:
    rows: list[Row] = []
    for at, length, name, thread, is_call in drawn:
        beside = [(row["ts_ns"], row["ts_ns"] + row["duration_ns"]) for row in rows if row["thread_id"] == thread]
        # Calls of one thread never lie across each other.
        if all(at + length <= low or at >= high or low <= at <= at + length <= high for low, high in beside):
            rows.append(call(at, length, len(rows), thread) if is_call else operator(name, at, length, thread))
    launching = [row for row in rows if row["category"] == "cuda_runtime"]
    work = [kernel(5, row["ts_ns"], row["correlation_id"]) for row in launching]
    own: Counter[str] = Counter()
    for moment in range(1, 90):
        for thread in "12":
            if running := find_running(rows, thread, moment):
                own[running[-1]["name"]] += 1
    launched: Counter[str] = Counter()
    for row in launching:
        around = find_running(rows, row["thread_id"], row["ts_ns"])
        if row["duration_ns"]:
            around = around[: around.index(row) + 1]
        launched[next((one["name"] for one in reversed(around) if one["category"] == "cpu_op"), row["name"])] += 5
    found = sum_operators(POLARS, *rows, *work, cuts=tuple(cuts))
    assert {name: row["self_ns"] for name, row in found.items()} == {row["name"]: own[row["name"]] for row in rows}
    assert {name: row["launched_ns"] for name, row in found.items()} == {name: launched[name] for name in found}
    assert sum(row["calls_count"] for row in found.values()) == len(rows)


def find_running(rows: list[Row], thread: str, moment: int) -> list[Row]:
    """What runs on a thread at a moment, the innermost last."""
    found = [
        (row["ts_ns"], -row["duration_ns"], place, row)
        for place, row in enumerate(rows)
        if row["thread_id"] == thread and row["ts_ns"] <= moment < row["ts_ns"] + row["duration_ns"]
    ]
    return [row for *_, row in sorted(found, key=lambda one: one[:3])]
