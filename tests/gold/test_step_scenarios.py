"""Loops whose true ratio is known, from the bytes of their traces to gold.step_times."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import pytest

from assets.build import gold, silver
from gold import step_times
from lake.engines import PolarsEngine
from tests.support.step_traces import Recorder, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake.store import Lake
    from tests.conftest import LandFiles

    Record = Callable[..., dict[str, Any]]

MS = 1000  # microseconds: a trace's own unit
PLAIN = 'regime = "cc_off"\nmodel = "m"\n'


@pytest.fixture
def record(lake: Lake, land_files: LandFiles) -> Record:
    """Bring the traces of a run's ranks from their bytes to the row of gold that times them."""
    engine = PolarsEngine()

    def record_run(run_id: str, *ranks: bytes, manifest: str = PLAIN) -> dict[str, Any]:
        land_files({f"rank{rank}.json": trace for rank, trace in enumerate(ranks)}, run_id, manifest)
        silver.materialise(lake, run_id, engine)
        gold.materialise(lake, run_id, engine, [step_times.TABLE])
        (row,) = lake.scan(step_times.TABLE, [run_id]).collect().to_dicts()
        assert row["source"] == "trace"
        return dict(row)

    return record_run


def divide(one: dict[str, Any], other: dict[str, Any]) -> Fraction:
    return Fraction(one["step_ns"], other["step_ns"])


# -- accumulation -----------------------------------------------------------------------------------------------------


def accumulate(last_ms: int, count: int, shift: int = 0) -> list[Step]:
    """Micro-batches of 100 ms, of which every fourth also reduces and then takes longer."""
    micro = Step(100 * MS, 90 * MS, does_wait=True)
    reducing = Step(last_ms * MS, 90 * MS, has_collective=True, does_wait=True)
    return [reducing if (place + shift) % 4 == 3 else micro for place in range(count)]


def test_a_cost_that_is_paid_once_a_cycle_is_in_the_ratio_though_medians_are_equal(record: Record) -> None:
    base = record("base", Recorder().record(accumulate(100, 18)))
    tee = record("tee", Recorder().record(accumulate(272, 19, shift=2)))
    assert divide(tee, base) == Fraction(143, 100)
    assert tee["median_step_ns"] == base["median_step_ns"] == 100 * MS * 1000
    assert (tee["cycle_steps_count"], tee["steps_count"]) == (4, 16)
    assert (base["cycle_steps_count"], base["steps_count"]) == (4, 16)
    assert tee["caveat"].startswith("the mean step is 1.43 times the median one")
    assert "collectives repeat every 4 steps: only whole cycles are taken" in tee["caveat"]


def test_a_cost_that_no_collective_marks_is_in_the_ratio_of_all_steps(record: Record) -> None:
    def checkpoint(long_ms: int) -> list[Step]:
        return [Step((long_ms if place % 10 == 9 else 100) * MS, MS, does_wait=True) for place in range(30)]

    base, tee = record("base", Recorder().record(checkpoint(100))), record("tee", Recorder().record(checkpoint(530)))
    assert divide(tee, base) == Fraction(143, 100)
    assert tee["median_step_ns"] == base["median_step_ns"]


# -- a host that runs ahead -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [5, 40])
def test_a_gpu_that_is_twice_as_slow_behind_equal_host_steps_comes_out_as_twice(record: Record, count: int) -> None:
    base = record("base", Recorder().record([Step(10 * MS, 10 * MS)] * count))
    tee = record("tee", Recorder().record([Step(10 * MS, 20 * MS)] * count))
    assert divide(tee, base) == 2
    assert tee["timed_by"] == "gpu_completion"
    assert tee["steps_count"] == count - 1
    # The last of them ends when all work is done, the host's last step long before.
    assert tee["gpu_lag_ns"] == 1000 * (1000 * 10 * count + 6)
    assert "so steps are timed from completion to completion of their GPU work" in tee["caveat"]


def test_without_known_launches_there_is_no_step_where_the_gpu_lags(record: Record) -> None:
    tee = record("tee", Recorder(has_correlations=False).record([Step(10 * MS, 20 * MS)] * 8))
    assert (tee["step_ns"], tee["median_step_ns"], tee["evidence"]) == (None, None, "unobservable")
    assert "no two steps in a row have GPU work whose launch is known" in tee["reason"]
    base = record("base", Recorder(has_correlations=False).record([Step(10 * MS, 9 * MS)] * 8))
    assert (base["step_ns"], base["timed_by"]) == (10_000_000, "host_step")


