from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.standalone import Cluster
from benchmarks.traces import many_ranks
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from pipelines.cli.demo import land_samples
from tests.support.installed_wheel import ROOT, Installation, build_wheel, install_wheel
from tests.support.spark_lakes import Bench

if TYPE_CHECKING:
    from collections.abc import Iterator

_RANKS = 4
# The smallest trace of all.
_RECORDING = "resnet50-native-w2"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """The wheel of this checkout, on the side of drivers and of executors: both know our modules by one name."""
    folder = tmp_path_factory.mktemp("installed")
    return install_wheel(build_wheel(ROOT, folder / "wheels"), folder / "environment")


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A master and two workers of one core each."""
    cluster = Cluster(tmp_path_factory.mktemp("standalone"))
    try:
        cluster.start(workers=2)
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture(scope="module")
def connect(standalone: Cluster, installed: Installation) -> Iterator[dict[str, str]]:
    """The settings of a client of a Spark Connect server: its executors get the packed environment from the client."""
    archive = installed.pack(installed.directory.with_suffix(".tar.gz"))
    url = standalone.serve({"spark.executorEnv.POLARS_MAX_THREADS": "1"})
    yield {"TEETOTAL_SPARK": url, "TEETOTAL_SPARK_ARCHIVE": str(archive)}
    standalone.kill("connect")


@pytest.fixture(scope="session")
def bench(installed: Installation, tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """A bundled recording and a run of several ranks made from it, and the lake that Polars makes of them."""
    home = tmp_path_factory.mktemp("bench")
    KeyringFile(home / "keyring.json").create()
    zone = LandingZone(Location.of(home / "landing"))
    recordings = tuple(land_samples(zone, (_RECORDING,)))
    bench = Bench(home, recordings, installed.python)
    trace = max((home / "landing" / recordings[0]).glob("*.json.gz"), key=lambda path: path.stat().st_size)
    many_ranks(trace, home / "landing" / bench.many, _RANKS, 1)
    (home / "landing" / bench.many / "run.toml").write_text('regime = "cc_off"\n')
    bench.teetotal("polars", "run", "--no-check", *recordings, bench.many)
    return bench
