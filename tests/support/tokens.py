"""Attestation tokens of our own making, signed with keys of our own."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature


def encode(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass(frozen=True)
class Signer:
    """Someone with a key on P-384."""

    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP384R1()))

    @property
    def pem(self) -> bytes:
        """The public key as PEM."""
        form = serialization.PublicFormat.SubjectPublicKeyInfo
        return self.key.public_key().public_bytes(serialization.Encoding.PEM, form)

    def jwk(self, key_id: str) -> dict[str, str]:
        """The public key as a JSON Web Key."""
        numbers = self.key.public_key().public_numbers()
        x, y = (encode(number.to_bytes(48)) for number in (numbers.x, numbers.y))
        return {"kty": "EC", "crv": "P-384", "x": x, "y": y, "kid": key_id}

    def token(self, claims: dict[str, Any], **header: Any) -> str:
        """A signed token."""
        parts = ({"alg": "ES384", "typ": "JWT", **header}, claims)
        return self.sign(".".join(encode(json.dumps(part).encode()) for part in parts))

    def sign(self, signed: str) -> str:
        """Header and claims, as they are written, with a signature behind them."""
        r, s = decode_dss_signature(self.key.sign(signed.encode(), ec.ECDSA(hashes.SHA384())))
        return f"{signed}.{encode(r.to_bytes(48) + s.to_bytes(48))}"

    def bundle(self, overall: dict[str, Any], **devices: dict[str, Any]) -> bytes:
        """A bundle whose overall token holds the digests of the others."""
        tokens = {name.replace("_", "-"): self.token(claims) for name, claims in devices.items()}
        digests = {name: ["DIGEST", ["SHA-256", digest_of(token)]] for name, token in tokens.items()}
        return json.dumps([["JWT", self.token({**overall, "submods": digests})], tokens]).encode()


def digest_of(token: str) -> str:
    """The digest of a token as the overall one names it."""
    return hashlib.sha256(token.encode()).hexdigest()
