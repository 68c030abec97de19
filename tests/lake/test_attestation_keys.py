from __future__ import annotations

import hmac
import json
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from jwt.utils import base64url_encode

from lake.attestation_keys import NO_KEYS, load_keys
from lake.errors import ContractBroken
from pipelines.settings import settings

_KEY = ec.generate_private_key(ec.SECP256R1())
_RSA = rsa.generate_private_key(65537, 2048)


def pem(key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _jwk(**members: str) -> dict[str, Any]:
    return {**ECAlgorithm.to_jwk(_KEY.public_key(), as_dict=True), **members}


def certificate() -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "signer")])
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, _KEY.public_key(), 1, begin, begin + timedelta(days=1))
    return builder.sign(_KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_without_a_file_there_are_no_keys() -> None:
    assert load_keys(None) is NO_KEYS


def test_public_keys_and_certificates_of_a_pem_file_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "keys.pem"
    path.write_bytes(b"comment\n" + pem(_KEY.public_key()) + certificate() + pem(_RSA.public_key()))
    keys = load_keys(path).keys
    assert [[key.fits(name) for name in ("ES256", "ES384", "RS256", "PS512")] for key in keys] == [
        [True, False, False, False],
        [True, False, False, False],
        [False, False, True, True],
    ]


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "PS512"])
def test_a_signature_is_by_the_key_that_made_it_over_the_bytes_it_was_made_over(tmp_path: Path, algorithm: str) -> None:
    path = tmp_path / "keys.pem"
    path.write_bytes(pem(_RSA.public_key()))
    (key,) = load_keys(path).keys
    token = jwt.encode({"a": 1}, _RSA, algorithm)
    header, claims, signature = token.split(".")
    assert key.has_signed(token)
    assert not key.has_signed(f"{header}.{claims[:-2]}AA.{signature}")
    assert not key.has_signed(f"{header}.{claims}.{signature[:-4]}")


def test_a_public_key_is_no_secret_of_an_hmac(tmp_path: Path) -> None:
    path = tmp_path / "keys.pem"
    path.write_bytes(pem(_RSA.public_key()))
    (key,) = load_keys(path).keys
    header, claims = (
        base64url_encode(json.dumps(part).encode()) for part in ({"alg": "HS256", "typ": "JWT"}, {"measres": "success"})
    )
    signature = hmac.digest(path.read_bytes(), header + b"." + claims, "sha256")
    assert not key.fits("HS256")
    assert not key.has_signed(b".".join((header, claims, base64url_encode(signature))).decode())


def test_keys_can_be_handed_to_another_process(tmp_path: Path) -> None:
    path = tmp_path / "keys.pem"
    path.write_bytes(pem(_KEY.public_key()))
    keys = load_keys(path)
    assert pickle.loads(pickle.dumps(keys)) == keys  # noqa: S301 - made here


def test_other_keys_have_another_digest(tmp_path: Path) -> None:
    path = tmp_path / "keys.pem"
    path.write_bytes(pem(_KEY.public_key()))
    first = load_keys(path).sha256
    path.write_bytes(pem(_RSA.public_key()))
    assert first != load_keys(path).sha256 != NO_KEYS.sha256


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "holds no public key"),
        (b"hello", "holds no public key"),
        (b"{", "cannot be read"),
        (b'{"keys": 5}', "cannot be read"),
        (b'{"keys": [{"kty": "oct", "k": "AAAA"}]}', "neither EC nor RSA"),
        (b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}', "cannot be read"),
        (b'{"keys": [], "keys": []}', "names a member twice"),
        (b'{"keys": ["EC"]}', "cannot be read"),
        (json.dumps({**_jwk(), "d": "AAAA"}).encode(), "a private key is no public key"),
        (json.dumps({**_jwk(), "use": "enc"}).encode(), "not for signatures"),
        (json.dumps({**_jwk(), "key_ops": ["encrypt"]}).encode(), "not for signatures"),
        (json.dumps({**_jwk(), "alg": "HS256"}).encode(), "cannot be read"),
        (json.dumps({**_jwk(), "alg": "ES384"}).encode(), "cannot be read"),
        (pem(ec.generate_private_key(ec.SECP256K1()).public_key()), "on the curve secp256k1"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "cannot be read"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "PRIVATE KEY is no public key"),
        (pem(ed25519.Ed25519PrivateKey.generate().public_key()), "neither EC nor RSA"),
        (b" " * (5 << 20), "is larger than"),
    ],
    # Keys differ from process to process, and the names of tests must not.
    ids=lambda value: value if isinstance(value, str) else f"{len(value)} bytes",
)
def test_a_file_of_something_else_is_an_error_that_names_it(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(ContractBroken, match=what) as raised:
        load_keys(path)
    assert str(path) in str(raised.value)
    assert "TEETOTAL_ATTESTATION_KEYS" in raised.value.hint


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ContractBroken, match="cannot be read: No such file"):
        load_keys(tmp_path / "nowhere.pem")


def test_the_file_is_named_in_the_settings(tmp_path: Path) -> None:
    assert settings(environment={}).attestation_keys is None
    assert settings(environment={"TEETOTAL_ATTESTATION_KEYS": " "}).attestation_keys is None
    named = {"TEETOTAL_ATTESTATION_KEYS": str(tmp_path / "k.json")}
    assert settings(environment=named).attestation_keys == tmp_path / "k.json"


def test_a_key_set_gives_each_key_its_id_and_the_algorithm_that_it_names(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    rsa_key = {**RSAAlgorithm.to_jwk(_RSA.public_key(), as_dict=True), "kid": "one", "alg": "PS256"}
    path.write_text(json.dumps({"keys": [rsa_key, _jwk(kid="two", use="sig")]}))
    one, two = load_keys(path).keys
    assert (one.key_id, one.algorithms) == ("one", ("PS256",))
    assert (two.key_id, two.algorithms) == ("two", ("ES256",))
    assert two.fits("ES256", "two")
    assert two.fits("ES256", None)
    assert not two.fits("ES256", "one")


def test_a_key_of_a_secret_is_not_repeated_in_the_error(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text('{"kty": "oct", "k": "c2VjcmV0", "alg": "XX"}')
    with pytest.raises(ContractBroken, match="neither EC nor RSA") as raised:
        load_keys(path)
    assert "c2VjcmV0" not in str(raised.value)
