"""The keys that attestations are verified with: public ones that the user trusts, from a PEM or a JWKS file."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.x509 import load_pem_x509_certificate

from lake.errors import ContractBroken

if TYPE_CHECKING:
    from pathlib import Path

_MOST_BYTES = 4 << 20
_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]{1,40})-----.*?-----END \1-----", re.DOTALL)
_HASHES: dict[str, hashes.HashAlgorithm] = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
_CURVES: dict[str, ec.EllipticCurve] = {"P-256": ec.SECP256R1(), "P-384": ec.SECP384R1(), "P-521": ec.SECP521R1()}
_CURVE_OF = {"ES256": "secp256r1", "ES384": "secp384r1", "ES512": "secp521r1"}
_LEAST_RSA_BITS = 2048
# Only signatures of a key pair: an algorithm of one shared secret would take a public key for that secret.
ALGORITHMS = (*_CURVE_OF, "RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


@dataclass(frozen=True)
class TrustedKey:
    """One public key, and the id that its file gives it."""

    key: PublicKey
    key_id: str | None = None

    def fits(self, algorithm: str) -> bool:
        """Whether signatures of that algorithm are made with such a key."""
        if isinstance(self.key, ec.EllipticCurvePublicKey):
            return self.key.curve.name == _CURVE_OF.get(algorithm)
        return algorithm[:2] in {"RS", "PS"}

    def made(self, algorithm: str, signature: bytes, signed: bytes) -> bool:
        """Whether this key made that signature over those bytes."""
        digest = _HASHES[algorithm[2:]]
        try:
            if isinstance(self.key, ec.EllipticCurvePublicKey):
                half = (self.key.curve.key_size + 7) // 8
                if len(signature) != 2 * half:
                    return False
                numbers = (int.from_bytes(signature[:half]), int.from_bytes(signature[half:]))
                self.key.verify(encode_dss_signature(*numbers), signed, ec.ECDSA(digest))
            elif algorithm.startswith("PS"):
                self.key.verify(signature, signed, padding.PSS(padding.MGF1(digest), digest.digest_size), digest)
            else:
                self.key.verify(signature, signed, padding.PKCS1v15(), digest)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True)
class AttestationKeys:
    """All keys that the user gives, and a digest that changes with them."""

    keys: tuple[TrustedKey, ...] = ()
    sha256: str = ""


NO_KEYS = AttestationKeys()


def loaded(path: Path | None) -> AttestationKeys:
    """The keys of a file: PEM public keys and certificates, or a JSON Web Key Set; none where none is named."""
    if path is None:
        return NO_KEYS
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise _wrong(path, f"cannot be read: {error.strerror}") from error
    if len(data) > _MOST_BYTES:
        raise _wrong(path, f"is larger than {_MOST_BYTES:,} bytes")
    try:
        keys = _from_jwks(data) if data.lstrip().startswith(b"{") else _from_pem(data)
    except (ValueError, KeyError, TypeError) as error:
        raise _wrong(path, f"holds a key that cannot be read: {str(error)[:160]}") from error
    if not keys:
        raise _wrong(path, "holds no public key")
    return AttestationKeys(tuple(keys), hashlib.sha256(data).hexdigest())


def _from_pem(data: bytes) -> list[TrustedKey]:
    found = []
    for block in _BLOCK.finditer(data):
        if block[1] == b"CERTIFICATE":
            found.append(_trusted(load_pem_x509_certificate(block[0]).public_key()))
        elif block[1] in {b"PUBLIC KEY", b"RSA PUBLIC KEY"}:
            found.append(_trusted(serialization.load_pem_public_key(block[0])))
        else:
            raise ValueError(f"a block of {block[1].decode()} is no public key")
    return found


def _from_jwks(data: bytes) -> list[TrustedKey]:
    document = json.loads(data)
    return [_from_jwk(entry) for entry in document.get("keys", [document])]


def _from_jwk(entry: dict[str, Any]) -> TrustedKey:
    key_id = entry.get("kid")
    name = key_id if isinstance(key_id, str) else None
    if entry["kty"] == "EC":
        numbers = ec.EllipticCurvePublicNumbers(_number(entry["x"]), _number(entry["y"]), _CURVES[entry["crv"]])
        return _trusted(numbers.public_key(), name)
    if entry["kty"] == "RSA":
        return _trusted(rsa.RSAPublicNumbers(_number(entry["e"]), _number(entry["n"])).public_key(), name)
    raise ValueError(f"a key of type {entry['kty']!r} is neither EC nor RSA")


def _trusted(key: object, key_id: str | None = None) -> TrustedKey:
    if isinstance(key, rsa.RSAPublicKey) and key.key_size < _LEAST_RSA_BITS:
        raise ValueError(f"an RSA key of {key.key_size} bits is too short")
    if not isinstance(key, ec.EllipticCurvePublicKey | rsa.RSAPublicKey):
        raise ValueError("a key is neither EC nor RSA")  # noqa: TRY004 - the file is wrong, not the program
    return TrustedKey(key, key_id)


def _number(text: str) -> int:
    return int.from_bytes(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def _wrong(path: Path, what: str) -> ContractBroken:
    return ContractBroken(
        f"the attestation keys {path}: the file {what}",
        "TEETOTAL_ATTESTATION_KEYS names a file of PEM public keys or certificates, or a JSON Web Key Set",
    )
