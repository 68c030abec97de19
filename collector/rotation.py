"""One all-reduce around the ring: every chunk that comes in is opened, added or kept, sealed and sent on."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from cryptography.exceptions import InvalidTag

from .frames import GROUP, LINK, Place
from .links import Chains, describe_tampering
from .spans import span
from .staging import copy_bytes, memory_of, tensor_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .frames import Carrier
    from .staging import Part, Staged

# Receives that are asked for ahead of the one in hand, where messages travel in chunks.
_AHEAD = 4
# Chunks to send before the first is received, and room beyond them for a neighbour that is late. Few, since
# slots are memory that sealing and opening walk through: the less there is of it, the more of it a cache still holds.
_LEAD = 4
_SPARE = 2
# Of a block that is added, what one thread of torch's takes.
_BLOCK_ELEMENTS = 1 << 17


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
    reduce_ns: int = 0
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


def lead_of(chunks: int, *, is_direct: bool) -> int:
    """Chunks that a rank sends before it receives the first; what travels on as it came must leave as it comes."""
    return chunks if is_direct else min(_LEAD, chunks)


def slots_for(chunks: int, *, is_direct: bool) -> int:
    """Messages that may be on their way to the next rank where a part travels in so many chunks."""
    # A message that travels on as it came keeps its slot until it has another.
    return lead_of(chunks, is_direct=is_direct) + is_direct + (_SPARE if chunks > 1 else 0)


def _add_blocks(own: torch.Tensor, came: torch.Tensor, ranks: int) -> None:
    """Add, and take the mean where the sum is complete; block by block, so that the second pass finds it in a cache."""
    if ranks == 1:
        own.add_(came)
        return
    block = _BLOCK_ELEMENTS * torch.get_num_threads()
    for mine, other in zip(own.split(block), came.split(block), strict=True):
        mine.add_(other).mul_(1 / ranks)  # DDP multiplies too: a division takes longer than the addition


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

    A rank begins by sending the first chunks of its own part; from then on it sends at most one for each that it
    receives. What it sends was its own or came earlier, and there is room for as many as it is ahead. So a rank waits
    only for one that has received less than itself, and no set of ranks can wait for each other in a circle.
    """

    def __init__(self, rank: int, ranks: int, link: Carrier, keys: Keys | None, chunk_bytes: int | None) -> None:
        self._rank = rank
        self._ranks = ranks
        self._link = link
        self._keys = keys
        self._chunk_bytes = chunk_bytes
        self._sent = self._received = 0
        self._host = memoryview(b"")
        self._scratch = torch.empty(0, dtype=torch.uint8)
        self.tally = Tally()

    def run(self, work: Work) -> None:
        """Reduce the bucket to the mean over all ranks."""
        began, hops = time.perf_counter_ns(), 2 * (self._ranks - 1)
        chunks = [self._chunks(work, index) for index in range(self._ranks)]
        self._make_room(work, chunks)
        self._host = memory_of(work.staged.host)
        due = list(self._due(work, chunks, hops))
        own = chunks[self._rank]
        # What a rank sends is its own part and then, in the order in which it came, whatever has a hop left to go.
        out = [(0, index, part) for index, part in enumerate(own)]
        out += [(place.hop + 1, place.chunk, part) for place, _, part in due if place.hop + 1 < hops]
        lead = lead_of(len(own), is_direct=self._is_direct(hops))
        asked = sent = 0
        relayed = None
        work.staged.need(self._rank)
        for number, (place, part_index, part) in enumerate(due):
            while sent < min(number + lead, len(out)):
                self._forward(work, *out[sent], relayed)
                sent += 1
            while asked < min(number + _AHEAD, len(due)) and self._ask(work, *due[asked]):
                asked += 1
            with span("tee::recv", self._bytes_of(work, part)):
                came = self._link.take()
            if place.hop < self._ranks - 1:
                work.staged.need(part_index)
            self._take(work, place, part, came)
            relayed = came if self._is_direct(place.hop) and place.hop + 1 < hops else None
            if relayed is None:
                self._link.free(came)
            if place.hop >= self._ranks - 2 and place.chunk + 1 == len(chunks[part_index]):
                work.staged.give(part_index)
        for message in out[sent:]:
            self._forward(work, *message, relayed)
        self._link.drain()
        self.tally.collectives += 1
        self.tally.rotation_ns += time.perf_counter_ns() - began

    # -- what comes, in its order ---------------------------------------------------------------------------------

    def _due(self, work: Work, chunks: list[list[Part]], hops: int) -> Iterator[tuple[Place, int, Part]]:
        """Every chunk that the previous rank will send, with the part that it belongs to."""
        for hop in range(hops):
            part_index = (self._rank - 1 - hop) % self._ranks
            for index, part in enumerate(chunks[part_index]):
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

    def _ask(self, work: Work, place: Place, _: int, part: Part) -> bool:
        """Ask for a chunk, if there is room for it."""
        # A final part can come only after everyone had our share of it, so nothing reads this memory now.
        is_kept_as_it_comes = self._keys is None and place.hop >= self._ranks - 1
        return self._link.ask(place, self._bytes(work, part) if is_kept_as_it_comes else None)

    # -- what is done with a chunk --------------------------------------------------------------------------------

    def _take(self, work: Work, place: Place, part: Part, came: memoryview) -> None:
        """Add the chunk to our own, or keep it where it is final."""
        if place.hop >= self._ranks - 1:
            mine = self._bytes(work, part)
            if self._keys is not None:
                self._open(self._keys, place, came, mine)
            elif came.obj is not mine.obj:
                # The sealed ring moves these bytes as it opens them.
                with span("tee::copy_in", len(mine)):
                    copy_bytes(came, mine)
            return
        if self._keys is not None:
            plain = memory_of(self._scratch)[: self._bytes_of(work, part)]
            self._open(self._keys, place, came, plain)
            came = plain
        began = time.perf_counter_ns()
        with span("tee::reduce"):
            own = work.staged.host[part[0] : part[1]]
            _add_blocks(own, tensor_of(came, own.dtype), self._ranks if place.hop == self._ranks - 2 else 1)
        self.tally.reduce_ns += time.perf_counter_ns() - began

    def _open(self, keys: Keys, place: Place, came: memoryview, out: memoryview) -> None:
        chains = keys.origins[place.origin] if place.kind == GROUP else keys.inward
        began = time.perf_counter_ns()
        with span("tee::open", len(out)):
            try:
                chains.open(came, place.context(), out)
            except InvalidTag as error:
                raise describe_tampering(f"{place} from rank {(self._rank - 1) % self._ranks}", error) from error
        self.tally.open_ns += time.perf_counter_ns() - began
        self.tally.opened_bytes += len(out)

    def _forward(self, work: Work, hop: int, index: int, part: Part, relayed: memoryview | None) -> None:
        """Seal and send a chunk; one that came sealed for everybody travels on as it is."""
        place = self._place(work, hop, index, part, self._sent, is_inward=False)
        self._sent += 1
        view = self._bytes(work, part)
        count = len(view)
        self.tally.messages += 1
        self.tally.payload_bytes += count
        if relayed is not None:
            self.tally.relayed_bytes += count
            with span("tee::relay", count):
                self._link.relay(place, relayed)
            return
        if self._keys is not None:
            chains = self._keys.origins[self._rank] if place.kind == GROUP else self._keys.onward
            slot = self._link.next_slot(place.length)
            began = time.perf_counter_ns()
            with span("tee::seal", count):
                chains.seal(view, place.context(), slot)
            self.tally.seal_ns += time.perf_counter_ns() - began
            self.tally.sealed_bytes += count
            view = slot
        elif self._link.sends_from_slots:
            # The sealed ring moves these bytes as it seals them; waiting for a slot is outside of both spans.
            slot = self._link.next_slot(place.length)
            with span("tee::copy_out", count):
                copy_bytes(view, slot)
            view = slot
        with span("tee::send", count):
            self._link.send(place, view)

    # -- sizes ----------------------------------------------------------------------------------------------------

    def _is_direct(self, hop: int) -> bool:
        return self._keys is not None and bool(self._keys.origins) and hop >= self._ranks - 1

    def _bytes_of(self, work: Work, part: Part) -> int:
        return (part[1] - part[0]) * work.staged.host.element_size()

    def _bytes(self, work: Work, part: Part) -> memoryview:
        size = work.staged.host.element_size()
        return self._host[part[0] * size : part[1] * size]

    def _chunks(self, work: Work, part_index: int) -> list[Part]:
        """A part is one message, or as many as its chunks where transfer and sealing are to overlap."""
        start, end = work.parts[part_index]
        size = max(1, (self._chunk_bytes or 0) // work.staged.host.element_size()) if self._chunk_bytes else end - start
        return [(at, min(at + size, end)) for at in range(start, end, size)] if end > start else []

    def _make_room(self, work: Work, chunks: list[list[Part]]) -> None:
        """Slots for one part's chunks out and a few in; made anew only when a bucket is larger than any before."""
        count = max(1, *map(len, chunks))
        plain_bytes = max((self._bytes_of(work, part) for parts in chunks for part in parts), default=0)
        slot_bytes = self._keys.onward.sealed_bytes(plain_bytes) if self._keys else plain_bytes
        if self._keys is not None and self._scratch.numel() < plain_bytes:
            self._scratch = torch.zeros(plain_bytes, dtype=torch.uint8)
        slots = slots_for(count, is_direct=self._is_direct(self._ranks))
        self._link.reserve(slot_bytes, slots, min(_AHEAD, count))
