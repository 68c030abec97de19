"""How a link is secured: who is at its other end, which keys it has, and nonces that cannot repeat."""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256, Hash
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from .errors import RingBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

KEY_BYTES = 32
TAG_BYTES = 16
NONCE_BYTES = 12
# NIST SP 800-38D lets a counter run further; the pipeline warns at this budget, so nothing of ours goes beyond it.
MESSAGES_PER_KEY = 1 << 32
_PROTOCOL = b"teetotal ring 1"
_ALIGNMENT = 64  # pieces of a message begin on cache lines


class Nonces:
    """The numbers 0, 1, 2, … as nonces of 96 bits; each is given once, and the last one is the end."""

    def __init__(self, limit: int = MESSAGES_PER_KEY, start: int = 0) -> None:
        self._next = start
        self._limit = limit

    @property
    def spent(self) -> int:
        """How many messages the key has sealed or opened."""
        return self._next

    def take(self) -> bytes:
        """The next nonce; refuses rather than give one twice."""
        if self._next >= self._limit:
            raise RingBroken(
                f"a key has sealed the {self._limit} messages that AES-GCM allows it; "
                "start the job again from a checkpoint, which makes new keys"
            )
        nonce = self._next.to_bytes(NONCE_BYTES, "big")
        self._next += 1
        return nonce


