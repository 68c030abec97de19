"""A run whose attestation has nothing against it: its bundle, its manifest and its log, each open to one change."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.support.tokens import digest_of

if TYPE_CHECKING:
    from tests.support.tokens import Signer

NONCE = "4d6e0c49321d22daa9bd7fc2205e381f9506c20e77dd5082ecf5e124ec0f4618"
UEID = "478176379286082186618948445787393647364802107249"
# When the run begins, and when its token was issued: five minutes before.
BEGAN_S = 1_750_000_000
ISSUED_S = BEGAN_S - 300
ISSUER = "https://nras.attestation.nvidia.com"
_SIGNED: dict[str, Any] = {
    "iss": ISSUER,
    "eat_nonce": NONCE,
    "iat": ISSUED_S,
    "nbf": ISSUED_S,
    "exp": ISSUED_S + 3600,
}
OVERALL: dict[str, Any] = {
    **_SIGNED,
    "sub": "NVIDIA-PLATFORM-ATTESTATION",
    "jti": "c1a3cdc9-ee22-42ad-9cd1-44a1199f2dee",
    "x-nvidia-ver": "3.0",
    "x-nvidia-overall-att-result": True,
}
DEVICE: dict[str, Any] = {
    **_SIGNED,
    "sub": "NVIDIA-GPU-ATTESTATION",
    "jti": "1b0f6a0e-0b1a-4a0b-8f0e-3d3c5c1f1d2e",
    "measres": "success",
    "hwmodel": "GH100 A01 GSP BROM",
    "ueid": UEID,
    "oemid": "5703",
    "secboot": True,
    "dbgstat": "disabled",
    "x-nvidia-gpu-driver-version": "580.95",
    "x-nvidia-gpu-attestation-report-nonce-match": True,
    "x-nvidia-gpu-attestation-report-signature-verified": True,
    "x-nvidia-gpu-attestation-report-cert-chain": {"x-nvidia-cert-status": "valid"},
}
MANIFEST: dict[str, str] = {
    "regime": "hopper_spt_cc",
    "cc_mode": "on",
    "model": "m",
    "driver_version": "580.95",
    "attestation_nonce": NONCE,
    "device_ueids": UEID,
}


def change_claims(claims: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Claims with some of them changed; none takes a claim away. An underscore in a name stands for a dash."""
    named = {name.replace("_", "-") if name.startswith("x_") else name: value for name, value in changes.items()}
    return {name: value for name, value in {**claims, **named}.items() if value is not None}


def bundle(signer: Signer, overall: dict[str, Any] = OVERALL, device: dict[str, Any] | None = DEVICE) -> bytes:
    """The bundle of one GPU, or of none."""
    return signer.bundle(overall, **({} if device is None else {"GPU_0": device}))


def bundle_of(tokens: tuple[str, str]) -> bytes:
    """An overall token and that of one GPU, as they are."""
    overall, device = tokens
    return json.dumps([["JWT", overall], {"GPU-0": device}]).encode()


def tokens(signer: Signer) -> tuple[str, str]:
    """The two tokens of the good bundle."""
    device = signer.token(DEVICE)
    digests = {"GPU-0": ["DIGEST", ["SHA-256", digest_of(device)]]}
    return signer.token({**OVERALL, "submods": digests}), device


def manifest(**changes: str | None) -> str:
    """The text of `run.toml`; none takes a field away."""
    fields = {name: value for name, value in {**MANIFEST, **changes}.items() if value is not None}
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items())


def log(began_s: int = BEGAN_S) -> bytes:
    """A training log of two steps of a minute each."""
    lines = [f"0,{number},bare,{began_s + 60 * number},60" for number in range(2)]
    return "\n".join(["rank,step,phase,began_epoch_s,duration_s", *lines, ""]).encode()