def test_without_gpu_rows_a_step_is_known_only_where_the_host_waits(record: Record) -> None:
    blind = Recorder(has_gpu_rows=False)
    ahead = record("ahead", blind.record([Step(10 * MS, 20 * MS)] * 8))
    assert (ahead["step_ns"], ahead["evidence"]) == (None, "unobservable")
    assert ahead["reason"] == "no GPU rows were recorded and the host does not wait for the GPU in every step"
    waiting = record("waiting", blind.record([Step(10 * MS, 20 * MS, does_wait=True)] * 8))
    assert (waiting["step_ns"], waiting["evidence"]) == (20_006_000, "modelled")


# -- ranks ------------------------------------------------------------------------------------------------------------


def record_ranks(*steps: Step, count: int = 12) -> list[bytes]:
    return [Recorder().record([step] * count, rank, len(steps)) for rank, step in enumerate(steps)]


def test_the_step_of_a_job_without_collectives_is_that_of_its_slowest_rank(record: Record) -> None:
    usual, slow = Step(10 * MS, 5 * MS, does_wait=True), Step(20 * MS, 5 * MS, does_wait=True)
    base = record("base", *record_ranks(usual, usual, usual, usual))
    tee = record("tee", *record_ranks(usual, usual, slow, usual))
    assert divide(tee, base) == 2
    assert (tee["rank_rule"], tee["ranks_count"]) == ("slowest_rank", 4)
    assert "mean steps of ranks differ by 100.0 %: the slowest is the job's" in tee["caveat"]


def test_the_step_of_a_job_that_collectives_tie_is_the_median_over_ranks(record: Record) -> None:
    ranks = [Step(us, 5 * MS, has_collective=True, does_wait=True) for us in (10_000, 10_010, 10_090)]
    row = record("tied", *record_ranks(*ranks))
    assert (row["step_ns"], row["rank_rule"], row["timed_by"]) == (10_010_000, "median_rank", "host_step")


def test_ranks_that_drift_apart_are_not_tied_whatever_collectives_they_have(record: Record) -> None:
    ranks = [Step(us, 5 * MS, has_collective=True, does_wait=True) for us in (10_000, 10_000, 15_000)]
    row = record("loose", *record_ranks(*ranks))
    assert (row["step_ns"], row["rank_rule"]) == (15_000_000, "slowest_rank")


# -- annotations ------------------------------------------------------------------------------------------------------


def test_a_recording_without_steps_gives_no_step(record: Record) -> None:
    row = record("unmarked", Recorder(has_annotations=False).record([Step(10 * MS, 10 * MS)] * 20))
    assert (row["step_ns"], row["median_step_ns"], row["steps_count"]) == (None, None, 0)
    assert (row["evidence"], row["log_standard_error"]) == ("unobservable", None)
    assert row["reason"] == "no annotation marks its steps, and the whole recording is no step"


# -- warm-up ----------------------------------------------------------------------------------------------------------


def test_steps_that_warm_up_longer_than_the_manifest_says_are_left_out(record: Record) -> None:
    usual = [Step(10 * MS, 5 * MS, does_wait=True)] * 20
    slow = [Step(ms * MS, 5 * MS, does_wait=True) for ms in (90, 40, 30)]
    base = record("base", Recorder().record(usual), manifest=PLAIN)
    tee = record("tee", Recorder().record([*slow, *usual]), manifest=f"{PLAIN}warmup_steps_count = 1\n")
    assert divide(tee, base) == 1
    assert (tee["found_warmup_steps_count"], tee["steps_count"]) == (3, 20)
    assert "2 steps more than the manifest counts are warm-up" in tee["caveat"]


def test_warm_up_that_nothing_shows_is_left_out_and_said(record: Record) -> None:
    usual = [Step(10 * MS, 5 * MS, does_wait=True)] * 20
    row = record("much", Recorder().record(usual), manifest=f"{PLAIN}warmup_steps_count = 4\n")
    assert (row["steps_count"], row["step_ns"]) == (16, 10_000_000)
    assert "the manifest counts 4 steps as warm-up that are not slower than the others" in row["caveat"]
