"""Dagster's records in files that are opened once: what Dagster's own storage reads and writes, and nothing else."""

import threading
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
import yaml
from dagster._core.events import AssetMaterializationPlannedData, DagsterEventType, StepMaterializationData
from dagster._core.storage.event_log.schema import AssetKeyTable
from sqlalchemy import event, select
from sqlalchemy.engine import Engine

from pipelines.instance import open_instance
from pipelines.settings import settings
from pipelines.sqlite_records import OpenFiles, SqliteEventLog

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


def test_a_batch_is_stored_whole_or_not_at_all(records: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    run_id = dg.materialize([table], instance=records).run_id
    before = list_kinds(records, run_id)
    storage = records.event_log_storage
    assert isinstance(storage, SqliteEventLog)
    entries = [entry for entry in records.all_logs(run_id) if entry.is_dagster_event][:3]
    store, seen = storage.store_event, []

    def fail_at_the_third(entry: object) -> None:
        seen.append(entry)
        if len(seen) == 3:
            raise OSError(FAULT)
        store(entry)  # type: ignore[arg-type]

    monkeypatch.setattr(storage, "store_event", fail_at_the_third)
    with pytest.raises(OSError, match=FAULT):
        storage.store_event_batch(entries)
    monkeypatch.undo()
    assert list_kinds(records, run_id) == before
    storage.store_event_batch(entries)
    assert len(list_kinds(records, run_id)) == len(before) + 3


def describe_assets(records: dg.DagsterInstance) -> list[tuple[object, ...]]:
    """What the index says of each asset, but for when it said so."""
    storage = records.event_log_storage
    assert isinstance(storage, SqliteEventLog)
    columns = [column for column in AssetKeyTable.columns if column.name not in {"id", "create_timestamp"}]
    with storage.index_connection() as connection:
        return [tuple(row) for row in connection.execute(select(*columns).order_by("asset_key"))]


def test_a_batch_says_of_each_asset_what_its_events_say_one_by_one(tmp_path: Path) -> None:
    found = []
    for name, is_batch in (("one by one", False), ("batch", True)):
        with open_instance(settings(str(tmp_path / name / "lake"), environment={}).home) as records:
            storage = records.event_log_storage
            entries = [
                dg.EventLogEntry(  # type: ignore[no-untyped-call]  # it is not annotated
                    error_info=None,
                    level=20,
                    user_message="",
                    run_id=f"launch-{number % 2}",
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
                            dg.AssetMaterialization(dg.AssetKey([asset]), partition=str(number))
                        ),
                    ),
                )
                for number, asset in enumerate("abaabbaabb")
            ]
            if is_batch:
                storage.store_event_batch(entries)
            else:
                for entry in entries:
                    storage.store_event(entry)
            found.append(describe_assets(records))
    assert len(found[0]) == 2
    assert found[0] == found[1]


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


def test_records_that_were_wiped_can_be_written_again(records: dg.DagsterInstance) -> None:
    dg.materialize([table], instance=records)
    records.wipe()
    assert records.get_runs() == []
    run_id = dg.materialize([table], instance=records).run_id
    assert list_kinds(records, run_id)
