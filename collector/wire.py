"""One link of the ring on TCP: frames out by one thread, frames in by another, each held to its place."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from .errors import RingBroken
from .frames import ABORT, HEADER, MOST_REASON_BYTES, Place, describe_end, describe_misplaced, unpack
from .spans import span

if TYPE_CHECKING:
    from collections.abc import Callable

_GRACE_S = 1.0
_WATCH_S = 0.5


class Ticket:
    """A frame that was asked for, or handed over to be sent."""

    __slots__ = ("expected", "on_done", "view", "was_done")

    def __init__(self, expected: bytes, view: memoryview, on_done: Callable[[], None] | None = None) -> None:
        self.expected = expected
        self.view = view
        self.on_done = on_done
        self.was_done = False


class Link:
    """Frames to the next rank and from the previous one; the first fault ends it for good.

    A receive must be asked for before it is read, so a peer that is ahead waits in the kernel, never in our memory.
    """

    transport = "tcp"
    sends_from_slots = False

    def __init__(self, rank: int, ranks: int, onward: socket.socket, inward: socket.socket, timeout_s: float) -> None:
        self._rank = rank
        self._next, self._previous = (rank + 1) % ranks, (rank - 1) % ranks
        self._timeout_s = timeout_s
        self._sockets = (onward, inward)
        self._changed = threading.Condition()
        self._asked: deque[Ticket] = deque()
        self._sending: deque[Ticket] = deque()
        self._tickets: deque[Ticket] = deque()
        self._slot_bytes = 0
        self._free_out: deque[bytearray] = deque()
        self._free_in: deque[bytearray] = deque()
        self._fault: RingBroken | None = None
        self._is_closing = False
        for sock in self._sockets:
            sock.settimeout(timeout_s)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._threads = [
            threading.Thread(target=self._serve, args=(self._sending, self._send), name="ring-send", daemon=True),
            threading.Thread(target=self._serve, args=(self._asked, self._receive), name="ring-receive", daemon=True),
            threading.Thread(target=self._watch, name="ring-watch", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def reserve(self, slot_bytes: int, count: int, ahead: int) -> None:
        """Slots to seal into and to receive into; made anew only when a message is larger than any before."""
        if slot_bytes > self._slot_bytes:
            self._slot_bytes = slot_bytes
            self._free_out.clear()
            self._free_in.clear()
        for free, needed in ((self._free_out, count), (self._free_in, ahead)):
            free.extend(bytearray(self._slot_bytes) for _ in range(needed - len(free)))

    def next_slot(self, length: int) -> memoryview:
        """A slot to seal into; waits until there is one."""
        if not self._free_out:
            with span("tee::wait_for_room"):
                self._until(lambda: bool(self._free_out), lambda: "the next rank to take what it was sent")
        return memoryview(self._free_out.popleft())[:length]

    def send(self, place: Place, view: memoryview) -> None:
        """Hand a frame over; a slot is free again once it has left."""
        self._queue(self._sending, Ticket(place.pack(), view, lambda: _back(view, self._free_out)))

    def relay(self, place: Place, view: memoryview) -> None:
        """Send on what came; an empty slot takes its place among those that receive."""
        _back(self.next_slot(0), self._free_in)
        self.send(place, view)

    def ask(self, place: Place, into: memoryview | None) -> bool:
        """Ask for the frame that comes next, into a slot of ours or a buffer given."""
        if into is None:
            if not self._free_in:
                return False
            into = memoryview(self._free_in.popleft())[: place.length]
        self._tickets.append(self._queue(self._asked, Ticket(place.pack(), into)))
        return True

    def take(self) -> memoryview:
        """The frame that was asked for first, once it is there, or the link is broken, or it takes too long."""
        ticket = self._tickets.popleft()
        self._until(lambda: ticket.was_done, lambda: str(unpack(ticket.expected)))
        return ticket.view

    def free(self, view: memoryview) -> None:
        """A slot that was taken may receive again."""
        _back(view, self._free_in)

    def drain(self) -> None:
        """Until everything that was handed over has left."""
        self._until(lambda: not self._sending, lambda: "the end of what it sends")

    def _until(self, is_so: Callable[[], bool], what: Callable[[], str]) -> None:
        """Wait for something that the link's threads bring about."""
        with self._changed:
            # The sockets' own timeout comes first and says more.
            if not self._changed.wait_for(lambda: is_so() or self._fault is not None, self._timeout_s * 2):
                raise RingBroken(f"rank {self._rank} waited {self._timeout_s * 2:g} s for {what()}")
            if self._fault is not None:
                raise self._fault

    def abort(self, reason: str) -> None:
        """Tell both neighbours why; they tell theirs."""
        text = reason.encode("utf-8", "replace")[:MOST_REASON_BYTES]
        place = Place(ABORT, 0, self._rank, 0, 0, 0, 0, 0, len(text))
        with self._changed:
            while len(self._sending) > 1:  # the first one may be half on its way
                self._sending.pop()
            self._fault = self._fault or RingBroken(reason)
            self._sending.append(Ticket(place.pack(), memoryview(text)))
            self._changed.notify_all()
        with contextlib.suppress(OSError):  # whoever is gone need not be told
            self._sockets[1].sendall(place.pack() + text)
        with self._changed:
            self._changed.wait_for(lambda: not self._sending, min(self._timeout_s, 2.0))

    def close(self) -> None:
        """Stop both threads and hang up; what was handed over before has left."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        for sock in self._sockets:
            with contextlib.suppress(OSError):  # the peer hung up first
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(self._timeout_s)
        for sock in self._sockets:
            sock.close()

    def _queue(self, queue: deque[Ticket], ticket: Ticket) -> Ticket:
        with self._changed:
            if self._fault is not None:
                raise self._fault
            queue.append(ticket)
            self._changed.notify_all()
        return ticket

    def _serve(self, queue: deque[Ticket], work: Callable[[Ticket], None]) -> None:
        """Do what is queued, in order, until closed; a fault leaves only the last word to be said."""
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(queue) or self._is_closing)
                if self._is_closing:
                    return
                ticket = queue[0]
            fault = None
            try:
                work(ticket)
            except RingBroken as error:
                fault = error
            except TimeoutError:
                fault = RingBroken(
                    f"rank {self._rank} waited {self._timeout_s:g} s for {self._wait_for(queue, ticket)}"
                )
            except (OSError, EOFError) as error:
                lost = self._next if queue is self._sending else self._previous
                why = str(error) or "it hung up"
                fault = RingBroken(f"rank {self._rank} lost rank {lost}: {why}. Look for why that process ended")
            with self._changed:
                if fault is None:
                    ticket.was_done = True
                    if ticket.on_done is not None:
                        ticket.on_done()
                    queue.popleft()
                else:
                    if queue is self._sending:
                        # A rank that ends the ring hangs up; why it did so is on its way to us.
                        self._changed.wait_for(lambda: self._fault is not None, _GRACE_S)
                    self._fault = self._fault or fault
                    queue.clear()
                self._changed.notify_all()

    def _watch(self) -> None:
        """Hear what the next rank says: nothing, or that it ends the ring. That it hangs up may be its good right."""
        onward = self._sockets[0]
        while not self._is_closing:
            try:
                if not select.select([onward], [], [], _WATCH_S)[0]:
                    continue
                header = bytearray(HEADER.size)
                self._fill(memoryview(header), onward)
                self._refuse(bytes(header), bytes(header), onward)
            except RingBroken as error:
                with self._changed:
                    self._fault = self._fault or error
                    self._changed.notify_all()
            except (OSError, EOFError, ValueError):
                return

    def _wait_for(self, queue: deque[Ticket], ticket: Ticket) -> str:
        if queue is self._sending:
            return f"rank {self._next} to take what it was sent"
        return f"{unpack(ticket.expected)}: it was dropped, or rank {self._previous} is stuck"

    def _send(self, ticket: Ticket) -> None:
        with span("tee::send", len(ticket.view)):
            onward = self._sockets[0]
            count = onward.sendmsg([ticket.expected, ticket.view])
            header_left = len(ticket.expected) - count
            if header_left > 0:
                onward.sendall(ticket.expected[count:])
            onward.sendall(ticket.view[max(0, -header_left) :])

    def _receive(self, ticket: Ticket) -> None:
        header = bytearray(HEADER.size)
        self._fill(memoryview(header))
        if header != ticket.expected:
            self._refuse(bytes(header), ticket.expected, self._sockets[1])
        self._fill(ticket.view)

    def _refuse(self, header: bytes, due: bytes, source: socket.socket) -> None:
        """Say what came instead of what was due."""
        found, expected = unpack(header), unpack(due)
        if found is not None and found.kind == ABORT and found.length <= MOST_REASON_BYTES:
            text = bytearray(found.length)
            self._fill(memoryview(text), source)
            raise describe_end(found, bytes(text))
        raise describe_misplaced(self._rank, expected, found)

    def _fill(self, view: memoryview, source: socket.socket | None = None) -> None:
        source, deadline = source or self._sockets[1], time.monotonic() + self._timeout_s
        while view:
            count = source.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]
            if view and time.monotonic() > deadline:
                raise TimeoutError  # a peer that trickles is as good as one that is silent


def _back(view: memoryview, free: deque[bytearray]) -> None:
    """A slot goes back; memory of the caller's own is not ours to keep."""
    if isinstance(view.obj, bytearray):
        free.append(view.obj)
