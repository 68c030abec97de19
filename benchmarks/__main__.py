"""`python -m benchmarks`: Kineto to bronze, silver and gold, on one and five million real events shifted in time."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import TIERS
from benchmarks.traces import enlarge

if TYPE_CHECKING:
    from collections.abc import Iterator

Cost = tuple[float, float, float]

_ROOT = Path(__file__).parent.parent
_CACHE = Path(__file__).parent / ".cache"
_RECORDING = _ROOT / "samples" / "resnet50-sealed-w2" / "resnet50-sealed-w2-r0.json.gz"


def main() -> None:
    """Make the traces, bring each through the tiers in processes of their own, and print what each tier took."""
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    options.add_argument("--millions", type=int, nargs="+", default=[1, 5], help="sizes in millions of events")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--engine", default="polars", help="what computes silver and gold")
    options.add_argument("--trace", type=Path, nargs="*", default=[], help="time these files instead")
    chosen = options.parse_args()
    traces = [(path, *_measured(path)) for path in chosen.trace] or [_made(millions) for millions in chosen.millions]
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}"
    )
    names = {
        "tier": 8,
        "events": 12,
        "JSON MB": 10,
        "wall s": 9,
        "CPU s": 9,
        "MB/CPU-s": 10,
        "spread": 14,
        "peak MB": 9,
    }
    print(f"{'trace':<24}" + "".join(f"{name:>{width}}" for name, width in names.items()) + "  wall of bronze's")
    runs: dict[tuple[Path, str], list[Cost]] = {(path, tier): [] for path, _, _ in traces for tier in TIERS}
    for _ in range(chosen.repeats):
        for path, _, _ in traces:  # interleaved, so that a noisy minute hits all alike
            for tier, cost in _made_of(path, chosen.engine):
                runs[path, tier].append(cost)
    for path, events, size in traces:
        first = statistics.median(wall for wall, _, _ in runs[path, TIERS[0]])
        for tier in TIERS:
            wall, cpu, peak = (statistics.median(values) for values in zip(*runs[path, tier], strict=True))
            rates = [size / 1e6 / run[1] for run in runs[path, tier]]
            print(
                f"{path.name:<24.24}{tier:>8}{events:>12,}{size / 1e6:>10,.1f}{wall:>9.2f}{cpu:>9.2f}"
                f"{size / 1e6 / cpu:>10.1f}{min(rates):>7.1f}-{max(rates):<6.1f}{peak:>9.0f}{wall / first:>10.2f}x"
            )


def _made(millions: int) -> tuple[Path, int, int]:
    """A trace of that size, from the cache or made now."""
    _CACHE.mkdir(exist_ok=True)
    made_from = hashlib.sha256(_RECORDING.read_bytes() + Path(__file__).with_name("traces.py").read_bytes()).hexdigest()
    path = _CACHE / f"{millions}M-{made_from[:12]}.json.gz"
    facts = path.with_suffix(".facts")
    if not facts.exists():
        print(f"making {path.name} …", file=sys.stderr)
        # In a process of its own: the peak of a child starts with what its parent holds when it is forked.
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            made = pool.submit(enlarge, _RECORDING, path, millions * 1_000_000).result()
        facts.write_text(json.dumps(made))
    events, size = json.loads(facts.read_text())
    return path, events, size


def _measured(path: Path) -> tuple[int, int]:
    """Events and plain bytes of a trace that was given, counted by Python's own json."""
    import gzip

    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as file:
        data = file.read()
    return len(json.loads(data)["traceEvents"]), len(data)


def _made_of(trace: Path, engine: str) -> Iterator[tuple[str, Cost]]:
    """Bring one trace into an empty lake, tier by tier: wall, CPU seconds and peak MB of each whole process."""
    with tempfile.TemporaryDirectory(prefix="bench-", dir=_CACHE if _CACHE.exists() else None) as folder:
        run = Path(folder) / "landing" / "bench"
        run.mkdir(parents=True)
        shutil.copyfile(trace, run / trace.name)
        (run / "run.toml").write_text('regime = "cc_off"\n')
        for tier in TIERS:
            words = ["-m", "benchmarks.tier", tier, f"{folder}/lake", f"{folder}/landing", engine]
            start = time.perf_counter()
            done = subprocess.Popen([sys.executable, *words], cwd=_ROOT, stdout=subprocess.PIPE)
            told = b"" if done.stdout is None else done.stdout.read()  # until it ends
            _, status, used = os.wait4(done.pid, 0)
            wall = time.perf_counter() - start
            if status:
                raise SystemExit(f"{tier} failed on {trace}")
            yield tier, (wall, used.ru_utime + used.ru_stime, int(told) / 1e6)


if __name__ == "__main__":
    main()
