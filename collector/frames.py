"""What travels on a link: where each message belongs, and what a rank's two links must be able to do."""

from __future__ import annotations

import struct
from typing import NamedTuple, Protocol

from .errors import RingBroken

MAGIC = b"tee1"
LINK, GROUP, ABORT, ROOM = 1, 2, 3, 4
HEADER = struct.Struct("!4sBxHHxxIIQQQQ")
MOST_REASON_BYTES = 600


class Place(NamedTuple):
    """Where a message belongs: the whole of it is authenticated, so a message fits nowhere else."""

    kind: int
    hop: int
    origin: int
    chunk: int
    bucket: int
    sequence: int
    step: int
    collective: int
    length: int

    def pack(self) -> bytes:
        """The header of the message's frame."""
        return HEADER.pack(MAGIC, *self)

    def context(self) -> bytes:
        """What authenticates: all of the header; what travels on unopened has neither hop nor number of a link."""
        return self._replace(hop=0, sequence=0).pack() if self.kind == GROUP else self.pack()

    def __str__(self) -> str:
        return (
            f"message {self.sequence} (step {self.step}, bucket {self.bucket}, hop {self.hop}, chunk {self.chunk}, "
            f"{self.length} bytes)"
        )


def unpack(header: bytes) -> Place | None:
    """The place that a header names; nothing where it is none of ours."""
    magic, *fields = HEADER.unpack(header)
    return Place(*fields) if magic == MAGIC else None


def describe_end(place: Place, text: bytes) -> RingBroken:
    """The error for a rank that says that, and why, it ends the ring."""
    reason = "".join(letter if letter.isprintable() else "?" for letter in text.decode("utf-8", "replace"))
    # A reason that has come from further away already names its rank.
    return RingBroken(reason if reason.startswith("rank ") else f"rank {place.origin} ended the ring: {reason}")


def describe_misplaced(rank: int, expected: Place | None, found: Place | None) -> RingBroken:
    """The error for a message that is not the one that is due."""
    return RingBroken(
        f"rank {rank} expected {expected} and found {found or 'bytes that are no frame'}: "
        "a message was replayed, reordered, dropped or spliced; its content was not used"
    )


class Carrier(Protocol):
    """A rank's two links as the ring's algorithm needs them: one onward, one inward."""

    transport: str
    # Whether a message must lie in a slot of the link before it is sent; otherwise it may be sent from where it is.
    sends_from_slots: bool

    def reserve(self, slot_bytes: int, count: int, ahead: int) -> None:
        """Room for so many messages out and so many ahead in; kept from bucket to bucket."""

    def next_slot(self, length: int) -> memoryview:
        """Where the next message that is sent should lie; waits until there is room."""

    def send(self, place: Place, view: memoryview) -> None:
        """Hand a message over."""

    def relay(self, place: Place, view: memoryview) -> None:
        """Send on what came, as it is; it need not be freed."""

    def ask(self, place: Place, into: memoryview | None) -> bool:
        """Ask for the message that comes next, unless there is no room; it may come into the buffer given."""

    def take(self) -> memoryview:
        """The message that was asked for first, once it is there."""

    def free(self, view: memoryview) -> None:
        """What was taken is no longer needed."""

    def drain(self) -> None:
        """Until buffers that were handed over are free again."""

    def abort(self, reason: str) -> None:
        """Tell both neighbours why; they tell theirs."""

    def close(self) -> None:
        """Hang up; what was handed over before has left."""
