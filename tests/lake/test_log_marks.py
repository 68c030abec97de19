from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from lake.forgetting import drop_runs, purge_history
from lake.locations import Location
from lake.log_marks import LogMarks
from tests.support.sample_tables import FIRST, READINGS, SECOND, readings

if TYPE_CHECKING:
    from pathlib import Path

    from lake.store import Lake

APPS = [f"run-{place}" for place in range(12)]
_MANY = [f"other-{place}" for place in range(9)]


def make_table(root: Path) -> DeltaTable:
    return DeltaTable.create(str(root), pa.schema([("run_id", pa.string())]), partition_by=["run_id"])


def mark(handle: DeltaTable, app: str, version: int) -> None:
    handle.create_write_transaction(
        list[AddAction | RemoveAction](),
        "append",
        handle.schema(),
        ["run_id"],
        commit_properties=CommitProperties(app_transactions=[Transaction(app, version)]),
    )
    handle.update_incremental()


def read_all(marks: LogMarks) -> dict[str, int | None]:
    for app in _MANY:  # so many that all are read at once
        assert marks.find(app) is None
    return {app: marks.find(app) for app in APPS}


@pytest.mark.parametrize("seed", range(5))
def test_all_marks_at_once_are_those_that_delta_gives_one_by_one(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    handle = make_table(tmp_path / "table")
    root = Location.of(tmp_path / "table")
    basis = None
    for _ in range(40):
        mark(handle, chance.choice(APPS), chance.randrange(1 << 40))
        if chance.random() < 0.1:
            handle.create_checkpoint()
        if chance.random() < 0.2:
            fresh = DeltaTable(str(tmp_path / "table"))
            marks = LogMarks(root, fresh.version(), basis)
            assert read_all(marks) == {app: fresh.transaction_version(app) for app in APPS}
            basis = chance.choice([None, marks.basis])


def test_a_checkpoint_of_a_later_version_is_not_looked_at(tmp_path: Path) -> None:
    handle = make_table(tmp_path / "table")
    mark(handle, APPS[0], 1)
    earlier = DeltaTable(str(tmp_path / "table"))
    mark(handle, APPS[0], 2)
    handle.create_checkpoint()
    assert read_all(LogMarks(Location.of(tmp_path / "table"), earlier.version()))[APPS[0]] == 1


def test_the_marks_of_a_forgotten_run_are_none(lake: Lake) -> None:
    for run_id in ("kept", "gone"):
        lake.replace(READINGS, run_id, readings(run_id), FIRST)
    drop_runs(lake.place, READINGS.full_name, ["gone"])
    root = lake.root(READINGS)
    for _ in range(2):
        marks = LogMarks(root, DeltaTable(str(root)).version())
        read_all(marks)
        assert (marks.find("gone"), marks.find("gone@bytes")) == (None, None)
        assert marks.find("kept") is not None
        purge_history(lake.place, READINGS.full_name, ["gone"])


def test_a_remote_table_is_opened_again_only_where_its_log_has_changed(remote_lake: Lake) -> None:
    remote_lake.replace(READINGS, "a", readings("a"), FIRST)
    reader = type(remote_lake)(remote_lake.place)  # another one of the same process
    first = reader.snapshot(READINGS)
    assert reader.snapshot(READINGS)._handle is first._handle
    remote_lake.replace(READINGS, "a", readings("a", [9.0]), SECOND)
    later = reader.snapshot(READINGS)
    assert (later.version, later.is_made_from("a", SECOND)) == ((first.version or 0) + 1, True)
    # What was looked at before stays as it was, whatever a writer does with a table of its own.
    assert (first.is_made_from("a", FIRST), first.partition("a").rows) == (True, readings("a").num_rows)


def test_a_remote_log_that_was_put_back_is_read_anew(remote_lake: Lake) -> None:
    root = remote_lake.root(READINGS)
    remote_lake.replace(READINGS, "a", readings("a"), FIRST)
    before = {item["path"] for page in root.store.list() for item in page}
    remote_lake.replace(READINGS, "b", readings("b"), FIRST)
    assert remote_lake.snapshot(READINGS).run_ids == ["a", "b"]
    root.store.delete([item["path"] for page in root.store.list() for item in page if item["path"] not in before])
    snapshot = remote_lake.snapshot(READINGS)
    assert (snapshot.run_ids, snapshot.mark("b")) == (["a"], None)
    written = remote_lake.replace(READINGS, "b", readings("b", [3.0]), SECOND)
    assert written.version == (snapshot.version or 0) + 1
    again = remote_lake.snapshot(READINGS)
    assert again.is_made_from("b", SECOND)
    # What was known of the log before is gone: it would be held against the new one at every look, and never fit.
    assert remote_lake.snapshot(READINGS)._handle is again._handle