@dataclass
class Chains:
    """One direction of a link: a message is cut into as many pieces as there are keys, each sealed under its own.

    Every key has its own nonces, and all of them advance together: the number of a message is its nonce under each key.
    """

    keys: Sequence[bytes]
    pool: ThreadPoolExecutor | None = None
    nonces: Nonces = field(default_factory=Nonces)

    def __post_init__(self) -> None:
        if not hasattr(AESGCM, "encrypt_into"):
            raise RingBroken("this `cryptography` cannot seal into a buffer: version 50 or later is needed")
        self._ciphers = [AESGCM(key) for key in self.keys]

    def sealed_bytes(self, plain_bytes: int) -> int:
        """Length of a message once it is sealed."""
        return plain_bytes + TAG_BYTES * len(self.keys)

    def seal(self, data: memoryview, context: bytes, out: memoryview) -> None:
        """Seal a message into a buffer of exactly the sealed length."""
        nonce = self.nonces.take()
        pieces = self._pieces(len(data))

        def one(index: int) -> None:
            start, end, sealed_start, sealed_end = pieces[index]
            name = context + struct.pack("!HH", index, len(pieces))
            self._ciphers[index].encrypt_into(nonce, data[start:end], name, out[sealed_start:sealed_end])

        self._each(one)

    def open(self, sealed: memoryview, context: bytes, out: memoryview) -> None:
        """Open a message into a buffer of exactly the plain length; a wrong one raises `InvalidTag`."""
        nonce = self.nonces.take()
        pieces = self._pieces(len(out))

        def one(index: int) -> None:
            start, end, sealed_start, sealed_end = pieces[index]
            name = context + struct.pack("!HH", index, len(pieces))
            self._ciphers[index].decrypt_into(nonce, sealed[sealed_start:sealed_end], name, out[start:end])

        self._each(one)

    def _pieces(self, length: int) -> list[tuple[int, int, int, int]]:
        """Where each piece lies in the plain and in the sealed message."""
        count = len(self.keys)
        step = -(-length // (count * _ALIGNMENT)) * _ALIGNMENT
        bounds = [(min(index * step, length), min((index + 1) * step, length)) for index in range(count)]
        return [
            (start, end, start + TAG_BYTES * index, end + TAG_BYTES * (index + 1))
            for index, (start, end) in enumerate(bounds)
        ]

    def _each(self, one: Callable[[int], None]) -> None:
        """Every piece at once: the first on this thread, the others on the pool's."""
        if len(self.keys) == 1 or self.pool is None:
            for index in range(len(self.keys)):
                one(index)
            return
        others = [self.pool.submit(one, index) for index in range(1, len(self.keys))]
        try:
            one(0)
        finally:
            faults = [other.exception() for other in others]  # nobody may write into the buffers after this
        for fault in faults:
            if fault is not None:
                raise fault


def describe_tampering(where: str, fault: InvalidTag) -> RingBroken:
    """The error for a message whose tag is wrong."""
    broken = RingBroken(
        f"{where} does not authenticate: it was changed on its way, sealed under another key, or belongs elsewhere; "
        "its content was not used. Find out who can write to the link before you start the job again"
    )
    broken.__cause__ = fault
    return broken


class Identity:
    """A rank's own signing key; its public half is what peers know the rank by."""

    def __init__(self, private: Ed25519PrivateKey | None = None) -> None:
        self._private = private or Ed25519PrivateKey.generate()
        self.public: bytes = self._private.public_key().public_bytes_raw()

    def sign(self, text: bytes) -> bytes:
        """Sign."""
        return self._private.sign(text)


@dataclass(frozen=True)
class Ends:
    """The two ends of a link and what each is known by; a key is good for one direction of one link of one session."""

    session: bytes
    sender: int
    receiver: int
    sender_identity: bytes
    receiver_identity: bytes

    def transcript(self, sender_share: bytes, receiver_share: bytes, who: str) -> bytes:
        """What one end signs: both shares, both identities, and its own role."""
        digest = Hash(SHA256())
        roles = struct.pack("!II", self.sender, self.receiver)
        for part in (_PROTOCOL, self.session, roles, self.sender_identity, self.receiver_identity):
            digest.update(struct.pack("!I", len(part)) + part)
        digest.update(sender_share + receiver_share + who.encode())
        return digest.finalize()


class Handshake:
    """X25519 between the two ends, signed by both identities, HKDF over what they agree on."""

    def __init__(self, ends: Ends, identity: Identity, *, is_sender: bool) -> None:
        self._ends = ends
        self._identity = identity
        self._is_sender = is_sender
        self._private = X25519PrivateKey.generate()
        self.share: bytes = self._private.public_key().public_bytes_raw()

    def signature(self, peer_share: bytes) -> bytes:
        """Proof that this end holds its identity's key and saw both shares."""
        return self._identity.sign(self._sign_transcript(peer_share, by_sender=self._is_sender))

    def keys(self, peer_share: bytes, peer_signature: bytes, count: int) -> list[bytes]:
        """The link's keys, once the other end is who it should be."""
        peer, known = (
            (self._ends.receiver, self._ends.receiver_identity)
            if self._is_sender
            else (self._ends.sender, self._ends.sender_identity)
        )
        try:
            signed = self._sign_transcript(peer_share, by_sender=not self._is_sender)
            Ed25519PublicKey.from_public_bytes(known).verify(peer_signature, signed)
        except InvalidSignature as error:
            raise RingBroken(
                f"the process at the other end of the link is not rank {peer}: its signature does not match the "
                "identity that this rank expects; check the identities handed to SealedRing"
            ) from error
        agreed = self._private.exchange(X25519PublicKey.from_public_bytes(peer_share))
        salt = self._sign_transcript(peer_share, by_sender=None)
        derived = HKDF(SHA256(), KEY_BYTES * count, salt, _PROTOCOL + b" keys").derive(agreed)
        return [derived[start : start + KEY_BYTES] for start in range(0, len(derived), KEY_BYTES)]

    def _sign_transcript(self, peer_share: bytes, *, by_sender: bool | None) -> bytes:
        shares = (self.share, peer_share) if self._is_sender else (peer_share, self.share)
        who = {True: "sender", False: "receiver", None: "salt"}[by_sender]
        return self._ends.transcript(*shares, who)


def make_pool(threads: int, name: str) -> ThreadPoolExecutor | None:
    """Threads that seal and open beside the caller's own; none where one is enough."""
    settings: dict[str, Any] = {"thread_name_prefix": name}
    return ThreadPoolExecutor(threads - 1, **settings) if threads > 1 else None
