from __future__ import annotations

from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import queue_length
from lake.engines import engine as lake_engine
from silver import spans, steps
from tests.support.silver_rows import RUN, rows_of

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

END = 1 << 62
POLARS = lake_engine("polars")
# launch, start, stream
Work = tuple[int | None, int, int | None]


def count_waiting(bench: Bench, *work: Work, cuts: tuple[int, ...] = (), **fields: Any) -> dict[str, dict[str, Any]]:
    """The rows of one rank's work, by stream."""
    rows = [
        {
            "run_id": RUN,
            "rank": 0,
            "source_sha256": "s",
            "ordinal": place,
            "is_gpu": True,
            "device_id": 0,
            "ts_ns": at,
            "duration_ns": 5,
            "launch_ts_ns": launch,
            "stream_id": stream,
            **fields,
        }
        for place, (launch, at, stream) in enumerate(work)
    ]
    spanned = bench.wrap(rows_of(spans.TABLE, rows))
    known = bench.wrap(rows_of(steps.TABLE, [{"run_id": RUN, "rank": 0}]))
    counted = pl.concat(
        [
            pl.DataFrame(bench.rows(queue_length.count_queued(spanned, low, high)))
            for low, high in pairwise([0, *sorted(set(cuts)), END])
        ]
    )
    found = bench.rows(queue_length.measure(bench.wrap(counted.to_arrow()), known)).to_pylist()
    return {row["stream"]: row for row in found}


def test_work_waits_from_its_launch_to_its_start() -> None:
    row = count_waiting(POLARS, (10, 20, 7), (12, 30, 7), (14, 40, 7))["7"]
    assert (row["queued_count"], row["total_ns"], row["queued_ns"], row["mean_length"]) == (3, 30, 54, 1.8)
    assert (row["peak_length"], row["peak_ts_ns"], row["p50_length"], row["p99_length"]) == (3, 14, 2, 3)
    assert (row["empty_fraction"], row["evidence"], row["reason"]) == (0.0, "measured", None)


def test_a_launch_at_the_moment_of_a_start_makes_no_peak() -> None:
    row = count_waiting(POLARS, (10, 20, 7), (20, 30, 7))["7"]
    assert (row["peak_length"], row["peak_ts_ns"]) == (1, 10)


def test_streams_queue_apart_and_the_gpu_queues_all(engine: Bench) -> None:
    found = count_waiting(engine, (10, 20, 7), (12, 30, 9), (50, 60, 7))
    assert {name: row["peak_length"] for name, row in found.items()} == {"7": 1, "9": 1, "all": 2}
    assert found["all"]["empty_fraction"] == 0.4


def test_work_without_a_launch_or_begun_before_it_never_waited() -> None:
    row = count_waiting(POLARS, (10, 20, 7), (None, 15, 7), (18, 17, 7))["7"]
    assert (row["queued_count"], row["unqueued_count"], row["queued_ns"]) == (1, 2, 10)
    assert row["reason"] == "some work has no recorded launch, or began before it: it is in no length"


def test_where_nothing_was_seen_to_wait_there_is_a_reason(engine: Bench) -> None:
    row = count_waiting(engine, (None, 15, 7), (None, 25, 7))["7"]
    assert (row["queued_ns"], row["peak_length"], row["total_ns"], row["evidence"]) == (
        None,
        None,
        None,
        "unobservable",
    )
    assert row["reason"] == "no work has a recorded launch before its start, so none was seen to queue"
    (row,) = count_waiting(engine, (10, 20, 7), is_gpu=False).values()
    assert (row["stream"], row["evidence"]) == ("all", "unobservable")
    assert row["reason"] == "no GPU rows were recorded, so nothing of the GPU can be told"


WORK = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 30), st.sampled_from([7, 20])), min_size=1, max_size=20)


@given(WORK, st.lists(st.integers(2, 95), max_size=4))
@settings(max_examples=30)
def test_lengths_equal_a_count_of_moments_however_time_is_sliced(
    work: list[tuple[int, int, int]], cuts: list[int]
) -> None:
    found = count_waiting(POLARS, *((at, at + wait, stream) for at, wait, stream in work), cuts=tuple(cuts))
    for stream in (7, 20, None):
        own = [(at, at + wait) for at, wait, one in work if stream in {None, one}]
        if not own:
            continue
        row = found["all" if stream is None else str(stream)]
        first, last = min(at for at, _ in own), max(start for _, start in own)
        lengths = [sum(at <= moment < start for at, start in own) for moment in range(first, last)]
        assert (row["total_ns"], row["queued_ns"]) == (last - first, sum(lengths) if lengths else None)
        if lengths:
            assert (row["peak_length"], row["peak_ts_ns"]) == (max(lengths), first + lengths.index(max(lengths)))
            ordered = sorted(lengths)
            expected = {f"p{q}_length": ordered[ceil(q * len(lengths) / 100) - 1] for q in (50, 95, 99)}
            assert {name: row[name] for name in expected} == expected
            assert row["empty_fraction"] == lengths.count(0) / len(lengths)
