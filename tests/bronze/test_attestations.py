from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assets.build.bronze import materialise
from assets.checks.expectations import check_tables
from bronze import runs, unreadable
from bronze.limits import Limits
from lake.attestation_keys import NO_KEYS, AttestationKeys, load_keys
from lake.errors import EvidenceRejected
from tests.conftest import LandFiles
from tests.support.bronze_sources import read_source
from tests.support.tokens import Signer, encode
from tests.support.up_to_date import find_landed

_OURS, _OTHERS = Signer(), Signer()
_UEID = "123456789012345678901234567890123456789012345678"
_OVERALL = {
    "sub": "PLATFORM",
    "iss": "https://verifier.example",
    "x-nvidia-ver": "3.0",
    "x-nvidia-overall-att-result": True,
    "eat_nonce": "00ff",
    "iat": 1700000000,
    "nbf": 1699999999.5,
    "exp": 4102444800,
    "jti": "t-1",
}
_DEVICE = {
    "measres": "success",
    "hwmodel": "MODEL A01",
    "ueid": _UEID,
    "oemid": "5703",
    "secboot": True,
    "dbgstat": "disabled",
    "x-nvidia-gpu-driver-version": "570.1",
    "x-nvidia-gpu-vbios-version": "96.0",
    "x-nvidia-gpu-attestation-report-nonce-match": True,
    "x-nvidia-gpu-attestation-report-signature-verified": False,
    "x-nvidia-gpu-attestation-report-cert-chain": {"x-nvidia-cert-status": "valid"},
}


@pytest.fixture
def keys(tmp_path: Path) -> AttestationKeys:
    """Our key, as PEM."""
    path = tmp_path / "keys.pem"
    path.write_bytes(_OURS.pem)
    return load_keys(path)


def verdicts(data: bytes, keys: AttestationKeys = NO_KEYS) -> list[tuple[str, str]]:
    return [(row["verdict"], row["verdict_reason"]) for row in read_source(data, keys=keys).table("attestations")]


def alone(token: str) -> bytes:
    return json.dumps([["JWT", token], {}]).encode()


# -- what is said ---------------------------------------------------------------------------------------------------


def test_a_bundle_has_a_row_for_the_whole_and_one_for_each_device(keys: AttestationKeys) -> None:
    found = read_source(_OURS.bundle(_OVERALL, GPU_0=_DEVICE, GPU_1={}), keys=keys)
    assert found.format == "eat_bundle"
    overall, device, empty = found.table("attestations")
    for row in (overall, device, empty):
        assert json.loads(row.pop("header")) == {"alg": "ES384", "typ": "JWT"}
        assert row.pop("token").count(".") == 2
        assert row.pop("verdict") == "verified"
        assert row.pop("verdict_reason") == "the ES384 signature is by a key that was given"
        assert row.pop("signature_algorithm") == "ES384"
    assert json.loads(device.pop("claims")) == _DEVICE
    assert set(json.loads(overall.pop("claims"))["submods"]) == {"GPU-0", "GPU-1"}
    assert overall == {
        "ordinal": 0,
        "subject": "PLATFORM",
        "issuer": "https://verifier.example",
        "claims_version": "3.0",
        "is_overall_success": True,
        "nonce": "00ff",
        "issued_ns": 1700000000_000000000,
        "not_before_ns": 1699999999_500000000,
        "expires_ns": 4102444800_000000000,
        "token_id": "t-1",
    }
    assert device == {
        "ordinal": 1,
        "submodule": "GPU-0",
        "is_vouched": True,
        "measurement_result": "success",
        "hardware_model": "MODEL A01",
        "device_ueid": _UEID,
        "oem_id": "5703",
        "is_secure_boot": True,
        "debug_status": "disabled",
        "driver_version": "570.1",
        "vbios_version": "96.0",
        "is_nonce_matched": True,
        "is_report_signature_verified": False,
        "is_certificate_chain_valid": True,
    }
    assert empty == {"ordinal": 2, "submodule": "GPU-1", "is_vouched": True, "claims": "{}"}


