"""Lines of a CSV in, records out: a quote may hold a line's end, a record may not run away with the file."""

from __future__ import annotations

import csv
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bronze.careful_cut import Stretch, stretch
from bronze.lines import Line, as_text

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_RECORD_BYTES = 1 << 20
_MOST_LINES = 64
_OPEN = "a quote is opened in it and not closed"


@dataclass(frozen=True)
class Record:
    """One record: its cells, where it begins, and its bytes."""

    offset: int
    data: bytes
    cells: list[str]


def records(lines: Iterator[Line | Stretch]) -> Iterator[Record | Stretch]:
    """Cells record by record; what is no record is a stretch, and the next line is tried."""
    waiting: deque[Line | Stretch] = deque()
    while True:
        line = waiting.popleft() if waiting else next(lines, None)
        if line is None:
            return
        if isinstance(line, Stretch):
            yield line
            continue
        offset, data = line
        if data.count(b'"') % 2:
            joined = _closed(data, waiting, lines)
            if joined is None:
                yield stretch(offset, len(data), _OPEN, data)
                continue
            data = joined
        yield _record(offset, data)


def _closed(data: bytes, waiting: deque[Line | Stretch], lines: Iterator[Line | Stretch]) -> bytes | None:
    """The record with the lines that its open quote runs over; none (and all lines kept) where it does not close."""
    for taken in range(_MOST_LINES):
        if taken == len(waiting):
            line = next(lines, None)
            if line is None:
                return None
            waiting.append(line)
        following = waiting[taken]
        if isinstance(following, Stretch) or len(data) + len(following[1]) > MOST_RECORD_BYTES:
            return None
        data = data + b"\n" + following[1]
        if following[1].count(b'"') % 2:
            for _ in range(taken + 1):
                waiting.popleft()
            return data
    return None


def _record(offset: int, data: bytes) -> Record | Stretch:
    text = as_text(data)
    try:
        found = list(csv.reader([text]))
    except csv.Error as error:
        return stretch(offset, len(data), f"it is no CSV record: {error}", data)
    return Record(offset, data, found[0] if found else [])


def wrong_width(record: Record, width: int) -> Stretch:
    """A record of more or fewer cells than the header names: which is missing nobody can tell."""
    reason = f"it has {len(record.cells):,} cells where the header names {width:,}"
    return stretch(record.offset, len(record.data), reason, record.data)


def header_cells(line: bytes) -> list[str]:
    """The cells of a line that may be a header; none where it is no record or far too wide."""
    found = _record(0, line) if len(line) <= 1 << 16 and b"," in line else None
    return [cell.strip() for cell in found.cells] if isinstance(found, Record) and len(found.cells) <= 1 << 10 else []
