"""The reader of a CSV whose first record is its header, into one table by a declared map."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bronze import csv_columns
from bronze.csv_records import MOST_RECORD_BYTES, describe_width, records
from bronze.lines import split_lines
from bronze.records import RecordReader
from bronze.tolerant_parser import UnreadableRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.csv_records import Record
    from bronze.limits import Limits
    from bronze.lines import Line
    from lake.tables import Table


class CsvTableReader(RecordReader):
    """One pass over one CSV; `told` is what every row says beside its cells."""

    def __init__(
        self, table: Table, known: csv_columns.ColumnMap, told: dict[str, str], blocks: Iterator[bytes], limits: Limits
    ) -> None:
        super().__init__(table)
        self._table, self._map, self._told = table, known, told
        self._records = self._split(split_lines(blocks, min(MOST_RECORD_BYTES, limits.max_event_bytes)))
        self._header: list[str] | None = None
        self._places: list[csv_columns.ColumnSource] = []

    def _split(self, lines: Iterator[Line | UnreadableRange]) -> Iterator[list[Record] | UnreadableRange]:
        """The records of the lines, the header first."""
        return records(lines)

    def _read(self) -> Iterator[None]:
        for found in self._records:
            if isinstance(found, UnreadableRange):
                self.report(found)
            else:
                self._take([record for record in found if self._is_placed(record)])
            yield

    def _is_placed(self, record: Record) -> bool:
        """Whether a record is one of the table; a job that began again wrote its header again."""
        if record.is_blank:
            self.passed_count += 1
            return False
        if self._header is None:
            self._header = [cell.strip() for cell in record.cells]
            self._places = self._map.places(self._header)
        if len(record.cells) != len(self._header):
            self.report(describe_width(record, len(self._header)))
            return False
        if record.cells[0].strip() == self._header[0] and [cell.strip() for cell in record.cells] == self._header:
            self.passed_count += 1
            return False
        return True

    def _take(self, found: list[Record]) -> None:
        if not found:
            return
        columns = csv_columns.columns(self._places, [record.cells for record in found])
        columns["offset_bytes"] = [record.offset for record in found]
        columns |= {name: [value] * len(found) for name, value in self._told.items()}
        self.add_columns(self._table, columns, len(found))
