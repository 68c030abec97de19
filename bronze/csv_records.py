"""Lines of a CSV in, records out: a quote may hold a line's end, a record may not run away with the file."""

from __future__ import annotations

import csv
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from bronze.lines import Line, as_text
from bronze.tolerant_parser import UnreadableRange, make_range

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_RECORD_BYTES = 1 << 20
_MOST_LINES = 64
_RECORDS = 4096
MOST_CELLS = 1 << 10
_OPEN = "a quote is opened in it and not closed"


class Record(NamedTuple):
    """One record: where it begins, its bytes, and its cells."""

    offset: int
    data: bytes
    cells: list[str]

    @property
    def is_blank(self) -> bool:
        """Whether nothing stands there, not even a comma."""
        return not self.data.strip()


def records(lines: Iterator[Line | UnreadableRange], delimiter: str = ",") -> Iterator[list[Record] | UnreadableRange]:
    """Cells record by record, many at a time; what is no record is a byte range, and the next line is tried."""
    together: list[Line] = []
    size = 0
    for found in _join_quoted_lines(lines):
        if isinstance(found, UnreadableRange):
            yield found
            continue
        together.append(found)
        size += len(found[1])
        if len(together) >= _RECORDS or size >= MOST_RECORD_BYTES:
            yield from _parse_lines(together, delimiter)
            together, size = [], 0
    yield from _parse_lines(together, delimiter)


def _join_quoted_lines(lines: Iterator[Line | UnreadableRange]) -> Iterator[Line | UnreadableRange]:
    """Lines, those that one quote runs over joined."""
    waiting: deque[Line | UnreadableRange] = deque()
    while True:
        line = waiting.popleft() if waiting else next(lines, None)
        if line is None:
            return
        if isinstance(line, UnreadableRange) or line[1].count(b'"') % 2 == 0:
            yield line
            continue
        offset, data = line
        joined = _close_quote(data, waiting, lines)
        yield (offset, joined) if joined is not None else make_range(offset, len(data), _OPEN, data)


def _close_quote(
    data: bytes, waiting: deque[Line | UnreadableRange], lines: Iterator[Line | UnreadableRange]
) -> bytes | None:
    """The record with the lines that its open quote runs over; none (and all lines kept) where it does not close."""
    for taken in range(_MOST_LINES):
        if taken == len(waiting):
            line = next(lines, None)
            if line is None:
                return None
            waiting.append(line)
        following = waiting[taken]
        if isinstance(following, UnreadableRange) or len(data) + len(following[1]) > MOST_RECORD_BYTES:
            return None
        data = data + b"\n" + following[1]
        if following[1].count(b'"') % 2:
            for _ in range(taken + 1):
                waiting.popleft()
            return data
    return None


def _parse_lines(together: list[Line], delimiter: str) -> Iterator[list[Record] | UnreadableRange]:
    """Parse lines at once; where one of them is to blame, one by one."""
    texts = [as_text(data) for _, data in together]
    try:
        rows = [cells or [""] for cells in csv.reader(texts, delimiter=delimiter)]
    except csv.Error:
        rows = []
    if len(rows) == len(texts):
        yield [Record(offset, data, cells) for (offset, data), cells in zip(together, rows, strict=True)]
        return
    for offset, data in together:
        found = _record(offset, data, delimiter)
        yield found if isinstance(found, UnreadableRange) else [found]


def _record(offset: int, data: bytes, delimiter: str) -> Record | UnreadableRange:
    try:
        found = list(csv.reader([as_text(data)], delimiter=delimiter))
    except csv.Error as error:
        return make_range(offset, len(data), f"it is no CSV record: {error}", data)
    return Record(offset, data, (found[0] if found else []) or [""])


def describe_width(record: Record, width: int) -> UnreadableRange:
    """A record of more or fewer cells than the header names: which is missing nobody can tell."""
    reason = f"it has {len(record.cells):,} cells where the header names {width:,}"
    return make_range(record.offset, len(record.data), reason, record.data)


def header_cells(line: bytes, delimiter: str = ",") -> list[str]:
    """The cells of a line that may be a header; none where it is no record or far too wide."""
    is_parted = len(line) <= 1 << 16 and delimiter.encode() in line
    found = _record(0, line, delimiter) if is_parted else None
    return (
        [cell.strip() for cell in found.cells] if isinstance(found, Record) and len(found.cells) <= MOST_CELLS else []
    )
