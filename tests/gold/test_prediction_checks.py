from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gold.changes import predict_change
from gold.prediction_checks import TABLE, find_regime_spread, measure
from gold.regime_model import RegimeModel
from tests.support.forecast_pairs import (
    MODELS,
    SEALED,
    list_rows,
    make_pair,
    make_pairs,
    make_single_pairs,
    make_step,
    plant_chains,
    shuffle,
    time_candidate,
)

if TYPE_CHECKING:
    from gold.forecast_runs import ForecastPair
    from tests.support.forecast_pairs import Rows


def list_checks(rows: Rows, task: str, scheme: str = "model") -> Rows:
    return [row for row in rows if (row["task"], row["scheme"]) == (task, scheme)]


def slow_down(*slowdowns: float) -> list[ForecastPair]:
    """A pair of each model, with these slowdowns."""
    pairs = zip(make_pairs(), slowdowns, strict=True)
    return [time_candidate(pair, pair.baseline_ns * slow) for pair, slow in pairs]


def test_each_model_is_predicted_without_itself() -> None:
    pairs = make_pairs(0.5)
    rows = list_checks(list_rows(TABLE, measure(SEALED, pairs)), "regime")
    assert [row["left_out"] for row in rows] == ["dense", "mixed", "ringy"]
    assert [row["predicted_run_id"] for row in rows] == [f"{row['left_out']}-sealed" for row in rows]
    assert [row["known_run_id"] for row in rows] == [f"{row['left_out']}-plain" for row in rows]
    assert [row["error_fraction"] for row in rows] == [pytest.approx(0, abs=1e-3)] * 3
    assert {row["evidence"] for row in rows} == {"modelled"}
    steps = {row["left_out"]: (row["measured_step_ns"], row["known_step_ns"]) for row in rows}
    assert steps == {pair.candidate.model: (round(pair.candidate_ns), round(pair.baseline_ns)) for pair in pairs}


def test_a_model_that_differs_is_missed_by_what_the_others_say() -> None:
    pairs = [make_pair("ringy", 2.0), make_pair("mixed", 0.5), make_pair("dense", 0.5)]
    row = next(row for row in measure(SEALED, pairs).to_pylist() if row["left_out"] == "ringy")
    wanted = pairs[0].predict(0.5)
    assert row["predicted_step_ns"] == pytest.approx(wanted, rel=1e-3)
    assert row["error_fraction"] == pytest.approx(wanted / pairs[0].candidate_ns - 1, rel=1e-2)
    assert row["is_inside"] is False
    assert (row["predicted_low_ns"] < row["predicted_step_ns"] < row["predicted_high_ns"]) is True


def test_the_interval_of_a_model_is_made_of_the_errors_on_others() -> None:
    rows = list_checks(list_rows(TABLE, measure(SEALED, make_pairs(0.5))), "regime")
    assert {row["interval_level"] for row in rows} == {2 / 3}
    assert {row["reason"] for row in rows} == {None}
    spread = find_regime_spread(make_pairs(0.5))
    assert spread is not None
    assert spread.level == 0.75
    few = list_checks(list_rows(TABLE, measure(SEALED, make_pairs(0.5)[:2])), "regime")
    assert [(row["interval_level"], row["is_inside"], row["reason"]) for row in few] == [
        (None, None, "errors on fewer than two other models make no interval")
    ] * 2


def test_guesses_are_made_of_the_same_others() -> None:
    pairs = slow_down(1.2, 1.3, 1.5)
    rows = list_checks(list_rows(TABLE, measure(SEALED, pairs)), "regime")
    errors = {row["left_out"]: row["constant_error_fraction"] for row in rows}
    assert errors == {
        "ringy": pytest.approx(1.4 / 1.2 - 1),
        "mixed": pytest.approx(1.35 / 1.3 - 1),
        "dense": pytest.approx(1.25 / 1.5 - 1),
    }
    nearest = {row["left_out"]: row["nearest_error_fraction"] for row in rows}
    assert nearest["dense"] == pytest.approx(1.3 / 1.5 - 1), "mixed takes the most similar time"


