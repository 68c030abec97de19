from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.silver_rows import all_reduce, call, copy, event, in_turn, kernel, note, run

if TYPE_CHECKING:
    from tests.support.silver_rows import Row, Silver

SIZE = ("message_count", "payload_bytes", "size_evidence")


def _exchange(collective: str, group_size: int | None, **fields: Any) -> Row:
    """A collective over a buffer of 8,000 bytes."""
    known = {"dtype": "Byte", "in_elements_count": 8000, "out_elements_count": 8000, "group_size": group_size}
    return kernel(f"ncclDevKernel_{collective}", 1000, 10, collective_name=collective, **{**known, **fields})


# -- what leaves a package ---------------------------------------------------------------------------------


@pytest.mark.given(
    copy("Memcpy HtoD (Pinned -> Device)", 1000, 10, payload_bytes=64),
    copy("Memcpy DtoH (Device -> Pageable)", 1010, 10, payload_bytes=0),
    copy("Memcpy PtoP (Device -> Device)", 1020, 10, payload_bytes=64),
    copy("Memcpy HtoD (Managed -> Device)", 1030, 10),
    copy("Memcpy HtoD", 1040, 10, payload_bytes=-1),
    copy("Memcpy HtoD", 1041, 10, payload_bytes=1 << 50),
    copy("Memcpy HtoD", 1042, 10, payload_bytes=(1 << 50) + 1),
    copy("Memcpy DtoD (Device -> Device)", 1050, 10, payload_bytes=64),
    copy("Memcpy HtoH (Pageable -> Pageable)", 1060, 10, payload_bytes=64),
    event("Memset (Device)", "gpu_memset", 1070, 10, payload_bytes=64),
    kernel("gemm", 1080, 10),
    call("cudaMemcpyAsync", 1090, 10),
)
def test_copies_cross_where_they_leave_a_gpu_or_its_host(found: Silver) -> None:
    assert found.rows("crossings", "ordinal", "boundary", "path", *SIZE) == [
        (0, "host_to_gpu", "pinned", 1, 64, "measured"),
        (1, "gpu_to_host", "pageable", 1, 0, "measured"),
        (2, "gpu_to_gpu", "peer", 1, 64, "measured"),
        (3, "host_to_gpu", "managed", 1, None, "unobservable"),
        (4, "host_to_gpu", "other", 1, None, "unobservable"),
        (5, "host_to_gpu", "other", 1, 1 << 50, "measured"),
        (6, "host_to_gpu", "other", 1, None, "unobservable"),
    ]


@pytest.mark.given(
    run(cc_mode="on", regime="hopper_spt_cc"),
    copy("Memcpy DtoD (Managed -> Device)", 1000, 10, payload_bytes=64),
    copy("Memcpy DtoD (Managed -> Managed)", 1010, 10, payload_bytes=64),
)
def test_a_copy_that_got_its_label_back_crosses(found: Silver) -> None:
    assert found.rows("crossings", "ordinal", "boundary", "path", "sealed_by") == [
        (0, "host_to_gpu", "pinned", "bounce_buffer")
    ]


@pytest.mark.given(
    run(nodes_count=2),
    all_reduce(1000, 10),
    copy("Memcpy PtoP (Device -> Device)", 1010, 10),
    copy("Memcpy HtoD (Pinned -> Device)", 1020, 10),
)
def test_what_goes_between_gpus_of_several_nodes_goes_over_the_network(found: Silver) -> None:
    assert found.rows("crossings", "ordinal", "boundary", "boundary_evidence") == [
        (0, "gpu_to_network", "unobservable"),
        (1, "gpu_to_gpu", "measured"),
        (2, "host_to_gpu", "measured"),
    ]


