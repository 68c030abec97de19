"""The reader of `nsys stats` CSV: reports told by their header, in any order of columns, one after another."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bronze import cells, json_text, nsys_events
from bronze.careful_cut import Stretch
from bronze.csv_records import MOST_RECORD_BYTES, header_cells, records, wrong_width
from bronze.lines import lines
from bronze.records import RecordReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bronze.csv_records import Record
    from bronze.limits import Limits

MAP = cells.Map("nsys_columns.toml")
_PLACED = {"start_ns", "duration_ns", "name"}
# What only one of the reports has; a launch with its kernel has both its API call's and its kernel's start.
_OF_A_LAUNCH = {"start_ns", "api_start_ns"}
_OF_THE_GPU = {"payload_bytes", "source_memory", "target_memory", "device_name", "context_id", "stream_id"}
_OF_THE_API = {"result", "thread_id", "process_id", "correlation_id"}
_DEVICE = re.compile(r".*\(([0-9]{1,9})\)")
_FIRST_LINES = 64


def report_of(header: Iterable[str]) -> str | None:
    """The report that a header belongs to; none where it is no header of these."""
    columns = MAP.columns(header)
    if columns >= _OF_A_LAUNCH:
        return "cuda_kern_exec_trace"
    if not columns >= _PLACED:
        return None
    if columns & _OF_THE_GPU:
        return "cuda_gpu_trace"
    return "cuda_api_trace" if columns & _OF_THE_API else None


def is_nsys(head: bytes) -> bool:
    """Whether one of the first lines is the header of a report: the tool may talk before it."""
    return any(report_of(header_cells(line)) for line in head.splitlines()[:_FIRST_LINES])


class NsysCsvReader(RecordReader):
    """One pass over one CSV."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(nsys_events.TABLE)
        self._records = records(lines(blocks, min(MOST_RECORD_BYTES, limits.max_event_bytes)))
        self._report: str | None = None
        self._places: list[cells.Place] = []
        self._is_rounded: bool | None = None

    def _read(self) -> Iterator[None]:
        for record in self._records:
            if isinstance(record, Stretch):
                self.report(record)
            elif self._report is None or len(record.cells) != len(self._places):
                self._unplaced(record)
            else:
                self._take(record, self._report)
            yield

    def _unplaced(self, record: Record) -> None:
        """A record before the first header is talk; one of another width is a new header, a blank line, or broken."""
        if self._begins(record):
            return
        if self._report is None or not any(record.cells):
            self.passed_count += 1
        else:
            self.report(wrong_width(record, len(self._places)))

    def _begins(self, record: Record) -> bool:
        """Whether the record is a header; then what follows is placed by it."""
        header = [cell.strip() for cell in record.cells]
        report = report_of(header)
        if report is None:
            return False
        self._report, self._places = report, MAP.places(header)
        sizes = [place for place in self._places if place.field is not None and place.field.column == "payload_bytes"]
        self._is_rounded = sizes[0].factor > 1 if sizes else None
        self.passed_count += 1
        return True

    def _take(self, record: Record, report: str) -> None:
        columns, left = cells.row(self._places, record.cells)
        if columns.get("start_ns") is None and self._begins(record):
            return  # the same report once more
        device = _DEVICE.fullmatch(columns.get("device_name") or "")
        if device is not None:
            columns.setdefault("device_id", int(device[1]))
        if columns.get("payload_bytes") is not None:
            columns["is_payload_rounded"] = self._is_rounded
        columns |= {"offset_bytes": record.offset, "report": report, "args": json_text.compact(left)}
        self.add(nsys_events.TABLE, columns, len(record.data))
