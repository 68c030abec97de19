"""A commit to a table on this disk, its first included: the log entry that Delta would write, written by ourselves.

To commit, Delta opens the table, replays its log and reads it once more: a third of the processor time of many small
runs, and more with every run that a lake has. What is known of the log is enough to add to it (docs/decisions/0054).
"""

from __future__ import annotations

import json
import os
import time
import uuid
from typing import TYPE_CHECKING
from urllib.parse import quote

from deltalake import Schema

from lake.commits import CHECKPOINT_INTERVAL, CommitConflict, RemovedFile
from lake.log_entries import UnknownLog, list_changed_partitions, read_entries, read_log_file
from lake.open_tables import open_table, read_current

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from deltalake.transaction import AddAction

    from lake.locations import Location
    from lake.table_log import TableLog
    from lake.tables import Table

_ENGINE = "teetotal"
_PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
# What a path of a data file may hold as it is; Delta asks for all else in percent signs.
_PLAIN = "/="


def create_table(root: Location, table: Table, configuration: Mapping[str, str]) -> None:
    """Add the first entry of a table's log, which says what its rows are; one that is there already stands."""
    folder = root.directory / "_delta_log"
    folder.mkdir(parents=True, exist_ok=True)
    _put(folder, 0, _compose_creation(table, configuration))


def _compose_creation(table: Table, configuration: Mapping[str, str]) -> bytes:
    created = time.time_ns() // 1_000_000
    declared = {
        "id": str(uuid.uuid4()),
        "name": table.full_name,
        "description": table.grain,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": Schema.from_arrow(table.arrow_schema).to_json(),
        "partitionColumns": list(table.partition_by),
        "createdTime": created,
        "configuration": dict(configuration),
    }
    description = {"timestamp": created, "operation": "CREATE TABLE", "operationParameters": {}, "engineInfo": _ENGINE}
    return _join_lines({"commitInfo": description}, {"protocol": _PROTOCOL}, {"metaData": declared})


def _join_lines(*lines: Mapping[str, object]) -> bytes:
    return b"\n".join(json.dumps(line, separators=(",", ":")).encode() for line in lines)


def compose_entry(
    table: Table, actions: Sequence[AddAction | RemovedFile], notes: Mapping[str, str], marks: Mapping[str, int]
) -> bytes:
    """A log entry: its own description, each action, each mark."""
    description = {
        "timestamp": time.time_ns() // 1_000_000,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": json.dumps(table.partition_by)},
        "engineInfo": _ENGINE,
        **notes,
    }
    return _join_lines(
        {"commitInfo": description},
        *map(_describe_action, actions),
        *({"txn": {"appId": app_id, "version": mark}} for app_id, mark in marks.items()),
    )


def commit_entry(root: Location, log: TableLog, entry: bytes, run_id: str, marks: Mapping[str, int]) -> int:
    """Add an entry for a run after the last one; gives its version.

    Entries that others have added meanwhile are let stand where they are of other runs; a conflict where they are not.
    """
    folder, version = root.directory / "_delta_log", log.version + 1
    while not _put(folder, version, entry):
        try:
            newer = [list_changed_partitions(one) for one in read_entries(root, version - 1)]
        except UnknownLog as error:
            raise CommitConflict from error
        if not newer or any(run_id in changed for changed in newer):
            raise CommitConflict
        version += len(newer)
    if not _is_part_of_log(root, version, marks):
        raise CommitConflict
    if (version + 1) % CHECKPOINT_INTERVAL == 0:
        handle = open_table(root)
        if handle is not None:
            handle.create_checkpoint()
    return version


def _describe_action(action: AddAction | RemovedFile) -> dict[str, object]:
    facts = {
        "path": quote(action.path, safe=_PLAIN),
        "partitionValues": dict(action.partition_values),
        "size": action.size,
        "dataChange": True,
    }
    if isinstance(action, RemovedFile):
        return {"remove": {**facts, "deletionTimestamp": action.modification_time, "extendedFileMetadata": True}}
    return {"add": {**facts, "modificationTime": action.modification_time, "stats": action.stats}}


def _put(folder: Path, version: int, entry: bytes) -> bool:
    """Give an entry its name, whole and at once; false where another entry has it."""
    aside = folder / f"_commit_{uuid.uuid4()}.json.tmp"
    try:
        aside.write_bytes(entry)
        os.link(aside, folder / f"{version:020}.json")
    except FileExistsError:
        return False
    finally:
        aside.unlink(missing_ok=True)
    return True


def _is_part_of_log(root: Location, version: int, marks: Mapping[str, int]) -> bool:
    """Whether readers see an entry that was just added: not where a checkpoint without it is of a later version.

    Then the name was free only because others had added entries, written them down and deleted them.
    """
    hint = read_log_file(root, "_last_checkpoint")
    if hint is None or json.loads(hint)["version"] < version:
        return True
    log = read_current(root)
    return log is not None and all(log.find_mark(app_id) == mark for app_id, mark in marks.items())
