from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold import launches
from tests.support.gold_rows import InSlices, measure_rows

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

NO_LAUNCH = "no kernel has a recorded launch, so how long any queued cannot be told"


LAUNCHES = InSlices(launches.TABLE, launches.pick_shorter, launches.measure)


def call(ts_ns: int, duration_ns: int, pattern: str = "launch_call", **fields: Any) -> dict[str, Any]:
    return {"kind": "launch", "pattern": pattern, "ts_ns": ts_ns, "duration_ns": duration_ns, **fields}


def kernel(ts_ns: int, duration_ns: int, launch: tuple[int, int] | None = (100, 10), **fields: Any) -> dict[str, Any]:
    known = {"is_gpu": True, "kind": "compute", "pattern": "unknown_on_gpu", "ts_ns": ts_ns, "duration_ns": duration_ns}
    if launch is None:
        return {**known, "is_orphan": True, **fields}
    return {**known, "launch_ts_ns": launch[0], "launch_duration_ns": launch[1], "correlation_id": ts_ns, **fields}


def test_the_first_launch_is_in_the_total_and_in_no_percentile(engine: Bench) -> None:
    found = measure_rows(engine, LAUNCHES, spans=[call(30, 6), call(10, 900), call(20, 4)])
    assert found.select(
        "launches_count", "first_launch_ns", "launch_total_ns", "launch_p50_ns", "launch_p95_ns", "launch_p99_ns"
    ).rows() == [(3, 900, 910, 4, 6, 6)]


def test_of_two_launches_at_once_the_earlier_in_the_source_is_the_first(engine: Bench) -> None:
    rows = [call(10, 4, ordinal=1), call(10, 900, ordinal=0)]
    assert measure_rows(engine, LAUNCHES, spans=rows).select("first_launch_ns", "launch_p50_ns").rows() == [(900, 4)]


def test_calls_that_copy_are_counted_by_themselves(engine: Bench) -> None:
    rows = [call(10, 5), call(20, 5), call(30, 700, "copy_call"), call(40, 9, "sync_call", kind="sync")]
    found = measure_rows(engine, LAUNCHES, spans=rows)
    assert found.select("launches_count", "copy_calls_count", "launch_total_ns").rows() == [(2, 1, 10)]


def test_a_kernel_queues_from_the_end_of_its_launch(engine: Bench) -> None:
    rows = [kernel(115, 50), kernel(150, 50), kernel(105, 50)]
    found = measure_rows(engine, LAUNCHES, spans=rows)
    assert found.select("kernels_count", "queue_p50_ns", "queue_p95_ns", "queue_p99_ns").rows() == [(3, 5, 40, 40)]


def test_copies_queue_in_no_percentile(engine: Bench) -> None:
    rows = [kernel(115, 50), kernel(900, 50, kind="copy")]
    assert measure_rows(engine, LAUNCHES, spans=rows).select("kernels_count", "queue_p99_ns").rows() == [(1, 5)]


def test_a_compute_kernel_shorter_than_its_launch_is_short(engine: Bench) -> None:
    rows = [kernel(110, 9), kernel(120, 10), kernel(130, 3, kind="collective"), kernel(140, 11)]
    found = measure_rows(engine, LAUNCHES, spans=rows)
    assert found.select("short_kernels_count", "short_kernels_fraction").rows() == [(1, 1 / 3)]


def test_an_id_that_comes_again_is_another_launch(engine: Bench) -> None:
    rows = [kernel(110, 9, (100, 10), correlation_id=7), kernel(210, 9, (200, 10), correlation_id=7)]
    assert measure_rows(engine, LAUNCHES, spans=rows).select("short_kernels_count").rows() == [(2,)]


def test_kernels_of_one_graph_share_its_launch(engine: Bench) -> None:
    rows = [kernel(110, 4, correlation_id=7), kernel(120, 3, correlation_id=7), kernel(130, 90, correlation_id=7)]
    found = measure_rows(engine, LAUNCHES, spans=rows)
    assert found.select("short_kernels_count", "short_kernels_fraction").rows() == [(1, 1 / 3)]


