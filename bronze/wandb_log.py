"""The reader of a run's own file of Weights & Biases (`run-*.wandb`): of its records the history is taken."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from bronze import json_text, training_log
from bronze.lines import as_text
from bronze.log_blocks import ENDS_EARLY, LogRecord, split_records
from bronze.protobuf_wire import BYTES, FIXED64, VARINT, pick_field, split_fields
from bronze.records import RecordReader
from bronze.tolerant_parser import make_range
from bronze.training_json import TrainingRows
from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from bronze.limits import Limits
    from bronze.tolerant_parser import UnreadableRange

VERSION = 1
# What the file begins with: four letters, a number, and the version of its form.
_BEGIN = struct.Struct("<4sHB")
_LETTERS, _NUMBER, _FORM = b":W&B", 0xBEE1, 0
# Of a step that logs pictures or tables, only the names of their files stand here.
_MOST_HISTORY_BYTES = 1 << 20
# Fields of `Record`, `HistoryRecord`, `HistoryItem` and `HistoryStep` in wandb_internal.proto.
_HISTORY = 2
_ITEM, _STEP = 1, 2
_KEY, _NESTED_KEY = 1, 2
_STEP_NUMBER = 1


def is_log(head: bytes) -> bool:
    """Whether it begins as such a file does, in whichever version."""
    return len(head) >= _BEGIN.size and _BEGIN.unpack_from(head)[:2] == (_LETTERS, _NUMBER)


class WandbLogReader(RecordReader):
    """One pass over one file; a damaged record is reported, and what is no history is passed by."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(training_log.TABLE)
        self._blocks = blocks
        self._most_bytes = limits.max_event_bytes
        self._rows = TrainingRows()

    def _read(self) -> Iterator[None]:
        for found in split_records(self._begin(), _BEGIN.size, self._most_bytes):
            if isinstance(found, LogRecord):
                self._take(found)
            else:
                self._lose(found)
            yield

    def _begin(self) -> Iterator[bytes]:
        """All blocks, once the version in the first bytes is known to be one that is read."""
        head = b""
        for block in self._blocks:
            head += block
            if len(head) >= _BEGIN.size:
                break
        form = _BEGIN.unpack_from(head)[2]
        if form != _FORM:
            raise EvidenceRejected(
                f"it is a file of Weights & Biases in version {form} of its form, and version {_FORM} is read",
                "land its history as CSV or JSON lines (docs/landing.md)",
            )
        yield head
        yield from self._blocks

    def _lose(self, found: UnreadableRange) -> None:
        if found.reason == ENDS_EARLY:
            self.cut_short(found)
        else:
            self.report(found)

    def _take(self, record: LogRecord) -> None:
        try:
            history = find_history(record.data) if record.is_whole else b""
            said = None if history is None or len(history) > _MOST_HISTORY_BYTES else list_items(history)
        except (ValueError, IndexError, struct.error):
            self._report(record, "a record is no message of the form that Weights & Biases writes")
            return
        if not record.is_whole:
            self._report(record, f"the record is larger than {self._most_bytes:,} bytes")
        elif history is None:
            self.passed_count += 1
        elif said is None:
            self._report(record, f"the step is larger than {_MOST_HISTORY_BYTES:,} bytes")
        else:
            row = self._rows.make(said)
            self.add(training_log.TABLE, {**row, "offset_bytes": record.offset}, record.length + 128)

    def _report(self, record: LogRecord, reason: str) -> None:
        self.report(make_range(record.offset, record.length, reason, record.data))


def find_history(record: bytes) -> bytes | None:
    """The history in a record, the last one where it has several; none where it is a record of another kind."""
    found = None
    for place, kind, value in split_fields(record):
        if (place, kind) == (_HISTORY, BYTES):
            found = value
    return found


def list_items(history: bytes) -> dict[str, Any]:
    """The values of a step by their names, sorted, because the library writes them in any order.

    A nested name has dots, as the web page shows it; one that comes twice is kept under a name of its own.
    """
    found: dict[str, Any] = {}
    number = None
    for place, kind, value in split_fields(history):
        if (place, kind) == (_ITEM, BYTES):
            name, said = _read_item(value)
            found[name if name not in found else f"{name}#{len(found)}"] = said
        elif (place, kind) == (_STEP, BYTES):
            number = pick_field(list(split_fields(value)), _STEP_NUMBER, VARINT)
    if number is not None:
        found.setdefault("_step", number - (1 << 64) if number >> 63 else number)
    return dict(sorted(found.items()))


def _read_item(item: bytes) -> tuple[str, Any]:
    key, nested, value = b"", [], None
    for place, kind, said in split_fields(item):
        if (place, kind) == (_KEY, BYTES):
            key = said
        elif (place, kind) == (_NESTED_KEY, BYTES):
            nested.append(said)
        elif (place, kind) in _VALUES:
            value = _VALUES[place, kind](said)
    return as_text(key or b".".join(nested)), value


def _parse_json(data: bytes) -> Any:
    """A value that is written as JSON; what is none stays the text that it is."""
    try:
        return json_text.parse_json(as_text(data))
    except ValueError:
        return as_text(data)


# How each kind of value is written; Weights & Biases writes JSON, and its form has a field for each kind beside it.
_VALUES: dict[tuple[int, int], Callable[[Any], Any]] = {
    (3, VARINT): lambda _: None,
    (4, VARINT): bool,
    (5, VARINT): lambda number: (number >> 1) ^ -(number & 1),
    (6, FIXED64): lambda data: struct.unpack("<d", data)[0],
    (7, BYTES): as_text,
    (8, BYTES): _parse_json,
    (16, BYTES): _parse_json,
}
