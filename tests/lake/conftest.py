"""An object store on loopback, for the tests that need one."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from tests.support.object_stores import EMULATOR
from tests.support.sample_tables import trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def store_port() -> Iterator[int]:
    """The port of an object store of our own, on loopback."""
    with EMULATOR.serve() as port:
        yield port


@pytest.fixture(scope="session")
def options(store_port: int) -> dict[str, str]:
    """Storage options for that store."""
    return EMULATOR.options_for(store_port)


@pytest.fixture
def bucket(store_port: int) -> str:
    """The URL of an empty bucket."""
    return EMULATOR.make_bucket(store_port, f"teetotal-{uuid.uuid4().hex}")


@pytest.fixture
def remote_lake(bucket: str, options: dict[str, str]) -> Lake:
    return Lake(Location.of(f"{bucket}/some/lake", options))


@pytest.fixture
def remote_zone(bucket: str, options: dict[str, str]) -> LandingZone:
    return LandingZone(Location.of(f"{bucket}/landing/", options))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """Traces of two ranks, one of them twice, and a file that is none."""
    contents = {"r0.json": trace(0, 60), "r1.json": trace(1, 60), "second.json": trace(1, 60), "notes.txt": b"none\n"}
    (tmp_path / "source").mkdir()
    for name, content in contents.items():
        (tmp_path / "source" / name).write_bytes(content)
    return {name: tmp_path / "source" / name for name in contents}
