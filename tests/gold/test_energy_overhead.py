from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from gold import step_energy
from gold.comparison import Sides
from gold.energy_overhead import TABLE, measure
from tests.support.baselines import PAIR
from tests.support.silver_rows import rows_of
from tests.support.timed_runs import make_step_times

RUN = {"model": "m", "world_size": 2, "found_world_size": None}
UNTIMED = Sides([], [])


def energies(*joules: float | None, **fields: Any) -> pa.Table:
    """Steps of a second each, read ten times a second, of rank 0 and device 0, unless they say otherwise."""
    known = {"timed_by": "log", "period": "step", "ts_ns": 1, "duration_ns": 10**9, "evidence": "measured"}
    known |= {"samples_count": 10, "sampling_ns": 10**8}
    return rows_of(
        step_energy.TABLE,
        [
            {"run_id": "r", "step_number": at + 1, "energy_j": value, "mean_power_w": value, **known, **fields}
            for at, value in enumerate(joules)
        ],
    )


def compare(ours: list[pa.Table], theirs: list[pa.Table]) -> dict[str, Any]:
    rows = measure(PAIR, RUN, ours, theirs, UNTIMED)
    assert rows.schema == TABLE.arrow_schema
    (row,) = rows.to_pylist()
    return dict(row)


def join_tables(*tables: pa.Table) -> pa.Table:
    return pa.concat_tables(tables)


def side(*joules: float) -> list[pa.Table]:
    """Runs of two steps each, which take so much on average."""
    return [energies(each + 1, each - 1) for each in joules]


def test_what_the_tee_adds_to_a_step_is_the_difference_of_the_means_over_runs() -> None:
    row = compare(side(30.0, 31.0, 32.0), side(20.0, 20.5, 19.5))
    assert row["energy_j"] == pytest.approx(31, abs=0.05)
    assert row["overhead_j"] == pytest.approx(row["energy_j"] - row["baseline_energy_j"])
    assert row["energy_low_ratio"] < row["energy_ratio"] < row["energy_high_ratio"]
    assert (row["mean_power_w"], row["steps_count"]) == (pytest.approx(31, abs=0.05), 6)
    assert (row["verdict_class"], row["evidence"], row["reason"]) == ("more", "measured", None)
    assert row["verdict"].startswith("1.55x more, 95 % 1.4")
    less = compare(side(20.0, 20.5, 19.5), side(30.0, 31.0, 32.0))
    assert less["verdict_class"] == "less"
    assert less["verdict"].startswith("1.55x less, 95 % 1.4")


def test_nothing_is_concluded_of_the_energy_of_steps_of_other_work() -> None:
    timed = Sides([make_step_times(20, samples_per_step=128.0)], [make_step_times(10, samples_per_step=64.0)])
    ours, theirs = side(40.0, 41.0, 42.0), side(20.0, 20.5, 19.5)
    (row,) = measure(PAIR, RUN, ours, theirs, timed).to_pylist()
    assert row["verdict_class"] == "inconclusive"
    assert (row["p_value"], row["more_runs_count"]) == (None, None)
    assert row["verdict"].endswith("of 128 samples and one of its baseline of 64, which makes 1.03x per sample")


def test_a_log_that_is_written_every_few_steps_tells_the_energy_of_one() -> None:
    row = compare([energies(60.0, 60.0, stands_for_count=2)], [energies(30.0, 30.0)])
    assert (row["energy_j"], row["baseline_energy_j"]) == (pytest.approx(30), pytest.approx(30))
    assert row["mean_power_w"] == pytest.approx(60), "of the time that the log says"


def test_fewer_than_three_runs_per_side_are_no_verdict() -> None:
    row = compare(side(30.0, 31.0), side(20.0, 20.5))
    assert (row["verdict_class"], row["energy_low_ratio"]) == ("inconclusive", None)
    assert row["reason"] == "a conclusion needs 3 runs per side, and there are 2 and 2"


def test_copies_of_one_recording_are_no_repeats() -> None:
    row = compare(side(30.0, 30.0, 30.0), side(20.0, 20.5, 19.5))
    assert (row["runs_count"], row["verdict_class"]) == (1, "inconclusive")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"samples_count": 4}, "a run has 8 readings within its steps, and a verdict needs 10"),
        ({"sampling_ns": 10**9}, "the steps of a run last 2.0 sensor periods, and a verdict needs 5"),
    ],
)
def test_too_few_readings_or_too_slow_a_sensor_is_no_verdict(fields: dict[str, int], reason: str) -> None:
    blind = [energies(each + 1, each - 1, **fields) for each in (30.0, 31.0, 32.0)]
    row = compare(blind, side(20.0, 20.5, 19.5))
    assert (row["verdict_class"], row["energy_low_ratio"], row["p_value"]) == ("inconclusive", None, None)
    assert row["verdict"] == f"nothing can be concluded, because {reason}"
    assert row["reason"].startswith(reason)


def test_devices_of_a_step_are_added_and_one_that_is_not_known_makes_it_unknown() -> None:
    other = energies(5, None, 7, device_id=1)
    row = compare([join_tables(energies(10, 10, 10), other)], [energies(10, 10, 10)])
    assert (row["energy_j"], row["baseline_energy_j"], row["steps_count"]) == (16, 10, 2)
    assert (row["devices_count"], row["baseline_devices_count"]) == (2, 1)
    assert "not as many devices were sampled in both" in row["reason"]


def test_a_model_on_either_side_makes_the_answer_a_model_and_says_why() -> None:
    row = compare([energies(10, 12)], [energies(10, 12, evidence="modelled", reason="a line")])
    assert (row["verdict_class"], row["evidence"]) == ("inconclusive", "modelled")
    assert row["reason"].endswith("; a line")


def test_warm_up_is_left_out_and_the_clock_that_knows_more_steps_is_taken() -> None:
    baseline = join_tables(energies(9, 9, 9), energies(1, timed_by="profile"))
    tee = join_tables(energies(900, is_warmup=True), energies(9, 9, 9).slice(1), energies(4, timed_by="profile"))
    row = compare([tee], [baseline])
    assert (row["timed_by"], row["steps_count"], row["energy_ratio"]) == ("log", 2, 1.0)


@pytest.mark.parametrize(
    ("tee", "baseline", "reason"),
    [
        (energies(1), energies(), "no power or energy of its baseline was sampled"),
        (energies(), energies(1), "no power or energy of the run was sampled"),
        (energies(None), energies(1), "no step of the run has a known energy"),
        (energies(1, is_warmup=True), energies(1), "outside warm-up the two share no step of which both energies"),
    ],
)
def test_what_cannot_be_compared_says_why(tee: pa.Table, baseline: pa.Table, reason: str) -> None:
    row = compare([tee], [baseline])
    assert row["reason"].startswith(reason)
    assert (row["energy_j"], row["verdict_class"], row["evidence"]) == (None, "inconclusive", "unobservable")


def test_a_pair_that_nobody_sampled_has_no_row() -> None:
    assert measure(PAIR, RUN, [energies()], [energies()], UNTIMED).num_rows == 0
