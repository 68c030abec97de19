from __future__ import annotations

import pytest

from gold.bucket_replay import MIB
from gold.cost_model import TABLE, measure
from gold.single_gpu_forecast import fit_machines
from tests.support.forecast_pairs import (
    MODELS,
    SEALED,
    list_rows,
    make_pair,
    make_pairs,
    make_single_pairs,
    plant_chains,
    shuffle,
    time_candidate,
)


def test_a_machine_has_a_rate_of_sealing_with_its_ends_range_and_error() -> None:
    row = next(row for row in list_rows(TABLE, measure(SEALED, make_pairs(0.5))) if row["term"] == "seal_and_open")
    assert row["bytes_per_second"] == pytest.approx(2e9, rel=1e-3)
    assert row["low_bytes_per_second"] == pytest.approx(2e9, rel=1e-3)
    assert row["high_bytes_per_second"] == pytest.approx(2e9, rel=1e-3)
    assert (row["smallest_bytes"], row["largest_bytes"]) == (MIB, 12.5 * MIB), "messages are halves of buckets"
    assert (row["pairs_count"], row["models_count"], row["chains_count"]) == (3, 3, 1)
    assert (row["held_out_scheme"], row["source"], row["evidence"]) == ("one model left out", "lake", "modelled")
    assert row["median_error_fraction"] == pytest.approx(0, abs=1e-3)
    assert row["reason"] is None


def test_the_ends_of_a_rate_are_those_of_fits_without_one_model() -> None:
    pairs = [make_pair(model, cost) for model, cost in zip(MODELS, (0.4, 0.5, 0.8), strict=True)]
    row = next(row for row in list_rows(TABLE, measure(SEALED, pairs)) if row["term"] == "seal_and_open")
    assert row["low_bytes_per_second"] < row["bytes_per_second"] * 1.001
    assert row["low_bytes_per_second"] < row["high_bytes_per_second"]
    assert row["high_bytes_per_second"] > row["bytes_per_second"] * 0.999
    assert 0 < row["median_error_fraction"] <= row["p90_error_fraction"]


def test_pairs_of_one_model_have_a_rate_and_no_error() -> None:
    rows = list_rows(TABLE, measure(SEALED, [make_pair("ringy", 0.5)]))
    row = next(row for row in rows if row["term"] == "seal_and_open")
    assert (row["low_bytes_per_second"], row["median_error_fraction"], row["held_out_scheme"]) == (None, None, None)
    assert row["reason"] == "pairs of one model alone: no error on another model is known"


def test_copies_in_host_memory_are_measured_and_unobservable_without_a_span() -> None:
    (row,) = (row for row in list_rows(TABLE, measure(SEALED, make_pairs())) if row["term"] == "host_copy")
    buckets = [bucket for pair in make_pairs() for bucket in pair.traced[0][0].buckets]
    rate = sum(one.buffer_bytes for one in buckets) / sum(one.host_copy_ns for one in buckets) * 1e9
    assert (row["bytes_per_second"], row["evidence"]) == (pytest.approx(rate), "measured")


def test_chains_and_machines_are_fitted_by_themselves() -> None:
    elsewhere = [make_pair(model, 3.0, f"{model}-far", gpu="B200") for model in MODELS]
    rows = list_rows(TABLE, measure(SEALED, [*plant_chains("ringy", "mixed"), *elsewhere]))
    rates = {
        ("B200" in row["machine"], row["chains_count"]): 1e9 / row["bytes_per_second"]
        for row in rows
        if row["term"] == "seal_and_open"
    }
    assert rates == {
        (False, 1): pytest.approx(0.5, rel=1e-3),
        (False, 2): pytest.approx(0.3, rel=1e-3),
        (True, 1): pytest.approx(3.0, rel=1e-3),
    }


def test_constants_of_one_gpu_say_how_many_pairs_and_models_support_them() -> None:
    pairs = make_single_pairs()
    plateaus = fit_machines(pairs, [pair.baseline for pair in pairs])
    rows = {row["term"]: row for row in list_rows(TABLE, measure("cc", pairs, list(plateaus.values())), "cc")}
    assert set(rows) == {"host_slowdown", "fixed_host", "launch_added", "gpu_slowdown", "loader_slowdown"}
    assert {row["pairs_count"] for row in rows.values()} == {9}
    assert (rows["host_slowdown"]["source"], rows["host_slowdown"]["alpha_ns"]) == ("lake", None)
    assert rows["host_slowdown"]["slowdown_ratio"] > 1
    assert (rows["launch_added"]["source"], rows["launch_added"]["slowdown_ratio"]) == ("published", None)
    assert rows["launch_added"]["alpha_ns"] == pytest.approx(7720)
    assert rows["launch_added"]["reason"] == "no pair depends on it: it is the published value"


def test_a_regime_without_pairs_has_no_rows() -> None:
    rows = measure(SEALED, [])
    assert (rows.num_rows, rows.schema) == (0, TABLE.arrow_schema)


def test_the_order_of_pairs_does_not_matter() -> None:
    pairs = [*plant_chains("ringy", "mixed"), make_pair("dense", 0.7)]
    pairs[0] = time_candidate(pairs[0], pairs[0].candidate_ns * 1.1)
    assert list_rows(TABLE, measure(SEALED, shuffle(pairs))) == list_rows(TABLE, measure(SEALED, pairs))
