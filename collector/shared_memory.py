"""One link of the ring between ranks of one host: messages lie in memory that two neighbours share.

A sender seals right into a slot of this memory and its neighbour opens right out of it, so nothing is copied on the
way. The ring's own thread does all of it. Sockets between the two carry only what is rare: the descriptors of the
memory, the reason for an end, and by hanging up the news that a process has ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import select
import socket
import struct
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import RingBroken
from .frames import ABORT, HEADER, MOST_REASON_BYTES, ROOM, Place, describe_end, describe_misplaced, unpack
from .spans import span
from .staging import copy_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

_PAGE = 4096
_HEADER_ROOM = 64
# From <linux/fcntl.h>; a peer that could shrink the memory could kill whoever reads it.
_ADD_SEALS, _GET_SEALS, _SEAL, _SHRINK, _GROW = 1033, 1034, 1, 2, 4
_NUMBER = struct.Struct("=Q")


@dataclass(frozen=True)
class SharedBuffer:
    """Slots that two neighbours share, and two counters that wake them: of what was posted, of what was freed."""

    memory: memoryview
    owner: object
    slots: int
    stride: int
    posted: int
    freed: int

    @staticmethod
    def over(fds: tuple[int, int, int], slots: int, stride: int) -> SharedBuffer:
        """Map the memory behind a descriptor; its pages are there before the first message."""
        memory, posted, freed = fds
        size = slots * stride
        if os.fstat(memory).st_size != size or not fcntl.fcntl(memory, _GET_SEALS) & _SHRINK:
            raise RingBroken(f"a neighbour offered memory that is not the {size} bytes it should be, for good")
        mapped = mmap.mmap(memory, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        os.close(memory)
        return SharedBuffer(memoryview(mapped), mapped, slots, stride, posted, freed)

    @staticmethod
    def create(slots: int, stride: int) -> tuple[SharedBuffer, int]:
        """New memory, and a descriptor of it for the neighbour."""
        memory = os.memfd_create("ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, slots * stride)
        fcntl.fcntl(memory, _ADD_SEALS, _SHRINK | _GROW | _SEAL)
        posted, freed = (os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK) for _ in range(2))
        return SharedBuffer.over((os.dup(memory), posted, freed), slots, stride), memory

    def slot(self, number: int, length: int) -> memoryview:
        """Where a message's content lies."""
        start = number % self.slots * self.stride + _HEADER_ROOM
        return self.memory[start : start + length]

    def header(self, number: int) -> memoryview:
        """Where its header lies."""
        start = number % self.slots * self.stride
        return self.memory[start : start + HEADER.size]

    def close(self) -> None:
        """Let go; the memory goes with its last view."""
        os.close(self.posted)
        os.close(self.freed)


