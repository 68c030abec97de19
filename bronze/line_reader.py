"""What every reader of a source of lines does: hand over each line with its place, report one that is too long."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from bronze.lines import split_lines
from bronze.records import RecordReader
from bronze.tolerant_parser import UnreadableRange

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.limits import Limits
    from lake.tables import Table


class LineReader(RecordReader):
    """One pass over one source, line by line."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits, *tables: Table, most_bytes: int) -> None:
        super().__init__(*tables)
        self._lines = split_lines(blocks, min(most_bytes, limits.max_event_bytes))

    def _read(self) -> Iterator[None]:
        for line in self._lines:
            if isinstance(line, UnreadableRange):
                self.report(line)
            else:
                self._take(*line)
            yield

    @abstractmethod
    def _take(self, offset: int, data: bytes) -> None:
        """Take a line in, pass it by or report it."""