@pytest.mark.given(
    run(nodes_count=2, found_world_size=8),
    *in_turn(
        all_reduce(0, 10, group_size=4, process_group_ranks="[0, 1, 2, 3]"),
        all_reduce(0, 10, group_size=4, process_group_ranks="[4, ..., 7]"),
        all_reduce(0, 10, group_size=2, process_group_ranks="[3, 4]"),
        all_reduce(0, 10, group_size=8),
        # Ranks that nobody lists, that are not in order, and that the job does not have.
        all_reduce(0, 10, group_size=4),
        all_reduce(0, 10, group_size=4, process_group_ranks="[0, 5, 6, 1]"),
        all_reduce(0, 10, group_size=2, process_group_ranks="[8, 9]"),
        all_reduce(0, 10, group_size=2, process_group_ranks="ranks 0 and 1"),
    ),
)
def test_a_collective_of_ranks_on_one_node_does_not_cross_the_network(found: Silver) -> None:
    assert found.rows("crossings", "ordinal", "boundary", "boundary_evidence") == [
        (0, "gpu_to_gpu", "modelled"),
        (1, "gpu_to_gpu", "modelled"),
        (2, "gpu_to_network", "modelled"),
        (3, "gpu_to_network", "modelled"),
        (4, "gpu_to_network", "unobservable"),
        (5, "gpu_to_network", "unobservable"),
        (6, "gpu_to_network", "unobservable"),
        (7, "gpu_to_network", "unobservable"),
    ]


@pytest.mark.given(run(regime="cc_off"), all_reduce(1000, 10), kernel("gemm", 1000, 1))
def test_where_nobody_counts_the_nodes_that_is_said(found: Silver) -> None:
    assert found.only("crossings", "boundary", "boundary_evidence", "reason") == (
        *("gpu_to_gpu", "unobservable"),
        "nobody says on which node each rank is, so whether it leaves one is not known",
    )


@pytest.mark.given(
    *in_turn(_exchange("allreduce", 1), _exchange("barrier", 4), _exchange("recv", 2), _exchange("allreduce", None))
)
def test_who_is_alone_or_only_waits_or_receives_sends_nothing(found: Silver) -> None:
    assert found.rows("crossings", "ordinal", *SIZE) == [(3, None, None, "unobservable")]


# -- how much --------------------------------------------------------------------------------------------


@pytest.mark.given(
    *in_turn(
        *(
            _exchange(collective, ranks)
            for collective in ("allreduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send")
            for ranks in (2, 4, 8)
        )
    )
)
def test_messages_and_bytes_follow_the_algorithm(found: Silver) -> None:
    # All-reduce: 2(N-1) messages of S/N; the others around the ring: N-1 of S/N; one of S otherwise.
    assert found.rows("crossings", "collective", "group_size", *SIZE) == [
        ("all_reduce", 2, 2, 8000, "modelled"),
        ("all_reduce", 4, 6, 12000, "modelled"),
        ("all_reduce", 8, 14, 14000, "modelled"),
        ("all_gather", 2, 1, 4000, "modelled"),
        ("all_gather", 4, 3, 6000, "modelled"),
        ("all_gather", 8, 7, 7000, "modelled"),
        ("reduce_scatter", 2, 1, 4000, "modelled"),
        ("reduce_scatter", 4, 3, 6000, "modelled"),
        ("reduce_scatter", 8, 7, 7000, "modelled"),
        ("all_to_all", 2, 1, 4000, "modelled"),
        ("all_to_all", 4, 3, 6000, "modelled"),
        ("all_to_all", 8, 7, 7000, "modelled"),
        ("broadcast", 2, 1, 8000, "modelled"),
        ("broadcast", 4, 1, 8000, "modelled"),
        ("broadcast", 8, 1, 8000, "modelled"),
        ("send", 2, 1, 8000, "modelled"),
        ("send", 4, 1, 8000, "modelled"),
        ("send", 8, 1, 8000, "modelled"),
    ]


