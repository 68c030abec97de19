"""A part of an inflated source held in memory: as much as is asked for, never all of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# What may stand between two elements of an array or two members of an object.
BETWEEN = re.compile(rb"[ \t\r\n,]*")
_BLANK = re.compile(rb"[ \t\r\n]*")


class Window:
    """Bytes of a stream from `offset` on, in one buffer that is used again and again; positions count from `offset`."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._buffer = bytearray()
        self._start = 0
        self._end = 0
        self.offset = 0
        self.is_at_end = False

    def __len__(self) -> int:
        return self._end - self._start

    def fill(self, size: int) -> None:
        """Hold at least `size` bytes, or all that is left."""
        while len(self) < size and not self.is_at_end:
            block = next(self._blocks, None)
            if block is None:
                self.is_at_end = True
            else:
                self._append(block, size)

    def _append(self, block: bytes, size: int) -> None:
        if self._end + len(block) > len(self._buffer):
            held = self._buffer[self._start : self._end]
            if len(held) + len(block) > len(self._buffer):
                self._buffer = bytearray(max(size, len(held)) + 2 * len(block))
            self._buffer[: len(held)] = held
            self._start, self._end = 0, len(held)
        self._buffer[self._end : self._end + len(block)] = block
        self._end += len(block)

    def drop(self, count: int) -> None:
        """Let go of the first bytes."""
        count = min(count, len(self))
        self._start += count
        self.offset += count

    def view(self, length: int) -> memoryview:
        """The first bytes where they lie: to be used before the window moves on."""
        return memoryview(self._buffer)[self._start : min(self._start + length, self._end)]

    def copy(self, length: int, start: int = 0) -> bytes:
        """Bytes of the window from `start` up to `length`."""
        return bytes(self.view(length)[start:])

    def last(self, pattern: bytes, within: int) -> int:
        """Where the pattern last begins within the first bytes; -1 where it does not."""
        found = self._buffer.rfind(pattern, self._start, min(self._start + within, self._end))
        return found - self._start if found >= 0 else -1

    def has(self, pattern: bytes, within: int) -> bool:
        """Whether the first bytes hold the pattern."""
        return self._buffer.find(pattern, self._start, min(self._start + within, self._end)) >= 0

    def search(self, pattern: re.Pattern[bytes]) -> tuple[int, int, bytes] | None:
        """Where the pattern first begins and ends, and its first group (or all of it)."""
        return self._describe_match(pattern.search(self._buffer, self._start, self._end))

    def match(self, pattern: re.Pattern[bytes], at: int = 0) -> tuple[int, int, bytes] | None:
        """The same, for a match at exactly that place."""
        return self._describe_match(pattern.match(self._buffer, self._start + at, self._end))

    def _describe_match(self, match: re.Match[bytes] | None) -> tuple[int, int, bytes] | None:
        if match is None:
            return None
        return match.start() - self._start, match.end() - self._start, match[match.re.groups and 1]

    def skip(self, blanks: re.Pattern[bytes] = _BLANK) -> bytes:
        """Drop leading bytes that match; give the first byte that follows, empty at the end."""
        while True:
            self.fill(4096)
            found = self.match(blanks)
            count = 0 if found is None else found[1]
            more_may_follow = count == len(self) and not self.is_at_end
            self.drop(count)
            if not more_may_follow:
                return self.copy(1)
