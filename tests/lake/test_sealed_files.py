"""A sealed file opens under its own run and name, whole and unchanged, with the key that it was sealed for."""

from __future__ import annotations

import asyncio
import hashlib
from dataclasses import replace
from io import BytesIO
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lake.errors import ContractBroken, EvidenceRejected
from lake.keyring import Key, Keyring
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.sealed_files import CHUNK_BYTES, MAGIC, LandingSeals, find_recipient, parse_recipient, seal_blocks
from tests.support.planted_texts import finds

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = (Key(f"k000000{number}", "2026-01-01T00:00:00Z", bytes([number]) * 64) for number in (1, 2))
RING = Keyring("the keyring", OLD.key_id, (OLD,))
STRANGE = Keyring("another keyring", NEW.key_id, (NEW,))
RUN, NAME = "job-1", "trace-r0.json"
SECRET = b"planted-annotation-merger"
# Three chunks and some bytes: there is a first, a middle and a last one.
PLAIN = SECRET * (3 * CHUNK_BYTES // len(SECRET) + 7)


def seal(data: bytes, ring: Keyring = RING, run_id: str = RUN, name: str = NAME) -> bytes:
    return b"".join(seal_blocks([data], find_recipient(ring), run_id, name))


def opened(data: bytes, ring: Keyring = RING, run_id: str = RUN, name: str = NAME) -> bytes:
    return b"".join(LandingSeals(lambda: ring).open_blocks(BytesIO(data), run_id, name))


SEALED = seal(PLAIN)
CHUNKS_AT = len(SEALED) - len(PLAIN) - 4 * 16


def chunk(number: int) -> slice:
    return slice(CHUNKS_AT + number * (CHUNK_BYTES + 16), CHUNKS_AT + (number + 1) * (CHUNK_BYTES + 16))


@given(st.lists(st.binary(max_size=CHUNK_BYTES + 1), max_size=4))
@settings(max_examples=30, deadline=None)
def test_what_is_sealed_in_any_blocks_opens_again(blocks: list[bytes]) -> None:
    sealed = b"".join(seal_blocks(blocks, find_recipient(RING), RUN, NAME))
    assert opened(sealed) == b"".join(blocks)


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES])
def test_every_size_around_a_chunk_opens_again(size: int) -> None:
    assert opened(seal(bytes(size))) == bytes(size)


def test_a_sealed_file_says_nothing_of_its_content_and_never_repeats_itself() -> None:
    assert SECRET not in SEALED
    assert seal(PLAIN)[CHUNKS_AT:] != SEALED[CHUNKS_AT:]


@given(st.integers(0, len(SEALED) - 1), st.integers(1, 255))
@settings(max_examples=200, deadline=None)
def test_no_byte_can_be_changed(place: int, flip: int) -> None:
    changed = bytearray(SEALED)
    changed[place] ^= flip
    if place < len(MAGIC):  # it is no sealed file any more, and its bytes are nobody's secret
        assert SECRET not in opened(bytes(changed))
        return
    with pytest.raises(EvidenceRejected):
        opened(bytes(changed))


@given(st.integers(len(MAGIC), len(SEALED) - 1))
@settings(max_examples=100, deadline=None)
def test_no_end_can_be_cut_off(length: int) -> None:
    with pytest.raises(EvidenceRejected):
        opened(SEALED[:length])


def test_a_cut_between_two_chunks_is_told_as_such() -> None:
    with pytest.raises(EvidenceRejected, match="cut short: the last of its chunks is missing"):
        opened(SEALED[: chunk(2).stop])


def test_chunks_cannot_be_reordered_repeated_or_taken_from_another_file() -> None:
    first, second = SEALED[chunk(0)], SEALED[chunk(1)]
    other = seal(PLAIN)
    for changed in (
        SEALED[:CHUNKS_AT] + second + first + SEALED[chunk(1).stop :],
        SEALED[: chunk(1).stop] + second + SEALED[chunk(1).stop :],
        SEALED[:CHUNKS_AT] + other[chunk(0)] + SEALED[chunk(0).stop :],
        SEALED + first,
    ):
        with pytest.raises(EvidenceRejected, match=r"chunk . does not open: the file was cut, changed or reordered"):
            opened(changed)


