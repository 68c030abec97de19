from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.x509.oid import NameOID

from lake.attestation_keys import NO_KEYS, loaded
from lake.errors import ContractBroken
from pipelines.settings import settings

_KEY = ec.generate_private_key(ec.SECP256R1())
_RSA = rsa.generate_private_key(65537, 2048)


def pem(key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey | ed25519.Ed25519PublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def certificate() -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "signer")])
    begin = datetime(2024, 1, 1, tzinfo=UTC)
    builder = x509.CertificateBuilder(name, name, _KEY.public_key(), 1, begin, begin + timedelta(days=1))
    return builder.sign(_KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_without_a_file_there_are_no_keys() -> None:
    assert loaded(None) is NO_KEYS


def test_public_keys_and_certificates_of_a_pem_file_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "keys.pem"
    path.write_bytes(b"comment\n" + pem(_KEY.public_key()) + certificate() + pem(_RSA.public_key()))
    keys = loaded(path).keys
    assert [[key.fits(name) for name in ("ES256", "ES384", "RS256", "PS512")] for key in keys] == [
        [True, False, False, False],
        [True, False, False, False],
        [False, False, True, True],
    ]


@pytest.mark.parametrize("algorithm", ["RS256", "RS384", "PS512"])
def test_a_signature_is_by_the_key_that_made_it_over_the_bytes_it_was_made_over(tmp_path: Path, algorithm: str) -> None:
    path = tmp_path / "keys.pem"
    path.write_bytes(pem(_RSA.public_key()))
    (key,) = loaded(path).keys
    digest = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}[algorithm[2:]]
    pss = padding.PSS(padding.MGF1(digest), digest.digest_size)
    signature = _RSA.sign(b"said", pss if algorithm.startswith("PS") else padding.PKCS1v15(), digest)
    assert key.made(algorithm, signature, b"said")
    assert not key.made(algorithm, signature, b"Said")
    assert not key.made(algorithm, signature[:-1], b"said")


def test_other_keys_have_another_digest(tmp_path: Path) -> None:
    path = tmp_path / "keys.pem"
    path.write_bytes(pem(_KEY.public_key()))
    first = loaded(path).sha256
    path.write_bytes(pem(_RSA.public_key()))
    assert first != loaded(path).sha256 != NO_KEYS.sha256


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "holds no public key"),
        (b"hello", "holds no public key"),
        (b"{", "cannot be read"),
        (b'{"keys": 5}', "cannot be read"),
        (b'{"keys": [{"kty": "oct", "k": "AAAA"}]}', "neither EC nor RSA"),
        (b'{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}', "cannot be read"),
        (b"-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "cannot be read"),
        (b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "PRIVATE KEY is no public key"),
        (pem(ed25519.Ed25519PrivateKey.generate().public_key()), "neither EC nor RSA"),
        (b" " * (5 << 20), "is larger than"),
    ],
)
def test_a_file_of_something_else_is_an_error_that_names_it(tmp_path: Path, content: bytes, what: str) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(ContractBroken, match=what) as raised:
        loaded(path)
    assert str(path) in str(raised.value)
    assert "TEETOTAL_ATTESTATION_KEYS" in raised.value.hint


def test_a_file_that_is_not_there_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(ContractBroken, match="cannot be read: No such file"):
        loaded(tmp_path / "nowhere.pem")


def test_the_file_is_named_in_the_settings(tmp_path: Path) -> None:
    assert settings(environment={}).attestation_keys is None
    assert settings(environment={"TEETOTAL_ATTESTATION_KEYS": " "}).attestation_keys is None
    named = {"TEETOTAL_ATTESTATION_KEYS": str(tmp_path / "k.json")}
    assert settings(environment=named).attestation_keys == tmp_path / "k.json"


def test_a_key_set_gives_each_key_its_id(tmp_path: Path) -> None:
    numbers = _RSA.public_key().public_numbers()
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"kty": "RSA", "kid": "one", "e": "AQAB", "n": _number(numbers.n)}))
    assert [key.key_id for key in loaded(path).keys] == ["one"]


def _number(value: int) -> str:
    import base64

    return base64.urlsafe_b64encode(value.to_bytes(256)).rstrip(b"=").decode()
