"""A source as lines, each with its place; a line that is too long is passed over, never held."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bronze.tolerant_parser import BEGINNING_BYTES, UnreadableRange, make_printable, make_range

if TYPE_CHECKING:
    from collections.abc import Iterator

Line = tuple[int, bytes]
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}m")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def split_lines(blocks: Iterator[bytes], most_bytes: int) -> Iterator[Line | UnreadableRange]:
    """The lines of a source without their ends; one longer than `most_bytes` is a byte range that nobody read."""
    offset, rest, begins, passed = 0, b"", b"", 0
    for block in blocks:
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            length = len(line) + 1
            if passed or length > most_bytes:
                yield _too_long(offset, passed + length, most_bytes, begins if passed else line)
            else:
                yield _line(offset, line)
            offset, passed = offset + passed + length, 0
        if len(rest) > most_bytes or passed:
            begins = begins if passed else rest[:BEGINNING_BYTES]
            passed += len(rest)
            rest = b""
    if passed:
        yield _too_long(offset, passed, most_bytes, begins)
    elif rest:
        yield _line(offset, rest)


def _line(offset: int, line: bytes) -> Line:
    if offset == 0 and line.startswith(_BYTE_ORDER_MARK):
        line = line.removeprefix(_BYTE_ORDER_MARK)
    return offset, line.removesuffix(b"\r")


def _too_long(offset: int, length: int, most_bytes: int, begins: bytes) -> UnreadableRange:
    return make_range(offset, length, f"the line is longer than {most_bytes:,} bytes", begins)


def as_text(line: bytes) -> str:
    """A line as text; bytes that are no UTF-8 are escaped."""
    return make_printable(line)


def as_plain_text(line: bytes) -> str:
    """The same without a terminal's colours, and without the spaces around it."""
    return _COLOUR.sub("", as_text(line)).strip()
