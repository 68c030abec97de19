from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bronze.manifest import CLAIMS
from tests.support.silver_rows import copy, event, kernel, note, run

if TYPE_CHECKING:
    from tests.support.silver_rows import Row, Silver

VERDICT = ("agreement", "contradictions")
PINNED = copy("Memcpy HtoD (Pinned -> Device)", 1000, 10, payload_bytes=64)
HIDDEN = copy("Memcpy DtoD (Managed -> Device)", 1000, 10, payload_bytes=64)
PAGEABLE = copy("Memcpy HtoD (Pageable -> Device)", 1000, 10, payload_bytes=64)


def _hook(*, seals: int, ts_ns: int = 2000) -> list[Row]:
    """An all-reduce of a hook in two hops."""
    return [
        note("tee::all_reduce#64", ts_ns, 50),
        *(note("tee::sendrecv", ts_ns + place, 1) for place in range(2)),
        *(note("tee::encrypt", ts_ns + place, 1) for place in range(seals)),
    ]


AGREEING: dict[str, list[Row]] = {
    "cc_off, true labels": [run(regime="cc_off"), PINNED],
    "cc_off, mode off": [run(regime="cc_off", cc_mode="off"), PINNED, *_hook(seals=0)],
    "hopper, labels taken back": [run(regime="hopper_spt_cc"), HIDDEN],
    "hopper, mode on": [run(regime="hopper_ppcie", cc_mode="on"), HIDDEN, PAGEABLE],
    "hook, every message sealed": [run(regime="sw_per_hop_aesgcm", found_world_size=2), *_hook(seals=2), PINNED],
}
UNPROVEN: dict[str, list[Row]] = {
    "nothing claimed": [run(), PINNED, *_hook(seals=2)],
    "nothing recorded": [run(regime="cc_off")],
    "cc_off without a copy": [run(regime="cc_off"), kernel("gemm", 1000, 10)],
    "cc_off with a pageable copy": [run(regime="cc_off"), PAGEABLE],
    "hopper without gpu rows": [run(regime="hopper_spt_cc", cc_mode="on"), event("aten::mm", "cpu_op", 1000, 10)],
    "a regime that leaves no trace": [run(regime="tee_io_tdisp", cc_mode="on"), PINNED],
    "blackwell, whatever the labels": [run(regime="blackwell_mpt_nvle", cc_mode="on"), PINNED, HIDDEN],
    "a hook that had nothing to do": [run(regime="sw_per_hop_aesgcm"), PINNED],
}
CONTRADICTED: dict[str, tuple[list[Row], str]] = {
    "mode on": (
        [run(regime="cc_off", cc_mode="on"), PINNED],
        "it claims regime cc_off and cc_mode on",
    ),
    "sealed messages": (
        [run(regime="cc_off", found_world_size=2), *_hook(seals=2), PINNED],
        "it claims cc_off, yet 2 messages were sealed by a software hook",
    ),
    "hidden labels": (
        [run(regime="cc_off"), HIDDEN, PINNED],
        "it claims cc_off, yet 1 copies are reported as CC does: on the device, Managed",
    ),
    "true labels": (
        [run(regime="hopper_spt_cc"), PINNED, HIDDEN],
        "it claims CC, yet 1 pinned copies bear their true label, which CC hides",
    ),
    "plain crossings": (
        [run(regime="sw_per_hop_aesgcm", found_world_size=2), *_hook(seals=2), *_hook(seals=0, ts_ns=3000)],
        "it claims sw_per_hop_aesgcm, yet 1 crossings were not sealed",
    ),
    "several": (
        [run(regime="cc_off", cc_mode="devtools", found_world_size=2), *_hook(seals=1)],
        "it claims regime cc_off and cc_mode devtools; it claims cc_off, yet 1 messages were sealed by a software hook",
    ),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case, marks=pytest.mark.given(*rows)) for case, rows in AGREEING.items()]
)
def test_a_claim_that_the_recording_shows_agrees(found: Silver, case: str) -> None:
    assert found.only("runs", *VERDICT) == ("agrees", None)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case, marks=pytest.mark.given(*rows)) for case, rows in UNPROVEN.items()]
)
def test_a_claim_of_which_the_recording_shows_nothing_is_unproven(found: Silver, case: str) -> None:
    assert found.only("runs", *VERDICT) == ("unproven", None)


@pytest.mark.parametrize(
    "sentence",
    [
        pytest.param(sentence, id=case, marks=pytest.mark.given(*rows))
        for case, (rows, sentence) in CONTRADICTED.items()
    ],
)
def test_a_claim_whose_opposite_the_recording_shows_is_contradicted(found: Silver, sentence: str) -> None:
    assert found.only("runs", *VERDICT) == ("contradicted", sentence)