@pytest.mark.parametrize(
    ("claims", "column", "value"),
    [
        ({"x-nvidia-gpu-attestation-report-cert-chain-validated": True}, "is_certificate_chain_valid", True),
        (
            {"x-nvidia-gpu-attestation-report-cert-chain": {"x-nvidia-cert-status": "expired"}},
            "is_certificate_chain_valid",
            None,
        ),
        ({"measres": "Failure"}, "measurement_result", "Failure"),
        ({"nonce": "abc"}, "nonce", "abc"),
        ({"ueid": int(_UEID)}, "device_ueid", _UEID),
        ({"secboot": "false"}, "is_secure_boot", False),
        ({"exp": 10**30}, "expires_ns", None),
        ({"exp": "tomorrow"}, "expires_ns", None),
        ({"dbgstat": ["a", 1]}, "debug_status", '["a",1]'),
    ],
)
def test_claims_of_other_generations_and_kinds(claims: dict[str, Any], column: str, value: object) -> None:
    (row,) = read_source(alone(_OURS.token(claims))).table("attestations")
    assert row.get(column) == value
    assert json.loads(row["claims"]) == claims


def test_a_bundle_inside_a_bundle_and_a_bare_token() -> None:
    inner = [["JWT", _OURS.token({"a": 1})], {"GPU-0": _OURS.token({"b": 2})}]
    found = read_source(json.dumps([["JWT", _OURS.token({})], {"REMOTE": inner}]).encode())
    assert [row.get("submodule") for row in found.table("attestations")] == [None, "REMOTE", "REMOTE/GPU-0"]
    assert len(read_source(_OURS.token({"a": 1}).encode() + b"\n").table("attestations")) == 1


def test_a_device_that_the_overall_token_does_not_name_so_is_not_vouched_for() -> None:
    bundle = json.loads(_OURS.bundle(_OVERALL, GPU_0=_DEVICE))
    bundle[1] = {"GPU-0": _OURS.token({"measres": "success"}), "GPU-9": _OURS.token({})}
    rows = read_source(json.dumps(bundle).encode()).table("attestations")
    assert [row.get("is_vouched") for row in rows] == [None, False, None]


# -- who says it ----------------------------------------------------------------------------------------------------


def test_without_keys_nothing_is_verified() -> None:
    assert verdicts(alone(_OURS.token({}))) == [("unverified", "no keys were given (TEETOTAL_ATTESTATION_KEYS)")]


def test_a_token_of_another_signer_is_forged(keys: AttestationKeys) -> None:
    assert verdicts(alone(_OTHERS.token(_OVERALL)), keys) == [
        ("forged", "the ES384 signature is not by any key that was given")
    ]


def test_one_changed_claim_makes_a_token_forged(keys: AttestationKeys) -> None:
    header, _, signature = _OURS.token({"measres": "failure"}).split(".")
    better = ".".join((header, encode(b'{"measres": "success"}'), signature))
    assert [verdict for verdict, _ in verdicts(alone(better), keys)] == ["forged"]


def test_a_key_id_that_was_not_given_leaves_a_token_unverified(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [_OURS.jwk("k-1"), _OTHERS.jwk("k-2")]}))
    keys = load_keys(path)
    found = [verdicts(alone(_OURS.token({}, kid=key_id)), keys)[0][0] for key_id in ("k-1", "k-2", "k-3")]
    assert found == ["verified", "forged", "unverified"]


def _make_token(header: dict[str, Any], signature: str = "AAAA") -> str:
    return ".".join((encode(json.dumps(header).encode()), encode(b'{"measres": "success"}'), signature))


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (_make_token({"alg": "none"}, ""), "'none', which proves nothing"),
        (_make_token({"alg": "None"}), "'None', which proves nothing"),
        (_make_token({"alg": "HS256"}), "'HS256', which proves nothing"),
        (_make_token({"alg": ["ES384"]}), "proves nothing"),
        (_make_token({}), "'None', which proves nothing"),
        (_make_token({"alg": "ES384", "crit": ["x"]}), "extensions that must be understood"),
        (_make_token({"alg": "ES384"}, ""), "it has no signature"),
        (_make_token({"alg": "ES384"}, "!!!!"), "it has no signature"),
        ("a.b", "no token of a header"),
        ("a.b.c.d", "no token of a header"),
        ("", "no token of a header"),
        ("eyJ.eyJ.eyJ", "no token of a header"),
        (encode(b"[1]") + "." + encode(b"{}") + ".AAAA", "no token of a header"),
        (encode(b'{"alg": "ES384"}') + "." + encode(b"[" * 100_000) + ".AAAA", "no token of a header"),
        (
            encode(b'{"alg": "ES384"}') + "." + encode(b'{"iat": ' + b"9" * 5000 + b"}") + ".AAAA",
            "no token of a header",
        ),
    ],
)
def test_a_token_that_nobody_can_have_signed_is_recorded_and_refused(
    keys: AttestationKeys, token: str, why: str
) -> None:
    (row,) = read_source(alone(token), keys=keys).table("attestations")
    assert row["verdict"] == "refused"
    assert why in row["verdict_reason"]
    assert row["token"] == token