def test_a_pair_whose_sealing_compute_hides_says_so() -> None:
    pairs = slow_down(1.02, 1.04, 1.5)
    rows = list_checks(list_rows(TABLE, measure(SEALED, pairs)), "regime")
    assert {row["left_out"]: row["is_hidden"] for row in rows} == {"ringy": True, "mixed": False, "dense": False}


def test_schemes_leave_out_what_shares_a_model_and_a_setting() -> None:
    pairs = [make_pair(model, 0.5, f"{model}-{size}", batch_size=size) for model in MODELS for size in (32, 64)]
    rows = list_rows(TABLE, measure(SEALED, pairs))
    assert {row["left_out"] for row in list_checks(rows, "regime", "batch_size")} == {
        f"{model} {size}" for model in MODELS for size in (32, 64)
    }
    assert len(list_checks(rows, "regime", "world_size")) == 6
    assert list_checks(rows, "regime", "machine") == [], "one machine alone cannot be left out"


def test_machines_are_checked_by_themselves_unless_they_are_left_out() -> None:
    near = make_pairs(0.4)
    far = [make_pair(model, 2.0, f"{model}-far", gpu="B200") for model in MODELS]
    rows = list_rows(TABLE, measure(SEALED, [*near, *far]))
    assert [row["error_fraction"] for row in list_checks(rows, "regime")] == [pytest.approx(0, abs=1e-3)] * 6
    left_out = [abs(row["error_fraction"]) for row in list_checks(rows, "regime", "machine")]
    assert len(left_out) == 6
    assert min(left_out) > 0.05


def test_chains_are_predicted_from_what_they_did_to_other_models() -> None:
    pairs = plant_chains("ringy", "mixed", factor=0.6)
    rows = list_checks(list_rows(TABLE, measure(SEALED, pairs)), "chains")
    assert [(row["predicted_run_id"], row["known_run_id"], row["left_out"]) for row in rows] == [
        ("mixed-two-sealed", "mixed-sealed", "mixed"),
        ("ringy-two-sealed", "ringy-sealed", "ringy"),
    ]
    assert [row["error_fraction"] for row in rows] == [pytest.approx(0, abs=1e-3)] * 2
    assert rows[0]["constant_error_fraction"] == pytest.approx(pairs[2].candidate_ns / pairs[3].candidate_ns - 1)
    assert (rows[0]["interval_level"], rows[0]["reason"]) == (
        None,
        "errors on fewer than two other models make no interval",
    )


def test_the_interval_that_is_checked_is_the_one_that_is_stated() -> None:
    pairs = [make_pair(model, 0.5, burden=1.2) for model in MODELS]
    stated = {
        pair.candidate.model: predict_change(pair.baseline, RegimeModel(SEALED, tuple(pairs), ()), {"regime": SEALED})
        for pair in pairs
    }
    for row in list_checks(list_rows(TABLE, measure(SEALED, pairs)), "regime"):
        answer = stated[row["model"]]
        assert row["predicted_low_ns"] == pytest.approx(answer.low_ns, rel=1e-3)
        assert row["predicted_high_ns"] == pytest.approx(answer.high_ns, rel=1e-3)
        assert row["predicted_high_ns"] > 1.19 * row["predicted_step_ns"], "recording slowed the traced steps"


def test_steps_that_recording_slowed_too_much_have_no_interval() -> None:
    pairs = [make_pair("dense", 0.5, burden=1.6), make_pair("mixed", 0.5), make_pair("ringy", 0.5)]
    rows = list_checks(list_rows(TABLE, measure(SEALED, pairs)), "regime")
    assert [row["model"] for row in rows if row["is_inside"] is None] == ["dense"]
    assert rows[0]["reason"] == "recording slowed the traced steps 1.60 times: no interval is stated"


