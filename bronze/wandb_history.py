"""The reader of a history of Weights & Biases as JSON lines: an object per step is a record of a training table."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bronze import csv_columns, json_text, training_log
from bronze.lines import as_text, split_lines
from bronze.records import RecordReader
from bronze.tolerant_parser import UnreadableRange, make_range
from bronze.training_csv import MAP

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.limits import Limits

VERSION = 1
_MOST_LINE_BYTES = 1 << 20


def is_history(head: bytes) -> bool:
    """Whether the first line is an object that has a step and a time as Weights & Biases spells them."""
    first = head.lstrip(b"\xef\xbb\xbf \t\r\n").partition(b"\n")[0]
    said = json_text.parse_object(as_text(first)) if first.startswith(b"{") and b'"_step"' in first else None
    return said is not None and "_step" in said and ("_timestamp" in said or "_runtime" in said)


class WandbHistoryReader(RecordReader):
    """One pass over one history; a line that is no object is reported."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(training_log.TABLE)
        self._lines = split_lines(blocks, min(_MOST_LINE_BYTES, limits.max_event_bytes))
        self._rows = HistoryRows()

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
            return
        self.add(training_log.TABLE, {**self._rows.make(said), "offset_bytes": offset}, len(data) + 128)


class HistoryRows:
    """Steps of a history as rows; the names of their values are looked up where they differ from the step before."""

    def __init__(self) -> None:
        self._names: tuple[str, ...] | None = None
        self._places: list[csv_columns.ColumnSource] = []

    def make(self, said: dict[str, Any]) -> dict[str, Any]:
        """The row of a step."""
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
