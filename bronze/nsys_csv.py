"""The reader of `nsys stats` CSV: reports told by their header, in any order of columns, one after another."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bronze import csv_columns, nsys_events
from bronze.csv_records import MOST_CELLS, MOST_RECORD_BYTES, describe_width, header_cells, records
from bronze.lines import split_lines
from bronze.nsys_events import MOST_PLACES
from bronze.records import RecordReader
from bronze.tolerant_parser import UnreadableRange
from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bronze.csv_records import Record
    from bronze.limits import Limits

MAP = csv_columns.ColumnMap("nsys_columns.toml")
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
        self._records = records(split_lines(blocks, min(MOST_RECORD_BYTES, limits.max_event_bytes)))
        self._report: str | None = None
        self._places: list[csv_columns.ColumnSource] = []
        self._is_rounded: bool | None = None
        self._start = 0
        self._seen: set[tuple[Any, ...]] = set()

    def _read(self) -> Iterator[None]:
        for found in self._records:
            if isinstance(found, UnreadableRange):
                self.report(found)
            else:
                self._place(found)
            yield

    def _place(self, found: list[Record]) -> None:
        """Take records that lie under one header together."""
        together: list[Record] = []
        for record in found:
            if len(record.cells) == len(self._places) and record.cells[self._start][:1].strip("-0123456789 ") == "":
                together.append(record)
                continue
            if record.is_blank:
                self.passed_count += 1
                continue
            self._take(together)
            together = []
            if self._begins(record):
                continue
            if len(record.cells) == len(self._places):
                together.append(record)
            elif self._report is None:
                self.passed_count += 1  # the tool talks before its table
            else:
                self.report(describe_width(record, len(self._places)))
        self._take(together)

    def _begins(self, record: Record) -> bool:
        """Whether the record is a header; then what follows is placed by it."""
        header = [cell.strip() for cell in record.cells] if len(record.cells) <= MOST_CELLS else []
        report = report_of(header)
        if report is None:
            return False
        by_column = {place.field.column: index for index, place in enumerate(MAP.places(header)) if place.field}
        self._start = by_column["start_ns"]
        self._report, self._places = report, MAP.places(header)
        sizes = [place for place in self._places if place.field is not None and place.field.column == "payload_bytes"]
        self._is_rounded = sizes[0].factor > 1 if sizes else None
        self.passed_count += 1
        return True

    def _take(self, found: list[Record]) -> None:
        if not found or self._report is None:
            return
        columns = csv_columns.columns(self._places, [record.cells for record in found])
        if "device_name" in columns and "device_id" not in columns:
            numbers = {name: _DEVICE.fullmatch(name or "") for name in set(columns["device_name"])}
            columns["device_id"] = [int(n[1]) if (n := numbers[name]) else None for name in columns["device_name"]]
        if "payload_bytes" in columns:
            columns["is_payload_rounded"] = [
                None if size is None else self._is_rounded for size in columns["payload_bytes"]
            ]
        self._count_places(columns, len(found))
        columns["offset_bytes"] = [record.offset for record in found]
        columns["report"] = [self._report] * len(found)
        self.add_columns(nsys_events.TABLE, columns, len(found))

    def _count_places(self, columns: dict[str, list[Any]], count: int) -> None:
        """Refuse a table of more processes, devices and contexts than there can be, before anybody groups by them."""
        nothing = [None] * count
        owners = (columns.get(name, nothing) for name in ("process_id", "device_id", "context_id"))
        self._seen.update(zip(*owners, strict=True))
        if len(self._seen) > MOST_PLACES:
            raise EvidenceRejected(f"it names more than {MOST_PLACES:,} processes, devices and contexts")
