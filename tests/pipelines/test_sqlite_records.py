"""Dagster's records in files that are opened once: what Dagster's own storage reads and writes, and nothing else."""

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.definitions.asset_checks.asset_check_evaluation import (
    AssetCheckEvaluationPlanned,
    AssetCheckEvaluationTargetMaterializationData,
)
from dagster._core.definitions.partitions.subset import DefaultPartitionsSubset
from dagster._core.events import AssetMaterializationPlannedData, DagsterEventType, StepMaterializationData
from dagster._core.storage.event_log.schema import (
    AssetCheckExecutionsTable,
    AssetEventTagsTable,
    AssetKeyTable,
    SqlEventLogStorageTable,
)
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from dagster._core.storage.schedules.sqlite import sqlite_schedule_storage
from sqlalchemy import event, select
from sqlalchemy.engine import Engine

from pipelines import sqlite_records
from pipelines.instance import open_instance
from pipelines.record_files import OpenFiles, copy_empty_log
from pipelines.settings import settings
from pipelines.sqlite_records import SqliteEventLog

FAULT = "a disk that fails"


@dg.asset(check_specs=[dg.AssetCheckSpec(f"check_{place}", asset="table") for place in range(20)])
def table() -> Iterator[object]:
    """An asset with many checks."""
    yield dg.Output(1)
    for place in range(20):
        yield dg.AssetCheckResult(check_name=f"check_{place}", passed=True)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """Records in files, as a command opens them."""
    with open_instance(settings(str(tmp_path / "lake"), environment={}).home) as opened:
        yield opened


@pytest.fixture
def opened() -> Iterator[list[object]]:
    """The database connections that are opened while a test runs."""
    found: list[object] = []

    def note(connection: object, _: object) -> None:
        found.append(connection)

    event.listen(Engine, "connect", note)
    yield found
    event.remove(Engine, "connect", note)


def list_kinds(records: dg.DagsterInstance, run_id: str) -> list[str]:
    return sorted(str(entry.dagster_event_type) for entry in records.all_logs(run_id))


def test_a_launch_with_many_checks_opens_few_connections(
    records: dg.DagsterInstance, opened: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_EVENT_BATCH_SIZE", "1000")
    assert dg.materialize([table], instance=records).success
    assert len(opened) <= 8


def test_dagsters_own_storage_reads_the_same_records(records: dg.DagsterInstance, tmp_path: Path) -> None:
    run_id = dg.materialize([table], instance=records).run_id
    kinds = list_kinds(records, run_id)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "dagster.yaml").write_text(
        yaml.safe_dump({"storage": {"sqlite": {"base_dir": str(tmp_path / ".dagster" / "storage")}}})
    )
    with dg.DagsterInstance.from_config(str(tmp_path / "own")) as own:
        assert list_kinds(own, run_id) == kinds
        assert own.get_run_by_id(run_id) == records.get_run_by_id(run_id)
        assert [run.run_id for run in own.get_runs()] == [run_id]
    assert kinds.count("DagsterEventType.ASSET_CHECK_EVALUATION") == 20


@pytest.mark.parametrize("place", range(1, 5))
def test_a_batch_is_stored_whole_or_not_at_all(records: dg.DagsterInstance, place: int) -> None:
    before = list_kinds(records, "launch-0")
    entries, inserts = tell_of_partitions("launch-0"), []

    def fail_at_one(_: object, __: object, statement: str, *___: object) -> None:
        inserts.append(statement.startswith("INSERT"))
        if sum(inserts) == place:
            raise OSError(FAULT)

    event.listen(Engine, "before_cursor_execute", fail_at_one)
    try:
        with pytest.raises(OSError, match=FAULT):
            records.event_log_storage.store_event_batch(entries)
    finally:
        event.remove(Engine, "before_cursor_execute", fail_at_one)
    assert list_kinds(records, "launch-0") == before
    records.event_log_storage.store_event_batch(entries)
    assert len(list_kinds(records, "launch-0")) == len(before) + len(entries)


def tell_of_partitions(*run_ids: str) -> list[dg.EventLogEntry]:
    """What launches in turns plan and make of two assets, partition by partition."""
    return [
        dg.EventLogEntry(  # type: ignore[no-untyped-call]  # it is not annotated
            error_info=None,
            level=20,
            user_message="",
            run_id=run_ids[number % len(run_ids)],
            timestamp=float(number),
            job_name="ingest",
            dagster_event=dg.DagsterEvent.build_asset_materialization_planned_event(
                "ingest", "table", AssetMaterializationPlannedData(dg.AssetKey([asset]), str(number), None)
            )
            if number < 6
            else dg.DagsterEvent(
                DagsterEventType.ASSET_MATERIALIZATION.value,
                "ingest",
                event_specific_data=StepMaterializationData(
                    dg.AssetMaterialization(
                        dg.AssetKey([asset]), partition=str(number), tags={"dagster/data_version": f"v{number}"}
                    )
                ),
            ),
        )
        for number, asset in enumerate("abaabbaabb")
    ]


