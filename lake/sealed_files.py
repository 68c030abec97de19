"""Sealed files: a landed file encrypted for the lake's public key, bound to its run and its name, in chunks.

The layout, which `collector/sealed_files.py` writes too (decision 45):

    magic | length of the header, 4 bytes | header | chunk | chunk | … | last chunk
    header: recipient id, run id, name, wrapped key; each with its length before it, 8 bytes
    wrapped key: HPKE (RFC 9180), base mode, one message: 32 random bytes, for this file alone
    chunk: AES-256-GCM of 65,536 bytes, fewer in the last; nonce: its number, 11 bytes, and 1 in the last, else 0
"""

from __future__ import annotations

import hashlib
import itertools
import os
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from lake.errors import ContractBroken, EvidenceRejected
from lake.identity import MANIFEST
from lake.keyring import join_framed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import BinaryIO

    from lake.keyring import Key, Keyring

MAGIC = b"teetotal-sealed/1\n"
CHUNK_BYTES = 1 << 16
_TAG_BYTES = 16
_CURVE = ec.SECP384R1()
# The order of the curve's group: a private key is a number below it.
_ORDER = int("ffffffffffffffffffffffffffffffffffffffffffffffffc7634d81f4372ddf581a0db248b0a77aecec196accc52973", 16)
_SUITE = Suite(KEM.P384, KDF.HKDF_SHA384, AEAD.AES_256_GCM)
_MOST_HEADER_BYTES = 4096
_REASONS = {
    "key": "seal it for this lake: `teetotal keys recipient` prints the public key",
    "again": "seal and land the original again",
}


@dataclass(frozen=True)
class Recipient:
    """The public half of the key that files are sealed for."""

    key: ec.EllipticCurvePublicKey

    @property
    def recipient_id(self) -> str:
        """What a sealed file says it is sealed for: the start of the digest of the public key."""
        der = self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return f"r{hashlib.sha256(der).hexdigest()[:16]}"

    def to_pem(self) -> str:
        """The public key as every other tool reads it."""
        return self.key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def parse_recipient(data: bytes, where: str) -> Recipient:
    """A public key from its PEM text."""
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != _CURVE.name:
        raise ContractBroken(
            f"{where} is no public key of a lake: expected a PEM text with a key of the curve P-384",
            "write it with `teetotal keys recipient > FILE`",
        )
    return Recipient(key)


def derive_private(key: Key) -> ec.EllipticCurvePrivateKey:
    """The private half that a key of the keyring gives: the same each time, and nothing else has to be kept."""
    # 64 bytes for a number of 48: the bias that the remainder leaves is below 2^-128 (FIPS 186-5, A.2.1).
    number = int.from_bytes(key.derive("recipient", length=64), "big") % (_ORDER - 1) + 1
    return ec.derive_private_key(number, _CURVE)


def find_recipient(keyring: Keyring) -> Recipient:
    """The public half of the active key: what is sealed from now on is sealed for it."""
    return Recipient(derive_private(keyring.active).public_key())


def seal_blocks(blocks: Iterable[bytes], recipient: Recipient, run_id: str, name: str) -> Iterator[bytes]:
    """The bytes of a file, sealed: never more than a chunk of them and a block is in memory."""
    content_key = os.urandom(32)
    identity = [recipient.recipient_id.encode(), run_id.encode(), name.encode()]
    wrapped = _SUITE.encrypt(content_key, recipient.key, _info(*identity))
    header = join_framed(*identity, wrapped)
    lead = MAGIC + len(header).to_bytes(4, "big") + header
    yield lead
    cipher, bound = AESGCM(content_key), hashlib.sha256(lead).digest()
    held, number = b"", 0
    for block in blocks:
        held, first = held + block, 0
        # The last chunk bears a mark, so a full one waits until it is known not to be the last.
        while len(held) - first > CHUNK_BYTES:
            yield cipher.encrypt(_nonce(number, is_last=False), held[first : first + CHUNK_BYTES], bound)
            first, number = first + CHUNK_BYTES, number + 1
        held = held[first:]
    yield cipher.encrypt(_nonce(number, is_last=True), held, bound)


def make_sealer(
    recipient: Recipient | None, run_id: str, name: str
) -> Callable[[Iterator[bytes]], Iterator[bytes]] | None:
    """What seals the blocks of one file that is not sealed yet; none where there is nobody to seal them for."""
    if recipient is None:
        return None

    def seal(blocks: Iterator[bytes]) -> Iterator[bytes]:
        first = next(blocks, b"")
        whole = itertools.chain((first,), blocks)
        return whole if is_sealed(first) else seal_blocks(whole, recipient, run_id, name)

    return seal


def seal_manifest(manifest: str, run_id: str, recipient: Recipient | None) -> bytes:
    """The bytes of a manifest as it lands."""
    data = manifest.encode()
    return data if recipient is None else b"".join(seal_blocks([data], recipient, run_id, MANIFEST))