@pytest.mark.parametrize(("run_id", "name"), [("job-2", NAME), (RUN, "trace-r1.json")])
def test_a_sealed_file_stays_with_its_run_and_its_name(run_id: str, name: str) -> None:
    with pytest.raises(EvidenceRejected, match=f"sealed as {NAME} of run {RUN}, and lies as {name} of run {run_id}"):
        opened(SEALED, run_id=run_id, name=name)


def test_a_header_that_is_rewritten_for_another_name_does_not_open() -> None:
    rewritten = SEALED.replace(NAME.encode(), b"trace-r1.json", 1)
    with pytest.raises(EvidenceRejected, match="its header does not open: it was changed"):
        opened(rewritten, name="trace-r1.json")


def test_a_file_for_another_key_is_refused_with_the_id_of_that_key() -> None:
    strange = find_recipient(STRANGE).recipient_id
    with pytest.raises(EvidenceRejected, match=f"sealed for {strange}, a key that this lake's keyring does not hold"):
        opened(seal(PLAIN, STRANGE))


def test_an_older_private_half_opens_what_was_sealed_before_a_rotation() -> None:
    rotated = Keyring(RING.place, NEW.key_id, (OLD, NEW))
    assert opened(SEALED, rotated) == PLAIN
    assert find_recipient(rotated).recipient_id == find_recipient(STRANGE).recipient_id


def test_the_public_half_is_the_same_each_time_and_read_back_from_its_text() -> None:
    recipient = find_recipient(RING)
    assert parse_recipient(recipient.to_pem().encode(), "lake.pem").recipient_id == recipient.recipient_id
    assert recipient.recipient_id == "r62418ce6f121a97a", "files that are sealed already would open no more"


@pytest.mark.parametrize("text", [b"", b"ssh-ed25519 AAAA", find_recipient(RING).to_pem().encode()[:-40]])
def test_what_is_no_public_key_is_refused_with_the_next_step(text: bytes) -> None:
    with pytest.raises(ContractBroken, match=r"lake\.pem is no public key .* `teetotal keys recipient > FILE`"):
        parse_recipient(text, "lake.pem")


# -- the landing zone -----------------------------------------------------------------------------------------------


@pytest.fixture
def zone(tmp_path: Path) -> LandingZone:
    """A landing zone in which a run has landed sealed."""
    place = Location.of(str(tmp_path / "landing"))
    found = LandingZone(place, LandingSeals(lambda: RING))
    (tmp_path / NAME).write_bytes(PLAIN)
    found.land(RUN, {NAME: tmp_path / NAME}, 'owner = "planted-annotation-merger"\n', find_recipient(RING))
    return found


def test_a_run_lands_sealed_with_its_manifest_and_is_read_in_the_clear(zone: LandingZone) -> None:
    assert finds(zone.place.directory, SECRET.decode()) == []
    assert b"merger" in zone.manifest(RUN)
    (file,) = zone.files(RUN)
    with asyncio.run(file.fetch()) as fetched:
        assert b"".join(fetched.blocks()) == b"".join(fetched.blocks()) == PLAIN
        assert fetched.is_sealed
        assert fetched.sha256 != fetched.content_sha256


def test_whoever_compares_digests_needs_no_key(zone: LandingZone) -> None:
    def refuse() -> Keyring:
        raise ContractBroken("there is no keyring")

    auditor = LandingZone(zone.place, LandingSeals(refuse))
    (file,) = auditor.files(RUN)
    landed = (zone.place.directory / RUN / NAME).read_bytes()
    assert asyncio.run(file.digest()) == hashlib.sha256(landed).hexdigest()
    assert auditor.landed_manifest(RUN) == (zone.place.directory / RUN / "run.toml").read_bytes()
    with pytest.raises(ContractBroken):
        auditor.manifest(RUN)


def test_a_lake_that_accepts_sealed_files_alone_names_the_others(zone: LandingZone) -> None:
    strict = LandingZone(zone.place, replace(zone.seals, must_be_sealed=True))
    (zone.place.directory / RUN / "plain.json").write_bytes(b"{}")
    problems = {}
    for file in strict.files(RUN):
        with asyncio.run(file.fetch()) as fetched:
            problems[file.name] = (fetched.problem or "")[:60]
    assert problems == {NAME: "", "plain.json": "it is not sealed, and this lake accepts nothing else (seal it "[:60]}
    (zone.place.directory / RUN / "run.toml").write_text('model = "m"\n')
    with pytest.raises(EvidenceRejected, match=r"job-1/run\.toml: it is not sealed"):
        strict.manifest(RUN)
