"""What secures a link, without the link: nonces, chains, keys."""

from __future__ import annotations

import os

import pytest
from cryptography.exceptions import InvalidTag
from hypothesis import given
from hypothesis import strategies as st

from collector.errors import RingBroken
from collector.frames import GROUP, HEADER, LINK, Place, unpack
from collector.links import (
    MESSAGES_PER_KEY,
    NONCE_BYTES,
    TAG_BYTES,
    Chains,
    Ends,
    Handshake,
    Identity,
    Nonces,
    make_pool,
)
from silver.policy import POLICY

KEYS = [bytes([number]) * 32 for number in range(8)]
places = st.builds(
    Place,
    st.sampled_from([LINK, GROUP]),
    *(st.integers(0, (1 << bits) - 1) for bits in (16, 16, 32, 32, 64, 64, 64, 64)),
)


@given(st.integers(0, MESSAGES_PER_KEY), st.integers(1, 300))
def test_no_nonce_is_given_twice_however_long_a_run_has_gone_on(start: int, count: int) -> None:
    nonces = Nonces(start=start)
    room = min(count, MESSAGES_PER_KEY - start)
    taken = [nonces.take() for _ in range(room)]
    assert len({*taken}) == room
    assert all(len(nonce) == 12 for nonce in taken)
    assert nonces.spent == start + room


@given(st.integers(0, 50))
def test_a_spent_key_refuses_for_good(limit: int) -> None:
    nonces = Nonces(limit)
    for _ in range(limit):
        nonces.take()
    for _ in range(2):
        with pytest.raises(RingBroken, match="start the job again from a checkpoint"):
            nonces.take()
    assert nonces.spent == limit


@given(st.lists(st.integers(0, 5000), max_size=12), st.integers(1, 4))
def test_the_nonces_of_a_link_never_repeat_whatever_it_carries(lengths: list[int], chains: int) -> None:
    """Watched where they meet the cipher: key and nonce together are used once."""
    used: list[tuple[int, bytes]] = []

    class Watching:
        def __init__(self, index: int) -> None:
            self.index = index

        def encrypt_into(self, nonce: bytes, *_: object) -> None:
            used.append((self.index, nonce))

    link = Chains(KEYS[:chains])
    link._ciphers = [Watching(index) for index in range(chains)]  # type: ignore[misc]
    for length in lengths:
        link.seal(memoryview(bytes(length)), b"", memoryview(bytearray(link.sealed_bytes(length))))
    assert len({*used}) == len(used) == len(lengths) * chains


@given(st.binary(max_size=3000), st.integers(1, 5), st.booleans())
def test_what_is_sealed_opens_to_itself_for_any_length_and_number_of_chains(
    data: bytes, chains: int, has_pool: bool
) -> None:
    pool = make_pool(chains, "test") if has_pool else None
    sender, receiver = Chains(KEYS[:chains], pool), Chains(KEYS[:chains], pool)
    for _ in range(2):
        sealed, out = bytearray(sender.sealed_bytes(len(data))), bytearray(len(data))
        sender.seal(memoryview(data), b"here", memoryview(sealed))
        receiver.open(memoryview(sealed), b"here", memoryview(out))
        assert out == data
    if pool is not None:
        pool.shutdown()


@given(st.integers(1, 4), st.data())
def test_one_changed_bit_anywhere_does_not_open(chains: int, data: st.DataObject) -> None:
    sender, receiver = Chains(KEYS[:chains]), Chains(KEYS[:chains])
    sealed, out = bytearray(sender.sealed_bytes(200)), bytearray(200)
    sender.seal(memoryview(bytes(200)), b"here", memoryview(sealed))
    sealed[data.draw(st.integers(0, len(sealed) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(InvalidTag):
        receiver.open(memoryview(sealed), b"here", memoryview(out))


def test_pieces_of_a_message_cannot_change_places() -> None:
    chains = [Chains([KEYS[0]] * 2) for _ in range(2)]
    sealed, out = bytearray(chains[0].sealed_bytes(128)), bytearray(128)
    chains[0].seal(memoryview(bytes(128)), b"here", memoryview(sealed))
    swapped = sealed[80:] + sealed[:80]
    with pytest.raises(InvalidTag):
        chains[1].open(memoryview(swapped), b"here", memoryview(out))


@given(places)
def test_a_place_survives_its_header(place: Place) -> None:
    assert unpack(place.pack()) == place


@given(places, places)
def test_messages_of_two_places_have_two_contexts(one: Place, other: Place) -> None:
    """What is relayed has no hop and no number of a link: its nonce is the origin's own count."""
    if one.kind == GROUP:
        one, other = one._replace(hop=0, sequence=0), other._replace(hop=0, sequence=0)
    assert (one.context() == other.context()) == (one == other)


# -- keys ---------------------------------------------------------------------------------------------------------


def _shaken(sender: Identity, receiver: Identity, known: tuple[bytes, bytes], session: bytes = b"s") -> list[bytes]:
    ends = Ends(session, 0, 1, *known)
    one, other = Handshake(ends, sender, is_sender=True), Handshake(ends, receiver, is_sender=False)
    keys = one.keys(other.share, other.signature(one.share), 2)
    assert keys == other.keys(one.share, one.signature(other.share), 2)
    return keys


def test_both_ends_agree_on_keys_that_are_new_every_time_and_differ_by_chain() -> None:
    one, other = Identity(), Identity()
    keys = [*_shaken(one, other, (one.public, other.public)), *_shaken(one, other, (one.public, other.public))]
    assert len({*keys}) == 4
    assert {len(key) for key in keys} == {32}


def test_an_end_that_is_not_who_it_should_be_is_refused() -> None:
    one, other, stranger = Identity(), Identity(), Identity()
    with pytest.raises(RingBroken, match="is not rank 1"):
        _shaken(one, stranger, (one.public, other.public))


def test_a_share_that_was_swapped_on_its_way_is_refused() -> None:
    one, other = Identity(), Identity()
    ends = Ends(b"s", 0, 1, one.public, other.public)
    sender, receiver = Handshake(ends, one, is_sender=True), Handshake(ends, other, is_sender=False)
    with pytest.raises(RingBroken, match="is not rank 1"):
        sender.keys(os.urandom(32), receiver.signature(sender.share), 1)


def test_a_signature_of_another_session_or_of_the_other_role_is_refused() -> None:
    one, other = Identity(), Identity()
    for wrong in (Ends(b"t", 0, 1, one.public, other.public), Ends(b"s", 1, 0, other.public, one.public)):
        sender = Handshake(Ends(b"s", 0, 1, one.public, other.public), one, is_sender=True)
        receiver = Handshake(wrong, other, is_sender=wrong.sender == 1)
        with pytest.raises(RingBroken, match="is not rank 1"):
            sender.keys(receiver.share, receiver.signature(sender.share), 1)


def test_the_pipeline_counts_the_bytes_that_a_frame_really_has() -> None:
    chains = Chains([bytes(32), bytes(32)])
    assert chains.sealed_bytes(100) == 100 + 2 * POLICY.ring_tag_bytes
    assert (HEADER.size, 0, TAG_BYTES) == (POLICY.ring_header_bytes, POLICY.ring_nonce_bytes, POLICY.ring_tag_bytes)
    assert POLICY.messages_per_key == MESSAGES_PER_KEY
    assert POLICY.limit_bits["counted"] == 8 * NONCE_BYTES