@pytest.mark.parametrize(
    ("mode", "is_shipped"),
    [
        pytest.param(mode, is_shipped, marks=pytest.mark.given(run(cc_mode=mode)))
        for mode, is_shipped in ((None, None), ("off", True), ("on", True), ("devtools", False))
    ],
)
def test_devtools_is_not_the_shipped_mode(found: Silver, mode: str | None, is_shipped: bool | None) -> None:
    assert found.only("runs", "cc_mode", "is_shipped_mode") == (mode, is_shipped)


@pytest.mark.given(
    run(regime="sw_per_hop_aesgcm", found_world_size=2, warmup_steps_count=1),
    note("ProfilerStep#1", 1000, 100),
    note("ProfilerStep#2", 1100, 100),
    note("ProfilerStep#1", 1000, 100, rank=1),
    kernel("gemm", 1000, 10, rank=1),
    PAGEABLE,
    *_hook(seals=2),
    *_hook(seals=1, ts_ns=3000),
    event("bad", "cpu_op", 0, 10),
)
def test_what_was_found_is_counted(found: Silver) -> None:
    counts = ("found_steps_count", "found_warmup_steps_count", "found_spans_count", "found_gpu_spans_count")
    crossed = ("found_crossings_count", "found_sealed_message_count", "found_violations_count")
    assert found.only("runs", *counts, *crossed, "gpu_evidence") == (3, 2, 14, 2, 3, 3, 1, "measured")


@pytest.mark.given(run(), event("bad", "cpu_op", 0, 10))
def test_a_run_of_which_nothing_was_kept_is_still_a_run(found: Silver) -> None:
    counts = ("found_steps_count", "found_spans_count", "found_gpu_spans_count", "found_crossings_count")
    assert found.only("runs", *counts, "gpu_evidence") == (0, 0, 0, 0, "unobservable")


CLAIM: dict[str, Any] = {
    "model": "m",
    "parameters_count": 5,
    "bucket_cap_mib": 25.5,
    "host": "h",
    "note": "any\nthing 🙂",
    "extra": '{"a": 1}',
    "found_world_size": 4,
    "found_backend": "nccl",
    "found_gpu": "H200",
    "ranks_count": 3,
    "conflicts": "ranks: 4 in the job, no trace from 3",
}


@pytest.mark.given(run(**CLAIM))
def test_what_was_claimed_is_carried_on(found: Silver) -> None:
    assert found.only("runs", *CLAIM) == tuple(CLAIM.values())
    unsaid = [claim.name for claim in CLAIMS if claim.name not in CLAIM]
    assert found.only("runs", *unsaid) == (None,) * len(unsaid)


@pytest.mark.given(
    run(model="m", batch_size=8, bucket_cap_mib=12.5, world_size=4, gpu=None, found_gpu="H100"),
    event("aten::add", "cpu_op", 1000, 10),
)
def test_the_workload_names_what_a_baseline_must_share_and_the_family_all_but_ranks_and_cap(found: Silver) -> None:
    ((workload, family),) = found.rows("runs", "workload", "family")
    shared = family.removesuffix("|ring_chains=|ring_pipelined=|ring_direct=|ring_transport=")
    assert workload == f"{shared}|world_size=4|bucket_cap_mib=12.5"
    assert family.startswith("model=m|parameters_count=|dtype=|batch_size=8|")
    assert "|gpu=H100|" in family


@pytest.mark.given(run(model=None, bucket_cap_mib=25.0), event("aten::add", "cpu_op", 1000, 10))
def test_a_run_that_names_no_model_has_no_workload(found: Silver) -> None:
    assert found.rows("runs", "workload", "family") == [(None, None)]


OPTIONS = (
    '{"cluster": "blue", "ring_chains": 4, "ring_direct": false, "ring_mode": "sealed", "ring_pipelined": true, '
    '"ring_transport": "shared memory"}'
)
ODD = '{"a": "\\"ring_chains\\": 7, ", "ring_chains": [1], "ring_direct": "x|y", "ring_transport": "tcp"}'


@pytest.mark.parametrize(
    ("family", "workload"),
    [
        pytest.param(*texts, marks=pytest.mark.given(run(model="m", extra=extra)))
        for extra, texts in {
            OPTIONS: ("ring_chains=4|ring_pipelined=true|ring_direct=false|ring_transport=shared memory", "ring_"),
            ODD: ("ring_chains=|ring_pipelined=|ring_direct=|ring_transport=tcp", "ring_"),
        }.items()
    ],
)
def test_the_options_of_the_ring_are_part_of_the_family_and_not_of_the_workload(
    found: Silver, family: str, workload: str
) -> None:
    ((found_workload, found_family),) = found.rows("runs", "workload", "family")
    assert found_family.endswith(f"|{family}")
    assert workload not in found_workload
