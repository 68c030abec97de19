"""The reader of a training log as JSON lines: an object that counts a step and says its time is a record of a table."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bronze import csv_columns, json_text, training_log
from bronze.lines import as_text, split_lines
from bronze.records import RecordReader
from bronze.tolerant_parser import UnreadableRange, make_range
from bronze.training_csv import MAP, is_header

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.limits import Limits

VERSION = 1
_MOST_LINE_BYTES = 1 << 20
# The first lines may be of other things: a configuration, an evaluation before training.
_FIRST_LINES = 64


def is_training_json(head: bytes) -> bool:
    """Whether lines begin that are objects, and one of the first is a record of training."""
    lines = [
        line for line in head.removeprefix(b"\xef\xbb\xbf").split(b"\n", _FIRST_LINES)[:_FIRST_LINES] if line.strip()
    ]
    found = (json_text.parse_object(as_text(line)) for line in lines if line.lstrip().startswith(b"{"))
    return bool(lines) and lines[0].lstrip().startswith(b"{") and any(is_header(said) for said in found if said)


class TrainingJsonReader(RecordReader):
    """One pass over one log; a line that is no object is reported, an object of something else is passed by."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(training_log.TABLE)
        self._lines = split_lines(blocks, min(_MOST_LINE_BYTES, limits.max_event_bytes))
        self._rows = TrainingRows()
        self._has_loss: bool | None = None

    def _read(self) -> Iterator[None]:
        for line in self._lines:
            if isinstance(line, UnreadableRange):
                self.report(line)
            else:
                self._take(*line)
            yield

    def _take(self, offset: int, data: bytes) -> None:
        if not data.strip():
            self.passed_count += 1
            return
        said = json_text.parse_object(as_text(data))
        if said is None:
            self.report(make_range(offset, len(data), "it is no JSON object", data))
        elif not self._is_training(said):
            self.passed_count += 1
        else:
            self.add(training_log.TABLE, {**self._rows.make(said), "offset_bytes": offset}, len(data) + 128)

    def _is_training(self, said: dict[str, Any]) -> bool:
        """Whether an object is a record of training: where the first one has a loss, one without is an evaluation."""
        columns = MAP.columns(said) if is_header(said) else set()
        if columns and self._has_loss is None:
            self._has_loss = "loss_number" in columns
        return bool(columns) and (not self._has_loss or "loss_number" in columns)


class TrainingRows:
    """Records as rows; the names of their values are looked up where they differ from the record before."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] | None = None
        self._places: list[csv_columns.ColumnSource] = []

    def make(self, said: dict[str, Any]) -> dict[str, Any]:
        """The row of a record."""
        names = tuple(said)
        if names != self._names:
            self._names, self._places = names, MAP.places(names)
        columns = csv_columns.columns(self._places, [[_write_cell(value) for value in said.values()]])
        return {**{name: values[0] for name, values in columns.items()}, "record": "csv"}


def _write_cell(value: Any) -> str:
    """A value as the text that a table would hold."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int | Decimal) else json_text.write_json(value)
