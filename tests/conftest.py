"""What every test may ask for: a lake, a landing zone, a run landed from bytes, the engines, the recordings."""

from __future__ import annotations

import gc
import os
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import pytest
from hypothesis import HealthCheck, settings

from assets.build.bronze import materialise
from benchmarks.spark_classes import list_options
from bronze import formats, runs, source_files, trace_events, unreadable
from bronze.limits import Limits
from lake.engines import engine as lake_engine
from lake.identity import MANIFEST
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.spark import SparkEngine
from lake.store import Lake
from tests.support.groups import PARTS, assign_groups
from tests.support.recorded_lake import has_changed, open_recorded_lake
from tests.support.spark_session import start_session

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import polars as pl
    from pyspark.sql import SparkSession

    from lake.snapshot import Written
    from tests.support.silver_rows import Bench

os.environ["TZ"] = "UTC"
time.tzset()

# The same examples on every machine and in every run; how long one takes says nothing on a shared machine. The
# health check that is off minds fixtures that outlive an example: a law that uses one starts afresh by itself.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
settings.load_profile("repeatable")


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marks of the parts of the suite."""
    for name, meaning in PARTS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


# Nearly all of the million objects that imports and the collection of tests make stay: they are not looked at again.
gc.disable()


def pytest_collection_finish() -> None:
    """Look for garbage among what tests make, and nothing else, and not after every 700 objects."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests share a process."""
    assign_groups(items)


# A file is read twice at most; a reader that goes round in circles is stopped here rather than by the clock.
_MANY_PASSES = 5


@dataclass(frozen=True)
class LandedRun:
    """A run as the lake holds it: the bronze tables, each sorted by its key."""

    written: list[Written]
    events: pl.DataFrame
    files: pl.DataFrame
    unreadable: pl.DataFrame
    runs: pl.DataFrame
    nsys: pl.DataFrame
    training: pl.DataFrame
    collectives: pl.DataFrame
    samples: pl.DataFrame
    attestations: pl.DataFrame
    copies: pl.DataFrame
    patterns: pl.DataFrame
    statements: pl.DataFrame

    def file(self, name: str) -> dict[str, object]:
        """The row of `bronze.source_files` for that file."""
        (row,) = self.files.filter(self.files["file_name"] == name).to_dicts()
        return row

    def events_of(self, name: str) -> pl.DataFrame:
        """The events of that file, in their order."""
        return self.events.filter(self.events["source_sha256"].eq_missing(self.file(name)["source_sha256"]))

    def reasons_of(self, name: str) -> list[str]:
        """Why byte ranges of that file could not be read."""
        mine = self.unreadable["source_sha256"].eq_missing(self.file(name)["source_sha256"])
        return self.unreadable.filter(mine)["reason"].to_list()


@dataclass(frozen=True)
class LandFiles:
    """Lands files given as bytes; the steps can also be taken one by one."""

    lake: Lake
    zone: LandingZone

    @classmethod
    def open(cls, directory: Path) -> Self:
        """A lake of its own in a directory, for tests that share one."""
        keyring = KeyringFile(directory / "keyring.json", is_made_on_first_use=True)
        return cls(Lake(Location.of(directory / "lake"), keyring), LandingZone(Location.of(directory / "landing")))

    def __call__(
        self,
        files: Mapping[str, bytes],
        run_id: str = "run-1",
        manifest: str = 'regime = "cc_off"\n',
        limits: Limits | None = None,
    ) -> LandedRun:
        """Write the files, land the run, and read its tables back."""
        self.write(files, run_id, manifest)
        return self.read(run_id, self.materialise(run_id, limits))

    def write(self, files: Mapping[str, bytes], run_id: str = "run-1", manifest: str = 'regime = "cc_off"\n') -> Path:
        """Put files and manifest into the landing zone; give the run's directory."""
        directory = self.zone.place.directory / run_id
        directory.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (directory / name).write_bytes(data)
        (directory / MANIFEST).write_text(manifest, "utf-8")
        return directory

    def materialise(self, run_id: str = "run-1", limits: Limits | None = None) -> list[Written]:
        """Land what lies in the run's directory; give up on a reader that never comes to an end."""
        last_rows: dict[str, int] = {}
        passes: Counter[str] = Counter()

        def progress(name: str, inflated_bytes: int, rows: int) -> None:
            passes[name] += rows <= last_rows.get(name, 0)
            last_rows[name] = rows
            assert passes[name] < _MANY_PASSES, f"{name} is read again and again, to byte {inflated_bytes}"

        return materialise(self.lake, self.zone, run_id, limits or Limits(), progress)

    def read(self, run_id: str = "run-1", written: list[Written] | None = None) -> LandedRun:
        """The run's tables as they are in the lake."""
        frames = (
            self.lake.scan(table, [run_id]).sort(table.key).collect()
            for table in (trace_events.TABLE, source_files.TABLE, unreadable.TABLE, runs.TABLE, *formats.TABLES)
        )
        return LandedRun(written or [], *frames)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """An empty lake on disk; its keyring is made beside it when something is sealed."""
    return Lake(Location.of(tmp_path / "lake"), KeyringFile(tmp_path / "keyring.json", is_made_on_first_use=True))


@pytest.fixture
def zone(tmp_path: Path) -> LandingZone:
    """An empty landing zone on disk."""
    return LandingZone(Location.of(tmp_path / "landing"))


@pytest.fixture
def land_files(lake: Lake, zone: LandingZone) -> LandFiles:
    """Lands files given as bytes."""
    return LandFiles(lake, zone)


@pytest.fixture(scope="session")
def recorded_lake() -> Iterator[Lake]:
    """A lake with all bundled recordings in it, from landing to gold; only to be read."""
    lake = open_recorded_lake()
    yield lake
    assert not has_changed(lake), f"a test wrote to {lake.place}, which all tests share"


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One local session for all tests; it starts when the first test asks for it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("SPARK_SUBMIT_OPTS", list_options())
        session = start_session()
        yield session
        session.stop()


@pytest.fixture(scope="session", params=["polars", "duckdb", "spark"])
def engine(request: pytest.FixtureRequest) -> Bench:
    """Each engine in turn."""
    if request.param == "spark":
        return SparkEngine(request.getfixturevalue("spark"))
    return lake_engine(request.param)
