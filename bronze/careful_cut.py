"""Cutting broken or unusual JSON into events, one at a time: slow, and it loses nothing."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bronze.window import Window

FIRST_BYTES = 64
_BETWEEN = re.compile(rb"[ \t\r\n,]*")
# An event starts with one of its usual keys; used only to find the way again after something unreadable.
_NEXT_EVENT = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"\s*:)')
_ARRAY_END = re.compile(rb'\}\s*(?=\]\s*(?:,\s*"[^"]*"\s*:|\}\s*\Z|\Z))')
_PARTED = re.compile(rb"\s*,\s*(?=\{)")
_FIRST_EVENTS_BYTES = 1 << 16
_STRING_VALUE = re.compile(r'("(?:[^"\\]|\\.)*"\s*:\s*")(.*?)("\s*(?:,\s*"(?:[^"\\]|\\.)*"\s*:|\}))', re.DOTALL)
_BARE_QUOTE = re.compile(r'(?<!\\)"')


@dataclass(frozen=True)
class Piece:
    """One event: where it lies, the text to decode, and the source's own text."""

    offset: int
    length: int
    text: str
    source: str
    is_repaired: bool = False


@dataclass(frozen=True)
class Stretch:
    """One stretch that is no event: where it lies, why, and how it begins."""

    offset: int
    length: int
    reason: str
    first_bytes: str


def stretch(offset: int, length: int, reason: str, data: bytes) -> Stretch:
    """A stretch with its first bytes made printable."""
    return Stretch(offset, length, reason, data[:FIRST_BYTES].decode("utf-8", "backslashreplace"))


def joined(first: Stretch, second: Stretch) -> Stretch:
    """Two stretches that touch, as one."""
    return Stretch(first.offset, first.length + second.length, first.reason, first.first_bytes)


def member(window: Window, max_bytes: int) -> tuple[str, str | None] | None:
    """The next `"key": value` of an object, dropped from the window; the value is None before an event array."""
    size = 1 << 16
    while True:
        window.fill(size)
        text = window.copy(size).decode("latin-1")
        try:
            key, end = _DECODER.raw_decode(text)
            end = _after_blanks(text, end)
            if not isinstance(key, str) or text[end : end + 1] != ":":
                raise json.JSONDecodeError("expected a key and a colon", text[:80], 0)
            end = _after_blanks(text, end + 1)
            if key == "traceEvents" and text[end : end + 1] == "[":
                window.drop(end + 1)
                return key, None
            _, after = _DECODER.raw_decode(text, end)
        except (ValueError, RecursionError):
            if size >= max_bytes or (window.is_at_end and size >= len(window)):
                return None
            size *= 8
            continue
        # A number at the very edge of what is held may go on behind it.
        if after == len(text) and not window.is_at_end:
            size *= 8
            continue
        value = window.copy(after, end).decode("utf-8", "replace")
        window.drop(after)
        return key, value


def cut(
    window: Window, *, until: int, lookahead_bytes: int, max_event_bytes: int
) -> tuple[list[Piece | Stretch], bool]:
    """Cut events off the window until so many bytes are used, or the array ends (then also true)."""
    pieces: list[Piece | Stretch] = []
    last = window.offset + until
    while window.offset < last:
        byte = window.skip(_BETWEEN)
        if byte in {b"]", b""}:
            return pieces, True
        window.fill(lookahead_bytes)
        pieces.append(_next(window, max_event_bytes))
    return pieces, False


def parting(window: Window) -> bytes | None:
    """What stands between the first event and the second, if both are there and well formed."""
    window.skip(_BETWEEN)
    window.fill(_FIRST_EVENTS_BYTES)
    length = _parsed_length(window)
    found = None if length is None else window.match(_PARTED, length)
    return None if found is None else found[2]


def _next(window: Window, max_event_bytes: int) -> Piece | Stretch:
    """The event at the front of the window, or the stretch up to where the next one seems to begin."""
    length = _parsed_length(window)
    if length is None and not window.is_at_end and len(window) < max_event_bytes:
        window.fill(max_event_bytes)
        length = _parsed_length(window)
    if length is not None:
        is_event = window.copy(1) == b"{"
        piece = _take(window, length)
        return piece if is_event else stretch(piece.offset, length, "it is no JSON object", piece.source.encode())
    for pattern in (_NEXT_EVENT, _ARRAY_END):
        match = window.search(pattern)
        if match is not None:
            return _take(window, match[0] + 1)
    if window.is_at_end:
        reason, length = "the file ends inside an event", len(window)
    else:
        reason, length = (
            f"it goes on for more than {max_event_bytes:,} bytes without an end",
            len(window),
        )
    found = stretch(window.offset, length, reason, window.copy(FIRST_BYTES))
    window.drop(length)
    return found


def _parsed_length(window: Window) -> int | None:
    """How long the JSON value at the front is; none where it is not JSON, or not all there."""
    size = 1 << 14
    while True:
        try:
            # One byte, one character: structure is ASCII, and lengths stay lengths in bytes.
            end = _DECODER.raw_decode(window.copy(size).decode("latin-1"))[1]
        except (ValueError, RecursionError):
            if size >= len(window):
                return None
            size *= 32
            continue
        if end < size or size >= len(window):
            return end
        size *= 32


def _take(window: Window, length: int) -> Piece:
    data = window.copy(length)
    offset = window.offset
    window.drop(length)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        return Piece(offset, length, text, data.decode("utf-8", "backslashreplace"), is_repaired=True)
    return Piece(offset, length, text, text)


def repaired(piece: Piece) -> Piece | None:
    """An event made JSON again: raw control characters, lone surrogates and bare quotes in strings are escaped."""
    if piece.is_repaired and piece.text.isascii():
        return None
    for text in (piece.text, _STRING_VALUE.sub(_escaped, piece.text)):
        try:
            event = json.loads(text, strict=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(event, dict):
            return Piece(piece.offset, piece.length, json.dumps(_no_surrogates(event)), piece.source, is_repaired=True)
    return None


def _escaped(match: re.Match[str]) -> str:
    return match[1] + _BARE_QUOTE.sub(r"\\\"", match[2]) + match[3]


def _no_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_no_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_no_surrogates(key): _no_surrogates(item) for key, item in value.items()}
    return value


def _after_blanks(text: str, index: int) -> int:
    while text[index : index + 1] in {" ", "\t", "\r", "\n"}:
        index += 1
    return index


# Numbers are not needed here, only where they end: keep them as text, however long they are.
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str)
