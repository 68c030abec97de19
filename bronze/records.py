"""What every reader of records tells: rows by table, what it could not read, and what it passed by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter, deque
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bronze.envelope import Envelope
from bronze.file_report import storable_text
from lake.errors import ContractBroken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.tolerant_parser import UnreadableRange
    from lake.tables import Table

_ROWS = 8192
_BYTES = 4 << 20
_STRETCHES = 4096
Batch = tuple[str, pa.RecordBatch]


class RecordReader(ABC):
    """One pass over one source that is no trace. Iterate for the rows; then ask for what could not be read."""

    def __init__(self, *tables: Table) -> None:
        self._gathered = {table.name: _RowBuffer(table) for table in tables}
        self._ready: deque[Batch] = deque()
        self._unreadable: list[UnreadableRange] = []
        self.envelope = Envelope()
        self.rows_count = 0
        self.unreadable_count = 0
        # How often something was missing at a place, by its reason: a row of `bronze.unreadable` is told by these.
        self._repeated: Counter[tuple[int, str]] = Counter()
        self.passed_count = 0
        self.residue_count = 0
        # What makes the tokens of an attestation known again in another run; empty where it has none.
        self.attestation_ids: set[str] = set()
        # Rows by table of a database that no reader takes; none where they cannot be counted.
        self.ignored_tables: dict[str, int | None] = {}
        self.is_complete = True
        self.end_bytes = 0

    def __iter__(self) -> Iterator[Batch]:
        for _ in self._read():
            yield from self._full()
            if self.has_many_unreadable:  # a batch, be it empty, lets whoever reads take them
                yield next(iter(self._gathered.values())).take_batch()
        yield from self._full()
        yield from (gathered.take_batch() for gathered in self._gathered.values() if gathered.rows_count)

    @abstractmethod
    def _read(self) -> Iterator[None]:
        """Read on, and come up for air after every record."""

    @property
    def has_many_unreadable(self) -> bool:
        """Whether so many byte ranges have gathered that they should be taken."""
        return len(self._unreadable) > _STRETCHES

    def take_unreadable(self) -> list[UnreadableRange]:
        """The unreadable byte ranges since the last call."""
        taken, self._unreadable = self._unreadable, []
        return taken

    def report(self, found: UnreadableRange) -> None:
        """Take a byte range in that is no record; what has no length and no reason of its own is numbered."""
        if not found.length:
            self._repeated[found.offset, found.reason] += 1
            count = self._repeated[found.offset, found.reason]
            found = found if count == 1 else replace(found, reason=f"{found.reason} (number {count:,} of such)")
        self._unreadable.append(found)
        self.unreadable_count += 1

    def cut_short(self, found: UnreadableRange) -> None:
        """Say that the bytes themselves ended early or damaged."""
        self.report(found)
        self.is_complete = False

    def add(self, table: Table, row: dict[str, Any], size: int) -> None:
        """Take a row in; `size` is about what it takes in memory."""
        self._gathered[table.name].add(row, size)
        self.rows_count += 1

    def add_columns(self, table: Table, columns: dict[str, list[Any]], count: int) -> None:
        """Take many rows in at once; a reader takes its rows in in one way or the other, not in both."""
        self._ready.append(self._gathered[table.name].batch(columns, count))
        self.rows_count += count

    def _full(self) -> Iterator[Batch]:
        while self._ready:
            yield self._ready.popleft()
        for gathered in self._gathered.values():
            if gathered.is_full:
                yield gathered.take_batch()


class _RowBuffer:
    """Rows of one table on their way into a batch."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0
        self.next_ordinal = 0

    @property
    def rows_count(self) -> int:
        return len(self._rows)

    @property
    def is_full(self) -> bool:
        return len(self._rows) >= _ROWS or self._bytes >= _BYTES

    def add(self, row: dict[str, Any], size: int) -> None:
        self._rows.append(row)
        self._bytes += size

    def take_batch(self) -> Batch:
        names = set().union(*self._rows)
        columns = {name: [row.get(name) for row in self._rows] for name in names}
        count = len(self._rows)
        self._rows, self._bytes = [], 0
        return self.batch(columns, count)

    def batch(self, columns: dict[str, list[Any]], count: int) -> Batch:
        """Columns as a batch: numbered on, and null where a column is not given."""
        schema = self.table.file_schema
        unknown = columns.keys() - set(schema.names)
        if unknown:
            raise ContractBroken(f"{self.table.full_name} has no column {', '.join(sorted(unknown))}")
        columns["ordinal"] = list(range(self.next_ordinal, self.next_ordinal + count))
        self.next_ordinal += count
        arrays = [
            _array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
            for field in schema
        ]
        return self.table.name, pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can spell and UTF-8 cannot
        return pa.array([storable_text(value) for value in values], kind)
