"""Log entries that we write ourselves: Delta reads them as its own, and none is lost to a writer who is faster."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction

from assets.build.catalogue import TABLES
from lake.commits import CHECKPOINT_INTERVAL
from lake.errors import ContractBroken, SourceUnavailable
from lake.forgetting import purge_history
from lake.local_commits import create_table
from lake.store import Lake
from lake.table_log import describe_opened
from tests.support.sample_tables import CELLS, FIRST, READINGS, SECOND, readings

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake.tables import Table


def open_by_delta(lake: Lake, table: Table = READINGS) -> DeltaTable:
    return DeltaTable(lake.uri(table))


def read_entry(lake: Lake, version: int) -> list[dict[str, Any]]:
    text = (lake.log(READINGS) / f"{version:020}.json").read_text("utf-8")
    return [json.loads(line) for line in text.splitlines()]


def act_before_the_next_commit(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let something happen once a writer has looked at the log, and before it commits."""
    exchange, waiting = Lake._exchange, [act]

    def act_first(*arguments: Any, **named: Any) -> Any:
        while waiting:
            waiting.pop()()
        return exchange(*arguments, **named)

    monkeypatch.setattr(Lake, "_exchange", act_first)


def commit_a_mark(lake: Lake, app_id: str, mark: int) -> None:
    """A commit of somebody else's, by Delta."""
    rival = open_by_delta(lake)
    properties = CommitProperties(app_transactions=[Transaction(app_id, mark)])
    rival.create_write_transaction([], "append", rival.schema(), ["run_id"], commit_properties=properties)


@pytest.mark.parametrize("table", TABLES.values(), ids=lambda table: table.full_name)
def test_a_table_that_we_create_is_the_table_that_delta_would_create(lake: Lake, table: Table, tmp_path: Path) -> None:
    create_table(lake.root(table), table, {"delta.checkpointInterval": "20"})
    theirs = DeltaTable.create(
        str(tmp_path / "theirs"),
        table.arrow_schema,
        partition_by=list(table.partition_by),
        name=table.full_name,
        description=table.grain,
        configuration={"delta.checkpointInterval": "20"},
    )
    ours = open_by_delta(lake, table)
    (said, protocol, declared), of_delta = (
        [json.loads(line) for line in Path(log, "_delta_log", f"{0:020}.json").read_text("utf-8").splitlines()]
        for log in (lake.uri(table), tmp_path / "theirs")
    )
    assert said.keys() == {"commitInfo"}
    assert protocol in of_delta
    unlike = {"id", "createdTime"}
    (expected,) = [line["metaData"] for line in of_delta if "metaData" in line]
    assert {name: found for name, found in declared["metaData"].items() if name not in unlike} == {
        name: found for name, found in expected.items() if name not in unlike
    }
    assert declared["metaData"].keys() == expected.keys()
    assert (ours.version(), ours.schema()) == (0, theirs.schema())


def test_a_table_is_created_once_whoever_is_first(lake: Lake) -> None:
    create_table(lake.root(READINGS), READINGS, {})
    (first,) = (lake.log(READINGS)).iterdir()
    before = first.read_bytes()
    create_table(lake.root(READINGS), READINGS, {})
    assert [path.read_bytes() for path in lake.log(READINGS).iterdir()] == [before]
    lake.replace(READINGS, "a", readings("a"), FIRST)
    assert open_by_delta(lake).version() == 1


