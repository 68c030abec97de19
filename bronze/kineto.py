"""The Kineto reader: a trace as bytes in, rows of `bronze.trace_events` out, in constant memory.

Two ways to cut the `traceEvents` array into events, one decoder behind both. The fast cut believes that events are
parted as the first two were; it is believed back only if every key in the bytes is found again in the rows. Whatever
fails that goes through the careful cut, which parses event by event, repairs what can be repaired and reports the rest.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from bronze import careful_cut
from bronze.event_rows import EventRows, argument_bytes, carried_count, carried_counts, colons_in_labels
from bronze.window import Window
from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bronze.careful_cut import Piece, Stretch
    from bronze.limits import Limits

_BEFORE = re.compile(rb"\xef\xbb\xbf[ \t\r\n]*|[ \t\r\n]*")
_BETWEEN = re.compile(rb"[ \t\r\n,]*")
_AFTER = re.compile(rb"[ \t\r\n\x00]*")
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_LOOKAHEAD_BYTES = 1 << 20
_SCAN_BYTES = 1 << 18
_STRETCHES = 4096
_ENVELOPE_BYTES = 4 << 20
_COLON = np.uint16(ord(":") << 8)
_Bytes = np.ndarray[Any, np.dtype[np.uint8]]
# Microseconds since 1970 have sixteen digits; times that count from a base of this century have at most fourteen.
_FIRST_TIME = re.compile(rb'"ts"\s*:\s*"?([0-9]+)')
_EPOCH_DIGITS = 16
_BASE = "baseTimeNanoseconds"


class NotATrace(EvidenceRejected):
    """The source holds no `traceEvents` array."""


class KinetoReader:
    """One pass over one trace. Iterate for the rows; then ask for the envelope and for what could not be read."""

    def __init__(
        self, blocks: Iterator[bytes], limits: Limits, base_behind: Callable[[], int | None] = lambda: None
    ) -> None:
        self._window = Window(blocks)
        self._limits = limits
        self._base_behind = base_behind
        self._rows: EventRows | None = None
        self._unreadable: list[Stretch] = []
        self._array_seen = False
        self._is_object = False
        self.envelope: dict[str, Any] = {}
        self.base_used_ns = 0
        self.is_complete = False
        self.residue_count = 0
        self.unreadable_count = 0

    @property
    def events_count(self) -> int:
        """Events landed so far."""
        return 0 if self._rows is None else self._rows.count

    @property
    def has_many_unreadable(self) -> bool:
        """Whether so many stretches have gathered that they should be taken."""
        return len(self._unreadable) > _STRETCHES

    @property
    def base_ns(self) -> int | None:
        """The trace's own base time, as far as it has been read."""
        return base_of(self.envelope)

    def cut_short(self, reason: str) -> None:
        """Say that the bytes themselves ended early or damaged."""
        self._missing(reason)
        self.is_complete = False

    def take_unreadable(self) -> list[Stretch]:
        """The unreadable stretches since the last call."""
        taken, self._unreadable = self._unreadable, []
        return taken

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        first = self._window.skip(_BEFORE)
        if first == b"{":
            self._is_object = True
            self._window.drop(1)
            while self._walk_members():
                yield from self._read_array()
        elif first == b"[":
            self._window.drop(1)
            self._array_seen = True
            yield from self._read_array()
            self.is_complete = True
        else:
            raise NotATrace(f"it is in no format that teetotal reads: it begins with {_beginning(self._window)}")
        if not self._array_seen:
            raise NotATrace("it is JSON without a traceEvents array, which no reader of teetotal takes")
        self._report_the_rest()

    # -- what stands around the events ------------------------------------------------------------------

    def _walk_members(self) -> bool:
        """Read the members of the document up to the next event array; false at the document's end."""
        window = self._window
        while True:
            byte = window.skip(_BETWEEN)
            if byte in {b"}", b""}:
                self.is_complete = byte == b"}"
                window.drop(len(byte))
                if not byte and self._array_seen:
                    self._missing("the file ends before its outer object does")
                return False
            member = careful_cut.member(window, self._limits.max_event_bytes)
            if member is None:
                return not self._array_seen and self._find_array()
            key, value = member
            if value is None:
                self._array_seen = True
                return True
            if sum(map(len, self.envelope)) + len(value) < _ENVELOPE_BYTES:
                self.envelope[key] = json.loads(value)

    def _find_array(self) -> bool:
        """The document is broken before its events: look for them all the same."""
        window = self._window
        window.fill(self._limits.max_event_bytes)
        found = window.search(_ARRAY)
        if found is None:
            return False
        self._give_up(found[1], "what stands before the traceEvents array is not JSON")
        self._array_seen = True
        return True

    def _report_the_rest(self) -> None:
        """Whatever follows the document is no part of it."""
        window = self._window
        if not window.skip(_AFTER):
            return
        offset, first, length = window.offset, window.copy(careful_cut.FIRST_BYTES), 0
        while len(window):
            length += len(window)
            window.drop(len(window))
            window.fill(1)
        self._report(
            careful_cut.stretch(offset, length, "it stands after the part of the file that could be read", first)
        )
        self.is_complete = False

    # -- the events --------------------------------------------------------------------------------------

    def _read_array(self) -> Iterator[pa.RecordBatch]:
        window = self._window
        if self._rows is None:
            self.base_used_ns = self._base()
            self._rows = EventRows(self.base_used_ns)
        rows = self._rows
        while True:
            parted = careful_cut.parting(window)
            while True:
                window.fill(self._limits.shard_bytes)
                cut = -1 if parted is None else window.last(b"}" + parted + b"{", self._limits.shard_bytes)
                batch = self._fast(rows, cut + 1, parted) if parted is not None and cut > 0 else None
                if batch is None:
                    break
                window.drop(cut + 1)
                yield batch
            # One event is left, or the layout changed, or something in this shard is not as it should be.
            pieces, has_ended = careful_cut.cut(
                window,
                until=max(cut + 1, 1),
                lookahead_bytes=_LOOKAHEAD_BYTES,
                max_event_bytes=self._limits.max_event_bytes,
            )
            batch = self._careful(rows, pieces)
            if batch is not None:
                yield batch
            if has_ended:
                byte = window.skip()
                window.drop(len(byte))
                if not byte:
                    self._missing("the file ends before its traceEvents array does")
                return

    def _base(self) -> int:
        """The base time to count from: the document's so far, else what stands behind the events, else none."""
        if self.base_ns is not None:
            return self.base_ns
        self._window.fill(_LOOKAHEAD_BYTES)
        first = self._window.search(_FIRST_TIME)
        if first is not None and len(first[2]) >= _EPOCH_DIGITS:
            return 0
        return self._base_behind() or 0

    def _fast(self, rows: EventRows, length: int, parted: bytes) -> pa.RecordBatch | None:
        """Cut the next bytes where events are parted as before, and accept the rows only if no key is missing."""
        data = np.frombuffer(self._window.view(length), np.uint8)
        lead = self._window.match(_BETWEEN)
        start = 0 if lead is None else lead[1]
        has_escapes = self._window.has(b"\\", length)
        if data[start] != ord("{") or (has_escapes and self._window.has(b"\\u00", length)):
            return None
        colons = _colons_in(data)
        marks = _partings(data, parted)
        starts = np.concatenate((np.array([start]), marks + 1 + len(parted)))
        edges = np.append(starts, length).astype(np.int32)
        texts = pa.StringArray.from_buffers(len(starts), pa.py_buffer(edges), pa.py_buffer(data))
        commas = marks + 1 + parted.index(b",")
        data[commas] = ord(" ")  # so that each event is one JSON document, with blanks behind it
        try:
            texts.validate(full=True)
            decoded = rows.decode(texts)
        except (duckdb.Error, pa.ArrowInvalid):
            return None
        finally:
            data[commas] = ord(",")
        missing = colons - carried_count(decoded) - sum(map(_colons_in, argument_bytes(decoded)))
        # A name may hold a colon that looks like a key's; with escapes about, that is for the careful cut to say.
        if missing and (has_escapes or missing != colons_in_labels(decoded)):
            return None
        return rows.rows(decoded, starts.astype(np.int64) + self._window.offset, None)

    def _careful(self, rows: EventRows, pieces: list[Piece | Stretch]) -> pa.RecordBatch | None:
        """Decode what the careful cut gave; an event that the decoder refuses after all is unreadable."""
        events = []
        for piece in pieces:
            if isinstance(piece, careful_cut.Piece):
                events.append(piece)
            else:
                self._report(piece)
        decoded = list(self._decode_or_report(rows, events))
        if not decoded:
            return None
        kept = [piece for _, chunk in decoded for piece in chunk]
        table = pa.concat_tables([chunk for chunk, _ in decoded])
        keys = rows.keys_count(pa.array([piece.text for piece in kept], pa.string()))
        residue = [
            piece.source if piece.is_repaired or is_short else None
            for piece, is_short in zip(kept, (carried_counts(table) != keys).tolist(), strict=True)
        ]
        self.residue_count += sum(text is not None for text in residue)
        return rows.rows(table, np.array([piece.offset for piece in kept], np.int64), residue)

    def _decode_or_report(self, rows: EventRows, events: list[Piece]) -> Iterator[tuple[pa.Table, list[Piece]]]:
        """Decode together; where that fails, halve, until the event that is to blame stands alone."""
        if not events:
            return
        try:
            yield rows.decode(pa.array([piece.text for piece in events], pa.string())), events
        except duckdb.Error as error:
            if len(events) > 1:
                middle = len(events) // 2
                yield from self._decode_or_report(rows, events[:middle])
                yield from self._decode_or_report(rows, events[middle:])
                return
            piece = events[0]
            mended = careful_cut.repaired(piece)
            if mended is not None:
                yield from self._decode_or_report(rows, [mended])
                return
            reason = f"it is no JSON event: {str(error).splitlines()[0][:200]}"
            source = piece.source.encode("utf-8", "surrogatepass")
            self._report(careful_cut.stretch(piece.offset, piece.length, reason, source))

    # -- what could not be read --------------------------------------------------------------------------

    def _report(self, found: Stretch) -> None:
        last = self._unreadable[-1] if self._unreadable else None
        if (
            last is not None
            and last.reason == found.reason
            and last.offset + last.length == found.offset
            and found.length
        ):
            self._unreadable[-1] = careful_cut.joined(last, found)
            return
        self._unreadable.append(found)
        self.unreadable_count += 1

    def _give_up(self, length: int, reason: str) -> None:
        window = self._window
        self._report(careful_cut.stretch(window.offset, length, reason, window.copy(careful_cut.FIRST_BYTES)))
        window.drop(length)

    def _missing(self, reason: str) -> None:
        self._report(careful_cut.stretch(self._window.offset, 0, reason, b""))


