"""What every reader of records tells: rows by table, what it could not read, and what it passed by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from bronze.envelope import Envelope
from bronze.file_report import plain
from lake.errors import ContractBroken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.careful_cut import Stretch
    from lake.tables import Table

_ROWS = 8192
_BYTES = 4 << 20
_STRETCHES = 4096
Batch = tuple[str, pa.RecordBatch]


class RecordReader:
    """One pass over one source that is no trace. Iterate for the rows; then ask for what could not be read."""

    def __init__(self, *tables: Table) -> None:
        self._gathered = {table.name: _Gathered(table) for table in tables}
        self._unreadable: list[Stretch] = []
        self.envelope = Envelope()
        self.rows_count = 0
        self.unreadable_count = 0
        self.passed_count = 0
        self.residue_count = 0
        self.is_complete = True
        self.end_bytes = 0

    def __iter__(self) -> Iterator[Batch]:
        for _ in self._read():
            yield from self._full()
        yield from (gathered.taken() for gathered in self._gathered.values() if gathered.rows_count)

    def _read(self) -> Iterator[None]:
        """Read on, and come up for air after every record."""
        raise NotImplementedError

    @property
    def has_many_unreadable(self) -> bool:
        """Whether so many stretches have gathered that they should be taken."""
        return len(self._unreadable) > _STRETCHES

    def take_unreadable(self) -> list[Stretch]:
        """The unreadable stretches since the last call."""
        taken, self._unreadable = self._unreadable, []
        return taken

    def report(self, found: Stretch) -> None:
        """Take a stretch in that is no record."""
        self._unreadable.append(found)
        self.unreadable_count += 1

    def cut_short(self, found: Stretch) -> None:
        """Say that the bytes themselves ended early or damaged."""
        self.report(found)
        self.is_complete = False

    def add(self, table: Table, row: dict[str, Any], size: int) -> None:
        """Take a row in; `size` is about what it takes in memory."""
        gathered = self._gathered[table.name]
        gathered.add({"ordinal": gathered.next_ordinal, **row}, size)
        self.rows_count += 1

    def _full(self) -> Iterator[Batch]:
        for gathered in self._gathered.values():
            if gathered.is_full:
                yield gathered.taken()


class _Gathered:
    """Rows of one table on their way into a batch."""

    def __init__(self, table: Table) -> None:
        self._table = table
        # The source's digest stands in the path of the data file.
        self._columns: dict[str, list[Any]] = {name: [] for name in table.file_schema.names}
        self._bytes = 0
        self.rows_count = 0
        self.next_ordinal = 0

    @property
    def is_full(self) -> bool:
        return self.rows_count >= _ROWS or self._bytes >= _BYTES

    def add(self, row: dict[str, Any], size: int) -> None:
        unknown = row.keys() - self._columns.keys()
        if unknown:
            raise ContractBroken(f"{self._table.full_name} has no column {', '.join(sorted(unknown))}")
        for name, values in self._columns.items():
            values.append(row.get(name))
        self._bytes += size
        self.rows_count += 1
        self.next_ordinal += 1

    def taken(self) -> Batch:
        schema = self._table.file_schema
        arrays = [_array(values, kind) for values, kind in zip(self._columns.values(), schema.types, strict=True)]
        for values in self._columns.values():
            values.clear()
        self._bytes = self.rows_count = 0
        return self._table.name, pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can spell and UTF-8 cannot
        return pa.array([plain(value) for value in values], kind)
