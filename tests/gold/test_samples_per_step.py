"""A longer step that does more work is no slower: what logs say of a step is asked before a verdict."""

from __future__ import annotations

from typing import Any

import pytest

from gold import time_breakdown
from gold.comparison import Sides
from gold.logged_steps import observe_log, read_log
from gold.samples_per_step import describe_other_work
from gold.step_overhead import measure
from gold.step_series import StepWork
from lake.engines import PolarsEngine
from silver.throughput import TABLE as THROUGHPUT
from tests.support.baselines import PAIR
from tests.support.silver_rows import rows_of
from tests.support.timed_runs import MS, make_step_times

Rows = list[dict[str, Any]]
RUN = {"model": "m", "world_size": 1, "found_world_size": None}
NOTHING: dict[str, Any] = {"batch_size": None, "samples_per_step": None, "tokens_per_step": None}


def tell(ours: dict[str, Any], theirs: dict[str, Any], ratio: float = 2.0) -> str | None:
    sides = Sides([make_step_times(200, **NOTHING | ours)], [make_step_times(100, **NOTHING | theirs)])
    assert describe_other_work(sides, "epoch", ratio) is None
    return describe_other_work(sides, "step", ratio)


def compare_work(ours: dict[str, Any], theirs: dict[str, Any], source: str = "log") -> dict[str, Any]:
    """A pair of three runs per side, of which one takes twice as long per step."""
    sides: list[list[Rows]] = []
    for step_ms, work in ((200, ours), (100, theirs)):
        runs = [make_step_times(step_ms * noise, "log", **NOTHING | work) for noise in (1, 1.01, 0.99)]
        traced = [make_step_times(step_ms * noise, "trace") for noise in (1, 1.01, 0.99)]
        sides.append(runs if source == "log" else [[*a, *b] for a, b in zip(runs, traced, strict=True)])
    empty = time_breakdown.TABLE.arrow_schema.empty_table()
    (row,) = measure(PAIR, RUN, Sides(sides[0], sides[1]), (empty, empty)).to_pylist()
    return dict(row)


def read_work(*rows: dict[str, Any]) -> StepWork:
    """What a log of steps of 100 ms says of one of them."""
    known = {"run_id": "r", "rank": 0, "source_sha256": "log", "record": "csv", "period": "step"}
    known |= {"numbered_by": "number", "duration_source": "stated", "evidence": "measured", "duration_ns": 100 * MS}
    logged = [
        {**known, "stands_for_count": 1, "ordinal": at, "period_number": at, **row} for at, row in enumerate(rows)
    ]
    engine = PolarsEngine()
    log = engine.rows(observe_log(engine.wrap(rows_of(THROUGHPUT, logged))))
    found = read_log(log, None, is_tied=False)
    assert found is not None
    return found.work


def test_a_step_is_of_as_many_samples_as_its_rate_and_its_time_make() -> None:
    found = read_work({"samples_per_second": 640.0}, {"samples_per_second": 650.0}, {"samples_per_second": 600.0})
    assert found == StepWork(samples_per_step=found.samples_per_step)
    assert found.samples_per_step == pytest.approx(64)
    found = read_work({"tokens_per_second": 5e4, "batch_size": 8})
    assert found == StepWork(8, tokens_per_step=found.tokens_per_step)
    assert found.tokens_per_step == pytest.approx(5000)
    assert read_work({"batch_size": 8}, {"batch_size": 16}) == StepWork(), "no one number holds for all steps"


def test_a_record_of_many_steps_is_of_as_many_samples_as_one_of_them() -> None:
    late = {"duration_source": "difference", "duration_ns": 1000 * MS, "stands_for_count": 10}
    assert read_work({"samples_per_second": 640.0, **late}).samples_per_step == pytest.approx(64)


def test_steps_of_other_work_are_told_apart() -> None:
    said = tell({"samples_per_step": 256.0}, {"samples_per_step": 64.0}, 4.2)
    assert said == (
        "the logs say that a step of the run is of 256 samples and one of its baseline of 64, "
        "which makes 1.05x per sample"
    )
    assert "5,000 tokens" in str(tell({"tokens_per_step": 5000.0}, {"tokens_per_step": 2500.0}))
    assert "of 128 samples" in str(tell({"batch_size": 128}, {"batch_size": 64}))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (NOTHING, NOTHING),
        ({"batch_size": 64}, {"batch_size": 64}),
        ({"batch_size": 64}, NOTHING),
        # Rates are rounded and smoothed.
        ({"samples_per_step": 70.0}, {"samples_per_step": 64.0}),
        # One log counts samples of a device, the other those of all: their rates show the same work.
        ({"batch_size": 8, "samples_per_step": 64.0}, {"batch_size": 64, "samples_per_step": 64.5}),
    ],
)
def test_steps_of_the_same_work_are_not(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    assert tell(ours, theirs) is None


@pytest.mark.parametrize("size", [3, 7, 48, 64, 100, 1000])
def test_one_batch_size_is_one_however_many_runs_say_it(size: int) -> None:
    for counts in ((1, 3), (3, 5), (4, 7)):
        sides = [[make_step_times(100, **NOTHING | {"batch_size": size}) for _ in range(count)] for count in counts]
        assert describe_other_work(Sides(sides[0], sides[1]), "step", 1.0) is None


def test_a_side_whose_runs_say_several_batch_sizes_says_none() -> None:
    mixed = [make_step_times(100, **NOTHING | {"batch_size": size}) for size in (32, 128)]
    assert (
        describe_other_work(Sides(mixed, [make_step_times(100, **NOTHING | {"batch_size": 48})]), "step", 1.0) is None
    )


def test_a_batch_size_that_differs_a_little_shows_in_rates_too() -> None:
    assert tell({"batch_size": 72, "samples_per_step": 72.0}, {"batch_size": 64, "samples_per_step": 64.0}) is not None


@pytest.mark.parametrize("source", ["log", "both"])
def test_nothing_is_concluded_of_steps_of_other_work(source: str) -> None:
    row = compare_work({"samples_per_step": 128.0}, {"samples_per_step": 64.0}, source)
    assert row["verdict_class"] == "inconclusive"
    assert row["verdict"].endswith("of 128 samples and one of its baseline of 64, which makes 1.00x per sample")
    told = ("p_value", "equivalence_p_value", "detectable_fraction", "more_runs_count")
    assert [row[name] for name in told] == [None] * 4, "no test was asked, and no repeat settles it"
    assert (row["slowdown_ratio"], row["overhead_ns"], row["time_increase_fraction"]) == (pytest.approx(2), None, None)
    assert "which makes 1.00x per sample" in row["reason"]
    assert compare_work({}, {}, source)["verdict_class"] == "slower"
