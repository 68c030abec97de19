from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from gold import logged_steps, step_times, traced_steps
from lake.engines import PolarsEngine
from tests.support.gold_rows import TABLES
from tests.support.silver_rows import RUN, rows_of, run_plan, sort_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake.frames import Frame
    from tests.support.silver_rows import Bench

Row = dict[str, Any]
MS = 1_000_000
NOON = 1_700_000_000_000 * MS
Rows = list[Row]


def steps_of(*durations_ms: float, rank: int = 0, first: int = 0, **fields: Any) -> Rows:
    """Steps of a rank, one after the other."""
    rows, at = [], NOON
    for place, length in enumerate(durations_ms):
        known = {"step_source": "profiler_step", "evidence": "measured", "run_id": RUN, "rank": rank}
        numbers = {"step_number": first + place, "step_ordinal": place}
        rows.append({**known, **numbers, "ts_ns": at, "duration_ns": round(length * MS), **fields})
        at += round(length * MS)
    return rows


def make_log(*durations_ms: float, rank: int = 0, **fields: Any) -> Rows:
    """Steps of a log that does not say when they were."""
    known = {"run_id": RUN, "rank": rank, "source_sha256": f"log-{rank}", "record": "csv", "period": "step"}
    known |= {"numbered_by": "number", "duration_source": "stated", "evidence": "measured"}
    return [
        {**known, "ordinal": place, "period_number": place, "duration_ns": round(length * MS), **fields}
        for place, length in enumerate(durations_ms)
    ]


def measure_step_times(steps: Sequence[Row] = (), log: Sequence[Row] = (), **rows: Rows) -> dict[str, Row]:
    """The rows of the table by source, from rows of silver; any engine observes the same (see the last tests)."""
    engine = PolarsEngine()
    observed = engine.rows(observe(engine, steps, **rows))
    logs = engine.rows(logged_steps.observe_log(engine.wrap(rows_of(TABLES["throughput"], log))))
    claimed = rows_of(TABLES["runs"], [{"run_id": RUN, **row} for row in rows.get("runs", [{}])])
    found = step_times.measure(observed, logs, claimed)
    answer = sort_rows(step_times.TABLE, run_plan(engine, engine.wrap(found), step_times.TABLE))
    return {row["source"]: row for row in answer.to_dicts()}


def observe(engine: Bench, steps: Sequence[Row], **rows: Rows) -> Frame:
    frames = {name: engine.wrap(rows_of(TABLES[name], rows.get(name, []))) for name in ("spans", "collectives")}
    return traced_steps.observe_steps(engine.wrap(rows_of(TABLES["steps"], steps)), **frames)


def test_the_headline_is_the_mean_and_the_median_stands_beside_it() -> None:
    row = measure_step_times(steps_of(100, 100, 100, 100, 300))["trace"]
    assert (row["step_ns"], row["median_step_ns"], row["steps_count"]) == (140 * MS, 100 * MS, 5)
    assert "the mean step is 1.40 times the median one" in row["caveat"]


def test_a_log_and_a_trace_have_a_row_each() -> None:
    rows = measure_step_times(steps_of(110, 130), make_log(100, 100, 100))
    assert {source: row["step_ns"] for source, row in rows.items()} == {"trace": 120 * MS, "log": 100 * MS}


# -- the mean ---------------------------------------------------------------------------------------------------------


def test_a_single_step_is_a_step_without_a_standard_error() -> None:
    row = measure_step_times(steps_of(100))["trace"]
    assert (row["step_ns"], row["median_step_ns"], row["steps_count"]) == (100 * MS, 100 * MS, 1)
    assert (row["log_standard_error"], row["effective_steps_count"]) == (None, None)
    assert row["reason"] == "fewer than 8 steps have no standard error"


def test_steps_of_no_length_give_no_step() -> None:
    rows = measure_step_times(steps_of(0, 0, 0, 0), make_log(0, 0))
    assert {(row["step_ns"], row["evidence"], row["reason"]) for row in rows.values()} == {
        (None, "unobservable", "the steps have no length")
    }


def test_some_steps_of_no_length_are_part_of_the_mean() -> None:
    row = measure_step_times(steps_of(0, 0, 0, 100))["trace"]
    assert (row["step_ns"], row["median_step_ns"]) == (25 * MS, 0)
    assert "the median step has no length" in row["caveat"]


