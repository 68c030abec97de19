"""What holds plain values is open to its owner alone, whatever the umask; what is sealed follows the umask."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from lake.keyring import KeyringFile
from pipelines.instance import prepare_home
from pipelines.settings import settings
from tests.support.sample_tables import FIRST, VISITS, visits

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lake.store import Lake
    from tests.conftest import LandFiles

SECRET = "node-7.example.org"
TRACE = b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1, "dur": 2}]}'


@pytest.fixture(autouse=True)
def _usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def is_open_to_others(path: Path, root: Path) -> bool:
    """Whether another user could come to a file: no directory on the way, nor the file itself, stops them."""
    steps = [path, *(parent for parent in path.parents if parent.is_relative_to(root))]
    return all(mode(step) & (stat.S_IXOTH if step.is_dir() else stat.S_IROTH) for step in steps)


def test_bronze_and_what_is_staged_are_open_to_their_owner_alone(lake: Lake, land_files: LandFiles) -> None:
    land_files({"rank0.json": TRACE}, manifest=f'host = "{SECRET}"\n')
    lake.replace(VISITS, "a", visits(), FIRST)
    root = lake.place.directory
    assert (mode(root / "bronze"), mode(root / "_staging")) == (0o700, 0o700)
    tables = {path.relative_to(root).parts[0]: is_open_to_others(path, root) for path in root.rglob("*.parquet")}
    assert tables == {"bronze": False, VISITS.tier: True}


def test_a_directory_that_its_owner_has_opened_stays_so(lake: Lake, land_files: LandFiles) -> None:
    (lake.place.directory / "bronze").mkdir(parents=True)
    (lake.place.directory / "bronze").chmod(0o750)
    land_files({"rank0.json": TRACE})
    assert mode(lake.place.directory / "bronze") == 0o750


def test_keys_and_dagsters_records_are_open_to_their_owner_alone(tmp_path: Path) -> None:
    KeyringFile(tmp_path / "keyring.json", is_made_on_first_use=True)()
    home = settings(str(tmp_path / "lake"), environment={}).home
    prepare_home(home)
    assert (mode(tmp_path / "keyring.json"), mode(home.directory)) == (0o600, 0o700)
