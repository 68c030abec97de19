"""Whatever is changed in a good bundle, it is attested no more."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st

from bronze import attestations as tokens_of
from bronze import runs
from lake.attestation_keys import NO_KEYS, AttestationKeys, load_keys
from lake.engines import engine
from silver import attestations, steps, throughput
from tests.support.bronze_sources import read_source
from tests.support.campaigns import pick_size
from tests.support.good_tokens import BEGAN_S, DEVICE, OVERALL, bundle, bundle_of, tokens
from tests.support.good_tokens import MANIFEST as CLAIMED
from tests.support.silver_rows import rows_of
from tests.support.tokens import Signer, encode

if TYPE_CHECKING:
    from pathlib import Path

TRUSTED = Signer()
GOOD = tokens(TRUSTED)
# Without one of these a token is no attestation: it is taken away, and given values that mean nothing.
OVERALL_NEEDS = ("iss", "sub", "eat_nonce", "jti", "iat", "exp", "x-nvidia-overall-att-result")
DEVICE_NEEDS = (
    *("iss", "eat_nonce", "jti", "iat", "exp", "measres", "hwmodel", "ueid", "secboot", "dbgstat"),
    "x-nvidia-gpu-attestation-report-nonce-match",
    "x-nvidia-gpu-attestation-report-signature-verified",
    "x-nvidia-gpu-attestation-report-cert-chain",
)
# Of these any text will do, so only what is no text is tried.
ANY_TEXT = {"jti", "hwmodel"}
STRANGE: tuple[Any, ...] = (None, 0, 1, "no", "yes", "", [], {}, "succes", -1e300, False)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> AttestationKeys:
    path: Path = tmp_path_factory.mktemp("keys") / "keys.pem"
    path.write_bytes(TRUSTED.pem)
    return load_keys(path)


def standings(bundles: dict[str, bytes], keys: AttestationKeys) -> dict[str, list[str]]:
    """How the tokens of each bundle stand, each bundle as a run of its own that all else speaks for."""
    rows = [
        {**row, "run_id": name, "source_sha256": name}
        for name, data in bundles.items()
        for row in read_source(data, keys=keys).table("attestations")
    ]
    claims = {"attestation_nonce": CLAIMED["attestation_nonce"], "device_ueids": CLAIMED["device_ueids"]}
    began = {"ts_ns": BEGAN_S * 10**9, "end_ns": BEGAN_S * 10**9 + 60}
    polars = engine("polars")
    found = attestations.conform(
        polars.wrap(rows_of(tokens_of.TABLE, rows)),
        polars.wrap(rows_of(runs.TABLE, [{"run_id": name, **claims} for name in bundles])),
        polars.wrap(rows_of(steps.TABLE, [])),
        polars.wrap(rows_of(throughput.TABLE, [{"run_id": name, **began} for name in bundles])),
    )
    stood: dict[str, list[str]] = {name: [] for name in bundles}
    for row in polars.rows(found).to_pylist():
        stood[row["run_id"]].append(row["standing"])
    return stood


def test_the_good_bundle_is_attested(keys: AttestationKeys) -> None:
    found = standings({"good": bundle_of(GOOD), "again": bundle(TRUSTED)}, keys)
    assert found == {"good": ["attested", "attested"], "again": ["attested", "attested"]}


def test_a_claim_that_is_missing_or_strange_attests_nothing_though_a_trusted_key_signed_it(
    keys: AttestationKeys,
) -> None:
    bundles = {}
    for kind, needs in (("overall", OVERALL_NEEDS), ("device", DEVICE_NEEDS)):
        for claim in needs:
            for value in STRANGE:
                if claim in ANY_TEXT and value is not None:
                    continue
                good = OVERALL if kind == "overall" else DEVICE
                changed = {name: one for name, one in {**good, claim: value}.items() if one is not None}
                data = bundle(TRUSTED, **{kind: changed})
                bundles[f"{kind} {claim} = {value!r}"] = data
    found = standings(bundles, keys)
    assert [name for name, stood in found.items() if set(stood) == {"attested"}] == []


@settings(max_examples=pick_size(60, 5000), deadline=None)
@given(which=st.integers(0, 1), place=st.integers(0, 1 << 20), other=st.characters(min_codepoint=33, max_codepoint=126))
def test_a_changed_character_of_a_token_is_never_verified(
    keys: AttestationKeys, which: int, place: int, other: str
) -> None:
    token = GOOD[which]
    place %= len(token)
    if token[place] == other:
        other = "A" if other != "A" else "B"
    changed = token[:place] + other + token[place + 1 :]
    pair = (changed, GOOD[1]) if which == 0 else (GOOD[0], changed)
    row = read_source(bundle_of(pair), keys=keys).table("attestations")[which]
    assert row["verdict"] != "verified"
    assert which == 0 or row["is_vouched"] is False


@pytest.mark.parametrize("added", ["=", "==", "A", ".", " ", "\n", "\x00"])
def test_a_token_with_something_behind_it_is_never_verified(keys: AttestationKeys, added: str) -> None:
    (row, _) = read_source(bundle_of((GOOD[0] + added, GOOD[1])), keys=keys).table("attestations")
    assert row["verdict"] != "verified"


def test_bits_behind_the_last_byte_of_a_signature_may_not_be_set(tmp_path: Path) -> None:
    # 64 bytes leave four bits of the last character unused; those of P-384 leave none.
    key = ec.generate_private_key(ec.SECP256R1())
    form = (serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    (tmp_path / "keys.pem").write_bytes(key.public_key().public_bytes(*form))
    keys = load_keys(tmp_path / "keys.pem")
    token = jwt.encode(OVERALL, key, "ES256")
    order = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    same = token[:-1] + order[order.index(token[-1]) + 1]
    assert base64.urlsafe_b64decode(same.split(".")[2] + "==") == base64.urlsafe_b64decode(token.split(".")[2] + "==")
    found = [
        read_source(one.encode(), keys=keys).table("attestations")[0]["verdict"] for one in (token, same, token + "==")
    ]
    assert found == ["verified", "refused", "refused"]


def test_a_member_that_is_named_twice_is_refused_though_the_signature_is_good(keys: AttestationKeys) -> None:
    claims = json.dumps(OVERALL)[:-1] + ', "x-nvidia-overall-att-result": false}'
    header = encode(b'{"alg": "ES384", "typ": "JWT"}')
    doubled = TRUSTED.sign(f"{header}.{encode(claims.encode())}")
    (row,) = read_source(doubled.encode(), keys=keys).table("attestations")
    assert (row["verdict"], row["verdict_reason"]) == ("refused", "its header or its claims name a member twice")


@pytest.mark.parametrize("header", [{"kid": 5}, {"crit": ["b64"], "b64": False}, {"crit": []}, {"alg": "es384"}])
def test_a_header_that_asks_for_something_else_is_refused(keys: AttestationKeys, header: dict[str, Any]) -> None:
    (row,) = read_source(TRUSTED.token(OVERALL, **header).encode(), keys=keys).table("attestations")
    assert row["verdict"] == "refused"


def test_without_keys_the_good_bundle_cannot_be_verified() -> None:
    assert standings({"good": bundle_of(GOOD)}, NO_KEYS) == {"good": ["unverified", "unverified"]}
