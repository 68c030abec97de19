"""Sources as bytes, read without a lake: which format they are taken for, their rows, and what was not read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bronze.formats import recognise_format
from bronze.limits import Limits
from lake.attestation_keys import NO_KEYS, AttestationKeys

if TYPE_CHECKING:
    from bronze.records import RecordReader
    from bronze.tolerant_parser import UnreadableRange


@dataclass(frozen=True)
class SourceRows:
    """What a reader made of a source."""

    format: str
    rows: dict[str, list[dict[str, Any]]]
    unreadable: list[UnreadableRange]
    reader: RecordReader

    def table(self, name: str) -> list[dict[str, Any]]:
        """The rows of a table, without the columns that are null in them."""
        return [{key: value for key, value in row.items() if value is not None} for row in self.rows.get(name, [])]

    @property
    def reasons(self) -> list[str]:
        """Why byte ranges could not be read."""
        return [found.reason for found in self.unreadable]

    @property
    def lines_count(self) -> int:
        """How many lines are accounted for, where a record is a line."""
        return self.reader.rows_count + self.reader.passed_count + self.reader.unreadable_count


def read_source(
    data: bytes, block_bytes: int = 1 << 20, limits: Limits | None = None, keys: AttestationKeys = NO_KEYS
) -> SourceRows:
    """Read a source in blocks of some size."""
    blocks = [data[place : place + block_bytes] for place in range(0, len(data), block_bytes)]
    known = recognise_format(data[: 1 << 18], lambda: iter(blocks))
    assert known is not None, f"no reader takes {data[:80]!r}"
    assert known.reader is not None
    reader = known.reader(iter(blocks), limits or Limits(), keys)
    rows: dict[str, list[dict[str, Any]]] = {}
    unreadable = []
    for table, batch in reader:
        assert table in known.tables
        rows.setdefault(table, []).extend(batch.to_pylist())
        unreadable += reader.take_unreadable()
    unreadable += reader.take_unreadable()
    assert sum(map(len, rows.values())) == reader.rows_count
    assert len(unreadable) == reader.unreadable_count
    return SourceRows(known.name, rows, unreadable, reader)
