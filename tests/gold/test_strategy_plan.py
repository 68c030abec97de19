from __future__ import annotations

from typing import Any

import pytest

from gold import strategy_plan
from gold.prediction_intervals import Spread
from gold.strategy_plan import PARTS, is_tie
from gold.strategy_question import MeasuredSealing
from lake.contract import require_declared
from silver.policy import POLICY
from tests.support.planned_jobs import ask, plan

Row = dict[str, Any]
SPREAD = Spread(0.75, 0.5, 3)


@pytest.fixture(scope="module")
def small() -> list[Row]:
    """1.5 B parameters on one node."""
    return plan(ask("gpt-2-xl", 8, 128))


@pytest.fixture(scope="module")
def middle() -> list[Row]:
    """13 B parameters on eight nodes."""
    return plan(ask("llama-2-13b", 64, 1024))


def select(rows: list[Row], **fields: Any) -> list[Row]:
    return [row for row in rows if all(row[name] == value for name, value in fields.items())]


@pytest.mark.parametrize("regime", ["cc_off", "hopper_spt_cc", "hopper_ppcie", "sw_per_hop_aesgcm"])
def test_rows_are_as_declared(regime: str) -> None:
    table = strategy_plan.measure(ask("llama-2-13b", 64, 1024))
    names = table.column("regime").to_pylist()
    require_declared(strategy_plan.TABLE, table.filter([name == regime for name in names]), regime)


def test_the_parts_sum_to_the_step_and_the_memory(middle: list[Row]) -> None:
    assert all(sum(row[f"{part}_ns"] for part in PARTS) == row["predicted_step_ns"] for row in middle)
    held = ("parameters", "gradients", "optimizer", "activations", "buffers")
    assert all(abs(sum(row[f"{one}_bytes"] for one in held) - row["memory_bytes"]) <= 5 for row in middle)


def test_every_cut_of_the_gpus_is_there_once(middle: list[Row]) -> None:
    cuts = {(row["data_size"], row["tensor_size"], row["pipeline_size"]) for row in select(middle, regime="cc_off")}
    every = {
        (64 // (tensor * pipeline), tensor, pipeline)
        for tensor in (1, 2, 4, 8)  # of 40 heads
        for pipeline in (1, 2, 4, 8, 16, 32)  # of 40 layers
        if tensor * pipeline <= 64
    }
    assert cuts == every
    keys = [(row["regime"], *(row[name] for name in strategy_plan.TABLE.key)) for row in middle]
    assert len(keys) == len(set(keys))


def test_the_order_is_the_same_every_time() -> None:
    first, second = (strategy_plan.measure(ask("llama-2-70b", 512, 2048)) for _ in range(2))
    assert first.equals(second)


def test_four_thousand_gpus_are_searched_whole() -> None:
    rows = plan(ask("llama-3.1-405b", 4096, 8192))
    cuts = {(row["data_size"], row["tensor_size"], row["pipeline_size"]) for row in rows}
    assert all(data * tensor * pipeline == 4096 for data, tensor, pipeline in cuts)
    assert len(cuts) == len([1 for tensor in range(8) for pipeline in range(7) if tensor + pipeline <= 12])


def test_only_what_fits_and_is_exact_has_a_place_and_places_follow_the_step(middle: list[Row]) -> None:
    for regime in ("cc_off", "hopper_spt_cc", "hopper_ppcie", "sw_per_hop_aesgcm"):
        rows = select(middle, regime=regime)
        placed = sorted((row for row in rows if row["place_number"]), key=lambda row: row["place_number"])
        steps = [row["predicted_step_ns"] for row in placed]
        assert steps == sorted(steps)
        assert {(row["is_fitting"], row["is_exact"]) for row in placed} == {(True, True)}
        assert {row["verdict"] for row in rows if not row["place_number"]} <= {
            "does not fit",
            "changes the mathematics",
        }


def test_what_changes_the_mathematics_is_never_ranked(small: list[Row]) -> None:
    rows = [row for row in small if row["strategy"] in {"gossip", "asynchronous_server"}]
    assert rows
    assert {(row["is_exact"], row["place_number"]) for row in rows} == {(False, None)}


def test_nobody_is_best_where_others_are_within_the_models_error(small: list[Row]) -> None:
    off = select(small, regime="cc_off")
    assert not select(off, verdict="best")
    tied = {row["strategy"] for row in select(off, verdict="tie")}
    assert {"ring_ddp", "zero_1", "zero_2", "zero_3"} <= tied
    (best,) = select(small, regime="hopper_spt_cc", verdict="best")
    assert (best["data_size"], best["pipeline_size"]) == (1, 8), "activations are fewer bytes than gradients"


def make_step(low: int | None, middle: int, high: int | None) -> Row:
    return {"predicted_low_ns": low, "predicted_step_ns": middle, "predicted_high_ns": high}


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (make_step(None, 114, None), True),
        (make_step(None, 116, None), False),
        (make_step(105, 130, 160), True),
        (make_step(111, 130, 160), False),
    ],
)
def test_a_tie_is_within_the_models_error_or_where_intervals_overlap(other: Row, expected: bool) -> None:
    assert is_tie(make_step(90, 100, 110), other) is expected