def tell_of_checks(run_id: str) -> list[dg.EventLogEntry]:
    """What a launch plans and finds of checks: some were not planned, some not made, and one is told twice."""
    asset = dg.AssetKey(["a"])
    told = [
        *(("planned", name, None) for name in ("1", "2", "3")),
        *(("planned", "4", partition) for partition in ("x", "y")),
        *(("told", name, None) for name in ("1", "3", "5", "6")),
        *(("told", "4", partition) for partition in ("y", "z")),
        ("told", "1", None),
        ("planned", "7", None),
    ]
    return [
        dg.EventLogEntry(  # type: ignore[no-untyped-call]  # it is not annotated
            error_info=None,
            level=20,
            user_message="",
            run_id=run_id,
            timestamp=float(number),
            job_name="ingest",
            dagster_event=dg.DagsterEvent(
                DagsterEventType.ASSET_CHECK_EVALUATION_PLANNED.value,
                "ingest",
                event_specific_data=AssetCheckEvaluationPlanned(
                    asset_key=asset,
                    check_name=name,
                    partitions_subset=DefaultPartitionsSubset({partition}) if partition else None,
                ),
            )
            if kind == "planned"
            else dg.DagsterEvent(
                DagsterEventType.ASSET_CHECK_EVALUATION.value,
                "ingest",
                event_specific_data=dg.AssetCheckEvaluation(
                    asset,
                    name,
                    passed=number % 2 == 0,
                    metadata={},
                    partition=partition,
                    target_materialization_data=AssetCheckEvaluationTargetMaterializationData(
                        storage_id=number, run_id=run_id, timestamp=1.0
                    )
                    if name == "1"
                    else None,
                ),
            ),
        )
        for number, (kind, name, partition) in enumerate(told)
    ]


def describe_index(storage: SqliteEventLogStorage) -> list[tuple[object, ...]]:
    """What the index says of assets, their events and the tags of those, but for when it said so."""
    written = {"create_timestamp", "timestamp"}
    found: list[tuple[object, ...]] = []
    with storage.index_connection() as connection:
        for table in (AssetKeyTable, SqlEventLogStorageTable, AssetEventTagsTable, AssetCheckExecutionsTable):
            columns = [column for column in table.columns if column.name not in written]
            found += map(tuple, connection.execute(select(*columns).order_by(*columns)))
    return found


def test_our_records_are_those_of_dagsters_own_storage_one_by_one_or_in_a_batch(tmp_path: Path) -> None:
    entries = [
        one
        for told in zip_longest(
            tell_of_partitions("launch-0", "launch-1"), tell_of_checks("launch-0"), tell_of_checks("launch-1")
        )
        for one in told
        if one is not None
    ] + tell_of_checks("")[5:8]  # and such as no launch has made
    expected = SqliteEventLogStorage(str(tmp_path / "own"))
    single, batch = SqliteEventLog(str(tmp_path / "single")), SqliteEventLog(str(tmp_path / "batch"))
    for entry in entries:
        expected.store_event(entry)
        single.store_event(entry)
    batch.store_event_batch(entries)
    for ours in (single, batch):
        assert describe_index(ours) == describe_index(expected)
        for run_id in ("launch-0", "launch-1"):
            assert ours.get_logs_for_run(run_id) == expected.get_logs_for_run(run_id)
        ours.dispose()
    assert len(describe_index(expected)) == 2 + (10 + 29) + 4 + 21
    expected.dispose()


@pytest.mark.parametrize("what", ["another event", "a question", "the end", "many", "a second"])
def test_what_is_told_of_partitions_waits_only_until_anything_else_happens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    planned, made = tell_of_partitions("launch")[0], tell_of_partitions("launch")[6:]
    storage = SqliteEventLog(str(tmp_path))
    storage.store_event(planned)
    if what == "many":
        monkeypatch.setattr(sqlite_records, "_MOST_WAITING", len(made))
    if what == "a second":
        monkeypatch.setattr(sqlite_records, "_LONGEST_WAIT", 0.05)
    for place, entry in enumerate(made):
        if what == "a second" and place == len(made) - 1:
            time.sleep(0.06)
        storage.store_event(entry)
    other = SqliteEventLogStorage(str(tmp_path))
    assert len(other.get_logs_for_run("launch")) == 1 + len(made) * (what in {"many", "a second"})
    if what == "another event":
        storage.store_event(planned)
    if what == "a question":
        storage.get_latest_storage_id_by_partition(dg.AssetKey(["b"]), DagsterEventType.ASSET_MATERIALIZATION)
    if what == "the end":
        storage.dispose()
    told = other.get_logs_for_run("launch")
    assert told[1 : 1 + len(made)] == made
    storage.dispose()
    other.dispose()


