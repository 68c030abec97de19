"""An S3-compatible object store on loopback, for the tests that need one."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
from typing import TYPE_CHECKING

import boto3
import pytest

from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from tests.support.sample_tables import trace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def options_for(port: int) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "teetotal",
        "AWS_SECRET_ACCESS_KEY": "of-no-worth",
        "AWS_REGION": "eu-central-1",
    }


def await_answer(url: str, patience_s: float = 60) -> None:
    deadline = time.monotonic() + patience_s
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()  # noqa: S310 - our own server on loopback
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


@pytest.fixture(scope="session")
def options() -> Iterator[dict[str, str]]:
    """Storage options for an S3 server of our own, on loopback."""
    found = options_for(free_port())
    host, port = found["AWS_ENDPOINT_URL"].removeprefix("http://").split(":")
    command = [sys.executable, "-m", "moto.server", "-H", host, "-p", port]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_answer(f"{found['AWS_ENDPOINT_URL']}/moto-api/")
        yield found
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def bucket(options: dict[str, str]) -> str:
    """The URL of an empty bucket."""
    name = f"teetotal-{uuid.uuid4().hex}"
    client = boto3.client(
        "s3",
        endpoint_url=options["AWS_ENDPOINT_URL"],
        aws_access_key_id=options["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=options["AWS_SECRET_ACCESS_KEY"],
        region_name=options["AWS_REGION"],
    )
    client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": options["AWS_REGION"]})
    client.close()
    return f"s3://{name}"


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