def test_work_without_a_launch_is_an_orphan_and_in_no_other_number(engine: Bench) -> None:
    found = measure_rows(engine, LAUNCHES, spans=[kernel(115, 50), kernel(500, 30, None), kernel(600, 40, None)])
    assert found.select("kernels_count", "orphans_count", "orphan_ns", "queue_p99_ns", "reason").rows() == [
        (1, 2, 70, 5, "no calls of the CUDA API were recorded")
    ]


def test_work_before_its_launch_is_counted_and_did_not_queue(engine: Bench) -> None:
    found = measure_rows(engine, LAUNCHES, spans=[kernel(90, 50, is_before_launch=True)])
    assert found.select("before_launch_count", "queue_p50_ns").rows() == [(1, 0)]


def test_a_rank_without_gpu_rows_has_no_gpu_numbers(engine: Bench) -> None:
    (found,) = measure_rows(engine, LAUNCHES, spans=[call(10, 5), call(20, 5)]).to_dicts()
    times = ("queue_p50_ns", "queue_p95_ns", "queue_p99_ns", "short_kernels_fraction", "orphan_ns")
    counts = ("kernels_count", "short_kernels_count", "orphans_count", "before_launch_count")
    assert {found[name] for name in (*times, *counts)} == {None}
    assert (found["evidence"], found["gpu_evidence"]) == ("measured", "unobservable")
    assert found["reason"] == "no GPU rows were recorded, so nothing of the GPU can be told"


def test_a_rank_without_calls_has_no_launch_numbers(engine: Bench) -> None:
    (found,) = measure_rows(engine, LAUNCHES, spans=[{"kind": "host", "pattern": "operator"}]).to_dicts()
    calls = ("launches_count", "copy_calls_count", "first_launch_ns", "launch_total_ns", "launch_p50_ns")
    assert {found[name] for name in calls} == {None}
    assert (found["evidence"], found["gpu_evidence"]) == ("unobservable", "unobservable")
    assert found["reason"] == (
        "no calls of the CUDA API were recorded; no GPU rows were recorded, so nothing of the GPU can be told"
    )


def test_calls_that_launch_nothing_are_no_launches(engine: Bench) -> None:
    found = measure_rows(engine, LAUNCHES, spans=[call(10, 5, "sync_call", kind="sync"), kernel(500, 30, None)])
    assert found.select("launches_count", "launch_total_ns", "short_kernels_fraction", "reason").rows() == [
        (0, None, None, f"the rank launched nothing while it was recorded; {NO_LAUNCH}")
    ]


def test_an_only_launch_has_no_percentiles(engine: Bench) -> None:
    found = measure_rows(engine, LAUNCHES, spans=[call(10, 5), kernel(30, 20, (10, 5))])
    assert found.select("first_launch_ns", "launch_total_ns", "launch_p50_ns", "reason").rows() == [
        (5, 5, None, "the only launch is the first, which the percentiles leave out")
    ]


def test_collectives_alone_say_nothing_of_short_kernels(engine: Bench) -> None:
    rows = [call(10, 5), call(20, 5), kernel(30, 20, (10, 5), kind="collective")]
    assert measure_rows(engine, LAUNCHES, spans=rows).select("short_kernels_fraction", "reason").rows() == [
        (None, "no compute kernel has a recorded launch, so none can be held against it")
    ]


def test_ranks_and_runs_are_told_apart(engine: Bench) -> None:
    rows = [call(10, 5), call(20, 6), call(10, 7, rank=1), call(10, 8, run_id="run-2")]
    found = measure_rows(engine, LAUNCHES, spans=rows)
    assert found.select("run_id", "rank", "launches_count", "first_launch_ns").rows() == [
        ("run-1", 0, 2, 5),
        ("run-1", 1, 1, 7),
        ("run-2", 0, 1, 8),
    ]
