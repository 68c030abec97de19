"""Keys and checkpoints as text: C2SP's signed notes, verifier keys (`name+hash+key`) and tlog-checkpoints."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Iterable

_ED25519 = b"\x01"
_KEY = re.compile(r"([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]+={0,2})")
_SIGNED = re.compile(r"— (\S+) ([A-Za-z0-9+/]+={0,2})")
_RAW_BYTES = 32
_HASH_BYTES = 4


@dataclass(frozen=True)
class PublicKey:
    """A name and the Ed25519 key that signs under it."""

    name: str
    raw: bytes

    @property
    def key_id(self) -> str:
        """What a statement names its key by, and what people see."""
        return hashlib.sha256(self.raw).hexdigest()[:16]

    @property
    def hash(self) -> bytes:
        """What a note names its key by."""
        return hashlib.sha256(self.name.encode() + b"\n" + _ED25519 + self.raw).digest()[:_HASH_BYTES]

    def __str__(self) -> str:
        return f"{self.name}+{self.hash.hex()}+{base64.b64encode(_ED25519 + self.raw).decode()}"

    def has_signed(self, message: bytes, signature: bytes) -> bool:
        """Whether a signature is of this key, over exactly these bytes."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


class Signer(Protocol):
    """What makes signatures; the private key may be out of reach."""

    @property
    def public(self) -> PublicKey:
        """The key that its signatures are checked with."""

    def sign(self, message: bytes) -> bytes:
        """The signature of a message."""


def parse_public_key(text: str, where: str) -> PublicKey:
    """A key from its text; one whose hash does not fit was mistyped or changed."""
    found = _KEY.fullmatch(text.strip())
    raw = decode_base64(found[3]) if found else b""
    if found and raw[:1] == _ED25519 and len(raw) == 1 + _RAW_BYTES:
        key = PublicKey(found[1], raw[1:])
        if key.hash.hex() == found[2]:
            return key
    raise EvidenceRejected(
        f"{where}: {text.strip()[:160]!r} is no public key of a signer",
        "expected name+hash+key, as `signing list` says",
    )


@dataclass(frozen=True)
class Checkpoint:
    """What a log was at one moment: its origin, how many statements it held, and the root over them."""

    origin: str
    size: int
    root: bytes

    @property
    def body(self) -> str:
        """What is signed."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"

    def sign(self, signer: Signer) -> str:
        """The checkpoint as a signed note."""
        mark = signer.public.hash + signer.sign(self.body.encode())
        return f"{self.body}\n— {signer.public.name} {base64.b64encode(mark).decode()}\n"


def read_checkpoint(text: str, keys: Iterable[PublicKey], where: str) -> tuple[Checkpoint, PublicKey | None]:
    """A checkpoint, and which of the keys has signed it; other signatures, as of witnesses, are passed over."""
    body, _, signed = text.partition("\n\n")
    lines = body.split("\n")
    root = decode_base64(lines[2]) if len(lines) >= 3 else b""
    if len(root) != hashlib.sha256().digest_size or not re.fullmatch(r"0|[1-9][0-9]{0,17}", lines[1]) or not lines[0]:
        raise EvidenceRejected(f"{where} is no checkpoint", "expected what `teetotal anchor` prints, whole")
    found = Checkpoint(lines[0], int(lines[1]), root)
    signatures = [(match[1], decode_base64(match[2])) for match in map(_SIGNED.fullmatch, signed.split("\n")) if match]
    for key in keys:
        for name, mark in signatures:
            is_of_key = name == key.name and mark[:_HASH_BYTES] == key.hash
            if is_of_key and key.has_signed(f"{body}\n".encode(), mark[_HASH_BYTES:]):
                return found, key
    return found, None


def decode_base64(text: str) -> bytes:
    """The bytes of a base64 text; empty where it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""
