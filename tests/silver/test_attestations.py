from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.attested_rows import LOG, claim, device, overall
from tests.support.silver_rows import nccl_mode, reading, run, token

if TYPE_CHECKING:
    from tests.support.silver_rows import Silver

CC = run(regime="hopper_spt_cc", cc_mode="on")
OFF = run(regime="cc_off", cc_mode="off")
ON = reading("CC State", "ON")


@pytest.mark.given(
    LOG,
    claim(),
    overall(),
    device(),
    token("forged", submodule="GPU-1"),
    token("refused"),
    token("unverified", submodule="GPU-2", measurement_result="failure"),
    device(submodule="GPU-3", is_nonce_matched=False, debug_status="enabled", is_vouched=False),
)
def test_a_token_stands_as_its_signature_and_its_own_words_let_it(found: Silver) -> None:
    assert found.rows("attestations", "standing", "finding") == [
        ("attested", None),
        ("attested", None),
        ("forged", "it is forged: so it was judged"),
        ("refused", "it is refused: so it was judged"),
        ("unverified", "it is unverified: so it was judged"),
        (
            "failed",
            (
                "the overall token does not hold its digest; the report does not hold the nonce that was asked with; "
                "debugging is enabled"
            ),
        ),
    ]
    assert found.only("runs", "attestation", "attestation_finding") == ("forged", "it is forged: so it was judged")


@pytest.mark.given(CC, ON, reading("Multi-GPU Mode", "None"), nccl_mode("On"))
def test_device_and_nccl_show_the_mode_and_agree_with_the_claim(found: Silver) -> None:
    said = "conf-compute says that CC is on; NCCL saw CC on"
    columns = ("found_cc_mode", "found_cc_evidence", "agreement", "contradictions")
    assert found.only("runs", *columns) == ("on", said, "agrees", None)


@pytest.mark.given(OFF, ON)
def test_a_device_in_cc_contradicts_a_run_that_claims_none(found: Silver) -> None:
    assert found.only("runs", "agreement", "contradictions") == (
        "contradicted",
        "it claims cc_off, yet conf-compute says that CC is on",
    )


@pytest.mark.given(CC, reading("CC State", "OFF"))
def test_a_device_without_cc_contradicts_a_run_that_claims_it(found: Silver) -> None:
    assert found.only("runs", "found_cc_mode", "contradictions") == (
        "off",
        "it claims hopper_spt_cc, yet conf-compute says that CC is off",
    )


@pytest.mark.given(
    run(regime="hopper_ppcie", cc_mode="on"), reading("CC State", "OFF"), reading("Multi-GPU Mode", "Protected PCIe")
)
def test_under_protected_pcie_the_query_says_off_and_means_on(found: Silver) -> None:
    assert found.only("runs", "found_cc_mode", "agreement") == ("on", "agrees")


@pytest.mark.given(CC, ON, reading("CC DevTools Mode", "ON"))
def test_devtools_is_not_the_mode_that_was_claimed(found: Silver) -> None:
    assert found.only("runs", "found_cc_mode", "contradictions") == (
        "devtools",
        "it claims cc_mode on, yet conf-compute says devtools",
    )


@pytest.mark.given(CC, ON, nccl_mode("Off"))
def test_evidence_that_disagrees_shows_no_mode(found: Silver) -> None:
    assert found.only("runs", "found_cc_mode", "contradictions") == (
        None,
        "the evidence disagrees: conf-compute says that CC is on; NCCL saw CC off",
    )


@pytest.mark.given(
    LOG,
    claim(regime="blackwell_mpt_nvle", driver_version="570.1"),
    overall(),
    device(driver_version="580.2"),
)
def test_an_attested_device_that_is_another_contradicts_the_manifest(found: Silver) -> None:
    (said,) = found.only("runs", "contradictions")
    assert said.split("; ") == [
        "it claims blackwell_mpt_nvle, yet the attested hardware is GH100 A01 GSP BROM",
        "it claims driver 570.1, yet the attested driver is 580.2",
    ]


@pytest.mark.given(LOG, claim(regime="cc_off", cc_mode="off"), overall(), device())
def test_a_gpu_that_attested_itself_was_in_cc(found: Silver) -> None:
    assert found.only("runs", "contradictions") == (
        "it claims cc_off, yet a GPU attested itself, which it does in CC only",
    )


@pytest.mark.given(run(regime="hopper_spt_cc"), token("unverified", submodule="GPU-0", hardware_model="GB202"))
def test_what_no_given_key_signed_proves_nothing_either_way(found: Silver) -> None:
    assert found.only("runs", "attestation", "agreement", "contradictions", "found_cc_mode") == (
        "unverified",
        "unproven",
        None,
        None,
    )
