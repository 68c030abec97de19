from __future__ import annotations

import json
import random
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction, RemoveAction

from lake.forgetting import drop_runs, purge_history
from lake.locations import Location
from lake.log_entries import UnknownLog
from lake.table_log import TableLog, describe_opened, read_log
from tests.support.sample_tables import FIRST, READINGS, SECOND, readings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from lake.store import Lake

APPS = [f"run-{place}" for place in range(12)]
PARTS = ["run_id", "rank"]


def make_table(root: Path) -> DeltaTable:
    schema = pa.schema([("run_id", pa.string()), ("rank", pa.int64()), ("power", pa.float64())])
    return DeltaTable.create(str(root), schema, partition_by=PARTS)


def commit(handle: DeltaTable, app: str, version: int, *actions: AddAction | RemoveAction) -> None:
    marks = CommitProperties(app_transactions=[Transaction(app, version)])
    handle.create_write_transaction(list(actions), "append", handle.schema(), PARTS, commit_properties=marks)
    handle.update_incremental()


def add(run_id: str, rank: int, number: int) -> AddAction:
    stats = json.dumps({"numRecords": number, "minValues": {"power": number / 2}})
    values = {"run_id": run_id, "rank": str(rank)}
    return AddAction(f"run_id={run_id}/rank={rank}/{number}.parquet", 100 + number, values, 0, True, stats)


def read_known(root: Path, before: TableLog | None = None) -> TableLog:
    log = read_log(Location.of(root), before)
    assert log is not None
    assert log.handle is None
    return log


def describe(log: TableLog) -> tuple[object, ...]:
    files = {
        run_id: {path: (file.size_bytes, dict(file.values), file.rows) for path, file in files.items()}
        for run_id, files in log.files.items()
    }
    return log.version, log.columns, log.partition_columns, files, {app: log.find_mark(app) for app in APPS}


@pytest.mark.parametrize("seed", range(5))
def test_what_is_read_of_a_log_is_what_delta_says_of_the_table(tmp_path: Path, seed: int) -> None:
    """From the beginning or on from any earlier version, with checkpoints, replaced partitions and removed files."""
    chance = random.Random(seed)
    root, known = tmp_path / "table", list[TableLog]()
    handle = make_table(root)
    for number in range(60):
        app = chance.choice(APPS)
        held = describe_opened(handle).files.get(app, {})
        removed = [path for path in held if chance.random() < 0.5]
        removes = [RemoveAction(path, True, 0, held[path].size_bytes, dict(held[path].values)) for path in removed]
        adds = [add(app, rank, number) for rank in range(chance.randrange(3))]
        commit(handle, app, chance.randrange(1 << 40), *removes, *adds)
        if chance.random() < 0.1:
            handle.create_checkpoint()
        if chance.random() < 0.3:
            log = read_known(root, chance.choice([None, *known]))
            assert describe(log) == describe(describe_opened(DeltaTable(str(root))))
            known.append(log)
    assert list(root.glob("_delta_log/*.checkpoint.parquet"))
    assert len({log.version for log in known}) > 5


def test_an_earlier_version_stays_as_it_was_read(tmp_path: Path) -> None:
    handle = make_table(tmp_path / "table")
    commit(handle, APPS[0], 1, add(APPS[0], 0, 7))
    earlier = read_known(tmp_path / "table")
    before = describe(earlier)
    commit(handle, APPS[0], 2, add(APPS[0], 1, 8))
    assert describe(read_known(tmp_path / "table", earlier)) != before
    assert describe(earlier) == before


def test_a_mark_that_bears_a_time_is_of_a_forgotten_run_in_a_checkpoint_too(tmp_path: Path) -> None:
    handle = make_table(tmp_path / "table")
    commit(handle, APPS[0], 1)
    marks = CommitProperties(app_transactions=[Transaction(APPS[1], 2, int(time.time() * 1000))])
    handle.create_write_transaction([], "append", handle.schema(), PARTS, commit_properties=marks)
    handle.update_incremental()
    for _ in range(2):
        log = read_known(tmp_path / "table")
        assert (log.find_mark(APPS[0]), log.find_mark(APPS[1])) == (1, None)
        handle.create_checkpoint()


def test_no_log_is_no_table(tmp_path: Path) -> None:
    assert read_log(Location.of(tmp_path / "table")) is None
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    assert read_log(Location.of(tmp_path / "table")) is None


def lose_an_entry(root: Path) -> None:
    (root / "_delta_log" / f"{1:020}.json").unlink()


def ask_for_more_than_we_write(root: Path) -> None:
    entry = root / "_delta_log" / f"{2:020}.json"
    vector = {"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}
    said = {"path": "run_id=a/rank=0/x.parquet", "size": 1, "partitionValues": {"run_id": "a", "rank": "0"}}
    said |= {"modificationTime": 0, "dataChange": True, "deletionVector": vector}
    entry.write_text(entry.read_text() + json.dumps({"add": said}) + "\n")


def ask_for_a_later_reader(root: Path) -> None:
    entry = root / "_delta_log" / f"{0:020}.json"
    entry.write_text(entry.read_text().replace('"minReaderVersion":1', '"minReaderVersion":3'))


def split_the_checkpoint(root: Path) -> None:
    DeltaTable(str(root)).create_checkpoint()
    hint = root / "_delta_log" / "_last_checkpoint"
    hint.write_text(json.dumps(json.loads(hint.read_text()) | {"parts": 2}))


@pytest.mark.parametrize(
    "harm", [lose_an_entry, ask_for_more_than_we_write, ask_for_a_later_reader, split_the_checkpoint]
)
def test_a_log_that_we_would_not_write_is_left_to_delta(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    handle = make_table(tmp_path / "table")
    for number in range(3):
        commit(handle, APPS[number], number)
    harm(tmp_path / "table")
    with pytest.raises(UnknownLog):
        read_log(Location.of(tmp_path / "table"))


def test_delta_answers_where_we_do_not_know_our_way(lake: Lake) -> None:
    lake.replace(READINGS, "a", readings("a"), FIRST)
    split_the_checkpoint(lake.root(READINGS).directory)
    reader = type(lake)(lake.place)
    lake.replace(READINGS, "b", readings("b"), SECOND)
    snapshot = reader.snapshot(READINGS)
    assert (snapshot.run_ids, snapshot.is_made_from("a", FIRST), snapshot.is_made_from("b", SECOND)) == (
        ["a", "b"],
        True,
        True,
    )
    assert reader.scan(READINGS).collect().height == 2 * readings("a").num_rows


def test_the_marks_of_a_forgotten_run_are_none(lake: Lake) -> None:
    for run_id in ("kept", "gone"):
        lake.replace(READINGS, run_id, readings(run_id), FIRST)
    drop_runs(lake.place, READINGS.full_name, ["gone"])
    root = lake.root(READINGS)
    for _ in range(2):
        log = read_known(root.directory)
        assert (log.find_mark("gone"), log.find_mark("gone@bytes")) == (None, None)
        assert log.find_mark("kept") is not None
        purge_history(lake.place, READINGS.full_name, ["gone"])


def test_a_remote_table_is_opened_again_only_where_its_log_has_changed(remote_lake: Lake) -> None:
    remote_lake.replace(READINGS, "a", readings("a"), FIRST)
    reader = type(remote_lake)(remote_lake.place)  # another one of the same process
    first = reader.snapshot(READINGS)
    assert reader.snapshot(READINGS)._log is first._log
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
    assert remote_lake.snapshot(READINGS)._log is again._log
