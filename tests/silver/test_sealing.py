"""The encrypt-annotation: what each regime promises, and what the recording shows of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.silver_rows import all_reduce, copy, event, kernel, note, run

if TYPE_CHECKING:
    from tests.support.silver_rows import Row, Silver

SEALED = ("boundary", "must_seal", "sealed_by", "seal_evidence", "violation")
PLAIN = "yet it crossed in plaintext: no seal was recorded"
CLAIMED = "driver and hardware seal without a span of their own: that it was sealed is the regime's claim"
NETWORK = "the regime leaves the network to other software, and no trace shows what that does"

# Host to GPU and back, GPU to GPU on one node: what each regime makes of them.
HOST: dict[str | None, tuple[Any, ...]] = {
    None: (None, None, "unobservable"),
    "cc_off": (False, "none", "modelled"),
    "hopper_spt_cc": (True, "bounce_buffer", "modelled"),
    "hopper_ppcie": (True, "bounce_buffer", "modelled"),
    "blackwell_mpt_nvle": (True, "bounce_buffer", "modelled"),
    "tee_io_tdisp": (True, "link_hardware", "modelled"),
    "sw_per_hop_aesgcm": (False, "none", "modelled"),
}
PEER: dict[str | None, tuple[Any, ...]] = {
    None: (None, None, "unobservable", None),
    "cc_off": (False, "none", "modelled", None),
    "hopper_spt_cc": (True, "bounce_buffer", "modelled", None),
    "hopper_ppcie": (False, "none", "modelled", None),
    "blackwell_mpt_nvle": (True, "link_hardware", "modelled", None),
    "tee_io_tdisp": (True, "link_hardware", "modelled", None),
    "sw_per_hop_aesgcm": (True, "none", "measured", f"sw_per_hop_aesgcm must seal gpu_to_gpu, {PLAIN}"),
}
OVER_NETWORK: dict[str | None, tuple[Any, ...]] = {
    None: (None, None, "unobservable", None),
    "cc_off": (False, "none", "modelled", None),
    "hopper_spt_cc": (True, None, "unobservable", None),
    "hopper_ppcie": (True, None, "unobservable", None),
    "blackwell_mpt_nvle": (True, None, "unobservable", None),
    "tee_io_tdisp": (True, None, "unobservable", None),
    "sw_per_hop_aesgcm": (True, "none", "measured", f"sw_per_hop_aesgcm must seal gpu_to_network, {PLAIN}"),
}
CROSSING: list[Row] = [
    copy("Memcpy HtoD (Pageable -> Device)", 1000, 10, payload_bytes=64),
    copy("Memcpy DtoH (Device -> Pageable)", 1010, 10, payload_bytes=64),
    copy("Memcpy PtoP (Device -> Device)", 1020, 10, payload_bytes=64),
    all_reduce(1030, 10),
]


@pytest.mark.parametrize(
    "regime",
    [pytest.param(regime, marks=pytest.mark.given(run(regime=regime, nodes_count=1), *CROSSING)) for regime in HOST],
)
def test_a_crossing_is_sealed_as_its_regime_promises(found: Silver, regime: str | None) -> None:
    assert found.rows("crossings", *SEALED) == [
        ("host_to_gpu", *HOST[regime], None),
        ("gpu_to_host", *HOST[regime], None),
        ("gpu_to_gpu", *PEER[regime]),
        ("gpu_to_gpu", *PEER[regime]),
    ]


@pytest.mark.parametrize(
    "regime",
    [pytest.param(regime, marks=pytest.mark.given(run(regime=regime, nodes_count=2), *CROSSING)) for regime in HOST],
)
def test_a_crossing_of_the_network_is_sealed_as_its_regime_promises(found: Silver, regime: str | None) -> None:
    # A copy between two GPUs stays on their node.
    assert found.rows("crossings", *SEALED)[2:] == [
        ("gpu_to_gpu", *PEER[regime]),
        ("gpu_to_network", *OVER_NETWORK[regime]),
    ]


@pytest.mark.given(run(regime="tee_io_tdisp", nodes_count=2), *CROSSING)
def test_what_the_regime_claims_is_told_from_what_the_trace_shows(found: Silver) -> None:
    columns = ("cipher", "key_bits", "wire_bytes", "sealed_message_count", "seal_ns", "open_ns", "reason")
    assert found.rows("crossings", *columns) == [
        ("AES-GCM", 256, 92, None, None, None, CLAIMED),
        ("AES-GCM", 256, 92, None, None, None, CLAIMED),
        ("AES-GCM", 256, 92, None, None, None, CLAIMED),
        (None, None, None, None, None, None, NETWORK),
    ]


@pytest.mark.given(*CROSSING)
def test_a_run_without_a_regime_promises_nothing(found: Silver) -> None:
    assert (
        found.rows("crossings", "must_seal", "wire_bytes", "reason")
        == [(None, None, "the run claims no regime, so nothing says what must be sealed")] * 4
    )


# -- labels that should not be there (R1) ------------------------------------------------------------------

LABELLED = "yet this pinned copy bears its true label: no bounce buffer was at work"
PINNED: list[Row] = [
    copy("Memcpy HtoD (Pinned -> Device)", 1000, 10, payload_bytes=64),
    copy("Memcpy DtoD (Managed -> Device)", 1010, 10, payload_bytes=64),
]


@pytest.mark.parametrize(
    "regime",
    [
        pytest.param(regime, marks=pytest.mark.given(run(regime=regime, cc_mode="on"), *PINNED))
        for regime in ("hopper_spt_cc", "hopper_ppcie")
    ],
)
def test_a_pinned_copy_that_bears_its_true_label_under_hopper_was_not_sealed(found: Silver, regime: str) -> None:
    assert found.rows("crossings", "sealed_by", "seal_evidence", "sealed_message_count", "wire_bytes", "violation") == [
        ("none", "measured", 0, 64, f"{regime} must seal host_to_gpu, {LABELLED}"),
        ("bounce_buffer", "modelled", None, 92, None),
    ]


@pytest.mark.given(run(regime="blackwell_mpt_nvle", cc_mode="on"), *PINNED)
def test_a_true_label_proves_nothing_where_no_one_has_seen_the_regime_hide_it(found: Silver) -> None:
    assert found.rows("crossings", "sealed_by", "violation") == [("bounce_buffer", None), ("bounce_buffer", None)]


# -- hooks ---------------------------------------------------------------------------------------------


def _hook(ts_ns: int, *, hops: int = 2, seals: int = 2, size: int = 64, **fields: Any) -> list[Row]:
    """An all-reduce of a hook that lasts 100 ns: each seal takes 3 ns, each hop 5, each opening 2."""
    seal = [note("tee::encrypt", ts_ns + 10 * place, 3, **fields) for place in range(seals)]
    send = [note("tee::sendrecv", ts_ns + 10 * place + 3, 5, **fields) for place in range(hops)]
    unseal = [note("tee::decrypt", ts_ns + 10 * place + 8, 2, **fields) for place in range(seals)]
    return [note(f"tee::all_reduce#{size}", ts_ns, 100, **fields), *seal, *send, *unseal]


HOOKED = ("message_count", "payload_bytes", "wire_bytes", "size_evidence", "sealed_message_count", "seal_ns", "open_ns")
SHOWN = ("sealed_by", "seal_evidence", "violation")


@pytest.mark.given(
    run(regime="sw_per_hop_aesgcm", found_world_size=2),
    *_hook(1000),
    note("tee::encrypt", 1100, 50),
    note("tee::encrypt", 1050, 50, thread_id="2"),
    note("tee::encrypt", 999, 50),
)
def test_a_hook_shows_its_messages_and_what_sealing_them_took(found: Silver) -> None:
    assert found.only("crossings", "path", *HOOKED, *SHOWN) == (
        *("hook", 2, 64, 64 + 56, "measured", 2, 6, 4),
        *("software_hook", "measured", None),
    )


@pytest.mark.given(
    run(regime="sw_per_hop_aesgcm", found_world_size=2),
    *_hook(1000),
    note("tee::recv", 1090, 5),
    note("tee::reduce_scatter#64", 1050, 10),
)
def test_the_other_end_of_a_hop_and_a_hook_within_a_hook_are_no_messages_of_their_own(found: Silver) -> None:
    assert found.only("crossings", "ordinal", "message_count", "sealed_message_count") == (0, 2, 2)


@pytest.mark.given(run(regime="sw_per_hop_aesgcm", found_world_size=4), *_hook(1000, hops=6, seals=6, size=81))
def test_a_ring_of_four_sends_six_quarters_and_drops_the_fraction_of_a_byte(found: Silver) -> None:
    assert found.only("crossings", *HOOKED) == (6, 121, 121 + 168, "measured", 6, 18, 12)


@pytest.mark.given(
    run(regime="sw_per_hop_aesgcm", found_world_size=2),
    note("tee::all_reduce#400", 1000, 100),
    *(note("tee::seal#100", 1001 + 20 * place, 4) for place in range(4)),
    *(note(f"tee::send#{99 + place % 2}", 1006 + 20 * place, 4) for place in range(4)),
)
def test_hops_that_say_their_size_are_believed_however_many_a_message_was_cut_into(found: Silver) -> None:
    assert found.only("crossings", *HOOKED) == (4, 398, 398 + 4 * 28, "measured", 4, 16, 0)


@pytest.mark.given(
    run(regime="sw_per_hop_aesgcm", found_world_size=2),
    *_hook(1000, hops=1, seals=2),
    note("tee::send#9", 1050, 4),
)
def test_hops_of_which_some_do_not_say_their_size_are_taken_for_equal_shares(found: Silver) -> None:
    assert found.only("crossings", "message_count", "payload_bytes") == (2, 64)


@pytest.mark.given(
    run(regime="sw_per_hop_aesgcm", found_world_size=3),
    note("tee::all_reduce#300", 1000, 100),
    *(note("tee::seal#100", 1001 + 20 * place, 4) for place in range(3)),
    *(note("tee::send#100", 1006 + 20 * place, 4) for place in range(3)),
    note("tee::relay#100", 1090, 4),
)
def test_a_relayed_message_counts_as_sealed_and_spends_no_nonce_of_its_relay(found: Silver) -> None:
    assert found.only("crossings", *HOOKED, *SHOWN, "key_message_count") == (
        *(4, 400, 400 + 4 * 28, "measured", 4, 12, 0),
        *("software_hook", "measured", None, 3),
    )


@pytest.mark.given(run(regime="sw_per_hop_aesgcm", found_world_size=3), *_hook(1000, hops=4, seals=3, size=90))
def test_a_hook_that_seals_only_some_messages_is_named(found: Silver) -> None:
    sentence = "sw_per_hop_aesgcm must seal gpu_to_gpu, yet only 3 of 4 messages were sealed"
    assert found.only("crossings", "message_count", "sealed_message_count", *SHOWN) == (
        *(4, 3),
        *("software_hook", "measured", sentence),
    )


@pytest.mark.given(run(regime="sw_per_hop_aesgcm", found_world_size=3), *_hook(1000, hops=4, seals=3, size=90))
def test_only_sealed_messages_are_longer_on_the_wire(found: Silver) -> None:
    assert found.only("crossings", "payload_bytes", "wire_bytes") == (120, 120 + 3 * 28)


@pytest.mark.given(run(regime="sw_per_hop_aesgcm", found_world_size=2), *_hook(1000, seals=0))
def test_a_hook_that_seals_nothing_where_it_must_is_named(found: Silver) -> None:
    assert found.only("crossings", *HOOKED, *SHOWN) == (
        *(2, 64, 64, "measured", 0, 0, 0),
        *("none", "measured", f"sw_per_hop_aesgcm must seal gpu_to_gpu, {PLAIN}"),
    )


@pytest.mark.given(run(regime="cc_off", found_world_size=2), *_hook(1000, seals=0), *_hook(2000))
def test_where_nothing_must_be_sealed_a_hook_is_taken_as_it_is(found: Silver) -> None:
    assert found.rows("crossings", "must_seal", "wire_bytes", *SHOWN) == [
        (False, 64, "none", "measured", None),
        (False, 120, "software_hook", "measured", None),
    ]


@pytest.mark.given(
    run(regime="sw_per_hop_aesgcm"),
    kernel("ncclDevKernel_Broadcast", 1000, 10, collective_name="broadcast", group_size=2),
    note("gloo:broadcast", 1000, 10),
    note("gloo:all_reduce", 1000, 10),
)
def test_what_ddp_broadcasts_itself_is_outside_of_what_a_hook_promises(found: Silver) -> None:
    exempt = "this regime seals the hops of reductions; what DDP broadcasts itself is outside of it"
    assert found.rows("crossings", "ordinal", "must_seal", "sealed_by", "violation", "reason") == [
        (0, False, "none", None, exempt),
        (1, False, "none", None, exempt),
        (
            *(2, True, "none", f"sw_per_hop_aesgcm must seal gpu_to_gpu, {PLAIN}"),
            "the trace does not give the collective's size",
        ),
    ]


@pytest.mark.given(
    run(regime="sw_per_hop_aesgcm", found_world_size=2),
    *_hook(3000, hops=2, seals=2),
    *_hook(1000, hops=2, seals=1),
    *_hook(2000, hops=2, seals=0),
    *_hook(4000, rank=1, source_sha256="b"),
    *_hook(5000, rank=1, source_sha256="a"),
    copy("Memcpy HtoD (Pageable -> Device)", 1500, 10),
)
def test_messages_under_a_key_add_up_over_time(found: Silver) -> None:
    rows = found.rows("crossings", "rank", "source_sha256", "ts_ns", "key_scope", "key_message_count")
    assert sorted(rows, key=lambda row: (row[0], row[2], row[1])) == [
        (0, "source-0", 1000, "rank 0 to the next", 1),
        (0, "source-0", 1500, None, None),
        (0, "source-0", 2000, None, None),
        (0, "source-0", 3000, "rank 0 to the next", 3),
        (1, "b", 4000, "rank 1 to the next", 2),
        (1, "a", 5000, "rank 1 to the next", 4),
    ]


@pytest.mark.given(
    run(regime="sw_per_hop_aesgcm", found_world_size=2),
    *_hook(1000, source_sha256="a"),
    *_hook(1000, source_sha256="b"),
)
def test_hooks_of_two_sources_of_a_rank_hold_each_their_own(found: Silver) -> None:
    assert found.rows("crossings", "source_sha256", "message_count", "sealed_message_count", "seal_ns") == [
        ("a", 2, 2, 6),
        ("b", 2, 2, 6),
    ]


@pytest.mark.given(
    run(regime="cc_off"),
    copy("Memcpy HtoD (Pageable -> Device)", 1000, 10),
    all_reduce(1010, 10, dtype=None),
    note("gloo:all_reduce", 1000, 10, rank=1),
    event("x", "cpu_op", 1000, 10, rank=1),
)
def test_the_first_thing_that_could_not_be_seen_is_said(found: Silver) -> None:
    assert found.rows("crossings", "rank", "reason") == [
        (0, "the trace does not give the copy's size"),
        (0, "the trace does not give the collective's size"),
        (1, "the trace does not give the collective's size"),
    ]


@pytest.mark.given(run(regime="cc_off", found_world_size=2), *_hook(1000))
def test_a_crossing_on_a_rank_whose_gpu_was_not_seen_says_so(found: Silver) -> None:
    assert found.only("crossings", "exposed_ns", "reason") == (
        None,
        "no GPU rows were recorded, so what was hidden cannot be told",
    )


# -- seals that cannot be true -----------------------------------------------------------------------------

BELIED = "seals were faster than 30 GB/s per thread: no processor seals so fast"
CLAIM = ("message_count", "sealed_message_count", "contradicted_message_count", "wire_bytes")


@pytest.mark.given(run(regime="sw_per_hop_aesgcm", found_world_size=2), *_hook(1000, size=1 << 20))
def test_spans_that_are_only_named_as_seals_seal_nothing(found: Silver) -> None:
    assert found.only("crossings", *CLAIM, *SHOWN) == (
        *(2, 0, 2, None),
        *(None, "measured", f"sw_per_hop_aesgcm must seal gpu_to_gpu, yet 2 {BELIED}"),
    )
    assert found.rows("nonce_budgets", "key_scope") == []
    assert found.only("runs", "agreement", "found_sealed_message_count") == ("contradicted", 0)


def _make_messages(seal_ns: tuple[int, ...], size: int = 300) -> list[Row]:
    """Messages of 300 bytes, sealed in these times."""
    seals = [note(f"tee::seal#{size}", 1000 + 20 * place, time) for place, time in enumerate(seal_ns)]
    sends = [note(f"tee::send#{size}", 1015 + 20 * place, 4) for place in range(len(seal_ns))]
    return [note(f"tee::all_reduce#{size}", 1000, 100), *seals, *sends]


@pytest.mark.given(run(regime="sw_per_hop_aesgcm", found_world_size=2), *_make_messages((10, 9)))
def test_each_seal_that_says_its_size_is_held_against_the_limit_by_itself(found: Silver) -> None:
    # 300 bytes in 10 ns are 30 GB/s, which may be; in 9 ns they are not.
    assert found.only("crossings", *CLAIM, *SHOWN) == (
        *(2, 1, 1, 600 + 28),
        *("software_hook", "measured", f"sw_per_hop_aesgcm must seal gpu_to_gpu, yet 1 {BELIED}"),
    )


CHAINED = '{"ring_chains": 4, "ring_mode": "sealed", "ring_transport": "shared memory"}'


@pytest.mark.given(run(regime="sw_per_hop_aesgcm", found_world_size=2, extra=CHAINED), *_make_messages((3, 2)))
def test_chains_seal_at_once_so_their_limit_is_that_many_times_as_high(found: Silver) -> None:
    assert found.only("crossings", "sealed_message_count", "contradicted_message_count") == (1, 1)


# -- what travels ------------------------------------------------------------------------------------------


@pytest.mark.given(run(regime="sw_per_hop_aesgcm", found_world_size=2, extra=CHAINED), *_make_messages((30, 30)))
def test_a_message_of_the_ring_has_a_header_and_a_tag_per_chain_and_no_nonce(found: Silver) -> None:
    assert found.only("crossings", "payload_bytes", "wire_bytes") == (600, 600 + 2 * (52 + 4 * 16))


PLAIN_RING = '{"ring_chains": 1, "ring_mode": "plain"}'


@pytest.mark.given(run(regime="cc_off", found_world_size=2, extra=PLAIN_RING), *_hook(1000, seals=0))
def test_a_message_of_the_plain_ring_has_its_header_too(found: Silver) -> None:
    assert found.only("crossings", "payload_bytes", "wire_bytes") == (64, 64 + 2 * 52)
