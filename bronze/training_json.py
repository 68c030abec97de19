"""The reader of a training log in JSON, as lines or as one document: an object that counts a step is a record."""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any

from bronze import csv_columns, json_text, training_log
from bronze.lines import as_text, split_lines
from bronze.records import RecordReader
from bronze.tolerant_parser import UnreadableRange, make_range
from bronze.training_csv import MAP, is_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.limits import Limits
    from bronze.lines import Line

VERSION = 1
_MOST_LINE_BYTES = 1 << 20
# The first lines may be of other things: a configuration, an evaluation before training.
_FIRST_LINES = 64
_HEAD_BYTES = 1 << 18
_MOST_HELD = 1024
_MARK = b"\xef\xbb\xbf"
_BLANK = b" \t\r\n"
_BEFORE = (_MARK + _BLANK).decode("latin-1")
# Where a document of Hugging Face's Trainer has its records.
_HISTORY = re.compile(r'"log_history"\s*:\s*')
_SPACES = re.compile(r"[\s,]*")
# Strings of others may hold what JSON forbids in them: only where an object ends is asked.
_DECODER = json.JSONDecoder(strict=False, parse_float=str, parse_int=str, parse_constant=str)


def is_training_json(head: bytes) -> bool:
    """Whether a record of training is among the first objects."""
    head = head.removeprefix(_MARK).lstrip(_BLANK)
    if not head.startswith((b"{", b"[")):
        return False
    found = _first_lines(head) if head.startswith(b"{") else []
    documents = [] if found else _split_document(head)
    return any(_is_record(said) for said in (*found, *(_parse(data) for _, data in documents)))


class TrainingJsonReader(RecordReader):
    """One pass over one log; a line that is no object is reported, an object of something else is passed by."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(training_log.TABLE)
        self._blocks, self._most_bytes = blocks, limits.max_event_bytes
        self._rows = TrainingRows()
        # Records of the same names, which become rows together.
        self._held: list[tuple[int, dict[str, Any]]] = []
        self._held_bytes = 0
        self._has_loss: bool | None = None

    def _read(self) -> Iterator[None]:
        begin = b""
        for block in self._blocks:
            begin += block
            if len(begin) >= _HEAD_BYTES:
                break
        blocks = chain([begin], self._blocks)
        is_lines = bool(_first_lines(begin[:_HEAD_BYTES].removeprefix(_MARK).lstrip(_BLANK)))
        most = min(_MOST_LINE_BYTES, self._most_bytes)
        for found in split_lines(blocks, most) if is_lines else self._split(blocks):
            if isinstance(found, UnreadableRange):
                self.report(found)
            else:
                self._take(*found)
            yield
        self._add_held()
        yield

    def _split(self, blocks: Iterator[bytes]) -> Iterator[Line | UnreadableRange]:
        """The objects of a document, which is held whole; what follows a fault in it is reported."""
        held = b""
        for block in blocks:
            held += block
            if len(held) > self._most_bytes:
                reason = f"the document is longer than {self._most_bytes:,} bytes: write an object per line"
                yield make_range(0, len(held) + sum(map(len, blocks)), reason, held)
                return
        end = 0
        for offset, data in _split_document(held):
            end = offset + len(data)
            yield offset, data
        rest = held[end:].strip(_BLANK + b",")
        if rest and not rest.startswith((b"]", b"}")):
            yield make_range(end, len(held) - end, "from here on it is no JSON", held[end:])

    def _take(self, offset: int, data: bytes) -> None:
        if not data.strip():
            self.passed_count += 1
            return
        said = _parse(data)
        if said is None:
            self.report(make_range(offset, len(data), "it is no JSON object", data))
        elif not self._is_training(said):
            self.passed_count += 1
        else:
            if self._held and self._held[0][1].keys() != said.keys():
                self._add_held()
            self._held.append((offset, said))
            self._held_bytes += len(data)
            if len(self._held) >= _MOST_HELD or self._held_bytes >= _MOST_LINE_BYTES:
                self._add_held()

    def _add_held(self) -> None:
        if self._held:
            columns = self._rows.make_columns([said for _, said in self._held])
            columns["offset_bytes"] = [offset for offset, _ in self._held]
            self.add_columns(training_log.TABLE, columns, len(self._held))
            self._held, self._held_bytes = [], 0

    def _is_training(self, said: dict[str, Any]) -> bool:
        """Whether an object is a record of training: where the first one has a loss, one without is an evaluation."""
        is_record, has_loss = _describe_names(tuple(_list_values(said)))
        if not is_record:
            return False
        if self._has_loss is None:
            self._has_loss = has_loss
        return has_loss or not self._has_loss


class TrainingRows:
    """Records as rows; the names of their values are looked up where they differ from the record before."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] | None = None
        self._places: list[csv_columns.ColumnSource] = []

    def make(self, said: dict[str, Any]) -> dict[str, Any]:
        """The row of a record."""
        return {name: values[0] for name, values in self.make_columns([said]).items()}

    def make_columns(self, records: list[dict[str, Any]]) -> dict[str, list[Any]]:
        """The columns of records that have the same names."""
        names = tuple(records[0])
        if names != self._names:
            self._names, self._places = names, MAP.places(names)
        columns = csv_columns.columns(self._places, [[_write_cell(said[name]) for name in names] for said in records])
        return {**columns, "record": ["csv"] * len(records)}


def _first_lines(head: bytes) -> list[dict[str, Any] | None]:
    """The objects of the first lines; none where the first line is no whole object, or one that holds records."""
    lines = [line for line in head.split(b"\n", _FIRST_LINES)[:_FIRST_LINES] if line.strip()]
    if not lines or _parse(lines[0]) is None or _HISTORY.search(lines[0].decode("latin-1")):
        return []
    return [_parse(line) for line in lines]


def _split_document(data: bytes) -> Iterator[Line]:
    """The objects in a list, in the history of Hugging Face's Trainer, or the one that is all of it."""
    text = data.decode("latin-1")  # a character is a byte, so places are those of the source
    history = _HISTORY.search(text)
    place = len(text) - len(text.lstrip(_BEFORE)) if history is None else history.end()
    if text[place : place + 1] == "[":
        place += 1
    while True:
        found = _SPACES.match(text, place)
        place = place if found is None else found.end()
        if text[place : place + 1] != "{":
            return
        try:
            end = _DECODER.raw_decode(text, place)[1]
        except (ValueError, RecursionError):
            return
        yield place, data[place:end]
        place = end


def _parse(data: bytes) -> dict[str, Any] | None:
    return json_text.parse_object(as_text(data)) if data.lstrip().startswith(b"{") else None


def _is_record(said: dict[str, Any] | None) -> bool:
    """Whether an object counts a step and says something of its time, each as one value."""
    return said is not None and _describe_names(tuple(_list_values(said)))[0]


def _list_values(said: dict[str, Any]) -> Iterator[str]:
    return (name for name, value in said.items() if not isinstance(value, list | dict))


@lru_cache(maxsize=256)
def _describe_names(names: tuple[str, ...]) -> tuple[bool, bool]:
    """Whether such names make a record of training, and whether one of them is its loss; most records have the same."""
    return is_header(names), "loss_number" in MAP.columns(names)


def _write_cell(value: Any) -> str:
    """A value as the text that a table would hold."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | Decimal) else json_text.write_json(value)