def test_steps_that_are_all_warm_up_give_no_step() -> None:
    row = measure_step_times(steps_of(5, 5, is_warmup=True, warmup_reason="so it is"))["trace"]
    assert (row["step_ns"], row["found_warmup_steps_count"]) == (None, 2)
    assert row["reason"] == "no step lies outside warm-up"


def test_the_longest_times_are_added_without_loss() -> None:
    most = (1 << 62) - 1
    longest = [{**row, "ts_ns": 1, "duration_ns": most - row["step_number"]} for row in steps_of(*range(1, 10))]
    row = measure_step_times(longest, make_log(*range(1, 10), duration_ns=(1 << 63) - 1))
    assert row["trace"]["step_ns"] == row["trace"]["median_step_ns"] == most - 4
    assert row["log"]["step_ns"] == (1 << 63) - 1
    assert row["trace"]["log_standard_error"] < 1e-15


def test_a_run_without_steps_has_no_row() -> None:
    assert measure_step_times() == {}


# -- cycles -----------------------------------------------------------------------------------------------------------


def make_collectives(*numbers: int, rank: int = 0) -> Rows:
    """A collective in each of these steps."""
    known = {"run_id": RUN, "rank": rank, "source_sha256": f"trace-{rank}", "ts_ns": 1, "match_id": "m"}
    return [{**known, "ordinal": number, "step_number": number} for number in numbers]


def test_only_whole_cycles_are_taken() -> None:
    steps = steps_of(10, 10, 40, 10, 10, 40, 10, 10)
    row = measure_step_times(steps, collectives=make_collectives(2, 5))["trace"]
    assert (row["step_ns"], row["cycle_steps_count"], row["steps_count"]) == (20 * MS, 3, 6)