@dataclass(frozen=True)
class LandingSeals:
    """How a lake opens what has landed sealed, and whether it takes anything else; the keyring is asked when needed."""

    keyring: Callable[[], Keyring] | None = field(default=None, repr=False)
    must_be_sealed: bool = False
    # Whether what is made of landed files is sealed as well: such runs are made again when that changes.
    seals_bronze: bool = False
    # For whoever compares bytes alone, and has no key: nothing is opened.
    is_closed: bool = False

    def open_blocks(self, file: BinaryIO, run_id: str, name: str) -> Iterator[bytes]:
        """The plain bytes of a landed file, a chunk at a time; what is not sealed as it should be is refused."""
        lead = file.read(len(MAGIC))
        if lead != MAGIC:
            if self.must_be_sealed:
                raise EvidenceRejected("it is not sealed, and this lake accepts nothing else", _REASONS["key"])
            yield lead
            while block := file.read(1 << 20):
                yield block
            return
        header = _read_header(file)
        _require_identity(header, run_id, name)
        content_key = self._unwrap(header)
        lead = MAGIC + len(join_framed(*header)).to_bytes(4, "big") + join_framed(*header)
        yield from _open_chunks(file, AESGCM(content_key), hashlib.sha256(lead).digest())

    def open_manifest(self, data: bytes, run_id: str) -> bytes:
        """The text of a run's manifest; one that may not be taken is refused by the name of its run."""
        try:
            return b"".join(self.open_blocks(BytesIO(data), run_id, MANIFEST))
        except EvidenceRejected as error:
            raise EvidenceRejected(f"{run_id}/{MANIFEST}: {error.what}", error.hint) from error

    def _unwrap(self, header: list[bytes]) -> bytes:
        *identity, wrapped = header
        sealed_for = identity[0].decode("ascii", "backslashreplace")
        keys = {} if self.keyring is None else _index_keys(self.keyring())
        key = keys.get(sealed_for)
        if key is None:
            raise EvidenceRejected(
                f"it is sealed for {sealed_for[:40]}, a key that this lake's keyring does not hold",
                f"{_REASONS['key']}; where the keyring gained that key since, run with --full",
            )
        try:
            return _SUITE.decrypt(wrapped, key, _info(*identity))
        except (InvalidTag, ValueError):
            raise EvidenceRejected("its header does not open: it was changed", _REASONS["again"]) from None


def is_sealed(head: bytes) -> bool:
    """Whether a file is a sealed one, by its first bytes."""
    return head.startswith(MAGIC)


def require_place(file: BinaryIO, run_id: str, name: str) -> bool:
    """Whether a file is sealed; an error where it is for another run or name, which takes no key to know."""
    if file.read(len(MAGIC)) != MAGIC:
        return False
    _require_identity(_read_header(file), run_id, name)
    return True


def _require_identity(header: list[bytes], run_id: str, name: str) -> None:
    _, sealed_run, sealed_name = (part.decode("utf-8", "backslashreplace") for part in header[:3])
    if (sealed_run, sealed_name) != (run_id, name):
        raise EvidenceRejected(
            f"it was sealed as {sealed_name[:160]} of run {sealed_run[:160]}, and lies as {name} of run {run_id}",
            "a sealed file stays with its run and its name: put it back, or seal the original anew",
        )


def _index_keys(keyring: Keyring) -> dict[str, ec.EllipticCurvePrivateKey]:
    """The private halves of all keys, older ones too, by the id that a file bears."""
    found = (derive_private(key) for key in keyring.keys)
    return {Recipient(key.public_key()).recipient_id: key for key in found}


def _read_header(file: BinaryIO) -> list[bytes]:
    size = int.from_bytes(file.read(4), "big")
    data = file.read(size) if size <= _MOST_HEADER_BYTES else b""
    parts: list[bytes] = []
    rest = data
    while len(rest) >= 8 and len(parts) < 4:
        length = int.from_bytes(rest[:8], "big")
        parts.append(rest[8 : 8 + length])
        rest = rest[8 + length :]
    if len(data) != size or len(parts) != 4 or join_framed(*parts) != data:
        raise EvidenceRejected("it is sealed, and its header is cut or changed", _REASONS["again"])
    return parts


def _open_chunks(file: BinaryIO, cipher: AESGCM, bound: bytes) -> Iterator[bytes]:
    sealed = file.read(CHUNK_BYTES + _TAG_BYTES)
    for number in itertools.count():
        following = file.read(CHUNK_BYTES + _TAG_BYTES)
        plain = _open_chunk(cipher, number, sealed, bound, is_last=not following)
        if plain is None and not following and _open_chunk(cipher, number, sealed, bound, is_last=False) is not None:
            raise EvidenceRejected("it is cut short: the last of its chunks is missing", _REASONS["again"])
        if plain is None:
            raise EvidenceRejected(
                f"chunk {number} does not open: the file was cut, changed or reordered", _REASONS["again"]
            )
        yield plain
        if not following:
            return
        sealed = following


def _open_chunk(cipher: AESGCM, number: int, sealed: bytes, bound: bytes, *, is_last: bool) -> bytes | None:
    try:
        return cipher.decrypt(_nonce(number, is_last=is_last), sealed, bound)
    except (InvalidTag, ValueError):
        return None


def _nonce(number: int, *, is_last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([is_last])


def _info(*identity: bytes) -> bytes:
    return join_framed(MAGIC, *identity)
