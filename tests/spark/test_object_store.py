"""Executors that share nothing with the driver but an object store, of which one request in twenty fails."""

from __future__ import annotations

import json
import subprocess
import time
from typing import TYPE_CHECKING

import pytest

from assets.build.catalogue import TABLES
from benchmarks.object_store import FAULTS, read_injected, serve_proxy
from benchmarks.standalone import environment
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from tests.support.object_stores import EMULATOR
from tests.support.spark_lakes import ASKED, PATIENCE_S, check_asked, of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.standalone import Cluster
    from tests.support.installed_wheel import Installation
    from tests.support.spark_lakes import Bench, State


@pytest.fixture
def bucket() -> Iterator[tuple[str, int, int]]:
    """A bucket, and the ports of its store and of what has its requests fail."""
    with EMULATOR.serve() as port, serve_proxy(port, seed=28, fails=0.05) as proxy:
        yield EMULATOR.make_bucket(port, "shared"), port, proxy


def read_state(lake: Lake) -> State:
    snapshots = [lake.snapshot(table) for table in TABLES.values()]
    return {(one.table.full_name, run_id): one.content_sha256(run_id) for one in snapshots for run_id in one.run_ids}


def is_at_work(lake: Lake) -> bool:
    """Whether an executor has put a file of its own into the store."""
    below = lake.place.child("bronze", "trace_events").store
    return any("unsettled-" in item["path"] for page in below.list() for item in page)


def test_all_tiers_come_through_the_store_alone_though_requests_fail_and_a_worker_is_lost(
    bench: Bench, standalone: Cluster, installed: Installation, bucket: tuple[str, int, int]
) -> None:
    """No disk is shared, no keyring file, and no credentials are sent."""
    url, port, proxy = bucket
    options = EMULATOR.options_for(port)  # of the test's own looks at the store
    run_id = bench.many
    source = bench.home / "landing" / run_id
    files = {path.name: path for path in source.iterdir() if path.name != "run.toml"}
    LandingZone(Location.of(f"{url}/landing", options)).land(run_id, files, (source / "run.toml").read_text())
    secret = json.dumps(json.loads((bench.home / "keyring.json").read_text()), separators=(",", ":"))
    known = {**EMULATOR.options_for(proxy), "TEETOTAL_KEYRING_SECRET": secret}
    conf = {f"spark.executorEnv.{name}": value for name, value in known.items()}
    driver = bench.home / "driver"
    driver.mkdir()
    places = ("--lake", f"{url}/lake", "--landing", f"{url}/landing")
    running = subprocess.Popen(
        [str(installed.python), "-m", "teetotal", *places, "run", "--engine", "spark", "--no-check", *ASKED, run_id],
        cwd=driver,
        env=environment(
            **known,
            TEETOTAL_SPARK=standalone.url,
            TEETOTAL_SPARK_MEMORY="1g",
            TEETOTAL_SPARK_PYTHON=str(installed.python),
            TEETOTAL_SPARK_CONF=" ".join(f"{name}={value}" for name, value in conf.items()),
        ),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    lake = Lake(Location.of(f"{url}/lake", options), KeyringFile(bench.home / "keyring.json"))
    deadline = time.monotonic() + PATIENCE_S
    try:
        while not is_at_work(lake):
            assert running.poll() is None, running.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.02)
        lost = max(name for name in standalone.running if name.startswith("worker-"))
        standalone.kill(lost)
        before = read_injected(proxy)
        try:
            said, _ = running.communicate(timeout=PATIENCE_S)
        finally:
            standalone.add_worker(f"{lost}-again")
    finally:
        running.kill()
        running.wait()
        assert running.stdout is not None
        running.stdout.close()
    assert running.returncode == 0, said
    met = read_injected(proxy)
    assert set(met) == set(FAULTS)  # each kind has happened
    assert 0 < sum(before.values()) < sum(met.values())  # before the worker was lost, and after it
    check_asked(of(read_state(lake), run_id), of(bench.state("polars"), run_id))