def test_without_a_cycle_all_steps_are_taken_and_that_is_said() -> None:
    steps = steps_of(10, 10, 40, 10, 10, 10, 40, 10)
    row = measure_step_times(steps, collectives=make_collectives(2, 6, 7))["trace"]
    assert (row["step_ns"], row["cycle_steps_count"], row["steps_count"]) == (140 * MS // 8, 1, 8)
    assert "collectives follow no cycle that repeats: all steps are taken" in row["caveat"]


def test_a_cycle_is_whole_only_where_no_step_is_missing() -> None:
    before, after = steps_of(10, 10, 40, 10, 10, 40, 10), steps_of(10, 40, 10, 10, 40, 10, first=22)
    after = [{**row, "ts_ns": row["ts_ns"] + 1000 * MS, "step_ordinal": row["step_ordinal"] + 7} for row in after]
    row = measure_step_times([*before, *after], collectives=make_collectives(2, 5, 23, 26))["trace"]
    assert (row["step_ns"], row["cycle_steps_count"], row["steps_count"]) == (20 * MS, 3, 12)


def test_cycles_too_few_for_a_standard_error_have_none() -> None:
    steps = steps_of(*[10, 10, 10, 40] * 7)
    row = measure_step_times(steps, collectives=make_collectives(*range(3, 28, 4)))["trace"]
    assert (row["steps_count"], row["log_standard_error"]) == (28, None)
    assert row["reason"] == "fewer than 8 whole cycles have no standard error"
    steps = steps_of(*[10, 10, 10, 40] * 8)
    row = measure_step_times(steps, collectives=make_collectives(*range(3, 32, 4)))["trace"]
    # Steps within a cycle differ, cycles do not: nothing is left to doubt.
    assert (row["steps_count"], row["log_standard_error"], row["effective_steps_count"]) == (32, 0, 32)


# -- completions ------------------------------------------------------------------------------------------------------


def make_gpu_work(*ends_ms: float, rank: int = 0, launched_in: list[int] | None = None) -> Rows:
    """GPU work that ends so long after noon, each launched by the step of its place."""
    known = {"run_id": RUN, "rank": rank, "source_sha256": f"trace-{rank}", "kind": "compute", "is_gpu": True}
    known |= {"category": "kernel", "pattern": "kernel", "duration_ns": MS}
    numbers = launched_in or list(range(len(ends_ms)))
    return [
        {**known, "ordinal": place, "launch_step_number": number, "ts_ns": NOON + round(end * MS) - MS}
        for place, (end, number) in enumerate(zip(ends_ms, numbers, strict=True))
    ]


def test_a_lag_of_a_twentieth_leaves_the_steps_to_the_host() -> None:
    row = measure_step_times(steps_of(*[100] * 4), spans=make_gpu_work(120, 220, 320, 420))["trace"]
    assert (row["timed_by"], row["step_ns"], row["gpu_lag_ns"]) == ("host_step", 100 * MS, 20 * MS)
    assert row["gpu_lag_fraction"] == 0.05
    assert "the GPU ends up to 5.0 % of the recorded time behind the host, whose steps are taken" in row["caveat"]
    row = measure_step_times(steps_of(*[100] * 4), spans=make_gpu_work(121, 231, 341, 451))["trace"]
    assert (row["timed_by"], row["step_ns"], row["steps_count"]) == ("gpu_completion", 110 * MS, 3)


def test_with_many_steps_completions_count_from_a_smaller_lag_on() -> None:
    ends = [100 * place + 100 + place for place in range(20)]
    row = measure_step_times(steps_of(*[100] * 20), spans=make_gpu_work(*ends))["trace"]
    assert (row["timed_by"], row["step_ns"], row["gpu_lag_ns"]) == ("host_step", 100 * MS, 19 * MS)
    ends = [100 * place + 100 + 2 * place for place in range(20)]
    row = measure_step_times(steps_of(*[100] * 20), spans=make_gpu_work(*ends))["trace"]
    assert (row["timed_by"], row["step_ns"], row["gpu_lag_ns"]) == ("gpu_completion", 102 * MS, 38 * MS)


def test_the_first_step_behind_warm_up_is_timed_from_its_completion() -> None:
    steps = steps_of(10, 10, 10, 10)
    steps[0]["is_warmup"], steps[0]["warmup_reason"] = True, "so it is"
    row = measure_step_times(steps, spans=make_gpu_work(50, 70, 90, 110))["trace"]
    assert (row["step_ns"], row["steps_count"], row["timed_by"]) == (20 * MS, 3, "gpu_completion")


def test_no_completion_is_counted_from_one_before_a_missing_step() -> None:
    before, after = steps_of(10, 10, 10), steps_of(10, 10, 10, first=90)
    after = [{**row, "ts_ns": row["ts_ns"] + 9000 * MS, "step_ordinal": row["step_ordinal"] + 3} for row in after]
    numbers = [0, 1, 2, 90, 91, 92]
    work = make_gpu_work(20, 40, 60, 9020, 9040, 9060, launched_in=numbers)
    row = measure_step_times([*before, *after], spans=work)["trace"]
    assert (row["step_ns"], row["steps_count"]) == (20 * MS, 4)


def test_a_step_that_launches_nothing_ends_with_the_work_before_it() -> None:
    work = make_gpu_work(20, 40, 80, 100, launched_in=[0, 1, 3, 4])
    row = measure_step_times(steps_of(10, 10, 10, 10, 10, 10), spans=work)["trace"]
    # Nothing shows when the work of the last step ended, if it had any.
    assert (row["step_ns"], row["steps_count"]) == (20 * MS, 4)


# -- ranks ------------------------------------------------------------------------------------------------------------


def test_ranks_with_different_numbers_of_steps_share_those_that_all_have() -> None:
    steps = [*steps_of(10, 10, 10, 10), *steps_of(10.2, 10.2, rank=1, first=2), *steps_of(10.1, rank=2, first=3)]
    ties = [*make_collectives(0, 1, 2, 3), *make_collectives(2, 3, rank=1), *make_collectives(3, rank=2)]
    row = measure_step_times(steps, collectives=ties)["trace"]
    assert (row["step_ns"], row["steps_count"], row["rank_rule"]) == (10_100_000, 1, "median_rank")
    assert row["ranks_count"] == 3


def test_ranks_that_share_no_step_leave_the_slowest() -> None:
    steps = [*steps_of(10, 10), *steps_of(10.2, 10.2, 10.2, rank=1, first=7)]
    row = measure_step_times(steps, collectives=[*make_collectives(0), *make_collectives(7, rank=1)])["trace"]
    assert (row["step_ns"], row["steps_count"], row["rank_rule"]) == (10_200_000, 3, "slowest_rank")


def test_a_rank_without_marks_leaves_the_step_to_those_that_collectives_tie_to_it() -> None:
    steps = [*steps_of(10, 10), *steps_of(20, rank=1, step_source="inferred")]
    alone = measure_step_times(steps)["trace"]
    assert (alone["step_ns"], alone["evidence"]) == (None, "unobservable")
    tied = measure_step_times(steps, collectives=[*make_collectives(0, 1), *make_collectives(0, rank=1)])["trace"]
    assert (tied["step_ns"], tied["ranks_count"], tied["evidence"]) == (10 * MS, 1, "measured")
    assert "1 of 2 ranks cannot be timed; collectives tie them to the others" in tied["caveat"]


def test_ranks_that_nobody_recorded_are_said_unless_collectives_tie_them() -> None:
    said = "1 of 4 ranks are known, and nothing shows that the others are not slower"
    assert said in measure_step_times(steps_of(10, 10), runs=[{"world_size": 4}])["trace"]["caveat"]
    tied = measure_step_times(steps_of(10, 10), runs=[{"world_size": 4}], collectives=make_collectives(0, 1))["trace"]
    assert said not in tied["caveat"]


# -- logs -------------------------------------------------------------------------------------------------------------


def test_the_finest_period_that_covers_half_of_the_logged_time_counts() -> None:
    epochs = make_log(1000, 1000, period="epoch", source_sha256="epochs")
    row = measure_step_times(log=[*make_log(*[10] * 99), *epochs])["log"]
    assert (row["period"], row["step_ns"]) == ("epoch", 1000 * MS)
    row = measure_step_times(log=[*make_log(*[10] * 100), *epochs])["log"]
    assert (row["period"], row["step_ns"]) == ("step", 10 * MS)


def test_a_record_of_every_tenth_step_stands_for_ten() -> None:
    often = make_log(*[10] * 40, duration_source="difference")
    seldom = make_log(*[100] * 4, duration_source="difference")
    for place, row in enumerate(seldom):
        row |= {"period_number": 10 * place, "stands_for_count": 10}
    seldom[0]["duration_ns"] = None
    rows = [measure_step_times(log=log)["log"] for log in (often, seldom)]
    assert [(row["step_ns"], row["median_step_ns"]) for row in rows] == [(10 * MS, 10 * MS)] * 2
    assert {row["evidence"] for row in rows} == {"modelled"}
    assert {row["timed_by"] for row in rows} == {"log_elapsed"}


def test_durations_of_which_the_log_does_not_say_so_make_a_model() -> None:
    row = measure_step_times(log=make_log(10, 10, duration_source="inferred"))["log"]
    assert (row["step_ns"], row["timed_by"], row["evidence"]) == (10 * MS, "log_duration", "modelled")
    assert "inferred from how they vary" in row["caveat"]


def test_a_log_without_times_gives_no_step() -> None:
    row = measure_step_times(log=make_log(1, 1, duration_ns=None, duration_source=None))["log"]
    assert (row["step_ns"], row["evidence"], row["reason"]) == (
        None,
        "unobservable",
        "the log gives no time outside warm-up",
    )


def test_of_two_logs_of_a_rank_the_longer_counts_and_of_two_ranks_the_slower() -> None:
    short, long = make_log(99, 99, source_sha256="short"), make_log(10, 10, 10, source_sha256="long")
    assert measure_step_times(log=[*short, *long])["log"]["step_ns"] == 10 * MS
    row = measure_step_times(log=[*long, *make_log(20, 20, rank=1)])["log"]
    assert (row["step_ns"], row["rank_rule"], row["ranks_count"]) == (20 * MS, "slowest_rank", 2)


# -- what recording costs ---------------------------------------------------------------------------------------------


def test_the_cost_of_recording_is_the_traced_step_over_that_of_the_log() -> None:
    bare = make_log(*[99, 101] * 4)
    for place, row in enumerate(bare):
        row["ts_ns"] = NOON - (9 - place) * 100 * MS
    rows = measure_step_times(steps_of(131, 131), bare, runs=[{"recording_slowdown_ratio": 9.0}])
    assert {row["recording_slowdown_ratio"] for row in rows.values()} == {1.31}
    assert "traced steps take 1.31 times as long as those of the log without the profiler" in rows["trace"]["caveat"]
    assert rows["log"]["caveat"] is None


def test_a_log_of_the_traced_steps_themselves_says_nothing_of_what_recording_costs() -> None:
    same = make_log(131, 131)
    for place, row in enumerate(same):
        row["ts_ns"] = NOON + place * 131 * MS
    rows = measure_step_times(steps_of(131, 131), same)
    assert rows["trace"]["recording_slowdown_ratio"] is None
    assert "what the profiler costs is not known" in rows["trace"]["caveat"]
    assert "the profiler recorded during 2 of 2 steps of the log" in rows["log"]["caveat"]


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (make_log(100, 100, ts_ns=None), "the log does not say when its steps ran"),
        ([], "no step without it was logged"),
        (make_log(100, 100, duration_ns=None), "no step without it was logged"),
    ],
    ids=["no times of day", "no log", "no durations"],
)
def test_why_the_cost_of_recording_is_not_known_is_said(log: list[dict[str, Any]], why: str) -> None:
    caveat = measure_step_times(steps_of(131, 131), log)["trace"]["caveat"]
    assert f"what the profiler costs is not known, because {why}" in caveat


