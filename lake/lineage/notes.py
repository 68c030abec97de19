"""Keys and checkpoints as text: C2SP's signed notes, verifier keys (`name+hash+key`), checkpoints and cosignatures."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Iterable

_KEY = re.compile(r"([^\s+]+)\+([0-9a-f]{8})\+([A-Za-z0-9+/]+={0,2})")
_SIGNED = re.compile(r"— (\S+) ([A-Za-z0-9+/]+={0,2})")
_RAW_BYTES = 32
_HASH_BYTES = 4
_TIME_BYTES = 8
# The last moment of year 9999: a witness's clock that says a later one says nothing.
_LAST_TIME = 253402300799


class KeyUse(Enum):
    """What a key signs, by the byte that stands for it in a note: what one may say, the other may not."""

    STATEMENTS = b"\x01"  # and checkpoints of their log
    COSIGNATURES = b"\x04"


@dataclass(frozen=True)
class PublicKey:
    """A name, the Ed25519 key that signs under it, and what it signs."""

    name: str
    raw: bytes
    use: KeyUse = KeyUse.STATEMENTS

    @property
    def key_id(self) -> str:
        """What a statement names its key by, and what people see."""
        return hashlib.sha256(self.raw).hexdigest()[:16]

    @property
    def hash(self) -> bytes:
        """What a note names its key by."""
        return hashlib.sha256(self.name.encode() + b"\n" + self.use.value + self.raw).digest()[:_HASH_BYTES]

    def __str__(self) -> str:
        return f"{self.name}+{self.hash.hex()}+{base64.b64encode(self.use.value + self.raw).decode()}"

    def has_signed(self, message: bytes, signature: bytes) -> bool:
        """Whether a signature is of this key, over exactly these bytes."""
        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


_USES = {use.value for use in KeyUse}


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
    if found and raw[:1] in _USES and len(raw) == 1 + _RAW_BYTES:
        key = PublicKey(found[1], raw[1:], KeyUse(raw[:1]))
        if key.hash.hex() == found[2]:
            return key
    raise EvidenceRejected(
        f"{where}: {text.strip()[:160]!r} is no public key of a signer or a witness",
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
    body, signatures = _split_note(text)
    lines = body.split("\n")
    root = decode_base64(lines[2]) if len(lines) >= 3 else b""
    if len(root) != hashlib.sha256().digest_size or not re.fullmatch(r"0|[1-9][0-9]{0,17}", lines[1]) or not lines[0]:
        raise EvidenceRejected(f"{where} is no checkpoint", "expected what `teetotal anchor` prints, whole")
    found = Checkpoint(lines[0], int(lines[1]), root)
    for key in keys:
        for signature in _list_signatures(signatures, key):
            if key.has_signed(body.encode(), signature):
                return found, key
    return found, None


def list_cosigners(text: str, witnesses: Iterable[PublicKey]) -> dict[PublicKey, datetime]:
    """The witnesses that have countersigned a checkpoint, and when (C2SP tlog-cosignature)."""
    body, signatures = _split_note(text)
    found = {}
    for witness in witnesses:
        for mark in _list_signatures(signatures, witness):
            time = int.from_bytes(mark[:_TIME_BYTES])
            message = f"cosignature/v1\ntime {time}\n{body}".encode()
            if time <= _LAST_TIME and witness.has_signed(message, mark[_TIME_BYTES:]):
                found[witness] = datetime.fromtimestamp(time, UTC)
    return found


def _split_note(text: str) -> tuple[str, list[tuple[str, bytes]]]:
    """What is signed, and the signatures by the names that they are given under."""
    body, _, signed = text.partition("\n\n")
    matches = map(_SIGNED.fullmatch, signed.split("\n"))
    return f"{body}\n", [(match[1], decode_base64(match[2])) for match in matches if match]


def _list_signatures(signatures: Iterable[tuple[str, bytes]], key: PublicKey) -> list[bytes]:
    """The signatures that say that they are of a key, for the use that it has: that is in its hash."""
    own = (mark for name, mark in signatures if name == key.name and mark[:_HASH_BYTES] == key.hash)
    return [mark[_HASH_BYTES:] for mark in own]


def decode_base64(text: str) -> bytes:
    """The bytes of a base64 text; empty where it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""