class SharedLink:
    """Messages to the next rank and from the previous one through shared memory; the first fault ends it.

    A slot is written only after it was freed and read only after it was posted. How many are enough for no two ranks to
    wait for each other is for whoever asks for space to know.
    """

    transport = "shared memory"
    sends_from_slots = True

    def __init__(self, rank: int, ranks: int, onward: socket.socket, inward: socket.socket, timeout_s: float) -> None:
        self._rank = rank
        self._next, self._previous = (rank + 1) % ranks, (rank - 1) % ranks
        self._timeout_s = timeout_s
        self._onward, self._inward = onward, inward
        self._poll = select.poll()
        self._gone: set[int] = set()
        for sock in (onward, inward):
            sock.setblocking(False)
            self._poll.register(sock, select.POLLIN)
        self._out: SharedBuffer | None = None
        self._in: SharedBuffer | None = None
        self._offered: deque[SharedBuffer] = deque()
        self._expected: deque[Place] = deque()
        self._sent = self._taken = self._ready = self._empty = 0

    def reserve(self, slot_bytes: int, count: int, _ahead: int) -> None:
        """Share as much memory as this needs with both neighbours; they ask for the same at the same point."""
        stride = -(-(slot_bytes + _HEADER_ROOM) // _PAGE) * _PAGE
        if self._out is not None and self._out.stride >= stride and self._out.slots >= count:
            return
        # Never less of either: ranks agree on when to make space by what each was asked for.
        slots = max(count, self._out.slots if self._out else 0)
        stride = max(stride, self._out.stride if self._out else 0)
        buffer, memory = SharedBuffer.create(slots, stride)
        place = Place(ROOM, 0, self._rank, 0, 0, 0, slots, stride, 0)
        try:
            socket.send_fds(self._onward, [place.pack()], [memory, buffer.posted, buffer.freed])
        except OSError as error:
            raise self._describe_loss(self._next, error) from error
        finally:
            os.close(memory)
        self._out = self._instead(self._out, buffer, buffer.freed)
        self._sent, self._empty = 0, slots
        self._until(lambda: bool(self._offered), self._inward, lambda: f"rank {self._previous} to share memory with it")
        buffer = self._offered.popleft()
        if (buffer.slots, buffer.stride) != (slots, stride):
            raise RingBroken(
                f"rank {self._previous} shares {buffer.slots} slots of {buffer.stride} bytes, not {slots} of {stride}"
            )
        self._in = self._instead(self._in, buffer, buffer.posted)
        self._taken = self._ready = 0

    def next_slot(self, length: int) -> memoryview:
        """Where the next message that is sent should lie; waits until there is space."""
        buffer = self._open_shared(self._out)
        if not self._empty:
            with span("tee::wait_for_room"):
                self._until(
                    lambda: self._empty > 0, self._onward, lambda: f"rank {self._next} to take what it was sent"
                )
        return buffer.slot(self._sent, length)

    def send(self, place: Place, view: memoryview) -> None:
        """Post a message; one that does not lie in its slot yet is copied there."""
        buffer = self._open_shared(self._out)
        if view.obj is not buffer.owner:
            copy_bytes(view, self.next_slot(len(view)))
        buffer.header(self._sent)[:] = place.pack()
        self._sent += 1
        self._empty -= 1
        os.eventfd_write(buffer.posted, 1)

    def relay(self, place: Place, view: memoryview) -> None:
        """Send on what came, as it is."""
        self.send(place, view)
        self.free(view)

    def ask(self, place: Place, into: memoryview | None) -> bool:  # noqa: ARG002 - it comes where it comes
        """Say what comes next."""
        self._expected.append(place)
        return True

    def take(self) -> memoryview:
        """The message that was asked for first, once it is there; it must be freed."""
        place, buffer = self._expected.popleft(), self._open_shared(self._in)
        if not self._ready:
            self._until(
                lambda: self._ready > 0,
                self._inward,
                lambda: f"{place}: it was dropped, or rank {self._previous} is stuck",
            )
        header = bytes(buffer.header(self._taken))
        if header != place.pack():
            raise describe_misplaced(self._rank, place, unpack(header))
        self._ready -= 1
        self._taken += 1
        return buffer.slot(self._taken - 1, place.length)

    def free(self, view: memoryview) -> None:
        """The previous rank may write there again."""
        buffer = self._open_shared(self._in)
        if view.obj is buffer.owner:
            os.eventfd_write(buffer.freed, 1)

    def drain(self) -> None:
        """Nothing is on its way: what was posted stays until it is taken."""

    def abort(self, reason: str) -> None:
        """Tell both neighbours why; they tell theirs."""
        text = reason.encode("utf-8", "replace")[:MOST_REASON_BYTES]
        for sock in (self._onward, self._inward):
            with contextlib.suppress(OSError):  # whoever is gone need not be told
                sock.sendall(Place(ABORT, 0, self._rank, 0, 0, 0, 0, 0, len(text)).pack() + text)

    def close(self) -> None:
        """Hang up; what was posted before can still be taken."""
        self._onward.close()
        self._inward.close()
        for buffer in (self._out, self._in, *self._offered):
            if buffer is not None:
                buffer.close()
        self._out = self._in = None

    # -- waiting --------------------------------------------------------------------------------------------------

    def _until(self, is_so: Callable[[], bool], other_end: socket.socket, what: Callable[[], str]) -> None:
        """Wait for a neighbour to do something, and hear meanwhile why another ended the ring."""
        deadline = time.monotonic() + self._timeout_s
        while not is_so():
            if other_end.fileno() in self._gone:
                raise self._describe_loss(self._next if other_end is self._onward else self._previous)
            left = deadline - time.monotonic()
            if left <= 0:
                raise RingBroken(f"rank {self._rank} waited {self._timeout_s:g} s for {what()}")
            self._hear(left)

    def _hear(self, seconds: float) -> None:
        heard = {fd for fd, _ in self._poll.poll(seconds * 1000)}
        sockets = [sock for sock in (self._onward, self._inward) if sock.fileno() in heard]
        # Sockets last: whoever posted and then hung up in good order is heard in this order.
        if self._out is not None and (sockets or self._out.freed in heard):
            self._empty += _count_of(self._out.freed)
        if self._in is not None and (sockets or self._in.posted in heard):
            self._ready += _count_of(self._in.posted)
        for sock in sockets:
            self._listen(sock)

    def _listen(self, sock: socket.socket) -> None:
        try:
            header, fds, _, _ = socket.recv_fds(sock, HEADER.size, 3, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        except OSError:
            header, fds = b"", []
        if not header:
            # That the next rank hangs up may be its good right: it has all it needs.
            self._poll.unregister(sock)
            self._gone.add(sock.fileno())
            return
        place = unpack(header) if len(header) == HEADER.size else None
        if place is not None and place.kind == ROOM and len(fds) == 3:
            memory, posted, freed = fds
            self._offered.append(SharedBuffer.over((memory, posted, freed), place.step, place.collective))
        elif place is not None and place.kind == ABORT and place.length <= MOST_REASON_BYTES:
            raise describe_end(place, sock.recv(place.length))
        else:
            raise RingBroken(f"rank {self._rank} heard something that is no word of a neighbour's: {place}")

    def _instead(self, old: SharedBuffer | None, new: SharedBuffer, wakes: int) -> SharedBuffer:
        if old is not None:
            for fd in (old.posted, old.freed):
                with contextlib.suppress(KeyError):
                    self._poll.unregister(fd)
            old.close()
        self._poll.register(wakes, select.POLLIN)
        return new

    def _describe_loss(self, rank: int, why: object = "it hung up") -> RingBroken:
        return RingBroken(f"rank {self._rank} lost rank {rank}: {why}. Look for why that process ended")

    @staticmethod
    def _open_shared(buffer: SharedBuffer | None) -> SharedBuffer:
        if buffer is None:
            raise RingBroken("no memory is shared: reserve it first")
        return buffer


def _count_of(event: int) -> int:
    """How often a counter was raised since it was read last."""
    try:
        return os.eventfd_read(event)
    except BlockingIOError:
        return 0
