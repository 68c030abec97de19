"""The reader of a per-epoch or per-step training CSV: columns by the declared names, times in seconds since 1970."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bronze import cells, training_log
from bronze.careful_cut import Stretch
from bronze.csv_records import MOST_RECORD_BYTES, header_cells, records, wrong_width
from bronze.lines import lines
from bronze.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bronze.csv_records import Record
    from bronze.limits import Limits

MAP = cells.Map("training_columns.toml")
_COUNTED = {"epoch_number", "step_number"}
_MEASURED = {"ts_ns", "began_ns", "duration_ns", "samples_per_second", "tokens_per_second"}


def is_header(header: Iterable[str]) -> bool:
    """Whether a header counts epochs or steps and says something of their time."""
    columns = MAP.columns(header)
    return bool(columns & _COUNTED) and bool(columns & _MEASURED)


def is_training(head: bytes) -> bool:
    """Whether the first line is the header of a training log."""
    first = next((line for line in head.splitlines() if line.strip()), b"")
    return is_header(header_cells(first.removeprefix(b"\xef\xbb\xbf")))


class TrainingCsvReader(RecordReader):
    """One pass over one CSV."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(training_log.TABLE)
        self._records = records(lines(blocks, min(MOST_RECORD_BYTES, limits.max_event_bytes)))
        self._header: list[str] | None = None
        self._places: list[cells.Place] = []

    def _read(self) -> Iterator[None]:
        for found in self._records:
            if isinstance(found, Stretch):
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
            self._places = MAP.places(self._header)
        if len(record.cells) != len(self._header):
            self.report(wrong_width(record, len(self._header)))
            return False
        if [cell.strip() for cell in record.cells] == self._header:
            self.passed_count += 1
            return False
        return True

    def _take(self, found: list[Record]) -> None:
        if not found:
            return
        columns = cells.columns(self._places, [record.cells for record in found])
        columns["offset_bytes"] = [record.offset for record in found]
        columns["record"] = ["csv"] * len(found)
        self.add_columns(training_log.TABLE, columns, len(found))