def test_where_no_log_tells_it_the_manifest_says_what_recording_costs() -> None:
    row = measure_step_times(steps_of(131, 131), runs=[{"recording_slowdown_ratio": 1.25}])["trace"]
    assert row["recording_slowdown_ratio"] == 1.25
    assert "traced steps take 1.25 times as long as others, as the manifest says" in row["caveat"]


# -- many steps, and every engine -------------------------------------------------------------------------------------


def test_many_steps_on_many_ranks_are_one_row() -> None:
    count, ranks = 100_000, 2
    places = np.tile(np.arange(count), ranks)
    is_last = places % 4 == 3
    durations = np.where(is_last, 272, 100) * MS
    begins = NOON + places * 143 * MS
    observed = pa.table(
        {
            "run_id": pa.array([RUN] * len(places)),
            "rank": np.repeat(np.arange(ranks), count).astype(np.int32),
            "step_number": places,
            "step_ordinal": places,
            "step_source": pa.array(["profiler_step"] * len(places)),
            "ts_ns": begins,
            "duration_ns": durations,
            "is_warmup": np.zeros(len(places), dtype=bool),
            "warmup_reason": pa.nulls(len(places), pa.string()),
            "gpu_end_ns": begins + durations,
            "gpu_last_ns": begins.max() + durations,
            "syncs_count": places,
            "launches_count": places,
            "collectives_count": is_last.astype(np.int64),
            "gpu_rows_count": np.ones(len(places), dtype=np.int64),
        }
    )
    nothing = rows_of(TABLES["throughput"], [])
    (row,) = step_times.measure(observed, nothing, rows_of(TABLES["runs"], [{"run_id": RUN}])).to_pylist()
    assert (row["step_ns"], row["median_step_ns"], row["steps_count"]) == (143 * MS, 100 * MS, count)
    assert (row["cycle_steps_count"], row["log_standard_error"]) == (4, 0)