def _beginning(window: Window) -> str:
    window.fill(16)
    return repr(window.copy(16)) if len(window) else "nothing at all"


def base_of(envelope: dict[str, Any]) -> int | None:
    """The base time that an envelope gives, if it is a whole number that a time can hold."""
    base = envelope.get(_BASE)
    return base if isinstance(base, int) and not isinstance(base, bool) and 0 <= base < 1 << 62 else None


def _partings(data: _Bytes, parted: bytes) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Where a closing brace is followed by the parting and an opening brace."""
    pattern = b"}" + parted + b"{"
    last = len(data) - len(pattern) + 1
    found = []
    for start in range(0, last, _SCAN_BYTES):
        marks = np.flatnonzero(data[start : min(start + _SCAN_BYTES, last)] == pattern[0]) + start
        for place in range(1, len(pattern)):
            marks = marks[data[marks + place] == pattern[place]]
        found.append(marks)
    return np.concatenate(found) if found else np.zeros(0, np.intp)


def _colons_in(region: Any) -> int:
    """How many colons follow a quote, white space or a control character: each key has one, texts may add some."""
    if not len(region):
        return 0
    data = np.frombuffer(region, np.uint8)
    count = 0
    # Two bytes at a time, once from an even and once from an odd place: one comparison finds a pair.
    for first in (0, 1):
        pairs = data[first : first + (len(data) - first) // 2 * 2].view("<u2")
        for start in range(0, len(pairs), _SCAN_BYTES):
            count += int(np.count_nonzero(pairs[start : start + _SCAN_BYTES] - _COLON <= ord('"')))
    return count
