"""An S3-compatible object store on loopback, for the tests that need one."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from benchmarks.object_store import make_bucket, options_for, serve_s3
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from tests.support.sample_tables import trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def options() -> Iterator[dict[str, str]]:
    """Storage options for an S3 server of our own, on loopback."""
    with serve_s3() as port:
        yield options_for(port)


@pytest.fixture
def bucket(options: dict[str, str]) -> str:
    """The URL of an empty bucket."""
    port = int(options["AWS_ENDPOINT_URL"].rpartition(":")[2])
    return make_bucket(port, f"teetotal-{uuid.uuid4().hex}")


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
