"""A record log in blocks of 32 KiB, LevelDB's form: checked fragments, put together into records."""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bronze.tolerant_parser import BEGINNING_BYTES, UnreadableRange, make_range

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_BYTES = 1 << 15
# The reason of the last byte range where the bytes end too early.
ENDS_EARLY = "the file ends within a record"
_HEADER = struct.Struct("<IHB")
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_NO_BEGINNING = "it is part of a record whose beginning cannot be read"
_NO_END = "it is the beginning of a record whose end cannot be read"


@dataclass(frozen=True)
class LogRecord:
    """One record: where its first fragment lies, what it takes in the file, and its bytes, or only their beginning."""

    offset: int
    length: int
    data: bytes
    is_whole: bool = True


@dataclass(frozen=True)
class _Fragment:
    """What lies in a block up to the next fragment: a kind with its bytes, or the reason why there is none."""

    end: int
    kind: int = 0
    data: bytes = b""
    reason: str = ""


class _Assembly:
    """The fragments of a record so far; of a record that is too large only its beginning is held."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._offset: int | None = None
        self._held = bytearray()
        self._is_whole = True

    @property
    def is_begun(self) -> bool:
        return self._offset is not None

    def add(self, offset: int, data: bytes) -> None:
        if self._offset is None:
            self._offset = offset
        self._is_whole = self._is_whole and len(self._held) + len(data) <= self._most_bytes
        self._held += data if self._is_whole else data[:BEGINNING_BYTES]
        if not self._is_whole:
            del self._held[BEGINNING_BYTES:]

    def end(self, at: int) -> LogRecord:
        record = LogRecord(self._offset or 0, at - (self._offset or 0), bytes(self._held), self._is_whole)
        self._offset, self._held, self._is_whole = None, bytearray(), True
        return record

    def give_up(self, at: int, reason: str) -> UnreadableRange:
        """What was held, up to a place, as a byte range."""
        lost = self.end(at)
        return make_range(lost.offset, lost.length, reason, lost.data)


def split_records(blocks: Iterator[bytes], begin: int, most_bytes: int) -> Iterator[LogRecord | UnreadableRange]:
    """The records behind the first `begin` bytes; each byte is of one of them, of the padding, or in a byte range.

    After a damaged fragment the next one is found by its length, where a fragment stands there, else in the next block.
    """
    record, at, offset = _Assembly(most_bytes), begin, 0
    for offset, block in _cut_blocks(blocks):
        while at < offset + len(block):
            found = _read_fragment(block, at - offset)
            end = offset + found.end
            if found.reason:
                if record.is_begun:
                    yield record.give_up(end, found.reason)
                else:
                    yield make_range(at, end - at, found.reason, block[at - offset : found.end])
            elif found.kind in {_FULL, _FIRST}:
                if record.is_begun:
                    yield record.give_up(at, _NO_END)
                record.add(at, found.data)
            elif found.kind and not record.is_begun:
                yield make_range(at, end - at, _NO_BEGINNING, found.data)
            elif found.kind:
                record.add(at, found.data)
            if found.kind in {_FULL, _LAST} and record.is_begun:
                yield record.end(end)
            at = end
    if record.is_begun:
        yield record.give_up(at, ENDS_EARLY)


def _cut_blocks(blocks: Iterator[bytes]) -> Iterator[tuple[int, bytes]]:
    """The bytes in blocks of the log, each with its place; only the last one may be shorter."""
    held, offset = bytearray(), 0
    for block in blocks:
        held += block
        at = 0
        while len(held) - at >= BLOCK_BYTES:
            yield offset, bytes(held[at : at + BLOCK_BYTES])
            at, offset = at + BLOCK_BYTES, offset + BLOCK_BYTES
        del held[:at]
    if held:
        yield offset, bytes(held)


def _read_fragment(block: bytes, at: int) -> _Fragment:
    """The fragment at a place of a block; padding is one without a kind, and what is damaged has a reason."""
    if BLOCK_BYTES - at < _HEADER.size:
        is_padding = not any(block[at:])
        return _Fragment(len(block), reason="" if is_padding else "the padding of a block is not empty")
    begin = at + _HEADER.size
    if begin > len(block):
        return _Fragment(len(block), reason=ENDS_EARLY)
    checksum, length, kind = _HEADER.unpack_from(block, at)
    end = begin + length
    if end > len(block):
        is_cut = end <= BLOCK_BYTES
        return _Fragment(len(block), reason=ENDS_EARLY if is_cut else "a fragment is longer than its block")
    data = block[begin:end]
    if not _is_checked(checksum, kind, data):
        return _Fragment(end if _is_place(block, end) else len(block), reason="the checksum of a record is wrong")
    if kind not in {_FULL, _FIRST, _MIDDLE, _LAST}:
        return _Fragment(end, reason=f"a fragment is of kind {kind}, which nobody knows")
    return _Fragment(end, kind, data)


def _is_checked(checksum: int, kind: int, data: bytes) -> bool:
    return zlib.crc32(data, zlib.crc32(bytes([kind]))) == checksum


def _is_place(block: bytes, at: int) -> bool:
    """Whether a sound fragment begins at a place, or nothing more can."""
    if len(block) - at < _HEADER.size:
        return True
    checksum, length, kind = _HEADER.unpack_from(block, at)
    data = block[at + _HEADER.size : at + _HEADER.size + length]
    return len(data) == length and _is_checked(checksum, kind, data)
