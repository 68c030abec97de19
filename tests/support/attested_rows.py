"""Tokens, manifest and log of a run that is attested, as bronze has them, each open to a change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.silver_rows import make_log_record, run, token

if TYPE_CHECKING:
    from tests.support.silver_rows import Row

HOUR = 3600 * 10**9
BEGAN = 1_750_000_000 * 10**9
NONCE = "00112233445566778899aabbccddeeff"
SIGNED: dict[str, Any] = {
    "issuer": "https://nras.attestation.nvidia.com",
    "nonce": NONCE,
    "token_id": "t-1",
    "issued_ns": BEGAN - HOUR // 2,
    "not_before_ns": BEGAN - HOUR // 2,
    "expires_ns": BEGAN + HOUR // 2,
}
PLATFORM = "NVIDIA-PLATFORM-ATTESTATION"


def overall(**changes: Any) -> Row:
    """The token of a platform."""
    return token("verified", **{**SIGNED, "subject": PLATFORM, "is_overall_success": True, **changes})


def device(**changes: Any) -> Row:
    """The token of a GPU."""
    claims = {
        "submodule": "GPU-0",
        "measurement_result": "success",
        "hardware_model": "GH100 A01 GSP BROM",
        "device_ueid": "11",
        "is_secure_boot": True,
        "debug_status": "disabled",
        "is_nonce_matched": True,
        "is_report_signature_verified": True,
        "is_certificate_chain_valid": True,
        "is_vouched": True,
    }
    return token("verified", **{**SIGNED, **claims, **changes})


def claim(**changes: Any) -> Row:
    """The manifest of the run that the tokens are bound to."""
    return run(**{"attestation_nonce": NONCE, "device_ueids": "11", **changes})


LOG = make_log_record(epoch_number=1, began_ns=BEGAN, duration_ns=HOUR)