def test_threads_that_store_and_read_at_once_lose_nothing(records: dg.DagsterInstance) -> None:
    run_ids = [dg.materialize([table], instance=records).run_id for _ in range(2)]
    entries = {run_id: list(records.all_logs(run_id))[:10] for run_id in run_ids}
    faults: list[BaseException] = []

    def work(run_id: str) -> None:
        try:
            for entry in entries[run_id]:
                records.event_log_storage.store_event(entry)
                records.get_runs()
        except BaseException as error:  # noqa: BLE001 - told below
            faults.append(error)

    threads = [threading.Thread(target=work, args=(run_id,)) for run_id in run_ids for _ in range(3)]
    before = {run_id: len(list_kinds(records, run_id)) for run_id in run_ids}
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert {run_id: len(list_kinds(records, run_id)) - count for run_id, count in before.items()} == dict.fromkeys(
        run_ids, 30
    )


def test_only_the_files_used_last_stay_open(tmp_path: Path) -> None:
    files = OpenFiles(most=2)
    first = files.find(f"sqlite:///{tmp_path}/a.db")
    files.find(f"sqlite:///{tmp_path}/b.db")
    assert files.find(f"sqlite:///{tmp_path}/a.db") is first
    files.find(f"sqlite:///{tmp_path}/c.db")
    assert files.find(f"sqlite:///{tmp_path}/a.db") is first
    files.close()
    assert files.find(f"sqlite:///{tmp_path}/a.db") is not first


def refuse(*_: object) -> None:
    raise AssertionError("what is set up is set up again")


def test_records_that_are_set_up_are_opened_without_reading_dagsters_revisions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = settings(str(tmp_path / "lake"), environment={}).home
    with open_instance(home) as records:
        first = dg.materialize([table], instance=records).run_id
    for module in (sqlite_event_log, sqlite_run_storage, sqlite_schedule_storage):
        monkeypatch.setattr(module, "check_alembic_revision", refuse)
    with open_instance(home) as records:
        second = dg.materialize([table], instance=records).run_id
        assert list_kinds(records, first) == list_kinds(records, second)


def describe_file(path: Path) -> list[tuple[object, ...]]:
    """The tables of a file and its revision."""
    with sqlite3.connect(path) as opened:
        found = opened.execute("SELECT type, name, sql FROM sqlite_master ORDER BY name").fetchall()
        found += opened.execute("SELECT version_num FROM alembic_version").fetchall()
    opened.close()
    return found


def test_files_of_launches_are_those_that_dagster_makes(tmp_path: Path) -> None:
    own, ours = SqliteEventLogStorage(str(tmp_path / "own")), SqliteEventLog(str(tmp_path / "ours"))
    for storage in (own, ours):
        for entry in tell_of_partitions("launch-0", "launch-1"):
            storage.store_event(entry)
        storage.dispose()
    for name in ("launch-0.db", "launch-1.db"):
        assert describe_file(tmp_path / "ours" / name) == describe_file(tmp_path / "own" / name)
        assert (tmp_path / "ours" / name).stat().st_mode == (tmp_path / "own" / name).stat().st_mode
    assert sorted(ours.get_all_run_ids()) == ["launch-0", "launch-1"]


def test_where_files_cannot_be_linked_dagster_makes_those_of_launches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(FAULT)

    monkeypatch.setattr(os, "link", fail)
    storage, entries = SqliteEventLog(str(tmp_path)), tell_of_partitions("launch")
    storage.store_event_batch(entries)
    assert storage.get_logs_for_run("launch") == entries
    assert {path.suffix for path in tmp_path.iterdir()} <= {".db", ".db-wal", ".db-shm"}
    storage.dispose()


def test_a_file_that_another_process_makes_at_the_same_time_stays(tmp_path: Path) -> None:
    def make_tables(engine: Engine) -> None:
        Path(str(engine.url.database)).write_bytes(b"ours")
        (tmp_path / "launch.db").write_bytes(b"theirs")

    copy_empty_log(tmp_path / "launch.db", make_tables)
    assert (tmp_path / "launch.db").read_bytes() == b"theirs"
    copy_empty_log(tmp_path / "next.db", make_tables)
    assert (tmp_path / "next.db").read_bytes() == b"ours"


def test_records_that_were_wiped_can_be_written_again(records: dg.DagsterInstance) -> None:
    dg.materialize([table], instance=records)
    records.wipe()
    assert records.get_runs() == []
    run_id = dg.materialize([table], instance=records).run_id
    assert list_kinds(records, run_id)
