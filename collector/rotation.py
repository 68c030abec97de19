"""One all-reduce around the ring: every chunk that comes in is opened, added or kept, sealed and sent on."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from cryptography.exceptions import InvalidTag
from torch.profiler import record_function

from collector.links import Chains, tampered
from collector.staging import memory_of
from collector.wire import GROUP, LINK, Place

if TYPE_CHECKING:
    from collections.abc import Iterator

    from collector.staging import Part, Staged
    from collector.wire import Link, Ticket

# Receives that are asked for ahead of the one in hand, where messages travel in chunks.
_AHEAD = 4


@dataclass
class Tally:
    """What the ring has done so far, for tables; traces carry the same as spans."""

    collectives: int = 0
    messages: int = 0
    payload_bytes: int = 0
    relayed_bytes: int = 0
    sealed_bytes: int = 0
    opened_bytes: int = 0
    seal_ns: int = 0
    open_ns: int = 0
    rotation_ns: int = 0


@dataclass(frozen=True)
class Keys:
    """What a rank seals and opens with: its two links, and for direct forwarding one set per origin."""

    onward: Chains
    inward: Chains
    origins: dict[int, Chains] = field(default_factory=dict)


def parts_of(elements: int, ranks: int) -> list[Part]:
    """Cut a bucket into one part a rank; parts differ by at most one element."""
    bounds = [elements * index // ranks for index in range(ranks + 1)]
    return list(pairwise(bounds))


@dataclass(frozen=True)
class Work:
    """One bucket and where it belongs."""

    staged: Staged
    parts: list[Part]
    step: int
    bucket: int
    collective: int


class Rotation:
    """The ring's algorithm and its buffers.

    A rank begins by sending its own part; from then on it sends exactly one chunk for each that it receives. So there
    are never more chunks around than the ranks began with, and room for one part's chunks on each rank is enough: no
    set of ranks can wait for each other in a circle.
    """

    def __init__(self, rank: int, ranks: int, link: Link, keys: Keys | None, chunk_bytes: int | None) -> None:
        self._rank = rank
        self._ranks = ranks
        self._link = link
        self._keys = keys
        self._chunk_bytes = chunk_bytes
        self._sent = self._received = 0
        self._slot_bytes = 0
        self._free_out: deque[torch.Tensor] = deque()
        self._free_in: deque[torch.Tensor] = deque()
        self._scratch = torch.empty(0, dtype=torch.uint8)
        self.tally = Tally()

    def run(self, work: Work) -> None:
        """Reduce the bucket to the mean over all ranks."""
        began, hops = time.perf_counter_ns(), 2 * (self._ranks - 1)
        self._make_room(work)
        due = deque(self._due(work, hops))
        asked: deque[tuple[Ticket, torch.Tensor | None]] = deque()
        own = self._rank
        work.staged.need(own)
        for index, part in enumerate(self._chunks(work, own)):
            self._forward(work, part, 0, index, None)
        for place, part_index, part in list(due):
            self._ask(work, due, asked)
            ticket, slot = asked.popleft()
            with record_function(f"tee::recv#{self._bytes_of(work, part)}"):
                self._link.wait(ticket)
            if place.hop < self._ranks - 1:
                work.staged.need(part_index)
            self._take(work, place, part, slot)
            is_relayed = self._is_direct(place.hop) and place.hop + 1 < hops
            if place.hop + 1 < hops:
                self._forward(work, part, place.hop + 1, place.chunk, slot if is_relayed else None)
            if slot is not None and not is_relayed:
                self._free_in.append(slot)
            if place.hop >= self._ranks - 2 and place.chunk + 1 == len(self._chunks(work, part_index)):
                work.staged.give(part_index)
        self._link.drain()
        self.tally.collectives += 1
        self.tally.rotation_ns += time.perf_counter_ns() - began

    # -- what comes, in its order ---------------------------------------------------------------------------------

    def _due(self, work: Work, hops: int) -> Iterator[tuple[Place, int, Part]]:
        """Every chunk that the previous rank will send, with the part that it belongs to."""
        for hop in range(hops):
            part_index = (self._rank - 1 - hop) % self._ranks
            for index, part in enumerate(self._chunks(work, part_index)):
                yield self._place(work, hop, index, part, self._received, is_inward=True), part_index, part
                self._received += 1

    def _place(self, work: Work, hop: int, index: int, part: Part, sequence: int, *, is_inward: bool) -> Place:
        sender = (self._rank - is_inward) % self._ranks
        # After the reduction the part at hop h was completed by the rank h - (ranks - 1) places before its sender.
        origin = (sender - (hop - self._ranks + 1)) % self._ranks if self._is_direct(hop) else sender
        length = self._bytes_of(work, part)
        if self._keys is not None:
            length = self._keys.onward.sealed_bytes(length)
        kind = GROUP if self._is_direct(hop) else LINK
        return Place(kind, hop, origin, index, work.bucket, sequence, work.step, work.collective, length)

    def _ask(
        self,
        work: Work,
        due: deque[tuple[Place, int, Part]],
        asked: deque[tuple[Ticket, torch.Tensor | None]],
    ) -> None:
        """Ask for as much as there is room for."""
        while due and len(asked) < _AHEAD:
            place, _, part = due[0]
            if self._keys is None and place.hop >= self._ranks - 1:
                # A final part can come only after everyone had our share of it, so nothing reads this memory now.
                asked.append((self._link.ask(place, self._host(work, part)), None))
            elif self._free_in:
                slot = self._free_in.popleft()
                asked.append((self._link.ask(place, memory_of(slot)[: place.length]), slot))
            else:
                return
            due.popleft()

    # -- what is done with a chunk --------------------------------------------------------------------------------

    def _take(self, work: Work, place: Place, part: Part, slot: torch.Tensor | None) -> None:
        """Add the chunk to our own, or keep it where it is final."""
        mine = work.staged.host[part[0] : part[1]]
        if slot is None:
            return
        is_final = place.hop >= self._ranks - 1
        came = slot if self._keys is None else self._scratch
        count = self._bytes_of(work, part)
        if self._keys is not None:
            self._open(self._keys, place, slot, memory_of(mine) if is_final else memory_of(came)[:count])
        if not is_final:
            with record_function("tee::reduce"):
                mine.add_(came[:count].view(mine.dtype))
                if place.hop == self._ranks - 2:
                    mine.div_(self._ranks)

    def _open(self, keys: Keys, place: Place, slot: torch.Tensor, out: memoryview) -> None:
        chains = keys.origins[place.origin] if place.kind == GROUP else keys.inward
        began = time.perf_counter_ns()
        with record_function(f"tee::open#{len(out)}"):
            try:
                chains.open(memory_of(slot)[: place.length], place.context(), out)
            except InvalidTag as error:
                raise tampered(f"{place} from rank {(self._rank - 1) % self._ranks}", error) from error
        self.tally.open_ns += time.perf_counter_ns() - began
        self.tally.opened_bytes += len(out)

    def _forward(self, work: Work, part: Part, hop: int, index: int, relayed: torch.Tensor | None) -> None:
        """Seal and send a chunk; one that came sealed for everybody travels on as it is."""
        place = self._place(work, hop, index, part, self._sent, is_inward=False)
        self._sent += 1
        count = self._bytes_of(work, part)
        self.tally.messages += 1
        self.tally.payload_bytes += count
        if self._keys is None:
            with record_function(f"tee::send#{count}"):
                self._link.send(place, self._host(work, part))
            return
        free = self._free_out
        if not free:
            with record_function("tee::wait_for_room"):
                self._link.until(lambda: bool(free), lambda: "the next rank to take what it was sent")
        slot = free.popleft()
        if relayed is not None:
            # The empty slot takes the place of the full one among those that receive.
            self._free_in.append(slot)
            self.tally.relayed_bytes += count
            with record_function(f"tee::relay#{count}"):
                self._link.send(place, memory_of(relayed)[: place.length], lambda: free.append(relayed))
            return
        chains = self._keys.origins[self._rank] if place.kind == GROUP else self._keys.onward
        began = time.perf_counter_ns()
        with record_function(f"tee::seal#{count}"):
            chains.seal(self._host(work, part), place.context(), memory_of(slot)[: place.length])
        self.tally.seal_ns += time.perf_counter_ns() - began
        self.tally.sealed_bytes += count
        with record_function(f"tee::send#{count}"):
            self._link.send(place, memory_of(slot)[: place.length], lambda: free.append(slot))

    # -- sizes ----------------------------------------------------------------------------------------------------

    def _is_direct(self, hop: int) -> bool:
        return self._keys is not None and bool(self._keys.origins) and hop >= self._ranks - 1

    def _bytes_of(self, work: Work, part: Part) -> int:
        return (part[1] - part[0]) * work.staged.host.element_size()

    def _host(self, work: Work, part: Part) -> memoryview:
        return memory_of(work.staged.host[part[0] : part[1]])

    def _chunks(self, work: Work, part_index: int) -> list[Part]:
        """A part is one message, or as many as its chunks where transfer and sealing are to overlap."""
        start, end = work.parts[part_index]
        size = max(1, (self._chunk_bytes or 0) // work.staged.host.element_size()) if self._chunk_bytes else end - start
        return [(at, min(at + size, end)) for at in range(start, end, size)] if end > start else []

    def _make_room(self, work: Work) -> None:
        """Slots for one part's chunks out and a few in; made anew only when a bucket is larger than any before."""
        chunks = [self._chunks(work, index) for index in range(self._ranks)]
        count = max(map(len, chunks))
        plain_bytes = max((self._bytes_of(work, part) for parts in chunks for part in parts), default=0)
        slot_bytes = self._keys.onward.sealed_bytes(plain_bytes) if self._keys else plain_bytes
        ahead = min(_AHEAD, count)
        if slot_bytes > self._slot_bytes:
            self._slot_bytes = slot_bytes
            self._free_out.clear()
            self._free_in.clear()
            self._scratch = torch.empty(plain_bytes, dtype=torch.uint8)
        for free, needed in ((self._free_out, count if self._keys else 0), (self._free_in, ahead)):
            free.extend(torch.empty(self._slot_bytes, dtype=torch.uint8) for _ in range(needed - len(free)))