def test_delta_reads_what_we_commit(lake: Lake) -> None:
    lake.replace(READINGS, "a", readings("a"), FIRST)
    lake.replace(READINGS, "b", readings("b", [1.0, None]), FIRST)
    lake.replace(READINGS, "a", readings("a", [2.0]), SECOND)
    theirs, ours = open_by_delta(lake), lake.snapshot(READINGS)
    assert theirs.version() == 3
    files = {path for run_id in ours.run_ids for path in ours.files(run_id)}
    assert {path.removeprefix(lake.uri(READINGS) + "/") for path in theirs.file_uris()} == files
    seen = describe_opened(theirs)
    log = lake._read_log(READINGS)
    assert log is not None
    assert {run: {path: file.rows for path, file in files.items()} for run, files in seen.files.items()} == {
        run: {path: file.rows for path, file in files.items()} for run, files in log.files.items()
    }
    assert all(theirs.transaction_version(app_id) == mark for app_id, mark in log.marks.items())
    rows = theirs.to_pyarrow_dataset().to_table().sort_by([("run_id", "ascending"), ("ordinal", "ascending")])
    assert rows.column("power_w").to_pylist() == [2.0, 1.0, None]
    assert [entry["teetotal.run_id"] for entry in theirs.history()[:3]] == ["a", "b", "a"]


def test_partitions_inside_a_runs_partition_are_read_by_delta(lake: Lake) -> None:
    rows = [{"run_id": "a", "rank": rank, "site": f"s.{rank}", "cell": "c"} for rank in (0, 1)]
    lake.replace(CELLS, "a", pa.Table.from_pylist(rows, CELLS.arrow_schema), FIRST)
    found = open_by_delta(lake, CELLS).to_pyarrow_dataset().to_table().sort_by("rank")
    assert found.select(["run_id", "rank", "site", "cell"]).to_pylist() == rows


def test_an_entry_says_how_many_lines_it_has_and_who_wrote_it(lake: Lake) -> None:
    lake.replace(READINGS, "a", readings("a"), FIRST)
    first, *rest = read_entry(lake, 1)
    assert first["commitInfo"]["teetotal.lines"] == str(1 + len(rest))
    assert first["commitInfo"]["engineInfo"] == "teetotal"
    assert sorted(next(iter(line)) for line in rest) == ["add", "txn", "txn"]
    assert not list(lake.log(READINGS).glob("_commit_*"))


def test_checkpoints_are_made_as_delta_would_and_hold_our_commits(lake: Lake) -> None:
    for number in range(CHECKPOINT_INTERVAL + 2):
        lake.replace(READINGS, f"run-{number:02}", readings(f"run-{number:02}"), FIRST)
    made = sorted(path.name for path in lake.log(READINGS).glob("*.checkpoint.parquet"))
    assert made == [f"{CHECKPOINT_INTERVAL - 1:020}.checkpoint.parquet"]
    fresh = Lake(lake.place)
    for version in range(CHECKPOINT_INTERVAL - 1):
        (lake.log(READINGS) / f"{version:020}.json").unlink()
    fresh._tables._known.clear()  # another process, which has only the checkpoint and what follows it
    assert fresh.snapshot(READINGS).run_ids == [f"run-{number:02}" for number in range(CHECKPOINT_INTERVAL + 2)]
    assert all(fresh.snapshot(READINGS).is_made_from(f"run-{number:02}", FIRST) for number in range(4))
    assert open_by_delta(lake).version() == CHECKPOINT_INTERVAL + 2


