"""The reader of a per-epoch or per-step training CSV: columns by the declared names, times in seconds since 1970."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bronze import csv_columns, training_log
from bronze.csv_records import header_cells
from bronze.csv_table import CsvTableReader

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from bronze.limits import Limits

MAP = csv_columns.ColumnMap("training_columns.toml")
_COUNTED = {"epoch_number", "step_number"}
_MEASURED = {"ts_ns", "clock_ns", "began_ns", "duration_ns", "samples_per_second", "tokens_per_second"}


def is_header(header: Iterable[str]) -> bool:
    """Whether a header counts epochs or steps and says something of their time."""
    columns = MAP.columns(header)
    return bool(columns & _COUNTED) and bool(columns & _MEASURED)


def is_training(head: bytes) -> bool:
    """Whether the first line is the header of a training log."""
    first = next((line for line in head.splitlines() if line.strip()), b"")
    return is_header(header_cells(first.removeprefix(b"\xef\xbb\xbf")))


class TrainingCsvReader(CsvTableReader):
    """One pass over one CSV."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(training_log.TABLE, MAP, {"record": "csv"}, blocks, limits)
