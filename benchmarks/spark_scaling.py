"""`python -m benchmarks.spark_scaling`: one run of many ranks, on Polars and on Spark with one worker and with two.

Starts a real standalone cluster and a Spark Connect server on this machine for each number of workers, so that all
numbers share its cores: what is measured is the price of Spark and how bronze follows the workers, not a cluster.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from benchmarks import TIERS
from benchmarks.standalone import ROOT, Cluster, environment
from benchmarks.traces import many_ranks

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROW = "{:<22}{:<8}{:>8.1f}{:>12.0f}{:>14.0f}"


def main() -> None:
    """Make the run, bring it through the tiers on each engine, and print time and memory."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.spark_scaling", description=__doc__)
    options.add_argument("--recording", type=Path, help="a Kineto trace; the largest bundled one if none is named")
    options.add_argument("--ranks", type=int, default=64)
    options.add_argument("--events", type=int, default=100_000, help="at least so many events a rank")
    options.add_argument("--workers", type=int, nargs="*", default=[1, 2])
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
        print(f"{'engine':<22}{'tier':<8}{'wall s':>8}{'process MB':>12}{'all of it MB':>14}")
        _tiers(home, "polars", None, {})
        for workers in chosen.workers:
            _on_spark(home, workers)
        digests = {_content(home / name) for name in ("polars", *(f"spark-{count}" for count in chosen.workers))}
        print("same files in all lakes" if len(digests) == 1 else "THE LAKES DIFFER")


def _on_spark(home: Path, workers: int) -> None:
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
        asked = [_asked(variables) for _ in range(2)]
        told = f"master and workers {up - began:.1f} s, Connect server {served - up:.1f} s"
        print(
            f"{workers} worker(s): {told}, first client's first task {asked[0]:.1f} s, second client's {asked[1]:.1f} s"
        )
        _tiers(home, f"spark-{workers}", cluster, variables)
    finally:
        cluster.stop()


def _asked(variables: dict[str, str]) -> float:
    """From nothing to the answer of one task: a client, its session, a Python on an executor."""
    code = (
        "from pipelines.settings import settings; from lake.executors import Executors; import operator;"
        "c = settings().spark; Executors(c.session(), c.reach).each(operator.is_not, [None])"
    )
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment(**variables), check=True)
    return time.perf_counter() - began


def _tiers(home: Path, name: str, cluster: Cluster | None, variables: dict[str, str]) -> None:
    for tier in TIERS:
        engine = "polars" if cluster is None else "spark"
        words = ["-m", "benchmarks.tier", tier, f"{home}/{name}/lake", f"{home}/landing", engine]
        words = [sys.executable, *words]
        variables = {**variables, "TEETOTAL_KEYRING": str(_keyring(home))}
        began = time.perf_counter()
        with subprocess.Popen(words, cwd=ROOT, env=environment(**variables), stdout=subprocess.PIPE) as process:
            with _watched([process.pid, *([] if cluster is None else cluster.pids)]) as peak:
                told, _ = process.communicate()
            if process.returncode:
                raise SystemExit(f"{tier} failed on {name}")
        print(_ROW.format(name, tier, time.perf_counter() - began, int(told) / 1e6, peak[0] / 1e6), flush=True)


def _keyring(home: Path) -> Path:
    """One keyring for all lakes, so that equal rows are equal files."""
    from lake.keyring import KeyringFile

    keyring = KeyringFile(home / "keyring.json")
    if not keyring.path.exists():
        keyring.create()
    return keyring.path


@contextmanager
def _watched(pids: list[int]) -> Iterator[list[int]]:
    """The most memory that processes and all that they start held together, looked at five times a second."""
    peak, is_over = [0], threading.Event()

    def watch() -> None:
        while not is_over.wait(0.2):
            total = 0
            for pid in pids:
                try:
                    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
                    total += sum(one.memory_info().rss for one in family)
                except psutil.NoSuchProcess:
                    continue
            peak[0] = max(peak[0], total)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        is_over.set()
        watcher.join()


def _content(lake: Path) -> tuple[str, ...]:
    """The names of all data files: they are digests of what is in them."""
    return tuple(sorted(str(path.relative_to(lake)) for path in lake.rglob("run_id=*/**/*.parquet")))


if __name__ == "__main__":
    main()
