"""The reader of a per-epoch or per-step training CSV: columns by the declared names, times in seconds since 1970."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bronze import cells, json_text, training_log
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
_MEASURED = {"ts_ns", "duration_ns", "samples_per_second", "tokens_per_second"}


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
        for record in self._records:
            if isinstance(record, Stretch):
                self.report(record)
            elif not any(record.cells):
                self.passed_count += 1
            elif self._header is None:
                self._header = [cell.strip() for cell in record.cells]
                self._places = MAP.places(self._header)
                self.passed_count += 1
            elif len(record.cells) != len(self._header):
                self.report(wrong_width(record, len(self._header)))
            else:
                self._take(record)
            yield

    def _take(self, record: Record) -> None:
        if [cell.strip() for cell in record.cells] == self._header:
            self.passed_count += 1  # a job that began again wrote its header again
            return
        columns, left = cells.row(self._places, record.cells)
        columns |= {"offset_bytes": record.offset, "record": "csv", "args": json_text.compact(left)}
        self.add(training_log.TABLE, columns, len(record.data))
