"""Cutting broken or unusual JSON into events, one at a time: slow, and it loses nothing."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bronze.window import BETWEEN

if TYPE_CHECKING:
    from bronze.window import Window

BEGINNING_BYTES = 64
_PARTED = re.compile(rb"[ \t\r\n]*,[ \t\r\n]*(?=\{)")
_FOLLOWED = re.compile(rb"[ \t\r\n]*(?:[,\]]|\Z)")
_FIRST_EVENTS_BYTES = 1 << 16
_MARK_BYTES = 256
_LONG_BYTES = 1 << 18
_BROKEN_BYTES = 1 << 12
EVENT_BEGINS = rb'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|args|id|bp|s)"\s*:'
# Where the next event begins (with one of its usual keys) or the array ends (before another member, or the end of the
# document); used only to find the way again after something unreadable.
_WAY_ON = re.compile(
    rb"\s*(?:,\s*(?=" + EVENT_BEGINS + rb")"
    rb'|(?=\]\s*(?:,\s*"(?:[^"\\]|\\.){0,80}"\s*:|\}\s*\Z)))'
)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_STRICT = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\],]', re.DOTALL)
# A text that holds bare quotes ends at the first quote that is followed as the end of a text is: by a colon, a closing
# bracket, or a comma and the next key.
_LOOSE = re.compile(rb'"(?:[^"\\]|\\.|"(?!\s*(?::|\}|\]|,\s*"|,\s*[{\[])))*"|[{}\[\],]', re.DOTALL)
_LOOSE_TEXT = re.compile(_LOOSE.pattern.partition(rb"|[{}")[0].decode(), re.DOTALL)
_NO_NUMBER = re.compile(r"(?<=[:\[,\s])-?(?:inf|nan)(?=[\s,\]}])", re.IGNORECASE)
_COMMA_TOO_MANY = re.compile(r",(?=\s*[}\]])")
_PASSED_OVER = "it is no JSON, and was passed over up to the next event"
_BARE_QUOTE = re.compile(r'(?<!\\)((?:\\\\)*)"')
_BACKSLASHED = r'\1\\"'
_UNLAWFUL = re.compile(r'[\x00-\x1f"]|\\u[dD]')
_CLOSED_BY = {b"}": b"{", b"]": b"["}


@dataclass(frozen=True)
class EventText:
    """One event: where it lies, the text to decode, and the source's own text."""

    offset: int
    length: int
    text: str
    source: str
    is_repaired: bool = False


@dataclass(frozen=True)
class UnreadableRange:
    """One byte range that is no event: where it lies, why, and how it begins."""

    offset: int
    length: int
    reason: str
    beginning: str


def make_printable(data: bytes) -> str:
    """Bytes as text; those that are no UTF-8 are escaped."""
    return data.decode("utf-8", "backslashreplace")


def make_range(offset: int, length: int, reason: str, data: bytes) -> UnreadableRange:
    """A byte range with its beginning made printable."""
    return UnreadableRange(offset, length, reason, make_printable(data[:BEGINNING_BYTES]))


def join_ranges(first: UnreadableRange, second: UnreadableRange) -> UnreadableRange:
    """Two byte ranges that touch, as one."""
    return replace(first, length=first.length + second.length)


def find_separator(window: Window) -> bytes | None:
    """What stands between the first event and the second, if both are there and well formed."""
    window.skip(BETWEEN)
    window.fill(_FIRST_EVENTS_BYTES)
    length = measure_json(window, _FIRST_EVENTS_BYTES)
    found = None if length is None else window.match(_PARTED, length)
    return None if found is None else found[2]


def cut_events(
    window: Window, *, until: int, lookahead_bytes: int, max_event_bytes: int
) -> tuple[list[EventText | UnreadableRange], bool]:
    """Cut events off the window until so many bytes are used, or the array ends (then also true)."""
    pieces: list[EventText | UnreadableRange] = []
    last = window.offset + until
    while window.offset < last:
        byte = window.skip(BETWEEN)
        if byte in {b"]", b""}:
            return pieces, True
        window.fill(lookahead_bytes)
        pieces.append(_take_next(window, max_event_bytes))
    return pieces, False


def _take_next(window: Window, max_event_bytes: int) -> EventText | UnreadableRange:
    """The event at the front of the window, or the byte range up to where the next one seems to begin."""
    is_object = window.copy(1) == b"{"
    length = measure_json(window, max_event_bytes)
    if length is not None and is_object:
        piece = _take(window, length)
        return (repair_event(piece) or piece) if _SURROGATE.search(_PAIR.sub("", piece.text)) else piece
    if length is not None:
        return _pass_over(window, length, "it is no JSON object")
    return _take_broken(window, max_event_bytes) if is_object else _skip_to_next_event(window, max_event_bytes)


def _take_broken(window: Window, max_event_bytes: int) -> EventText | UnreadableRange:
    """An object that is no JSON: the shortest byte range that can be mended or decoded, else what to pass over."""
    # Brackets are followed a little beyond the next likely event and no farther, or a trace of nothing but open ones
    # would be read over and over.
    way_on = window.search(_WAY_ON)
    next_event = way_on[0] if way_on is not None and way_on[0] > 0 else None
    bound = min(max_event_bytes, _BROKEN_BYTES + (next_event or 0))
    found = {next_event, *(_measure_brackets(window, tokens, bound) for tokens in (_STRICT, _LOOSE))}
    ends = sorted(end for end in found if end is not None)
    for end in ends:
        piece = _make_event_text(window, end)
        # A longer byte range may hold a list of objects that only look like events; mending it would join events.
        better = repair_event(piece) if end == ends[0] else None
        if better or _is_valid(piece.text):
            window.drop(end)
            return better or piece
    if next_event is not None:
        return _pass_over(window, next_event, _PASSED_OVER)
    return _pass_over(window, ends[0], "it is no JSON") if ends else _skip_to_next_event(window, max_event_bytes)


