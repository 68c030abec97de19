"""`python -m benchmarks.spark_scaling`: one run of many ranks, on Polars and on Spark with one worker and with two.

Starts a real standalone cluster and a Spark Connect server on this machine for each number of workers, so that all
numbers share its cores: what is measured is the price of Spark and how bronze follows the workers, not a cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks import TIERS
from benchmarks.measuring import ROOT
from benchmarks.standalone import Cluster, environment
from benchmarks.traces import many_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ROW = "{:<14}{:<8}{:>8.1f}{:>8.1f}{:>12.0f}{:>14.0f}{:>7.1f}"


def main() -> None:
    """Make the run, bring it through the tiers on each engine, and print time and memory."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.spark_scaling", description=__doc__)
    options.add_argument("--recording", type=Path, help="a Kineto trace; the largest bundled one if none is named")
    options.add_argument("--ranks", type=int, default=64)
    options.add_argument("--events", type=int, default=100_000, help="at least so many events a rank")
    options.add_argument("--workers", type=int, nargs="*", default=[1, 2])
    options.add_argument("--tiers", nargs="+", choices=TIERS, default=TIERS)
    options.add_argument("--repeats", type=int, default=1, help="each into a lake of its own")
    chosen = options.parse_args()
    bundled = sorted((ROOT / "samples").rglob("*.json.gz"), key=lambda path: path.stat().st_size)
    with tempfile.TemporaryDirectory(prefix="teetotal-spark-") as scratch:
        home = Path(scratch)
        landing = home / "landing" / "many"
        events, size = many_ranks(chosen.recording or bundled[-1], landing, chosen.ranks, chosen.events)
        (landing / "run.toml").write_text('regime = "cc_off"\n')
        print(
            f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {chosen.ranks} ranks, "
            f"{events:,} events, {size / 1e6:,.0f} MB of JSON",
            flush=True,
        )
        print(f"{'engine':<14}{'tier':<8}{'wall s':>8}{'CPU s':>8}{'process MB':>12}{'all of it MB':>14}{'load':>7}")
        for number in range(chosen.repeats):
            _tiers(home, f"polars.{number}", chosen.tiers, None, {})
        for workers in chosen.workers:
            _on_spark(home, workers, chosen.tiers, chosen.repeats)
        digests = {_content(lake) for lake in home.glob("*/lake")}
        print("same files in all lakes" if len(digests) == 1 else "THE LAKES DIFFER")


def _on_spark(home: Path, workers: int, tiers: Sequence[str], repeats: int) -> None:
    folder = home / f"cluster-{workers}"
    folder.mkdir()
    # The environment is on every worker already, as with a container image.
    cluster = Cluster(folder, {"PYTHONPATH": str(ROOT)})
    try:
        began = time.perf_counter()
        cluster.start(workers)
        up = time.perf_counter()
        url = cluster.serve({"spark.executorEnv.POLARS_MAX_THREADS": "1"})
        served = time.perf_counter()
        variables = {"TEETOTAL_SPARK": url, "TEETOTAL_SPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
        asked = [_time_first_task(variables) for _ in range(2)]
        startup = f"master and workers {up - began:.1f} s, Connect server {served - up:.1f} s"
        print(
            f"{workers} worker(s): {startup}, first client's first task {asked[0]:.1f} s, "
            f"second client's {asked[1]:.1f} s"
        )
        for number in range(repeats):
            _tiers(home, f"spark-{workers}.{number}", tiers, cluster, variables)
    finally:
        cluster.stop()


def _time_first_task(variables: dict[str, str]) -> float:
    """From nothing to the answer of one task: a client, its session, a Python on an executor."""
    code = (
        "from pipelines.settings import settings; from lake.executors import Executors; import operator;"
        "c = settings().spark; Executors(c.session(), c.reach).each(operator.is_not, [None])"
    )
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment(**variables), check=True)
    return time.perf_counter() - began


def _tiers(home: Path, name: str, tiers: Sequence[str], cluster: Cluster | None, variables: dict[str, str]) -> None:
    for tier in tiers:
        engine = "polars" if cluster is None else "spark"
        words = ["-m", "benchmarks.tier", tier, "--lake", f"{home}/{name}/lake", "--landing", f"{home}/landing"]
        words = [sys.executable, *words, "--engine", engine]
        variables = {**variables, "TEETOTAL_KEYRING": str(_keyring(home))}
        began = time.perf_counter()
        with subprocess.Popen(words, cwd=ROOT, env=environment(**variables), stdout=subprocess.PIPE) as process:
            with _watch([process.pid, *([] if cluster is None else cluster.pids)]) as use:
                output, _ = process.communicate()
            if process.returncode:
                raise SystemExit(f"{tier} failed on {name}")
        wall, load = time.perf_counter() - began, os.getloadavg()[0]
        print(
            _ROW.format(
                name, tier, wall, use.cpu_s, json.loads(output)["peak_bytes"] / 1e6, use.peak_bytes / 1e6, load
            ),
            flush=True,
        )


def _keyring(home: Path) -> Path:
    """One keyring for all lakes, so that equal rows are equal files."""
    from lake.keyring import KeyringFile

    keyring = KeyringFile(home / "keyring.json")
    if not keyring.path.exists():
        keyring.create()
    return keyring.path


@dataclass
class _Use:
    """What processes and all that they start have used: the most memory at one time, and CPU since then."""

    peak_bytes: int = 0
    first_s: dict[int, float] = field(default_factory=dict)
    last_s: dict[int, float] = field(default_factory=dict)

    @property
    def cpu_s(self) -> float:
        """CPU seconds; they say more than the clock does on a machine that others use too."""
        return sum(self.last_s.values()) - sum(self.first_s.values())

    def look(self, pids: list[int], *, is_first: bool) -> None:
        """Add up memory, and note the CPU time of each process as far as it has come."""
        total = 0
        for pid in pids:
            with suppress(psutil.NoSuchProcess):
                for one in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True)):
                    with suppress(psutil.NoSuchProcess):
                        used = one.cpu_times()
                        self.last_s[one.pid] = used.user + used.system
                        total += one.memory_info().rss
        if is_first:
            self.first_s = dict(self.last_s)
        self.peak_bytes = max(self.peak_bytes, total)


@contextmanager
def _watch(pids: list[int]) -> Iterator[_Use]:
    """Look at processes five times a second."""
    use, is_over = _Use(), threading.Event()
    use.look(pids, is_first=True)

    def watch() -> None:
        while not is_over.wait(0.2):
            use.look(pids, is_first=False)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield use
    finally:
        is_over.set()
        watcher.join()


def _content(lake: Path) -> tuple[str, ...]:
    """The names of all data files: they are digests of what is in them."""
    return tuple(sorted(str(path.relative_to(lake)) for path in lake.rglob("run_id=*/**/*.parquet")))


if __name__ == "__main__":
    main()
