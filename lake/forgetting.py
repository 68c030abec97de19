"""Forgetting a run: its rows, the files of every earlier version that held them, and what the logs say of it."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import obstore
import polars as pl
from deltalake import CommitProperties, DeltaTable, Transaction

from lake import commits
from lake.compaction import delete_stale
from lake.cut_off import delete_object, fetch_object, list_objects, repeat_cut_off
from lake.durability import Disk
from lake.landing_notes import remove_note
from lake.locations import report_unreachable
from lake.settled_runs import remove_memory
from lake.snapshot import bytes_id, seen_id, stated_id

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lake.locations import Location

_PENDING = "forgetting.json"
# While a run is forgotten: no deleted file and no older log entry is kept. Marks are dropped from a log when they are
# older than the last of these; ours bear no time, so that only those of a forgotten run, dated to 1970, go.
_NOTHING_KEPT = {
    "delta.deletedFileRetentionDuration": "interval 0 days",
    "delta.logRetentionDuration": "interval 0 days",
    "delta.setTransactionRetentionDuration": "interval 3650 days",
}
# Delta's own defaults.
_KEPT_AGAIN = {
    "delta.deletedFileRetentionDuration": "interval 7 days",
    "delta.logRetentionDuration": "interval 30 days",
}
_LONG_AGO = 1


@dataclass(frozen=True)
class Removed:
    """What was removed of one table: rows of the run as it was, and data files of all versions."""

    table: str
    rows: int = 0
    files: int = 0
    bytes: int = 0


def drop_runs(place: Location, name: str, run_ids: Collection[str]) -> int:
    """Take runs out of a table, and the marks of what they were made from, in one commit; gives the rows."""
    root = place.child(*name.split("."))
    with report_unreachable(f"{root} could not be written to"):
        return repeat_cut_off(partial(_drop_runs, root, run_ids))


def _drop_runs(root: Location, run_ids: Collection[str]) -> int:
    _open(root).alter.set_table_properties(_NOTHING_KEPT)
    handle = _open(root)
    parts = handle.metadata().partition_columns
    actions = pl.DataFrame(handle.get_add_actions(flatten=True))
    gone = actions.filter(pl.col(f"partition.{parts[0]}").is_in(sorted(run_ids))) if parts[0] == "run_id" else None
    rows = [] if gone is None else gone.to_dicts()
    removes = [
        commits.RemovedFile(row["path"], row["size_bytes"], {part: str(row[f"partition.{part}"]) for part in parts})
        for row in rows
    ]
    marks = [
        Transaction(app, 0, _LONG_AGO)
        for one in sorted(run_ids)
        for app in (one, seen_id(one), bytes_id(one), stated_id(one))
    ]
    handle.create_write_transaction(
        [one.make_action() for one in removes],
        "append",
        handle.schema(),
        parts,
        commit_properties=CommitProperties(commits.describe_commit({}, removes, marks), app_transactions=marks),
    )
    _sync(root)
    return sum(int(row["num_records"]) for row in rows)


def purge_history(place: Location, name: str, run_ids: Iterable[str]) -> Removed:
    """Delete every data file that the table as it is does not hold, and every log entry before now; gives the files."""
    root = place.child(*name.split("."))
    with report_unreachable(f"{root} could not be purged"):
        before = _list_sizes(root)
        repeat_cut_off(partial(_purge, root))
        if place.is_local:
            staging = place.directory / "_staging" / name
            shutil.rmtree(staging / "unreadable", ignore_errors=True)
            for run_id in run_ids:
                shutil.rmtree(root.directory / f"run_id={run_id}", ignore_errors=True)
                shutil.rmtree(staging / "spool" / run_id, ignore_errors=True)
                (staging / "locks" / run_id).unlink(missing_ok=True)
        after = _list_sizes(root)
        gone = [size for path, size in before.items() if path not in after]
    return Removed(name, files=len(gone), bytes=sum(gone))


def _purge(root: Location) -> None:
    held = _open(root)
    held.vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    delete_stale(root, pl.DataFrame(held.get_add_actions(flatten=True))["path"])
    # An entry that names nothing: a checkpoint stands in for all entries before its own, and that one stays.
    _open(root).alter.set_table_properties(_NOTHING_KEPT)
    handle = _open(root)
    handle.create_checkpoint()
    _sync(root)
    handle.cleanup_metadata()
    handle.alter.set_table_properties(_KEPT_AGAIN)
    _sync(root)


def remove_notes(place: Location, run_ids: Iterable[str]) -> None:
    """Delete what the lake noted of runs beside its tables: what had landed of them, and which are up to date."""
    with report_unreachable(f"{place} could not be written to"):
        for run_id in run_ids:
            remove_note(place, run_id)
        remove_memory(place)


def list_pending(place: Location) -> list[str]:
    """The runs that were being forgotten when the command was stopped."""
    with report_unreachable(f"{place} could not be read"):
        try:
            return list(json.loads(fetch_object(place.child("_staging").store, _PENDING)))
        except FileNotFoundError:
            return []


def set_pending(place: Location, run_ids: Collection[str]) -> None:
    """Write down which runs are being forgotten; none takes the note away."""
    with report_unreachable(f"{place} could not be written to"):
        store = place.child("_staging").store
        if run_ids:
            obstore.put(store, _PENDING, json.dumps(sorted(run_ids)).encode())
        elif list_pending(place):
            delete_object(store, _PENDING)


def _open(root: Location) -> DeltaTable:
    return DeltaTable(str(root), storage_options=dict(root.options) or None)


def _sync(root: Location) -> None:
    if root.is_local:
        Disk(root.directory).sync_log(root.directory / "_delta_log", -1, _open(root).version())


def _list_sizes(root: Location) -> dict[str, int]:
    listed = list_objects(root.store)
    return {item["path"]: item["size"] for item in listed if not item["path"].startswith("_delta_log/")}
