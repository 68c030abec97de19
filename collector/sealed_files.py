"""Sealed files: what is recorded, encrypted for a lake's public key and bound to its run and its name, in chunks.

The layout is that of `lake/sealed_files.py` (docs/decisions/0045): a random key for each file, wrapped by HPKE (RFC
9180: P-384, HKDF-SHA384, AES-256-GCM), and chunks of 65,536 bytes under it, numbered, the last one marked.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from .errors import RecordingRefused

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAGIC = b"teetotal-sealed/1\n"
_CHUNK_BYTES = 1 << 16
_SUITE = Suite(KEM.P384, KDF.HKDF_SHA384, AEAD.AES_256_GCM)


def read_public_key(path: str | Path) -> ec.EllipticCurvePublicKey:
    """The public key of a lake, before anything is recorded for it."""
    try:
        key = load_pem_public_key(Path(path).read_bytes())
    except OSError as error:
        raise RecordingRefused(f"the public key {path} cannot be read: {error.strerror}") from error
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp384r1":
        raise RecordingRefused(
            f"{path} is no public key of a lake: expected a PEM text with a key of the curve P-384, "
            "as `teetotal keys recipient > FILE` writes it"
        )
    return key


def seal_blocks(blocks: Iterable[bytes], key: ec.EllipticCurvePublicKey, run_id: str, name: str) -> Iterator[bytes]:
    """The bytes of a file, sealed: never more than a chunk of them and a block is in memory."""
    content_key = os.urandom(32)
    der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    recipient_id = f"r{hashlib.sha256(der).hexdigest()[:16]}"
    identity = [recipient_id.encode(), run_id.encode(), name.encode()]
    header = _join_framed(*identity, _SUITE.encrypt(content_key, key, _join_framed(MAGIC, *identity)))
    lead = MAGIC + len(header).to_bytes(4, "big") + header
    yield lead
    cipher, bound = AESGCM(content_key), hashlib.sha256(lead).digest()
    held, number = b"", 0
    for block in blocks:
        held, first = held + block, 0
        # The last chunk bears a mark, so a full one waits until it is known not to be the last.
        while len(held) - first > _CHUNK_BYTES:
            yield cipher.encrypt(number.to_bytes(11, "big") + b"\x00", held[first : first + _CHUNK_BYTES], bound)
            first, number = first + _CHUNK_BYTES, number + 1
        held = held[first:]
    yield cipher.encrypt(number.to_bytes(11, "big") + b"\x01", held, bound)


def _join_framed(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)