def test_regimes_without_pairs_are_scenarios_without_an_interval(small: list[Row]) -> None:
    assert {row["regime"] for row in small if row["is_scenario"]} == {
        "hopper_spt_cc",
        "hopper_ppcie",
        "sw_per_hop_aesgcm",
    }
    assert all(row["predicted_low_ns"] is row["interval_level"] is None for row in small)
    assert {row["evidence"] for row in small} == {"modelled"}
    assert all(row["constants"].startswith("h100-sxm (primary), nvlink4 (primary), ") for row in small)
    assert "tinfoil-h200-nvlink-kept (primary)" in select(small, regime="hopper_ppcie")[0]["constants"]


def test_an_interval_is_only_where_pairs_are() -> None:
    known = {"sw_per_hop_aesgcm": MeasuredSealing(0.4, SPREAD, (2, 8), "m")}
    rows = plan(ask("gpt-2-xl", 8, 128, measured=known))
    (ring,) = [row for row in rows if row["predicted_low_ns"] is not None]
    assert (ring["regime"], ring["strategy"], ring["data_size"]) == ("sw_per_hop_aesgcm", "ring_ddp", 8)
    assert ring["predicted_low_ns"] < ring["predicted_step_ns"] < ring["predicted_high_ns"]
    assert (ring["interval_level"], ring["is_scenario"]) == (0.75, False)
    assert "Extrapolated" not in ring["reason"]


def test_a_regime_with_pairs_has_the_measured_cost_and_says_what_is_extrapolated() -> None:
    known = {"sw_per_hop_aesgcm": MeasuredSealing(0.4, SPREAD, (2, 4), "m")}
    rows = plan(ask("gpt-2-xl", 8, 128, measured=known))
    mine = select(rows, regime="sw_per_hop_aesgcm")
    assert {row["is_scenario"] for row in mine} == {False}
    said = "Extrapolated, without an interval: its pairs are of ring DDP with 2, 4 ranks, which share one GPU. "
    assert all(row["reason"].startswith(said) for row in mine)
    assert all(row["predicted_low_ns"] is None for row in rows)
    slower = plan(ask("gpt-2-xl", 8, 128))
    ring, plain = (
        select(one, regime="sw_per_hop_aesgcm", strategy="ring_ddp", data_size=8)[0] for one in (mine, slower)
    )
    assert ring["predicted_step_ns"] < plain["predicted_step_ns"], "0.4 ns per byte is faster than the published cipher"


def test_what_must_be_sealed_follows_the_policy(middle: list[Row]) -> None:
    assert {row["sealed_bytes"] for row in select(middle, regime="cc_off")} == {0}
    every = select(middle, regime="sw_per_hop_aesgcm")
    assert all(abs(row["sealed_bytes"] - row["payload_bytes"]) <= 1 for row in every)
    (ring,) = select(middle, regime="hopper_ppcie", strategy="ring_ddp", data_size=64)
    assert ring["sealed_bytes"] == pytest.approx(ring["payload_bytes"] / 8, rel=1e-6), (
        "eight GPUs share what leaves a node"
    )
    (tensor,) = select(middle, regime="hopper_ppcie", strategy="ring_ddp", data_size=8, tensor_size=8)
    assert 0 < tensor["sealed_bytes"] < tensor["payload_bytes"], "tensor traffic stays on plain NVLink"


def test_a_key_lasts_until_it_has_sealed_as_many_messages_as_it_may(middle: list[Row]) -> None:
    for row in middle:
        if row["sealed_message_count"] == 0:
            assert row["nonce_budget_days"] is None
        else:
            messages = row["nonce_budget_days"] * 86_400e9 / row["predicted_step_ns"] * row["sealed_message_count"]
            assert messages == pytest.approx(POLICY.messages_per_key)


def test_a_checkpoint_under_cc_is_copied_slower_and_sealed(small: list[Row]) -> None:
    off, spt, software = (
        select(small, regime=regime, strategy="ring_ddp", data_size=8)[0]
        for regime in ("cc_off", "hopper_spt_cc", "sw_per_hop_aesgcm")
    )
    size = off["checkpoint_bytes"]
    assert size == 12 * 1_557_611_200
    assert off["checkpoint_ns"] == pytest.approx(size / 41.18)
    assert spt["checkpoint_ns"] == pytest.approx(size / 2.82 + size / 3.36)
    assert software["checkpoint_ns"] == off["checkpoint_ns"], "a checkpoint is no hop between ranks"
    assert (off["reattestation_ns"], spt["reattestation_ns"]) == (0, 1_161_000_000)
    (shared,) = select(small, regime="hopper_ppcie", strategy="ring_ddp", data_size=8)
    assert shared["reattestation_ns"] == 8 * 1_161_000_000, "all GPUs of a node are in one guest"


def test_a_lost_rank_is_restored_by_a_replica_or_takes_state_with_it(small: list[Row]) -> None:
    whole = {row["strategy"]: row for row in select(small, regime="cc_off", data_size=8)}
    assert {name: row["must_roll_back"] for name, row in whole.items()} == {
        "ring_ddp": False,
        "parameter_server": False,
        "asynchronous_server": False,
        "decentralised": False,
        "gossip": False,
        "zero_1": True,
        "zero_2": True,
        "zero_3": True,
    }
    parameters = 1_557_611_200
    assert whole["ring_ddp"]["lost_rank_bytes"] == 14 * parameters
    assert whole["zero_2"]["lost_rank_bytes"] == 2 * parameters + 12 * parameters // 8
    assert whole["zero_3"]["lost_rank_bytes"] == 14 * parameters // 8
    assert all(row["must_roll_back"] for row in select(small, data_size=1)), "there is no other replica"