@pytest.mark.parametrize("by", ["ourselves", "delta"])
def test_a_commit_of_another_run_that_was_faster_is_let_stand(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    lake.replace(READINGS, "a", readings("a"), FIRST)

    def commit() -> None:
        if by == "delta":
            commit_a_mark(lake, "b", 7)
        else:
            lake.replace(READINGS, "b", readings("b"), FIRST)

    act_before_the_next_commit(monkeypatch, commit)
    calls: list[int] = []
    monkeypatch.setattr("lake.commits.wait_before_retry", calls.append)
    assert lake.replace(READINGS, "a", readings("a", [5.0]), SECOND).version == 3
    assert not calls  # nothing had to be made again
    assert lake.scan(READINGS, ["a"]).collect()["power_w"].to_list() == [5.0]
    assert open_by_delta(lake).version() == 3


def test_a_commit_of_the_same_run_that_was_faster_is_a_conflict(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.replace(READINGS, "a", readings("a"), FIRST)
    act_before_the_next_commit(monkeypatch, lambda: commit_a_mark(lake, "a", 7))
    calls: list[int] = []
    monkeypatch.setattr("lake.commits.wait_before_retry", calls.append)
    lake.replace(READINGS, "a", readings("a", [5.0]), SECOND)
    assert calls == [0]
    assert lake.snapshot(READINGS).is_made_from("a", SECOND)


def test_a_table_that_others_have_given_other_columns_meanwhile_is_not_added_to(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.replace(READINGS, "a", readings("a"), FIRST)
    other = pa.schema([("run_id", pa.string()), ("ordinal", pa.int64())])

    def create_anew() -> None:
        DeltaTable.create(lake.uri(READINGS), other, mode="overwrite", partition_by=["run_id"])

    act_before_the_next_commit(monkeypatch, create_anew)
    with pytest.raises(ContractBroken, match="other columns"):
        lake.replace(READINGS, "b", readings("b"), FIRST)
    assert open_by_delta(lake).version() == 2
    assert open_by_delta(lake).file_uris() == []


def test_a_version_whose_entries_were_written_down_and_deleted_is_never_used_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others commit, and an auditor has the history purged: the name that was free next is free again."""
    lake.replace(READINGS, "a", readings("a"), FIRST)

    def commit_and_purge() -> None:
        for number in range(3):
            commit_a_mark(lake, f"other-{number}", 1)
        purge_history(lake.place, READINGS.full_name, [])

    act_before_the_next_commit(monkeypatch, commit_and_purge)
    lake.replace(READINGS, "b", readings("b"), FIRST)
    fresh = Lake(lake.place)
    fresh._tables._known.clear()
    assert fresh.snapshot(READINGS).run_ids == ["a", "b"]
    assert fresh.snapshot(READINGS).is_made_from("b", FIRST)
    assert len(open_by_delta(lake).file_uris()) == 2


def test_an_entry_that_cannot_be_written_leaves_nothing_behind(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.replace(READINGS, "a", readings("a"), FIRST)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("lake.local_commits.os.link", fail)
    with pytest.raises(SourceUnavailable, match="could not be committed to"):
        lake.replace(READINGS, "a", readings("a", [5.0]), SECOND)
    monkeypatch.undo()
    assert not list(lake.log(READINGS).glob("_commit_*"))
    assert lake.snapshot(READINGS).is_made_from("a", FIRST)
    lake.replace(READINGS, "a", readings("a", [5.0]), SECOND)
    assert lake.scan(READINGS, ["a"]).collect()["power_w"].to_list() == [5.0]


def split_the_checkpoint(lake: Lake) -> None:
    open_by_delta(lake).create_checkpoint()
    hint = lake.log(READINGS) / "_last_checkpoint"
    hint.write_text(json.dumps({**json.loads(hint.read_text()), "parts": 1}), "utf-8")


def ask_more_of_writers(lake: Lake) -> None:
    entry = lake.log(READINGS) / f"{open_by_delta(lake).version() + 1:020}.json"
    entry.write_text('{"protocol":{"minReaderVersion":1,"minWriterVersion":3}}', "utf-8")


@pytest.mark.parametrize("change", [split_the_checkpoint, ask_more_of_writers])
def test_a_log_that_holds_what_we_never_write_is_committed_to_by_delta(
    lake: Lake, change: Callable[[Lake], None]
) -> None:
    lake.replace(READINGS, "a", readings("a"), FIRST)
    change(lake)
    fresh = Lake(lake.place)
    fresh._tables._known.clear()
    version = fresh.replace(READINGS, "b", readings("b"), FIRST).version
    assert read_entry(lake, version)[0]["commitInfo"]["engineInfo"].startswith("delta-rs")
    assert open_by_delta(lake).version() == version
    assert fresh.snapshot(READINGS).run_ids == ["a", "b"]