def test_every_engine_observes_the_same_steps(engine: Bench) -> None:
    steps = [*steps_of(10, 20), *steps_of(30, rank=1, step_source="inferred")]
    steps[0]["is_warmup"], steps[0]["warmup_reason"] = True, "so it is"
    host: Row = {"run_id": RUN, "source_sha256": "trace-0", "category": "cuda_runtime", "pattern": "other_call"}
    calls = [
        {**host, "ordinal": 100 + place, "kind": kind, "step_number": number, "ts_ns": NOON, "duration_ns": 1}
        for place, (kind, number) in enumerate([("sync", 1), ("launch", 1), ("launch", 1), ("host", 0), ("sync", None)])
    ]
    spans = [*make_gpu_work(5, 7, 9, launched_in=[0, 0, 1]), *calls]
    spans.append({**make_gpu_work(99)[0], "ordinal": 200, "launch_step_number": None})
    frame = observe(engine, steps, spans=spans, collectives=[*make_collectives(0), *make_collectives(0, rank=1)])
    found = engine.rows(frame).sort_by([("rank", "ascending"), ("step_number", "ascending")])
    columns = ("rank", "step_number", "duration_ns", "is_warmup", "gpu_end_ns", "gpu_last_ns")
    counts = ("syncs_count", "launches_count", "collectives_count", "gpu_rows_count")
    last = NOON + 99 * MS
    assert [tuple(row.values()) for row in found.select([*columns, *counts]).to_pylist()] == [
        (0, 0, 10 * MS, True, NOON + 7 * MS, last, 0, 0, 1, 4),
        (0, 1, 20 * MS, False, NOON + 9 * MS, last, 1, 2, 0, 4),
        (1, 0, 30 * MS, False, None, None, 0, 0, 1, 0),
    ]
    assert step_times.measure(found, rows_of(TABLES["throughput"], []), rows_of(TABLES["runs"], [])).num_rows == 1


def test_every_engine_observes_the_same_log(engine: Bench) -> None:
    log = make_log(1, 2, 3, ts_ns=None)
    found = engine.rows(logged_steps.observe_log(engine.wrap(rows_of(TABLES["throughput"], log))))
    (row,) = step_times.measure(engine.rows(observe(engine, [])), found, rows_of(TABLES["runs"], [])).to_pylist()
    assert (row["step_ns"], row["steps_count"]) == (2 * MS, 3)
