"""How soon answers follow a run that grows: from the last byte of a cycle to gold, as `teetotal watch` tells it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measuring import CACHE, ROOT, table
from benchmarks.traces import write_cycle

if TYPE_CHECKING:
    from collections.abc import Iterator

_RECORDING = ROOT / "samples" / "resnet50-sealed-w2" / "resnet50-sealed-w2-r0.json.gz"
_RUN = "live"
_TICK = os.sysconf("SC_CLK_TCK")


def time_cycles(counts: list[int], cycles: int, counted: int | None = None) -> str:
    """Seconds from the last byte of each cycle to gold, for runs of ever more ranks; `counted` cycles may count."""
    CACHE.mkdir(exist_ok=True)
    rows = []
    for ranks in counts:
        with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder:
            for line in _watch_cycles(Path(folder), ranks, cycles, counted):
                print(f"  {ranks} ranks: {line}", file=sys.stderr, flush=True)
                rows.append([str(ranks), *line])
    names = ("ranks", "cycle", "new bytes", "events so far", "s to gold", "CPU s", "one-minute load")
    return "\n".join(["From the last byte of a cycle to gold:", "", table(names, rows)])


def _watch_cycles(folder: Path, ranks: int, cycles: int, counted: int | None) -> Iterator[list[str]]:
    """Let cycle after cycle appear, each when the one before has its gold."""
    run = folder / "landing" / _RUN
    run.mkdir(parents=True)
    (run / ".open").touch()
    claims = [f"world_size = {ranks}", *([] if counted is None else [f"open_cycles_count = {counted}"])]
    (run / "run.toml").write_text("\n".join(['regime = "cc_off"', 'model = "m"', *claims, ""]), "utf-8")
    places = ["--lake", str(folder / "lake"), "--landing", str(folder / "landing")]
    words = [sys.executable, "-m", "teetotal", *places, "watch", _RUN, "--json", "--interval", "0.2"]
    watch = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    events = 0
    try:
        _read_until(watch, 0)
        for cycle in range(cycles):
            staged = folder / "staged"
            events += write_cycle(_RECORDING, staged, ranks, cycle)
            size = sum(path.stat().st_size for path in staged.iterdir())
            for path in sorted(staged.iterdir()):
                path.rename(run / path.name)
            shutil.rmtree(staged)
            before, began = _count_cpu(watch.pid), time.monotonic()
            _read_until(watch, (cycle + 1) * ranks)
            took, used = time.monotonic() - began, _count_cpu(watch.pid) - before
            load = f"{os.getloadavg()[0]:.1f}"
            yield [str(cycle + 1), f"{size:,}", f"{events:,}", f"{took:.1f}", f"{used:.1f}", load]
    finally:
        watch.kill()
        watch.wait()


def _read_until(watch: subprocess.Popen[str], files: int) -> None:
    """Wait until the watch tells of so many files, with whatever gold makes of them."""
    if watch.stdout is None:
        raise SystemExit("the watch has no output")
    for line in watch.stdout:
        found = json.loads(line)
        if found["fault"] is not None:
            raise SystemExit(found["fault"])
        if found["files_count"] == files:
            return
    raise SystemExit("the watch ended early")


def _count_cpu(pid: int) -> float:
    """CPU seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICK
