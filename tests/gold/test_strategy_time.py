from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gold.hardware import HARDWARE
from gold.strategy_counts import EXCHANGES
from gold.strategy_memory import OPTIMIZER_BYTES, PARAMETER_BYTES, size_activations, size_states
from gold.strategy_time import COLLECTIVE_NS, count_operations, time_step
from tests.support.planned_jobs import SMALL, make_cut, make_machine

SHARED = tuple(one for one in EXCHANGES if one != "none")
REGIMES = tuple(HARDWARE.regimes)
degrees = st.sampled_from((1, 2, 4, 8, 16, 32, 64))


def test_compute_is_six_operations_per_parameter_and_token_and_twelve_for_attention() -> None:
    token = 6 * SMALL.parameters_count + 12 * 48 * 1600 * 1024
    assert count_operations(SMALL) == token * 1024
    repeated = token + 2 * (SMALL.parameters_count - 50257 * 1600) + 4 * 48 * 1600 * 1024
    assert count_operations(SMALL, is_recomputed=1) == pytest.approx(repeated * 1024)


def test_one_gpu_computes_launches_and_updates_and_nothing_else() -> None:
    times = time_step(SMALL, make_machine("hopper_spt_cc", 1), make_cut(1, micro_batch=16), "none")
    assert (times.communication[0], times.sealing[0], times.bubble[0]) == (0, 0, 0)
    operations = count_operations(SMALL) * 128
    assert times.compute[0] == pytest.approx(operations / (989.4e12 * 0.4) * 1e9)


def test_a_ring_is_latency_and_size_over_bandwidth_and_its_last_bucket_is_never_hidden() -> None:
    machine = make_machine("cc_off", 8, bucket_bytes=25 * 2**20)
    times = time_step(SMALL, machine, make_cut(8, micro_batch=16), "ring_ddp")
    one = 14 * (3400 + times.bucket_bytes[0] / 8 / (450 * 0.82)) + COLLECTIVE_NS
    assert times.buckets[0] == np.ceil(2 * SMALL.parameters_count / (25 * 2**20))
    assert times.communication[0] == pytest.approx(one)


def test_sealing_in_software_adds_both_ends_of_each_message() -> None:
    machine = make_machine("sw_per_hop_aesgcm", 8)
    times = time_step(SMALL, machine, make_cut(1, 2, micro_batch=128), "none")
    activation = 2 * 128 * 1024 * 1600
    assert times.sealing[0] == pytest.approx(4 * 48 * 2 * activation / 2 * 2 / 3.36)


def test_a_message_through_bounce_buffers_is_copied_twice_and_not_hidden() -> None:
    machine = make_machine("hopper_ppcie", 64)
    assert not machine.far.is_hidden
    assert machine.far.seal_fixed_ns == pytest.approx(21_670 + 22_800)
    assert machine.far.seal_byte_ns == pytest.approx(2 / 2.82 + 2 / 3.36)
    assert (machine.near.seal_byte_ns, machine.near.operation_ns) == (0, 11_000)


@given(regime=st.sampled_from(REGIMES), data=degrees, exchange=st.sampled_from(SHARED))
def test_no_regime_makes_a_step_shorter(regime: str, data: int, exchange: str) -> None:
    layouts = make_cut(max(2, data), micro_batch=1)
    gpus = max(2, data)
    gpu = "b200-sxm" if regime in HARDWARE.gpu("b200-sxm").regimes else "h100-sxm"
    plain, under = (
        time_step(SMALL, make_machine(one, gpus, gpu, bucket_bytes=2**26), layouts, exchange).step[0]
        for one in ("cc_off", regime)
    )
    assert under >= plain


@given(regime=st.sampled_from(REGIMES), exchange=st.sampled_from(EXCHANGES), micro=st.sampled_from((1, 2, 4)))
def test_one_stage_has_no_bubble_and_one_rank_no_traffic(regime: str, exchange: str, micro: int) -> None:
    data = 1 if exchange == "none" else 4
    times = time_step(SMALL, make_machine(regime, data), make_cut(data, micro_batch=micro), exchange)
    assert times.bubble[0] == 0
    if data == 1:
        assert times.communication[0] == times.sealing[0] == 0


@given(exchange=st.sampled_from(SHARED), regime=st.sampled_from(("cc_off", "sw_per_hop_aesgcm")))
def test_a_faster_network_never_makes_a_step_longer(exchange: str, regime: str) -> None:
    machine = make_machine(regime, 64, bucket_bytes=2**26)
    far = machine.far
    faster = dataclasses.replace(machine, far=dataclasses.replace(far, byte_ns=far.byte_ns / 2))
    slow, fast = (time_step(SMALL, one, make_cut(64), exchange).step[0] for one in (machine, faster))
    assert fast <= slow


# -- memory ---------------------------------------------------------------------------------------------------------


@given(ranks=st.integers(min_value=1, max_value=4096), parameters=st.integers(min_value=1, max_value=10**12))
def test_states_of_zero_3_fall_as_one_over_the_ranks(ranks: int, parameters: int) -> None:
    assert sum(size_states("zero_3", ranks, parameters)) == pytest.approx(16 * parameters / ranks)


@given(ranks=st.integers(min_value=1, max_value=4096), parameters=st.integers(min_value=1, max_value=10**12))
def test_each_stage_of_zero_holds_no_more_than_the_one_before(ranks: int, parameters: int) -> None:
    held = [sum(size_states(one, ranks, parameters)) for one in ("ring_ddp", "zero_1", "zero_2", "zero_3")]
    assert held == sorted(held, reverse=True) or ranks == 1
    assert held[0] == 16 * parameters


def test_a_worker_of_a_server_keeps_no_optimizer() -> None:
    assert size_states("parameter_server", 8, 100) == (200, 200, 0)
    assert PARAMETER_BYTES + 2 + OPTIMIZER_BYTES == 16


@given(tensor=degrees, in_flight=st.integers(min_value=1, max_value=64), micro=st.integers(min_value=1, max_value=16))
def test_recomputed_activations_are_fewer_and_grow_with_micro_batches_in_flight(
    tensor: int, in_flight: int, micro: int
) -> None:
    kept, recomputed = (
        size_activations((1024, 1600, 50257), 12, np.array([tensor]), in_flight, micro, np.array([flag]))[0]
        for flag in (0, 1)
    )
    more = size_activations((1024, 1600, 50257), 12, np.array([tensor]), in_flight + 1, micro, np.array([0]))[0]
    assert recomputed < kept <= more


def test_zero_3_gathers_behind_compute_but_for_the_first_layer_and_not_through_bounce_buffers() -> None:
    plain, bounced = (
        time_step(SMALL, make_machine(regime, 8), make_cut(8, micro_batch=16), "zero_3")
        for regime in ("cc_off", "hopper_spt_cc")
    )
    size = 2 * SMALL.parameters_count / 48 / 8
    assert plain.communication[0] == pytest.approx(7 * (3_400 + size / (450 * 0.82)) + COLLECTIVE_NS)
    every = 48 * 3 * 7 * (21_670 + 22_800 + size * (2 / 2.82 + 2 / 3.36))
    assert bounced.sealing[0] == pytest.approx(every)
