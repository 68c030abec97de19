"""What rounding leaves open: a verdict must not rest on the last digit of a log."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gold.inference import RunValue, compare_runs
from gold.logged_steps import observe_log, read_log
from gold.rounding import describe_rounding, measure_rounding
from lake.engines import PolarsEngine
from silver import throughput
from tests.support.silver_rows import rows_of

MS = 1_000_000
UNITS = st.sampled_from([1_000, 10_000, 1_000_000, 10_000_000])


def log_steps(generator: np.random.Generator, mean: float, deviation: float, unit: int) -> list[int]:
    """Two hundred steps as a log that rounds writes them."""
    return [round(value / unit) * unit for value in generator.normal(mean, deviation, 200).tolist()]


def compare_logs(means: tuple[float, float], deviation: float, unit: int, seed: int) -> tuple[str, float, float]:
    """The verdict and the interval of the second against the first, over four runs each."""
    generator = np.random.default_rng(seed)
    sides = []
    for mean in means:
        logs = [log_steps(generator, mean, deviation, unit) for _ in range(4)]
        sides.append([RunValue(float(np.mean(steps)), rounding_fraction=measure_rounding(steps)) for steps in logs])
    found = compare_runs(sides[1], sides[0])
    assert found is not None
    return found.verdict_class, found.low or 0.0, found.high or math.inf


def test_numbers_that_vary_by_less_than_their_unit_leave_half_of_it_open() -> None:
    assert measure_rounding([12 * MS] * 97 + [13 * MS] * 3) == pytest.approx(0.5 / 12.03)
    assert measure_rounding([12 * MS] * 8) == pytest.approx(0.5 / 12)
    assert measure_rounding([395.1, 395.1, 395.2, 395.1]) == pytest.approx(0.05 / 395.125)


def test_numbers_that_scatter_average_rounding_out() -> None:
    assert measure_rounding([11 * MS, 12 * MS, 13 * MS, 14 * MS, 12 * MS]) == 0
    assert measure_rounding([12_345_678, 12_345_912, 12_346_001]) == 0


@pytest.mark.parametrize("values", [[], [0, 0], [12 * MS], [12 * MS] * 7])
def test_few_equal_numbers_tell_no_unit(values: list[float]) -> None:
    assert measure_rounding(values) == 0


@given(st.floats(15, 400), st.floats(0, 3), UNITS, st.integers(0, 2**32 - 1))
def test_the_true_mean_lies_within_what_rounding_leaves_open(
    units: float, scatter: float, unit: int, seed: int
) -> None:
    true = np.random.default_rng(seed).normal(units * unit, scatter * unit, 500)
    written = [round(value / unit) * unit for value in true.tolist()]
    off = abs(float(np.mean(written)) / float(true.mean()) - 1)
    # What scatters by half a unit is rounded up as often as down, but for chance.
    chance = 5 * unit / math.sqrt(12 * len(written)) / float(true.mean())
    assert off <= measure_rounding(written) * (1 + measure_rounding(written)) + chance


@pytest.mark.parametrize("seed", range(8))
def test_rounding_alone_makes_no_verdict(seed: int) -> None:
    """Steps of 12.44 and 12.56 ms, as a log in whole milliseconds has them: 12 and 13, but for a few."""
    verdict, low, high = compare_logs((12.44 * MS, 12.56 * MS), 0.03 * MS, MS, seed)
    assert verdict == "not_shown"
    assert low < 12.56 / 12.44 < high


@pytest.mark.parametrize("seed", range(8))
def test_what_exceeds_rounding_is_found(seed: int) -> None:
    verdict, low, high = compare_logs((12.44 * MS, 18.56 * MS), 0.03 * MS, MS, seed)
    assert verdict == "slower"
    assert low < 18.56 / 12.44 < high
    assert compare_logs((124.4 * MS, 124.5 * MS), 0.3 * MS, MS, seed)[0] == "no_difference"


def test_no_number_of_repeats_settles_what_rounding_leaves_open() -> None:
    sides = [[RunValue(value * mean, rounding_fraction=0.04) for value in (1, 1.001, 0.999)] for mean in (12, 12.9)]
    found = compare_runs(sides[1], sides[0])
    assert found is not None
    assert (found.verdict_class, found.more_runs_count) == ("not_shown", None)
    assert found.detectable_fraction is not None
    assert found.detectable_fraction > 0.16


def test_the_caveat_says_how_much_and_is_left_out_where_it_does_not_matter() -> None:
    assert describe_rounding(0.0416, "step") == [
        "its log rounds steps, which differ by less than that: their mean may be 4.2 % more or less"
    ]
    assert describe_rounding(0.0005, "step") == []


def time_log(source: str, *durations_ms: int) -> dict[str, Any]:
    """What gold.step_times says of a training log."""
    engine = PolarsEngine()
    known: dict[str, Any] = {
        "run_id": "r",
        "source_sha256": "log",
        "record": "csv",
        "period": "step",
        "numbered_by": "number",
    }
    known |= {"rank": 0, "duration_source": source, "evidence": "measured", "stands_for_count": 1}
    logged = [
        {**known, "ordinal": place, "period_number": place, "duration_ns": length * MS}
        for place, length in enumerate(durations_ms)
    ]
    log = engine.rows(observe_log(engine.wrap(rows_of(throughput.TABLE, logged))))
    found = read_log(log, None, is_tied=False)
    assert found is not None
    return {"rounding_fraction": found.rounding_fraction, "caveat": "; ".join(found.caveats)}


def test_a_log_that_rounds_leaves_its_mean_open_and_says_how_far() -> None:
    row = time_log("stated", *[12] * 39, 13)
    assert row["rounding_fraction"] == pytest.approx(0.5 / 12.025)
    assert row["caveat"] == "its log rounds steps, which differ by less than that: their mean may be 4.2 % more or less"
    assert time_log("stated", *[11, 12, 13] * 5)["rounding_fraction"] == 0


def test_times_of_writing_are_rounded_once_however_many_there_are() -> None:
    assert time_log("difference", *[2000] * 30, 3000)["rounding_fraction"] == 0
