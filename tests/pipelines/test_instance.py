"""Dagster's records: set up where nobody else has, and freed of commands that were killed."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

import dagster as dg
import pytest
import yaml

from assets import launch_locks
from assets.launch_locks import (
    LOCK_TAG,
    PROCESS_TAG,
    fail_dead_launches,
    lock_launch,
    queued_launches,
    tags_of,
)
from assets.pool_wait import POOL
from lake.errors import ContractBroken
from pipelines.instance import open_instance, prepare_home
from pipelines.settings import environment, settings

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path


def test_the_records_of_a_lake_lie_beside_it_and_say_every_path_in_full(tmp_path: Path) -> None:
    home = settings(str(tmp_path / "lake"), environment={}).home
    prepare_home(home)
    assert home.directory == tmp_path / ".dagster"
    answer = yaml.safe_load((home.directory / "dagster.yaml").read_text("utf-8"))
    assert answer["storage"]["custom"]["config"]["base_dir"] == str(tmp_path / ".dagster" / "storage")
    assert answer["telemetry"] == {"enabled": False}
    with open_instance(home) as records:
        assert records.get_runs() == []
    assert not (tmp_path / ".dagster" / "history").exists(), "nothing lies where the settings do not say"


def test_a_checkout_keeps_its_records_in_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.chdir(tmp_path)
    assert settings("data/lake", environment={}).home.directory == tmp_path / ".dagster"
    assert settings("s3://bucket/lake", environment={}).home.directory == tmp_path / ".dagster"
    other = tmp_path.parent / "elsewhere" / "lake"
    assert settings(str(other), environment={}).home.directory == other.parent / ".dagster"


def test_a_home_that_was_named_is_used_as_it_is(tmp_path: Path) -> None:
    home = settings(str(tmp_path / "lake"), environment={"DAGSTER_HOME": str(tmp_path)}).home
    prepare_home(home)
    assert list(tmp_path.iterdir()) == []
    missing = settings(str(tmp_path / "lake"), environment={"DAGSTER_HOME": str(tmp_path / "none")}).home
    with pytest.raises(ContractBroken, match="no directory"):
        prepare_home(missing)


def test_a_server_for_the_records_is_named_and_its_address_not_repeated(tmp_path: Path) -> None:
    address = "postgresql://someone:secret@localhost:5432/records"
    home = settings(str(tmp_path / "lake"), environment={"TEETOTAL_POSTGRES_URL": address}).home
    prepare_home(home)
    text = (home.directory / "dagster.yaml").read_text("utf-8")
    assert yaml.safe_load(text)["storage"] == {"postgres": {"postgres_url": {"env": "TEETOTAL_POSTGRES_URL"}}}
    assert "secret" not in text


def test_another_process_finds_the_same_settings(tmp_path: Path) -> None:
    typed = settings(str(tmp_path / "lake"), str(tmp_path / "landing"), environment={})
    found = settings(environment=environment(typed))
    assert (found.lake, found.landing, found.docs, found.keyring) == (
        typed.lake,
        typed.landing,
        typed.docs,
        typed.keyring,
    )
    assert found.home.directory == typed.home.directory


@pytest.mark.usefixtures("records_at_hand")
def test_a_launch_whose_process_is_gone_is_failed_and_gives_its_place_back(tmp_path: Path) -> None:
    home = settings(str(tmp_path / "lake"), environment={}).home
    ids = {name: str(uuid4()) for name in ("dead", "living", "retried", "stranger")}
    tags = {
        # A container that was killed: another has its host name now, and its process number is ours.
        "dead": tags_of(ids["dead"]),
        # A container that lives, whose host name and process number nobody here has.
        "living": {PROCESS_TAG: "0123456789ab/4194305", LOCK_TAG: ids["living"]},
        "retried": tags_of(ids["dead"]),
        "stranger": {},
    }
    with open_instance(home) as records, lock_launch(records, ids["living"]) as is_held:
        assert is_held
        for name, run_id in ids.items():
            records.create_run_for_job(_job, run_id=run_id, status=dg.DagsterRunStatus.STARTED, tags=tags[name])
        records.event_log_storage.initialize_concurrency_limit_to_default(POOL)
        waiting = (ids["dead"], ids["living"], ids["retried"], "killed before its launch was recorded")
        for run_id in waiting:
            records.event_log_storage.claim_concurrency_slot(POOL, run_id, "step")
        with open_instance(home) as again:
            runs = {name: again.get_run_by_id(run_id) for name, run_id in ids.items()}
            queued = queued_launches(again, POOL)
    failed = {name for name, run in runs.items() if run is not None and run.status is dg.DagsterRunStatus.FAILURE}
    assert failed == {"dead"}
    assert queued == {ids["living"], ids["retried"]}


@pytest.mark.usefixtures("records_at_hand")
def test_a_launch_that_ends_while_another_command_looks_is_not_called_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = str(uuid4())
    with open_instance(settings(str(tmp_path / "lake"), environment={}).home) as records:
        records.create_run_for_job(_job, run_id=run_id, status=dg.DagsterRunStatus.STARTED, tags=tags_of(run_id))

        def end_and_lock(instance: dg.DagsterInstance, of: str) -> AbstractContextManager[bool]:
            """The launch ends, and lets its lock go, after it was seen at work."""
            ended = dg.DagsterEvent(event_type_value=dg.DagsterEventType.RUN_SUCCESS.value, job_name=_job.name)
            instance.report_dagster_event(ended, of)
            return lock_launch(instance, of)

        monkeypatch.setattr(launch_locks, "lock_launch", end_and_lock)
        fail_dead_launches(records, POOL)
        run = records.get_run_by_id(run_id)
        assert run is not None
        assert run.status is dg.DagsterRunStatus.SUCCESS


@dg.job
def _job() -> None:
    """A job for its runs' records."""