@pytest.mark.given(
    *in_turn(
        _exchange("broadcast", None),
        _exchange("send_recv", 2),
        _exchange("allreduce", 4, dtype=None),
        _exchange("allreduce", 1 << 17, in_elements_count=1 << 40, dtype="ComplexDouble"),
    ),
)
def test_what_no_formula_knows_stays_unknown(found: Silver) -> None:
    assert found.rows("crossings", "ordinal", *SIZE) == [
        (0, 1, 8000, "modelled"),
        (1, None, None, "unobservable"),
        (2, 6, None, "unobservable"),
        (3, 262142, (1 << 45) - (1 << 28), "modelled"),
    ]


@pytest.mark.given(
    run(regime="blackwell_mpt_nvle"),
    _exchange("allreduce", 4),
    copy("Memcpy HtoD (Pageable -> Device)", 1000, 10, payload_bytes=64),
    copy("Memcpy HtoD (Pageable -> Device)", 1010, 10),
)
def test_a_sealed_message_is_28_bytes_longer(found: Silver) -> None:
    assert found.rows("crossings", "payload_bytes", "wire_bytes") == [
        (12000, 12000 + 6 * 28),
        (64, 64 + 28),
        (None, None),
    ]


@pytest.mark.given(run(regime="cc_off"), _exchange("allreduce", 4))
def test_a_plain_message_is_as_long_as_its_data(found: Silver) -> None:
    assert found.only("crossings", "payload_bytes", "wire_bytes", "cipher", "key_bits") == (12000, 12000, None, None)


# -- what it costs --------------------------------------------------------------------------------------


@pytest.mark.given(
    copy("Memcpy HtoD (Pinned -> Device)", 1000, 100),
    # Covers 20 to 70 of the copy, overlapping; the rest covers nothing of it.
    kernel("gemm", 1020, 30),
    kernel("gemm", 1040, 30),
    kernel("gemm", 900, 100),
    kernel("gemm", 1100, 50),
    event("Memset (Device)", "gpu_memset", 1080, 10),
    event("aten::mm", "cpu_op", 1000, 100),
    all_reduce(1085, 5),
    kernel("gemm", 1000, 100, rank=1),
)
def test_what_no_compute_kernel_of_the_rank_hides_is_exposed(found: Silver) -> None:
    assert found.rows("crossings", "ordinal", "duration_ns", "exposed_ns") == [(0, 100, 50), (7, 5, 5)]


@pytest.mark.given(
    copy("Memcpy HtoD (Pinned -> Device)", 1000, 100),
    copy("Memcpy HtoD (Pinned -> Device)", 1010, 50, rank=1),
    copy("Memcpy HtoD (Pinned -> Device)", 1010, 0, rank=1),
    kernel("gemm", 1000, 100, rank=1),
)
def test_what_is_hidden_all_the_time_costs_nothing(found: Silver) -> None:
    assert found.rows("crossings", "rank", "ordinal", "exposed_ns") == [(0, 0, 100), (1, 0, 0), (1, 1, 0)]


@pytest.mark.given(
    run(regime="cc_off"),
    note("gloo:all_reduce", 1000, 100),
    event("record_param_comms", "cpu_op", 1000, 5, collective_name="allreduce", group_size=2, rank=1),
    event("gemm", "kernel", 2000, 5, rank=2),
    note("gloo:all_reduce", 1000, 100, rank=2),
)
def test_where_the_gpu_was_not_seen_nobody_knows_what_was_hidden(found: Silver) -> None:
    assert found.rows("crossings", "rank", "duration_ns", "exposed_ns") == [
        (0, 100, None),
        (1, None, None),
        (2, 100, 100),
    ]


@pytest.mark.given(
    note("ProfilerStep#1", 1000, 100),
    note("ProfilerStep#2", 1100, 100),
    call("cudaMemcpyAsync", 1050, 5, correlation_id=1),
    copy("Memcpy HtoD (Pinned -> Device)", 1150, 10, correlation_id=1),
    copy("Memcpy HtoD (Pinned -> Device)", 1160, 10),
)
def test_a_crossing_is_of_the_step_that_launched_it(found: Silver) -> None:
    assert found.rows("crossings", "ordinal", "step_number") == [(3, 1), (4, 2)]