def test_intervals_of_caps_and_chains_are_checked_too() -> None:
    planted = [*plant_chains("ringy", "mixed", factor=0.6), make_pair("dense", 0.5)]
    steps = (make_step((30, 1, 1), *[(20.0, 9.0, 25.0)] * 3),)
    caps = [make_pair("ringy", 0.5, f"cap-{cap}", bucket_cap_mib=cap, steps=steps, batch_size=8) for cap in (5, 25)]
    rows = list_rows(TABLE, measure(SEALED, [*planted, *caps]))
    found = [row for row in rows if row["task"] in {"chains", "bucket_cap"}]
    assert {row["task"] for row in found} == {"chains", "bucket_cap"}
    assert {row["interval_level"] for row in found} == {2 / 3}
    assert all(row["is_inside"] is not None for row in found)


def test_what_chains_did_to_a_model_is_left_out_of_its_own_prediction() -> None:
    pairs = [*plant_chains("ringy", factor=0.6), *plant_chains("mixed", factor=0.4)]
    rows = list_checks(list_rows(TABLE, measure(SEALED, pairs)), "chains")
    wanted = {"ringy": pairs[0].predict(0.5 * 0.4), "mixed": pairs[2].predict(0.5 * 0.6)}
    found = {row["left_out"]: row["predicted_step_ns"] for row in rows}
    assert found == {model: pytest.approx(step_ns, rel=1e-6) for model, step_ns in wanted.items()}


def test_a_run_with_several_chains_is_predicted_once_from_runs_alike() -> None:
    pairs = plant_chains("ringy", "mixed")
    again = replace(pairs[0], candidate=replace(pairs[0].candidate, run_id="a-repeat-that-does-not-say-so"))
    rows = list_checks(list_rows(TABLE, measure(SEALED, [*pairs, again])), "chains")
    assert [row["predicted_run_id"] for row in rows] == ["mixed-two-sealed", "ringy-two-sealed"]


def test_a_cap_is_predicted_from_the_run_with_the_nearest_one() -> None:
    steps = (make_step((30, 1, 1), *[(20.0, 9.0, 25.0)] * 3),)
    pairs = [make_pair("ringy", 0.8, f"cap-{cap}", bucket_cap_mib=cap, steps=steps) for cap in (5, 25, 100)]
    rows = list_checks(list_rows(TABLE, measure(SEALED, pairs)), "bucket_cap", "bucket_cap_mib")
    assert {row["predicted_run_id"]: (row["known_run_id"], row["left_out"]) for row in rows} == {
        "cap-5-sealed": ("cap-25-sealed", "5"),
        "cap-25-sealed": ("cap-100-sealed", "25"),
        "cap-100-sealed": ("cap-25-sealed", "100"),
    }


def test_jobs_on_one_gpu_are_predicted_without_their_model() -> None:
    pairs = make_single_pairs(slowdown=1.2)
    rows = list_rows(TABLE, measure("cc", pairs, [pair.baseline for pair in pairs]), "cc")
    checks = list_checks(rows, "one_gpu")
    assert [row["left_out"] for row in checks] == ["deep"] * 3 + ["middle"] * 3 + ["small"] * 3
    assert max(abs(row["error_fraction"]) for row in checks) < 0.2
    assert [row["constant_error_fraction"] for row in checks] == [pytest.approx(0)] * 9


def test_a_regime_without_pairs_has_no_rows() -> None:
    rows = measure(SEALED, [])
    assert (rows.num_rows, rows.schema) == (0, TABLE.arrow_schema)


def test_the_order_of_pairs_does_not_matter() -> None:
    far = [make_pair(model, 2.0, f"{model}-far", gpu="B200") for model in MODELS]
    pairs = [*plant_chains("ringy", "mixed"), make_pair("dense", 0.7), *far]
    assert list_rows(TABLE, measure(SEALED, shuffle(pairs))) == list_rows(TABLE, measure(SEALED, pairs))
