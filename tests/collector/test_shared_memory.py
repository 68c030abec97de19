"""The link between ranks of one host, with somebody who can write to the memory that they share."""

from __future__ import annotations

import os
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
import torch

from collector.errors import RingBroken
from collector.frames import LINK, Place
from collector.links import Chains
from collector.rotation import Keys, Rotation, Work, parts_of
from collector.shared_memory import SharedBuffer, SharedLink
from collector.staging import InPlace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEYS = [bytes([number]) * 32 for number in range(2)]


class Meddled(SharedLink):
    """A link whose memory somebody reads when the second message is taken and changes before the third."""

    meddle: Callable[[SharedBuffer, bytes], None] | None = None
    seen = 0
    earlier = b""

    def take(self) -> memoryview:
        self.seen += 1
        if self.seen in {2, 3} and self.meddle is not None:
            self._until(lambda: self._ready > 0, self._inward, lambda: "a message")
            assert self._in is not None
            assert self._in.slots == 1
            if self.seen == 3:
                self.meddle(self._in, self.earlier)
            self.earlier = bytes(self._in.memory)
        return super().take()


@pytest.fixture
def links() -> Iterator[tuple[Meddled, Meddled]]:
    """Two ranks, each the other's next and previous."""
    (there, arrives), (back, returns) = socket.socketpair(), socket.socketpair()
    found = Meddled(0, 2, there, returns, 2.0), Meddled(1, 2, back, arrives, 2.0)
    yield found
    for link in found:
        link.close()


def place(sequence: int, length: int) -> Place:
    return Place(LINK, 0, 0, 0, 0, sequence, 0, 0, length)


def with_room(links: tuple[SharedLink, SharedLink], slot_bytes: int, count: int) -> None:
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda link: link.reserve(slot_bytes, count, 1), links))


def reduce_over(links: tuple[SharedLink, SharedLink], rounds: int = 4) -> list[list[float] | str]:
    """Two ranks reduce over the links; what each has in the end, or was told."""

    def one(rank: int) -> list[float] | str:
        keys = Keys(Chains([KEYS[rank]]), Chains([KEYS[1 - rank]]))
        rotation = Rotation(rank, 2, links[rank], keys, None)
        bucket = torch.full((100,), float(rank))
        try:
            for number in range(rounds):
                rotation.run(Work(InPlace(bucket), parts_of(100, 2), 0, 0, number))
        except RingBroken as error:
            links[rank].abort(str(error))
            return str(error)
        return [float(number) for number in bucket.unique()]

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, range(2)))


def test_messages_come_as_they_were_sent_through_slots_that_are_used_again_and_grow(
    links: tuple[Meddled, Meddled],
) -> None:
    sender, receiver = links
    number = 0
    for size, count in ((10, 1), (100, 3), (5000, 2), (10, 1)):
        with_room(links, size, count)
        for _ in range(7):
            text = os.urandom(size)
            sender.send(place(number, size), memoryview(bytearray(text)))
            receiver.ask(place(number, size), None)
            came = receiver.take()
            assert bytes(came) == text
            receiver.free(came)
            number += 1


def test_a_sender_waits_for_a_free_slot_and_says_for_whom(links: tuple[Meddled, Meddled]) -> None:
    with_room(links, 10, 3)
    for number in range(3):
        links[0].send(place(number, 4), memoryview(bytearray(4)))
    with pytest.raises(RingBroken, match="waited 2 s for rank 1 to take what it was sent"):
        links[0].next_slot(4)


def test_untouched_memory_gives_the_mean(links: tuple[Meddled, Meddled]) -> None:
    assert reduce_over(links) == [[0.5], [0.5]]


@pytest.mark.parametrize("offset", [64, 100, 64 + 200 + 15], ids=["first byte", "middle", "tag"])
def test_one_bit_changed_in_shared_memory_ends_both_ranks(links: tuple[Meddled, Meddled], offset: int) -> None:
    def meddle(buffer: SharedBuffer, _: bytes) -> None:
        buffer.memory[offset] ^= 1

    links[1].meddle = meddle
    for answer in reduce_over(links):
        assert "does not authenticate: it was changed on its way" in answer


def test_an_older_message_in_the_place_of_the_one_that_is_due_ends_both_ranks(links: tuple[Meddled, Meddled]) -> None:
    def replay(buffer: SharedBuffer, earlier: bytes) -> None:
        buffer.memory[:] = earlier

    links[1].meddle = replay
    for answer in reduce_over(links):
        assert "a message was replayed, reordered, dropped or spliced" in answer


def test_an_older_message_under_the_header_that_is_due_ends_both_ranks(links: tuple[Meddled, Meddled]) -> None:
    def splice(buffer: SharedBuffer, earlier: bytes) -> None:
        buffer.memory[64:] = earlier[64:]

    links[1].meddle = splice
    for answer in reduce_over(links):
        assert "does not authenticate" in answer


def test_silence_ends_after_the_timeout(links: tuple[Meddled, Meddled]) -> None:
    with_room(links, 10, 1)
    links[1].ask(place(0, 4), None)
    with pytest.raises(RingBroken, match="it was dropped, or rank 0 is stuck"):
        links[1].take()


def test_a_neighbour_that_hangs_up_is_named_once_what_it_posted_was_taken(links: tuple[Meddled, Meddled]) -> None:
    with_room(links, 10, 1)
    links[0].send(place(0, 4), memoryview(bytearray(b"last")))
    links[0].close()
    for number in range(2):
        links[1].ask(place(number, 4), None)
    assert bytes(links[1].take()) == b"last"
    with pytest.raises(RingBroken, match="rank 1 lost rank 0"):
        links[1].take()


def test_memory_that_its_maker_could_take_away_again_is_refused() -> None:
    memory = os.memfd_create("test")
    os.ftruncate(memory, 4096)
    with pytest.raises(RingBroken, match="offered memory that is not the 4096 bytes it should be, for good"):
        SharedBuffer.over((memory, -1, -1), 1, 4096)
    os.close(memory)
