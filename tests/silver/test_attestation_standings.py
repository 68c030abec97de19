"""Every reason for which a token that a trusted key signed does not attest its run, with its standing and sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from silver.attestations import POLICY
from tests.support.attested_rows import BEGAN, HOUR, LOG, NONCE, PLATFORM, claim, device, overall

if TYPE_CHECKING:
    from tests.support.silver_rows import Row, Silver

AGE = POLICY["most_age_hours"] * HOUR

# What is changed, and which token then has which standing, for which reason. The other token still stands.
CASES: dict[str, tuple[tuple[Row, ...], str, str]] = {
    "no issuer": ((claim(), overall(issuer=None), device()), "signature_only", "it names no issuer (`iss`)"),
    "another issuer": (
        (claim(), overall(issuer="https://login.example"), device()),
        "signature_only",
        "its issuer is no known verifier: https://login.example",
    ),
    "no type": (
        (claim(), overall(subject=None), device()),
        "signature_only",
        f"it is not about {PLATFORM} (`sub`)",
    ),
    "another type": (
        (claim(), overall(subject="alice"), device()),
        "signature_only",
        f"it is not about {PLATFORM} (`sub`)",
    ),
    "no nonce": ((claim(), overall(nonce=None), device()), "signature_only", "it names no nonce (`eat_nonce`)"),
    "no id": ((claim(), overall(token_id=None), device()), "signature_only", "it has no id (`jti`)"),
    "no measurements": (
        (claim(), overall(), device(measurement_result=None)),
        "signature_only",
        "it holds no claims of a device (`measres`, `hwmodel`, `ueid`)",
    ),
    "a failure": ((claim(), overall(is_overall_success=False), device()), "failed", "its overall result is a failure"),
    "no result": ((claim(), overall(is_overall_success=None), device()), "failed", "it gives no overall result"),
    "failed measurements": (
        (claim(), overall(), device(measurement_result="comparison-successful")),
        "failed",
        "its measurements do not match",
    ),
    "another digest": (
        (claim(), overall(), device(is_vouched=False)),
        "failed",
        "the overall token does not hold its digest",
    ),
    "no digest": ((claim(), overall(), device(is_vouched=None)), "failed", "no overall token holds its digest"),
    "a bad report": (
        (claim(), overall(), device(is_report_signature_verified=False)),
        "failed",
        "the signature of the device's report failed",
    ),
    "a report of unknown signature": (
        (claim(), overall(), device(is_report_signature_verified=None)),
        "failed",
        "it does not say that the signature of the device's report was verified",
    ),
    "a bad chain": (
        (claim(), overall(), device(is_certificate_chain_valid=False)),
        "failed",
        "the certificate chain of the report is not valid",
    ),
    "an unknown chain": (
        (claim(), overall(), device(is_certificate_chain_valid=None)),
        "failed",
        "it does not say that the certificate chain of the report is valid",
    ),
    "a report of another nonce": (
        (claim(), overall(), device(is_nonce_matched=False)),
        "failed",
        "the report does not hold the nonce that was asked with",
    ),
    "a report of an unknown nonce": (
        (claim(), overall(), device(is_nonce_matched=None)),
        "failed",
        "it does not say that the report holds the nonce",
    ),
    "no secure boot": ((claim(), overall(), device(is_secure_boot=False)), "failed", "secure boot is off"),
    "unknown secure boot": (
        (claim(), overall(), device(is_secure_boot=None)),
        "failed",
        "it does not say that secure boot is on",
    ),
    "debugging": ((claim(), overall(), device(debug_status="enabled")), "failed", "debugging is enabled"),
    "unknown debugging": (
        (claim(), overall(), device(debug_status=None)),
        "failed",
        "it does not say that debugging is disabled",
    ),
    "no time of issue": (
        (claim(), overall(issued_ns=None), device()),
        "stale",
        "it does not say when it was issued (`iat`)",
    ),
    "no expiry": (
        (claim(), overall(expires_ns=None), device()),
        "stale",
        "it does not say until when it holds (`exp`)",
    ),
    "too old": (
        (claim(), overall(issued_ns=BEGAN - AGE - 2 * HOUR), device()),
        "stale",
        "it was issued 26 hours before the run began, and 24 are allowed",
    ),
    "of 1970": (
        (claim(), overall(issued_ns=-(1 << 63)), device()),
        "stale",
        "it was issued 486111 hours before the run began, and 24 are allowed",
    ),
    "expired": (
        (claim(), overall(expires_ns=BEGAN - 1), device()),
        "stale",
        "it had expired before the run was recorded",
    ),
    "no nonce in the manifest": (
        (claim(attestation_nonce=None), overall(), device(submodule="GPU-0")),
        "unbound",
        "run.toml names no attestation_nonce",
    ),
    "another nonce": (
        (claim(), overall(nonce="ff" * 32), device()),
        "unbound",
        "its nonce is not the attestation_nonce of run.toml",
    ),
    "no device": ((claim(), overall()), "unbound", "no token of a device stands beside it"),
    "no devices in the manifest": (
        (claim(device_ueids=None), overall(), device()),
        "unbound",
        "run.toml names no device_ueids",
    ),
    "another device": (
        (claim(device_ueids="1,12,111"), overall(), device()),
        "unbound",
        "its device is not among the device_ueids of run.toml",
    ),
    "a device too few": (
        (claim(device_ueids="11, 12"), overall(), device()),
        "unbound",
        "run.toml names 2 device_ueids, and tokens speak for 1",
    ),
    "issued after the run": (
        (claim(), overall(issued_ns=BEGAN + 3 * HOUR, expires_ns=BEGAN + 4 * HOUR), device()),
        "unbound",
        "it was issued more than 1 hour after the run ended",
    ),
    "not yet valid": (
        (claim(), overall(not_before_ns=(1 << 63) - 1), device()),
        "unbound",
        "it did not hold yet when the run ended",
    ),
}


@pytest.mark.parametrize(
    ("standing", "sentence"),
    [
        pytest.param(standing, sentence, marks=pytest.mark.given(LOG, *rows), id=name)
        for name, (rows, standing, sentence) in CASES.items()
    ],
)
def test_a_token_that_does_not_attest_says_why(found: Silver, standing: str, sentence: str) -> None:
    answer = found.rows("attestations", "standing", "finding")
    assert any(one == standing and sentence in (finding or "").split("; ") for one, finding in answer), answer
    assert found.only("runs", "attestation")[0] != "attested"


@pytest.mark.given(claim(), overall(), device())
def test_a_run_without_a_time_cannot_be_bound(found: Silver) -> None:
    said = "no step or log of the run has a time to hold it against"
    assert found.rows("attestations", "standing", "finding") == [("unbound", said), ("unbound", said)]


@pytest.mark.given(
    LOG,
    claim(attestation_nonce=NONCE.upper(), device_ueids="11, 12"),
    overall(issued_ns=BEGAN - AGE, expires_ns=BEGAN),
    device(issued_ns=BEGAN + 2 * HOUR, not_before_ns=BEGAN + 2 * HOUR, expires_ns=BEGAN + 3 * HOUR),
    device(submodule="GPU-1", device_ueid="12", debug_status="disabled-since-boot", measurement_result="Success"),
)
def test_a_run_is_attested_up_to_the_bounds(found: Silver) -> None:
    assert found.rows("attestations", "standing", "finding") == [("attested", None)] * 3
    assert found.only("runs", "attestation", "attestation_finding", "found_cc_mode") == ("attested", None, "on")


@pytest.mark.given(LOG, claim(), overall(issuer=None, nonce=None), device(issuer=None, measurement_result=None))
def test_all_that_speaks_against_a_token_is_said_and_the_mode_is_not_taken_from_it(found: Silver) -> None:
    assert found.rows("attestations", "finding")[0] == ("it names no issuer (`iss`); it names no nonce (`eat_nonce`)",)
    assert found.only("runs", "attestation", "found_cc_mode") == ("signature_only", None)
