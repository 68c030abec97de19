"""A lake whose files were changed around the store: nothing that the store refuses is refused here."""

from __future__ import annotations

import json
import os
import shutil
import time
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from lake.contract import matches, partitions
from lake.locations import Location
from lake.store import Lake
from lake.table_log import describe_opened

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import polars as pl

    from assets.checks.expectations import CheckResult
    from lake.tables import Table

    Change = Callable[[pl.DataFrame], pl.DataFrame]


def copy_lake(lake: Lake, into: Path, *harmed: Table) -> Lake:
    """A lake without a keyring, each table of which is that of the other until `put` copies it.

    Copied at once are tables whose files a test harms itself.
    """
    for path in lake.place.directory.glob("[a-z]*/*"):
        (into / path.parent.name).mkdir(parents=True, exist_ok=True)
        (into / path.parent.name / path.name).symlink_to(path.resolve(), path.is_dir())
    copied = Lake(Location.of(into))
    for table in harmed:
        _copy_table(copied, table)
    return copied


def _copy_table(lake: Lake, table: Table) -> None:
    """Put a directory of its own, with links to the same data files, in the place of a link to another lake's."""
    root = lake.place.directory / table.path
    if root.is_symlink():
        shared = root.readlink()
        root.unlink()
        shutil.copytree(shared, root, copy_function=os.link)


def change(lake: Lake, table: Table, run_id: str, how: Change) -> None:
    """Put changed rows in the place of a run's rows, in the order of the key."""
    rows = how(lake.scan(table, [run_id]).sort(table.key).collect())
    anything = table.nullable_schema
    put(lake, table, run_id, rows.to_arrow().cast(anything))


def put(lake: Lake, table: Table, run_id: str, rows: pa.Table) -> None:
    """Make rows of any kind a run's partition: data files and log entries, as a stranger would write them."""
    _copy_table(lake, table)
    root = lake.place.directory / table.path
    handle = DeltaTable(root)
    actions: list[AddAction | RemoveAction] = [
        RemoveAction(path, True, int(time.time() * 1000), file.size_bytes, dict(file.values))
        for path, file in describe_opened(handle).files.get(run_id, {}).items()
    ]
    for inner in partitions(table, rows):
        part = rows.filter(matches(inner)) if inner else rows
        values = {table.partition_key: run_id, **{name: str(value) for name, value in inner.items()}}
        path = "/".join([*(f"{name}={value}" for name, value in values.items()), f"{uuid.uuid4().hex}.parquet"])
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(part.drop_columns(list(table.partition_by)), root / path)
        answer = json.dumps({"numRecords": part.num_rows})
        actions.append(AddAction(path, (root / path).stat().st_size, values, int(time.time() * 1000), True, answer))
    handle.create_write_transaction(actions, "append", handle.schema(), list(table.partition_by))


def count_broken(results: list[CheckResult]) -> dict[str, int]:
    """The checks that failed, each with how many rows violate it."""
    return {one.check.name: one.broken_count for one in results if not one.is_held}
