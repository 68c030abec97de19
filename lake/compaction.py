"""Compacted copies: the rows of many small data files in one file, for questions about many runs at once.

A copy lists in its footer the data files that it stands for, and is read only while the table holds all of them. It is
no source: builds, checks and signatures go by the data files. Rows are copied as they are stored, sealed or not.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import obstore
import pyarrow as pa
import pyarrow.parquet as pq

from lake.cut_off import delete_object, list_objects
from lake.datafiles import open_data_file
from lake.datasets import open_filesystem
from lake.errors import DataDamaged
from lake.few_rows import read_declared
from lake.locations import report_unreachable
from lake.staging import PAGE_CHECKSUMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from lake.locations import Location
    from lake.tables import Table

# Delta takes a directory whose name begins so for a hidden one: its vacuum deletes nothing there.
COPIES = "_compacted"
_MEMBERS = b"teetotal.members"
# A file of this size takes longer to open than to read.
_SMALL_BYTES = 64 << 10
# Fewer are opened about as quickly as a copy; more would have to be opened again where one of them changes.
_FEWEST_FILES = 64
_MOST_FILES = 1_024
# A copy of fewer is made anew, together with data files that have come since.
_LARGE_FILES = _MOST_FILES // 4
_ROW_GROUP_ROWS = 65_536


@dataclass(frozen=True)
class Copy:
    """One compacted copy: its path below the table's own, and how many rows of which data files it holds, in order."""

    path: str
    members: Mapping[str, int]


@dataclass(frozen=True)
class Choice:
    """What to read in place of a table's data files: copies, and the data files that no copy stands for."""

    copies: Sequence[Copy]
    data_files: Sequence[str]


def list_copies(root: Location) -> list[Copy]:
    """The copies of a table that can be read, by their paths; one that cannot has no members."""
    with report_unreachable(f"{root} could not be listed"):
        if root.is_local and not (root.directory / COPIES).is_dir():
            return []
        paths = sorted(item["path"] for item in list_objects(root.store, f"{COPIES}/"))
        files = open_filesystem(root) if paths else None
        return [Copy(path, _read_members(path, files)) for path in paths]


def choose_copies(root: Location, paths: Iterable[str]) -> Choice:
    """The copies whose data files the table holds, all of them and each once."""
    left, chosen = set(paths), []
    for copy in sorted(list_copies(root), key=lambda one: (-len(one.members), one.path)):
        # Two machines may have compacted the same files at a time: the second copy would count their rows again.
        if copy.members and copy.members.keys() <= left:
            chosen.append(copy)
            left -= copy.members.keys()
    return Choice(chosen, sorted(left))


def compact(table: Table, root: Location, sizes: Mapping[str, int]) -> None:
    """Make copies of small data files that have none, and delete copies of what the table no longer holds."""
    choice = choose_copies(root, sizes)
    small = [path for path in choice.data_files if sizes[path] <= _SMALL_BYTES]
    if len(small) >= _FEWEST_FILES:
        small += [path for copy in choice.copies if len(copy.members) < _LARGE_FILES for path in copy.members]
        small.sort()
        for start in range(0, len(small), _MOST_FILES):
            _write_copy(table, root, small[start : start + _MOST_FILES])
    delete_stale(root, sizes)


def delete_stale(root: Location, paths: Iterable[str]) -> None:
    """Delete every copy that holds rows of anything but these data files, holds them once more, or cannot be read."""
    kept = {copy.path for copy in choose_copies(root, paths).copies}
    with report_unreachable(f"{root} could not be written to"):
        for copy in list_copies(root):
            if copy.path not in kept:
                delete_object(root.store, copy.path)


def read_copy(table: Table, root: Location, copy: Copy) -> Iterator[tuple[str, pa.Table]]:
    """The rows of a copy, data file by data file; page checksums are verified."""
    with open_data_file(table, root, copy.path) as (_, file):
        rows, start = file.read(), 0
    for path, count in copy.members.items():
        yield path, rows.slice(start, count)
        start += count


def _read_members(path: str, files: pa.fs.FileSystem) -> dict[str, int]:
    try:
        footer = pq.read_metadata(path, filesystem=files)
        members = {str(name): int(rows) for name, rows in json.loads(footer.metadata[_MEMBERS]).items()}
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, AttributeError):
        return {}  # cut, changed or just deleted: the data files are read instead
    return members if sum(members.values()) == footer.num_rows else {}


def _write_copy(table: Table, root: Location, paths: Sequence[str]) -> None:
    """One copy of these data files; a damaged one is left out, `teetotal verify` names it."""
    members: dict[str, int] = {}
    schema = table.nullable_schema
    sink = pa.BufferOutputStream()
    options = {"compression": "zstd", "store_schema": False, "write_page_checksum": PAGE_CHECKSUMS}
    with pq.ParquetWriter(sink, schema, **options) as writer:
        waiting: list[pa.Table] = []
        waiting_rows = 0
        for path in paths:
            rows = _read_rows(table, root, path)
            if rows is None:
                continue
            members[path] = rows.num_rows
            waiting.append(rows)
            waiting_rows += rows.num_rows
            if waiting_rows >= _ROW_GROUP_ROWS:
                writer.write_table(pa.concat_tables(waiting), waiting_rows)
                waiting, waiting_rows = [], 0
        if waiting:
            writer.write_table(pa.concat_tables(waiting), waiting_rows)
        writer.add_key_value_metadata({_MEMBERS: json.dumps(members)})
    if members:
        name = hashlib.sha256("\n".join(members).encode()).hexdigest()
        with report_unreachable(f"{root} could not be written to"):
            obstore.put(root.store, f"{COPIES}/{name}.parquet", sink.getvalue().to_pybytes())


def _read_rows(table: Table, root: Location, path: str) -> pa.Table | None:
    try:
        with open_data_file(table, root, path) as (_, file):
            return read_declared(table, path, file)
    except DataDamaged:
        return None
