"""The reader of a per-epoch or per-step training table: columns by the declared names, parted as its header is."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from bronze import csv_columns, training_log
from bronze.csv_records import Record, header_cells, records
from bronze.csv_table import CsvTableReader
from bronze.tolerant_parser import UnreadableRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bronze.limits import Limits
    from bronze.lines import Line

MAP = csv_columns.ColumnMap("training_columns.toml")
_COUNTED = {"epoch_number", "step_number"}
_MEASURED = {"ts_ns", "clock_ns", "began_ns", "duration_ns", "samples_per_second", "tokens_per_second"}
_COMMENT = b"#"
# Where a semicolon parts the cells, a comma stands in numbers.
_DECIMAL_COMMA = re.compile(r"\s*-?[0-9]+,[0-9]+\s*")
_DELIMITERS = (",", "\t", ";")


def is_header(header: Iterable[str]) -> bool:
    """Whether a header counts epochs or steps and says something of their time."""
    columns = MAP.columns(header)
    return bool(columns & _COUNTED) and bool(columns & _MEASURED)


def counts_without_time(header: Iterable[str]) -> bool:
    """Whether a header counts epochs or steps and says nothing of their time."""
    columns = MAP.columns(header)
    return bool(columns & _COUNTED) and not columns & _MEASURED


def is_training(head: bytes) -> bool:
    """Whether the first line, comments aside, is the header of a training log."""
    for line in head.removeprefix(b"\xef\xbb\xbf").splitlines():
        if line.strip() and (_find_delimiter(line) is not None or not line.startswith(_COMMENT)):
            return _find_delimiter(line) is not None
    return False


class TrainingCsvReader(CsvTableReader):
    """One pass over one table; lines of comment before its header are passed by."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(training_log.TABLE, MAP, {"record": "csv"}, blocks, limits)

    def _split(self, lines: Iterator[Line | UnreadableRange]) -> Iterator[list[Record] | UnreadableRange]:
        for line in lines:
            if isinstance(line, UnreadableRange):
                yield line
                continue
            offset, data = line
            delimiter = _find_delimiter(data)
            if delimiter is not None:
                yield from _read_decimals(
                    records(chain([(offset, data.lstrip(_COMMENT))], lines), delimiter), is_comma=delimiter == ";"
                )
                return
            self.passed_count += 1


def _find_delimiter(line: bytes) -> str | None:
    """What parts the cells of a header, be it written as a comment; none where the line is no header."""
    bare = line.lstrip(_COMMENT).strip()
    return next((one for one in _DELIMITERS if is_header(header_cells(bare, one))), None)


def _read_decimals(
    found: Iterator[list[Record] | UnreadableRange], *, is_comma: bool
) -> Iterator[list[Record] | UnreadableRange]:
    """Numbers with a decimal point, as the columns want them."""
    for some in found:
        if is_comma and not isinstance(some, UnreadableRange):
            yield [record._replace(cells=[_write_point(cell) for cell in record.cells]) for record in some]
        else:
            yield some


def _write_point(cell: str) -> str:
    return cell.replace(",", ".") if _DECIMAL_COMMA.fullmatch(cell) else cell
