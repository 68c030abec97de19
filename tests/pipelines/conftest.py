from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from pipelines.instance import open_instance
from pipelines.settings import settings
from tests.support.compared_runs import build_compared
from tests.support.dagster_records import hasten_records
from tests.support.deployment import Deployment
from tests.support.snapshot_repository import SnapshotRepository, begin_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lake.store import Lake


@pytest.fixture(scope="session", autouse=True)
def unsynced_records() -> Iterator[None]:
    """No launch in this process waits for the disk at each of its events."""
    with hasten_records():
        yield


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    """Real records in memory, a real lake on disk."""
    with dg.DagsterInstance.ephemeral() as records:
        yield Deployment(tmp_path, records)


@pytest.fixture
def lasting(tmp_path: Path) -> Iterator[Deployment]:
    """The same with its records on disk, as a command keeps them."""
    with open_instance(settings(str(tmp_path / "lake"), environment={}).home) as records:
        yield Deployment(tmp_path, records)


@pytest.fixture(scope="session")
def compared_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake of small runs before and after a change, which tests only read."""
    return build_compared(tmp_path_factory.mktemp("compared"))


@pytest.fixture(scope="session")
def empty_records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dagster's records as they are before the first launch: to set them up takes a second."""
    place = tmp_path_factory.mktemp("records")
    home = settings(str(place / "lake"), environment={}).home
    with open_instance(home):
        return home.directory


@pytest.fixture
def records_at_hand(tmp_path: Path, empty_records: Path) -> None:
    """The records of a lake in the test's own folder, set up already."""
    shutil.copytree(empty_records, tmp_path / ".dagster")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SnapshotRepository:
    """A git repository with two snapshots, on a branch that has just left main; we are in it."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    found = begin_repository(tmp_path / "repository")
    monkeypatch.chdir(found.root)
    return found