@pytest.mark.parametrize("signature", ["AAAA", encode(bytes(96)), encode(b"\xff" * 96), encode(bytes(10_000))])
def test_signatures_of_nothing_are_forged(keys: AttestationKeys, signature: str) -> None:
    assert [verdict for verdict, _ in verdicts(alone(_make_token({"alg": "ES384"}, signature)), keys)] == ["forged"]


# -- giants ---------------------------------------------------------------------------------------------------------


def test_what_is_missing_again_at_the_same_place_has_a_reason_of_its_own(land_files: LandFiles) -> None:
    data = json.dumps([["JWT", _OURS.token({})], *[{"GPU-0": 5}] * 3]).encode()
    landed = land_files({"bundle.json": data})
    reasons = landed.reasons_of("bundle.json")
    assert len(set(reasons)) == len(reasons) == landed.file("bundle.json")["unreadable_count"]
    assert len(reasons) >= 3
    held = check_tables(land_files.lake, unreadable.TABLE, ["run-1"])
    assert [one.check.name for one in held if not one.is_held] == []


def test_a_giant_token_is_reported_and_the_others_are_read() -> None:
    bundle = json.dumps([["JWT", "eyJ" + "A" * (1 << 19)], {"GPU-0": _OURS.token({}), "GPU-1": 5}]).encode()
    found = read_source(bundle)
    assert [row["submodule"] for row in found.table("attestations")] == ["GPU-0"]
    assert found.reasons == ["the token of overall is longer than 262,144 characters", "the token of GPU-1 is no text"]


@pytest.mark.parametrize(
    "data",
    [
        b'[["JWT", "eyJ' + b"A" * (17 << 20) + b'"]]',
        b'[["JWT", "a"' + b"," * 10,
        b'[["JWT",' + b"[" * 200_000,
        b'[["JWT", "a"], {' + b",".join(b'"GPU-%d": "a"' % number for number in range(5000)) + b"}]",
    ],
    ids=["giant", "broken", "deep", "many"],
)
def test_a_bundle_that_is_none_is_refused(data: bytes) -> None:
    with pytest.raises(EvidenceRejected):
        read_source(data)


# -- in the lake ----------------------------------------------------------------------------------------------------


def test_other_keys_make_a_run_with_tokens_stale_and_change_its_verdicts(
    land_files: LandFiles, keys: AttestationKeys
) -> None:
    land_files.write({"token.json": _OURS.bundle(_OVERALL, GPU_0=_DEVICE)})
    land_files.materialise()
    assert find_landed(land_files.lake, land_files.zone, ["run-1"]) == {"run-1"}
    assert find_landed(land_files.lake, land_files.zone, ["run-1"], keys) == set()
    assert land_files.read().attestations["verdict"].to_list() == ["unverified"] * 2
    materialise(land_files.lake, land_files.zone, "run-1", Limits(), keys=keys)
    assert find_landed(land_files.lake, land_files.zone, ["run-1"], keys) == {"run-1"}
    assert land_files.read().attestations["verdict"].to_list() == ["verified"] * 2


def test_other_keys_are_another_origin_only_where_there_are_tokens(
    land_files: LandFiles, keys: AttestationKeys
) -> None:
    marks: dict[str, list[int | None]] = {}
    for name, data in {"token.json": _OURS.bundle({}), "epochs.csv": b"epoch,img/s\n1,2\n"}.items():
        land_files.write({name: data}, run_id=name)
        for given in (NO_KEYS, keys):
            materialise(land_files.lake, land_files.zone, name, Limits(), keys=given)
            marks.setdefault(name, []).append(land_files.lake.snapshot(runs.TABLE).mark(name))
    assert len(set(marks["token.json"])) == 2
    assert len(set(marks["epochs.csv"])) == 1
