"""How long a command takes before it does anything: the help, and a table of a small lake."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import TIERS
from benchmarks.growth import SAMPLE
from benchmarks.inputs import land_trace
from benchmarks.measuring import CACHE, ROOT, format_spread, table, tiers

_COMMAND = "import sys; from pipelines.cli.main import main; sys.argv[0] = 'teetotal'; main()"
_GOALS = {"--help": 0.3, "show gold.trace_summary": 1.5}


def time_starts(repeats: int) -> str:
    """Seconds of whole commands, each in a process of its own."""
    CACHE.mkdir(exist_ok=True)
    rows = []
    with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE) as folder:
        land_trace(Path(folder), SAMPLE)
        tiers(folder, *TIERS)
        for words, goal in _GOALS.items():
            command = [sys.executable, "-c", _COMMAND, "--lake", f"{folder}/lake", *words.split()]
            walls = [_wall(command) for _ in range(repeats + 1)][1:]  # the first one fills the disk's cache
            rows.append([f"teetotal {words}", format_spread(walls, 2), f"{goal:.1f}"])
    return "\n".join(["Start-up:", "", table(("command", "wall s", "goal s"), rows)])


def _wall(command: list[str]) -> float:
    start = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return time.perf_counter() - start
