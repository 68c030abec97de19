"""The Kineto reader: a trace as bytes in, rows of `bronze.trace_events` out, in constant memory.

Two ways to cut the `traceEvents` array into events, one decoder behind both. The fast cut believes that events are
parted as the first two were; it is believed back only if every key in the bytes is found again in the rows. Whatever
fails that goes through the careful cut, which parses event by event, repairs what can be repaired and reports the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from bronze import fast_parser, tolerant_parser
from bronze.envelope import Envelope, next_key, next_value, skip_value
from bronze.event_rows import KEYS, EventRows, count_carried_keys_by_row, exact_times
from bronze.window import BETWEEN, Window
from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bronze.limits import Limits
    from bronze.tolerant_parser import EventText, UnreadableRange

_BEFORE = re.compile(rb"\xef\xbb\xbf[ \t\r\n]*|[ \t\r\n]*")
_EVENT_OR_NONE = re.compile(rb"\]|\{\s*\}|" + tolerant_parser.EVENT_BEGINS)
_MORE = re.compile(rb'[ \t\r\n]*,?[ \t\r\n]*\{[ \t\r\n]*"')
_AFTER = re.compile(rb"[ \t\r\n\x00]*")
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_LOOKAHEAD_BYTES = 1 << 20
_STRETCHES = 4096
# Microseconds since 1970 have sixteen digits; times that count from a base of this century have at most fourteen.
_FIRST_TIME = re.compile(rb'"ts"\s*:\s*"?([0-9]+)')
_EPOCH_DIGITS = 16
MOST_BASE_NS = 1 << 62
_BEHIND = "it stands after the part of the file that could be read"
_BASE = "baseTimeNanoseconds"


class NotATrace(EvidenceRejected):
    """The source holds no `traceEvents` array."""


class KinetoReader:
    """One pass over one trace. Iterate for the rows; then ask for the envelope and for what could not be read."""

    def __init__(
        self,
        blocks: Iterator[bytes],
        limits: Limits,
        base_behind: Callable[[], int | None] = lambda: None,
        *,
        base_ns: int | None = None,
    ) -> None:
        self._window = Window(blocks)
        self._limits = limits
        self._base_behind = base_behind
        self._base_known_ns = base_ns
        self._rows: EventRows | None = None
        self._unreadable: list[UnreadableRange] = []
        self._array_seen = False
        self.envelope = Envelope()
        self.base_used_ns = 0
        self.is_complete = False
        self._is_cut_short = False
        self.residue_count = 0
        self.unreadable_count = 0

    @property
    def events_count(self) -> int:
        """Events landed so far."""
        return 0 if self._rows is None else self._rows.count

    @property
    def has_many_unreadable(self) -> bool:
        """Whether so many byte ranges have gathered that they should be taken."""
        return len(self._unreadable) > _STRETCHES

    @property
    def base_ns(self) -> int | None:
        """The trace's own base time, as far as it has been read."""
        base = self.envelope.get(_BASE)
        return base if isinstance(base, int) and not isinstance(base, bool) and 0 <= base < MOST_BASE_NS else None

    def cut_short(self, reason: str) -> None:
        """Say that the bytes themselves ended early or damaged."""
        self._missing(reason)

    def take_unreadable(self) -> list[UnreadableRange]:
        """The unreadable byte ranges since the last call."""
        taken, self._unreadable = self._unreadable, []
        return taken

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        window = self._window
        first = window.skip(_BEFORE)
        if first == b"{":
            window.drop(1)
            while self._walk_members():
                yield from self._read_array()
        elif first == b"[":
            window.drop(1)
            self._array_seen = self._begins_with_an_event()
            yield from self._read_array() if self._array_seen else ()
            self.is_complete = not self._is_cut_short
        if first not in {b"{", b"["} or not self._array_seen:
            what = (
                "it is JSON without a traceEvents array"
                if first in {b"{", b"["}
                else f"it begins with {self._first_bytes()}"
            )
            raise NotATrace(f"it is in no format that teetotal reads: {what}")
        self._report_the_rest()

    # -- what stands around the events ------------------------------------------------------------------

    def _begins_with_an_event(self) -> bool:
        """Whether a bare array is one of events: many other things begin with a bracket."""
        self._window.skip(BETWEEN)
        length = tolerant_parser.measure_json(self._window, self._limits.max_event_bytes)
        first = tolerant_parser.list_numbers(self._window.copy(length or 0).decode("utf-8", "replace"))
        return not KEYS.isdisjoint(first) or self._window.match(_EVENT_OR_NONE) is not None

    def _first_bytes(self) -> str:
        self._window.fill(16)
        return repr(self._window.copy(16)) if len(self._window) else "nothing at all"

    def _walk_members(self) -> bool:
        """Read the members of the document up to the next event array; false at the document's end."""
        window = self._window
        while True:
            byte = window.skip(BETWEEN)
            if byte in {b"}", b""}:
                window.drop(len(byte))
                self.is_complete = bool(byte) and not self._is_cut_short
                if not byte and self._array_seen:
                    self._missing("the file ends before its outer object does")
                return False
            start, beginning = window.offset, window.copy(tolerant_parser.BEGINNING_BYTES)
            key = next_key(window)
            if key == "traceEvents" and window.copy(1) == b"[":
                window.drop(1)
                self._array_seen = True
                return True
            if key is not None and self._keep(start, key):
                continue
            if self._array_seen:
                self._report(tolerant_parser.make_range(start, window.offset - start, _BEHIND, beginning))
                return False
            return self._find_array()

    def _keep(self, start: int, key: str) -> bool:
        """Keep a member of the document, or report why not; false where it is no JSON at all."""
        window = self._window
        value = next_value(window, self._limits.max_event_bytes)
        if value is not None:
            if not self.envelope.keep(key, value):
                reason = f"the member {key[:80]!r} of the document is too large to be kept"
                self._report(tolerant_parser.make_range(start, window.offset - start, reason, value.encode()))
            return True
        if len(window) < self._limits.max_event_bytes:
            return False
        beginning = window.copy(tolerant_parser.BEGINNING_BYTES)
        skip_value(window)
        reason = f"the member {key[:80]!r} of the document is too large to be kept"
        self._report(tolerant_parser.make_range(start, window.offset - start, reason, beginning))
        return True

    def _find_array(self) -> bool:
        """The document is broken before its events: look for them all the same."""
        window = self._window
        window.fill(self._limits.max_event_bytes)
        found = window.search(_ARRAY)
        if found is None:
            return False
        beginning = window.copy(tolerant_parser.BEGINNING_BYTES)
        reason = "what stands before the traceEvents array is not JSON"
        self._report(tolerant_parser.make_range(window.offset, found[1], reason, beginning))
        window.drop(found[1])
        self._array_seen = True
        return True

    def _report_the_rest(self) -> None:
        """Whatever follows the document is no part of it."""
        window = self._window
        if not window.skip(_AFTER):
            return
        offset, first, length = window.offset, window.copy(tolerant_parser.BEGINNING_BYTES), 0
        while len(window):
            length += len(window)
            window.drop(len(window))
            window.fill(1)
        self._report(tolerant_parser.make_range(offset, length, _BEHIND, first))
        self.is_complete = False

    # -- the events --------------------------------------------------------------------------------------

    def _read_array(self) -> Iterator[pa.RecordBatch]:
        window = self._window
        if self._rows is None:
            self.base_used_ns = self._base()
            self._rows = EventRows(self.base_used_ns)
        rows = self._rows
        while True:
            parted = tolerant_parser.find_separator(window)
            while True:
                window.fill(self._limits.shard_bytes)
                cut = -1 if parted is None else window.last(b"}" + parted + b"{", self._limits.shard_bytes)
                batch = self._fast(rows, cut + 1, parted) if parted is not None and cut > 0 else None
                if batch is None:
                    break
                window.drop(cut + 1)
                yield batch
            # One event is left, or the layout changed, or something in this shard is not as it should be.
            pieces, has_ended = tolerant_parser.cut_events(
                window,
                until=cut + 1 if cut > 0 else _LOOKAHEAD_BYTES,
                lookahead_bytes=_LOOKAHEAD_BYTES,
                max_event_bytes=self._limits.max_event_bytes,
            )
            batch = self._careful(rows, pieces)
            if batch is not None:
                yield batch
            if has_ended and not self._is_stray():
                return

    def _is_stray(self) -> bool:
        """Whether the bracket that seems to end the array is followed by more events; drops it either way."""
        window = self._window
        offset, byte = window.offset, window.copy(1)
        window.drop(len(byte))
        window.fill(4096)
        if byte and window.match(_MORE) is not None:
            self._report(tolerant_parser.make_range(offset, 1, "it is a bracket between two events", byte))
            return True
        if not byte:
            self._missing("the file ends before its traceEvents array does")
        return False

    def _base(self) -> int:
        """The base time to count from: the one we were told, the document's so far, what stands behind the events."""
        base_ns = self._base_known_ns if self._base_known_ns is not None else self.base_ns
        if base_ns is not None:
            return base_ns
        self._window.fill(_LOOKAHEAD_BYTES)
        first = self._window.search(_FIRST_TIME)
        if first is not None and len(first[2]) >= _EPOCH_DIGITS:
            return 0
        return self._base_behind() or 0

    def _fast(self, rows: EventRows, length: int, parted: bytes) -> pa.RecordBatch | None:
        """The rows of the next bytes by the fast cut, if every key in them is found again."""
        return fast_parser.parse_shard(self._window, rows, length, parted)

    def _careful(self, rows: EventRows, pieces: list[EventText | UnreadableRange]) -> pa.RecordBatch | None:
        """Decode what the careful cut gave; an event that the decoder refuses after all is unreadable."""
        events = []
        for piece in pieces:
            if isinstance(piece, tolerant_parser.EventText):
                events.append(piece)
            else:
                self._report(piece)
        decoded = list(self._decode_or_report(rows, events))
        if not decoded:
            return None
        kept = [piece for _, chunk in decoded for piece in chunk]
        table = pa.concat_tables([chunk for chunk, _ in decoded])
        table = exact_times(table, [piece.text for piece in kept], self.base_used_ns)
        keys = rows.keys_count(pa.array([piece.text for piece in kept], pa.string()))
        residue = [
            piece.source if piece.is_repaired or is_short else None
            for piece, is_short in zip(kept, (count_carried_keys_by_row(table) != keys).tolist(), strict=True)
        ]
        self.residue_count += sum(text is not None for text in residue)
        return rows.rows(table, np.array([piece.offset for piece in kept], np.int64), residue)

    def _decode_or_report(self, rows: EventRows, events: list[EventText]) -> Iterator[tuple[pa.Table, list[EventText]]]:
        """Decode together; where that fails, halve, until the event that is to blame stands alone."""
        if not events:
            return
        try:
            yield rows.decode(pa.array([piece.text for piece in events], pa.string())), events
        except (duckdb.Error, UnicodeDecodeError) as error:  # a message that cuts a character in two is the latter
            if len(events) > 1:
                middle = len(events) // 2
                yield from self._decode_or_report(rows, events[:middle])
                yield from self._decode_or_report(rows, events[middle:])
                return
            piece = events[0]
            mended = None if piece.text != piece.source and piece.is_repaired else tolerant_parser.repair_event(piece)
            if mended is not None:
                yield from self._decode_or_report(rows, [mended])
                return
            reason = f"it is no JSON event: {str(error).splitlines()[0][:200]}"
            source = piece.source.encode("utf-8", "surrogatepass")
            self._report(tolerant_parser.make_range(piece.offset, piece.length, reason, source))

    # -- what could not be read --------------------------------------------------------------------------

    def _report(self, found: UnreadableRange) -> None:
        last = self._unreadable[-1] if self._unreadable else None
        if (
            last is not None
            and last.reason == found.reason
            and last.offset + last.length == found.offset
            and found.length
        ):
            self._unreadable[-1] = tolerant_parser.join_ranges(last, found)
            return
        self._unreadable.append(found)
        self.unreadable_count += 1

    def _missing(self, reason: str) -> None:
        """Something should follow here, and does not."""
        self._report(tolerant_parser.make_range(self._window.offset, 0, reason, b""))
        self._is_cut_short = True
        self.is_complete = False
