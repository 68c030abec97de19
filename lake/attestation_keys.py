"""The keys that attestations are verified with: public ones that the user trusts, from a PEM or a JWKS file."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from lake.errors import ContractBroken

if TYPE_CHECKING:
    from pathlib import Path

    from jwt import PyJWS

_MOST_BYTES = 4 << 20
_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]{1,40})-----.*?-----END \1-----", re.DOTALL)
_ALGORITHM_OF = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}
_RSA_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_LEAST_RSA_BITS = 2048
# Only signatures of a key pair: an algorithm of one shared secret would take a public key for that secret.
ALGORITHMS = (*_ALGORITHM_OF.values(), *_RSA_ALGORITHMS)


@dataclass(frozen=True)
class TrustedKey:
    """One public key, the algorithms that it may verify, and the id that its file gives it.

    The key is kept as PEM, because a task for an executor carries it there, and key objects cannot be pickled.
    """

    pem: bytes
    algorithms: tuple[str, ...]
    key_id: str | None = None

    def fits(self, algorithm: str, key_id: str | None = None) -> bool:
        """Whether it may verify that algorithm's signatures by a key of that id; a key without an id may be any."""
        return algorithm in self.algorithms and (key_id is None or self.key_id is None or self.key_id == key_id)

    def has_signed(self, token: str) -> bool:
        """Whether this key made the signature of a token, by an algorithm that it may verify."""
        from jwt.exceptions import PyJWTError

        try:
            _open_verifier().decode_complete(token, self.pem, self.algorithms)
        except PyJWTError:
            return False
        return True


@dataclass(frozen=True)
class AttestationKeys:
    """All keys that the user gives, and a digest that changes with them."""

    keys: tuple[TrustedKey, ...] = ()
    sha256: str = ""


NO_KEYS = AttestationKeys()


@cache
def _open_verifier() -> PyJWS:
    """PyJWT is imported where there are keys: it brings certificates, TLS and HTTP with it."""
    from jwt import PyJWS

    return PyJWS(ALGORITHMS, {"enforce_minimum_key_length": True})


def load_keys(path: Path | None) -> AttestationKeys:
    """The keys of a file: PEM public keys and certificates, or a JSON Web Key Set; none where none is named."""
    if path is None:
        return NO_KEYS
    from jwt.exceptions import PyJWTError

    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise _describe_wrong_file(path, f"cannot be read: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise _describe_wrong_file(path, f"is larger than {_MOST_BYTES:,} bytes")
    try:
        keys = _load_jwks(data) if data.lstrip().startswith(b"{") else _load_pem(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, PyJWTError) as error:
        raise _describe_wrong_file(path, f"holds a key that cannot be read: {str(error)[:160]}") from error
    if not keys:
        raise _describe_wrong_file(path, "holds no public key")
    return AttestationKeys(tuple(keys), hashlib.sha256(data).hexdigest())


def unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of a JSON object; one that names a member twice means one thing to us and may mean another elsewhere.

    To be given to `json.loads` as its `object_pairs_hook`.
    """
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object names a member twice")
    return found


def _load_pem(data: bytes) -> list[TrustedKey]:
    from cryptography.x509 import load_pem_x509_certificate

    found = []
    for block in _BLOCK.finditer(data):
        if block[1] == b"CERTIFICATE":
            found.append(_make_trusted_key(load_pem_x509_certificate(block[0]).public_key()))
        elif block[1] in {b"PUBLIC KEY", b"RSA PUBLIC KEY"}:
            found.append(_make_trusted_key(serialization.load_pem_public_key(block[0])))
        else:
            raise ValueError(f"a block of {block[1].decode()} is no public key")
    return found


def _load_jwks(data: bytes) -> list[TrustedKey]:
    document = json.loads(data, object_pairs_hook=unique_members)
    return [_load_jwk(entry) for entry in document.get("keys", [document])]


def _load_jwk(entry: dict[str, Any]) -> TrustedKey:
    from jwt import PyJWK

    # Looked at before PyJWT sees it, whose messages repeat a key that it cannot use: only public numbers may be in one.
    if entry["kty"] not in {"EC", "RSA"}:
        raise ValueError(f"a key of type {str(entry['kty'])[:40]!r} is neither EC nor RSA")
    if "d" in entry:
        raise ValueError("a private key is no public key")
    if entry.get("use", "sig") != "sig" or "verify" not in entry.get("key_ops", ["verify"]):
        raise ValueError("a key is not for signatures (`use`, `key_ops`)")
    key_id, algorithm = entry.get("kid"), entry.get("alg")
    trusted = _make_trusted_key(PyJWK.from_dict(entry).key, key_id if isinstance(key_id, str) else None)
    if algorithm is None:
        return trusted
    if algorithm not in trusted.algorithms:
        raise ValueError(f"a key names the algorithm {str(algorithm)[:40]!r}, which is not one of its kind")
    return replace(trusted, algorithms=(algorithm,))


def _make_trusted_key(key: object, key_id: str | None = None) -> TrustedKey:
    if isinstance(key, rsa.RSAPublicKey):
        if key.key_size < _LEAST_RSA_BITS:
            raise ValueError(f"an RSA key of {key.key_size} bits is too short")
        return TrustedKey(_to_pem(key), _RSA_ALGORITHMS, key_id)
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("a key is neither EC nor RSA")  # noqa: TRY004 - the file is wrong, not the program
    if key.curve.name not in _ALGORITHM_OF:
        raise ValueError(f"a key is on the curve {key.curve.name}, expected one of {', '.join(_ALGORITHM_OF)}")
    return TrustedKey(_to_pem(key), (_ALGORITHM_OF[key.curve.name],), key_id)


def _to_pem(key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _describe_wrong_file(path: Path, what: str) -> ContractBroken:
    return ContractBroken(
        f"the attestation keys {path}: the file {what}",
        "TEETOTAL_ATTESTATION_KEYS names a file of PEM public keys or certificates, or a JSON Web Key Set",
    )
