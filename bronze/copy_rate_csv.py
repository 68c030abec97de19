"""The reader of a bandwidth sweep: sizes of copies and how fast they went, columns by the declared names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bronze import copy_rates, csv_columns
from bronze.csv_records import header_cells
from bronze.csv_table import CsvTableReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.limits import Limits

MAP = csv_columns.ColumnMap("copy_rate_columns.toml")
_NEEDED = {"payload_bytes", "bytes_per_second"}


def is_sweep(head: bytes) -> bool:
    """Whether the first line is a header with a size and a rate."""
    first = next((line for line in head.splitlines() if line.strip()), b"")
    return MAP.columns(header_cells(first.removeprefix(b"\xef\xbb\xbf"))) >= _NEEDED


class CopyRateReader(CsvTableReader):
    """One pass over one sweep."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(copy_rates.TABLE, MAP, {}, blocks, limits)
