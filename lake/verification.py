"""Whether the data files of a table are what was written: a full look at their bytes and their rows.

A data file is named by the content digest of its rows (`lake/digest.py`), so a full look needs nothing but the file.
"""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import TYPE_CHECKING

from lake.compaction import choose_copies, read_copy
from lake.datafiles import Damage, digest_data_file, open_data_file
from lake.digest import ContentDigest, digest_file
from lake.errors import DataDamaged
from lake.few_rows import add_partition
from lake.log_recovery import unreadable_entries
from lake.sealed_source import SEALED_SOURCE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    import pyarrow as pa

    from lake.compaction import Copy
    from lake.locations import Location
    from lake.snapshot import Snapshot
    from lake.store import Lake
    from lake.tables import Table

_DIGEST = re.compile(r"[0-9a-f]{64}")
# Each holds a row group.
_PARTITIONS_AT_ONCE = 4


@dataclass(frozen=True)
class Verified:
    """What a look at every data file of a table found."""

    files: int
    bytes: int
    damages: list[Damage]


def verify_table(
    lake: Lake,
    table: Table,
    run_ids: Iterable[str] | None = None,
    is_due: Callable[[str], bool] = lambda _: True,
    signed: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Verified:
    """Compare the data files of a table, or of some runs, with the log and with the digests in their names.

    `is_due` picks partitions by their content digest. `signed` are the digests of the bytes of a run's files where a
    statement has them: such files are not parsed. A log that cannot be read is told, and nothing else.
    """
    log = [
        Damage(table.full_name, None, f"_delta_log/{name}", "is not readable")
        for name in (unreadable_entries(lake.log(table)) if lake.place.is_local else [])
    ]
    if log:
        return Verified(0, 0, log)
    snapshot = lake.snapshot(table)
    wanted = None if run_ids is None else set(run_ids)
    mine = (name for name in snapshot.run_ids if wanted is None or name in wanted)
    due = [name for name in mine if is_due(snapshot.content_sha256(name))]
    with ThreadPoolExecutor(_PARTITIONS_AT_ONCE, thread_name_prefix="verify") as pool:
        verify = partial(_verify_partition, lake, snapshot, signed)
        damages = [one for found in pool.map(verify, due) for one in found]
    damages += _verify_copies(lake, snapshot, {path for name in due for path in snapshot.files(name)})
    sizes = [size for name in due for size in snapshot.sizes(name).values()]
    return Verified(len(sizes), sum(sizes), damages)


def _verify_partition(
    lake: Lake, snapshot: Snapshot, signed: Mapping[str, Mapping[str, str]], run_id: str
) -> list[Damage]:
    """What is wrong with the data files of one run's partition."""
    table, paths = snapshot.table, snapshot.files(run_id)
    wrong = snapshot.damages(run_id)
    if run_id in signed:
        wrong |= _compare_signed(lake, table, signed[run_id], [path for path in paths if path not in wrong])
        return [Damage(table.full_name, run_id, path, reason) for path, reason in sorted(wrong.items())]
    looks = {path: _look_at(lake, table, path) for path in paths if path not in wrong}
    wrong |= {path: look.fault for path, look in looks.items() if look.fault is not None}
    if not wrong and snapshot.has_bytes(run_id, {path: look.bytes_sha256 for path, look in looks.items()}) is False:
        # The rows are right as Arrow reads them; another reader may see the other bytes otherwise.
        others = "" if len(paths) == 1 else ", or another file of this partition has"
        wrong = dict.fromkeys(paths, f"has other bytes than were written{others}")
    return [Damage(table.full_name, run_id, path, reason) for path, reason in sorted(wrong.items())]


def _compare_signed(lake: Lake, table: Table, signed: Mapping[str, str], paths: Sequence[str]) -> dict[str, str]:
    """The files whose bytes are not those that were signed; such a one is parsed to say what is wrong with it."""
    wrong = {}
    for path in paths:
        found, expected = digest_data_file(lake.root(table), path), signed.get(f"{table.path}/{path}", "none")
        if found != expected:
            fault = _look_at(lake, table, path).fault or "has other bytes than were signed"
            wrong[path] = f"{fault}: expected SHA-256 {expected}, found {found}"
    return wrong


def _verify_copies(lake: Lake, snapshot: Snapshot, paths: Collection[str]) -> list[Damage]:
    """The compacted copies in use that hold other rows of these data files than the names of those say."""
    table, root = snapshot.table, lake.root(snapshot.table)
    held = (path for run_id in snapshot.run_ids for path in snapshot.files(run_id))
    return [
        Damage(table.full_name, None, copy.path, reason)
        for copy in choose_copies(root, held).copies
        if not copy.members.keys().isdisjoint(paths) and (reason := _find_fault(table, root, copy, paths)) is not None
    ]


def _find_fault(table: Table, root: Location, copy: Copy, paths: Collection[str]) -> str | None:
    try:
        for path, rows in read_copy(table, root, copy):
            if path in paths and not _holds(table, path, rows):
                return f"holds other rows of {path} than that file's name says"
    except (DataDamaged, KeyError) as error:
        return f"cannot be read ({type(error.__cause__ or error).__name__})"
    return None


def _holds(table: Table, path: str, rows: pa.Table) -> bool:
    """Whether these are the rows of a data file, with the values in its path."""
    digest = ContentDigest(table.file_schema)
    for batch in rows.select(table.file_schema.names).to_batches():
        digest.update(batch)
    return digest.hexdigest() == _read_digest(path) and rows.equals(
        add_partition(table, path, rows.select(table.file_schema.names))
    )


@dataclass(frozen=True)
class _Look:
    bytes_sha256: str = ""
    fault: str | None = None


def _look_at(lake: Lake, table: Table, path: str) -> _Look:
    """Read one data file whole: the digest of its bytes, and what is wrong with its rows."""
    name = _read_digest(path)
    if not _DIGEST.fullmatch(name):
        return _Look(fault="was not written by teetotal: its name is no content digest")
    try:
        with open_data_file(table, lake.root(table), path) as (source, file):
            if file.schema_arrow.remove_metadata() != table.file_schema:
                return _Look(fault="has other columns than the table")
            digest = ContentDigest(table.file_schema)
            for group in range(file.metadata.num_row_groups):
                for batch in file.read_row_group(group).to_batches():
                    digest.update(batch)
            if digest.hexdigest() != name:
                return _Look(fault="holds other rows than its name says")
            return _Look(digest_file(source))
    except DataDamaged as error:
        return _Look(fault=f"cannot be read ({type(error.__cause__).__name__})")


def _read_digest(path: str) -> str:
    """The content digest in a data file's name."""
    return PurePosixPath(path).stem.removeprefix(SEALED_SOURCE)
