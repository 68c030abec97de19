from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from gold import step_energy
from gold.energy_overhead import measure
from tests.support.baselines import PAIR
from tests.support.silver_rows import rows_of

RUN = {"model": "m", "world_size": 2, "found_world_size": None}


def energies(*joules: float | None, **fields: Any) -> pa.Table:
    """Steps of a second each, of rank 0 and device 0, numbered from 1, unless they say otherwise."""
    known = {"timed_by": "log", "period": "step", "ts_ns": 1, "duration_ns": 10**9, "evidence": "measured"}
    return rows_of(
        step_energy.TABLE,
        [
            {"run_id": "r", "step_number": at + 1, "energy_j": value, "mean_power_w": value, **known, **fields}
            for at, value in enumerate(joules)
        ],
    )


def compared(tee: pa.Table, baseline: pa.Table, *repeats: pa.Table) -> dict[str, Any]:
    (row,) = measure(PAIR, RUN, (tee, baseline), repeats).to_pylist()
    return dict(row)


def joined(*tables: pa.Table) -> pa.Table:
    return pa.concat_tables(tables)


def test_what_the_tee_adds_to_a_step_is_the_difference_of_the_medians() -> None:
    row = compared(energies(31, 30, 32, 30, 31), energies(20, 20, 21, 20, 20), energies(20.2, 20, 20.2, 21, 20.2))
    assert (row["energy_j"], row["baseline_energy_j"], row["difference_j"]) == (31, 20, 11)
    assert row["energy_ratio"] == pytest.approx(1.55)
    assert 1.4 < row["energy_low_ratio"] <= 1.55 <= row["energy_high_ratio"] < 1.7
    assert (row["mean_power_w"], row["baseline_mean_power_w"]) == (31, 20)
    assert row["noise_floor_fraction"] == pytest.approx(0.01)
    assert (row["verdict_class"], row["evidence"], row["reason"], row["steps_count"]) == ("more", "measured", None, 5)


def test_devices_of_a_step_are_added_and_one_that_is_not_known_makes_it_unknown() -> None:
    other = energies(5, None, 7, device_id=1)
    row = compared(joined(energies(10, 10, 10), other), energies(10, 10, 10))
    assert (row["energy_j"], row["baseline_energy_j"], row["steps_count"]) == (16, 10, 2)
    assert (row["devices_count"], row["baseline_devices_count"]) == (2, 1)
    assert "not as many devices were sampled in both" in row["reason"]


def test_a_model_on_either_side_makes_the_answer_a_model_and_says_why() -> None:
    row = compared(energies(10, 12), energies(10, 12, evidence="modelled", reason="a line"))
    assert (row["verdict_class"], row["evidence"]) == ("within_noise", "modelled")
    narrow = "steps between the same readings are no samples of their own: the interval is too narrow"
    assert row["reason"] == f"no repeat of the baseline (repeat_of) gives a noise floor; {narrow}; a line"


def test_warm_up_is_left_out_and_the_clock_that_knows_more_steps_is_taken() -> None:
    baseline = joined(energies(9, 9, 9), energies(1, timed_by="profile"))
    tee = joined(energies(900, is_warmup=True), energies(9, 9, 9).slice(1), energies(4, timed_by="profile"))
    row = compared(tee, baseline)
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
    row = compared(tee, baseline)
    assert row["reason"].startswith(reason)
    assert (row["energy_j"], row["verdict_class"], row["evidence"]) == (None, "inconclusive", "unobservable")


def test_a_pair_that_nobody_sampled_has_no_row() -> None:
    assert measure(PAIR, RUN, (energies(), energies()), []).num_rows == 0
