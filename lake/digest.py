"""The content digest of some rows: equal rows in equal order give equal digests, however they are chunked."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path


class _Column:
    """One column's digest: where its nulls lie, and the bytes of the values that are there."""

    def __init__(self, field: pa.Field) -> None:
        self._seed = f"{field.name}:{field.type}".encode()
        self._values = hashlib.sha256()
        self._lengths = hashlib.sha256()
        self._nulls = hashlib.sha256()
        self._pending = np.zeros(0, np.bool_)
        self._rows = 0

    def update(self, array: pa.Array) -> None:
        self._update_nulls(array)
        if array.null_count == len(array):
            return
        present = array.drop_null() if array.null_count else array
        if pa.types.is_boolean(present.type):
            present = present.cast(pa.uint8())
        if pa.types.is_string(present.type):
            offsets = np.frombuffer(present.buffers()[1], np.int32)[present.offset : present.offset + len(present) + 1]
            self._lengths.update(np.diff(offsets).tobytes())
            if present.buffers()[2] is not None:
                self._values.update(memoryview(present.buffers()[2])[offsets[0] : offsets[-1]])
        else:
            width = present.type.byte_width
            self._values.update(
                memoryview(present.buffers()[1])[present.offset * width : (present.offset + len(present)) * width]
            )

    def _update_nulls(self, array: pa.Array) -> None:
        """Eight rows a byte, so that it does not matter where a chunk ends; the rest waits for the next chunk."""
        if array.null_count in {0, len(array)}:
            valid = np.full(len(array), array.null_count == 0)
        else:
            valid = pc.is_valid(array).to_numpy(zero_copy_only=False)
        pending = np.concatenate((self._pending, valid))
        whole = len(pending) // 8 * 8
        self._nulls.update(np.packbits(pending[:whole]).tobytes())
        self._pending = pending[whole:]
        self._rows += len(array)

    def digest(self) -> bytes:
        last = self._nulls.copy()
        last.update(np.packbits(self._pending).tobytes() + self._rows.to_bytes(8, "little"))
        return hashlib.sha256(
            b"".join((self._seed, last.digest(), self._lengths.digest(), self._values.digest()))
        ).digest()


class ContentDigest:
    """A digest of rows that depends on the schema and the values alone, never on chunks, files or engines."""

    def __init__(self, schema: pa.Schema) -> None:
        self._columns = [_Column(field) for field in schema]

    def update(self, batch: pa.RecordBatch) -> None:
        """Add rows, in order; the batch is of the digest's schema."""
        for column, array in zip(self._columns, batch.columns, strict=True):
            column.update(array)

    def hexdigest(self) -> str:
        """The digest of all rows added so far."""
        return hashlib.sha256(b"".join(column.digest() for column in self._columns)).hexdigest()


def digest_file(path: Path) -> str:
    """The digest of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def combine(parts: Iterable[str]) -> str:
    """The digest of a whole partition from the digests of its units, in whatever order they were made."""
    return hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()