def _pass_over(window: Window, length: int, reason: str) -> UnreadableRange:
    found = make_range(window.offset, length, reason, window.copy(BEGINNING_BYTES))
    window.drop(length)
    return found


def _skip_to_next_event(window: Window, max_event_bytes: int) -> UnreadableRange:
    """Pass over everything up to where the next event seems to begin, however far that is."""
    offset, beginning = window.offset, window.copy(BEGINNING_BYTES)
    reason = _PASSED_OVER
    window.fill(max_event_bytes)
    while (marked := window.search(_WAY_ON)) is None and not window.is_at_end:
        window.drop(max(len(window) - _MARK_BYTES, 1))
        window.fill(1 << 20)
    if marked is None:
        reason = "the file ends inside an event"
    window.drop(len(window) if marked is None else max(marked[0], int(window.offset == offset)))
    if window.offset - offset >= max_event_bytes:
        reason = f"it is longer than {max_event_bytes:,} bytes; raise TEETOTAL_MAX_EVENT_BYTES if it is an event"
    return make_range(offset, window.offset - offset, reason, beginning)


def measure_json(window: Window, max_bytes: int) -> int | None:
    """How long the JSON value at the front is; none where it is not JSON, or longer than allowed."""
    size = 1 << 14
    while True:
        window.fill(size)
        held = min(size, len(window))
        is_all = window.is_at_end and held == len(window)
        try:
            # One byte, one character: structure is ASCII, and lengths stay lengths in bytes.
            end = _DECODER.raw_decode(window.copy(held).decode("latin-1"))[1]
        except json.JSONDecodeError as error:
            # An error well before the edge is a fault; one at the edge, or an open text, may only need more bytes.
            may_go_on = error.msg.startswith("Unterminated") or error.pos >= held - BEGINNING_BYTES
            if is_all or not may_go_on or size >= max_bytes:
                return None
            if size >= _LONG_BYTES and window.search(_WAY_ON) is not None:
                return None  # so long a text with the next event inside it is an open one
        except RecursionError:
            return None
        else:
            if end < held or is_all:
                return end
            if size >= max_bytes:
                return None
        size = min(size * 16, max(max_bytes, size + 1))


def _measure_brackets(window: Window, tokens: re.Pattern[bytes], max_bytes: int) -> int | None:
    """How long the object at the front is by its brackets; a comma before a brace in it is where it broke off."""
    size = min(1 << 14, max_bytes)
    while True:
        window.fill(size)
        held = window.copy(min(size, len(window)))
        end = _find_closing(held, tokens)
        is_all = (window.is_at_end and len(held) == len(window)) or size >= max_bytes
        if end is not None and (is_all or end < len(held) - BEGINNING_BYTES):
            return end if window.match(_FOLLOWED, end) is not None else None
        if is_all:
            return None
        size = min(size * 16, max_bytes)


def _find_closing(data: bytes, tokens: re.Pattern[bytes]) -> int | None:
    open_brackets: list[bytes] = []
    comma = -1
    for token in tokens.finditer(data):
        mark = token[0]
        if mark in {b"{", b"["}:
            if mark == b"{" and comma >= 0 and open_brackets and open_brackets[-1] == b"{":
                return comma
            open_brackets.append(mark)
        elif mark in _CLOSED_BY:
            if mark == b"]" and b"[" not in open_brackets:
                return token.start()
            while open_brackets and open_brackets.pop() != _CLOSED_BY[mark]:
                pass
            if not open_brackets:
                return token.end()
        comma = token.start() if mark == b"," else -1
    return None


def _take(window: Window, length: int) -> EventText:
    piece = _make_event_text(window, length)
    window.drop(length)
    return piece


def _make_event_text(window: Window, length: int) -> EventText:
    data = window.copy(length)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        return EventText(window.offset, length, text, make_printable(data), is_repaired=True)
    return EventText(window.offset, length, text, text)


def _is_valid(text: str) -> bool:
    """Whether a text is JSON but for what the decoder takes all the same: inf, nan, and a comma too many."""
    return isinstance(_parse(_COMMA_TOO_MANY.sub("", _NO_NUMBER.sub("null", text))), dict)


def repair_event(piece: EventText) -> EventText | None:
    """An event whose texts are JSON again: control characters, surrogates, bare quotes escaped; numbers untouched."""
    for pattern in (_STRICT_TEXT, _LOOSE_TEXT):
        text = pattern.sub(_escape, piece.text)
        if text != piece.text and isinstance(_parse(text), dict):
            return replace(piece, text=text, is_repaired=True)
    return None


def _escape(match: re.Match[str]) -> str:
    inside = match[0][1:-1]
    if _UNLAWFUL.search(inside) is None:
        return match[0]
    try:
        text = _LENIENT.decode(f'"{_BARE_QUOTE.sub(_BACKSLASHED, inside)}"')
    except ValueError:
        return match[0]
    return json.dumps(text.encode("utf-8", "replace").decode("utf-8"), ensure_ascii=False)


def _parse(text: str) -> object:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None


def list_numbers(text: str) -> dict[str, object]:
    """The members of an event with numbers as their own digits; empty where it cannot be parsed."""
    found = _parse(text)
    return found if isinstance(found, dict) else {}


_STRICT_TEXT = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
# Numbers are not needed here, only where they end: keep them as text, however long they are.
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str)
_LENIENT = json.JSONDecoder(strict=False)
