"""What a process of its own took, and how it is printed: seconds, peak memory, medians with their spread."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

ROOT = Path(__file__).parent.parent
CACHE = Path(__file__).parent / ".cache"


@dataclass(frozen=True)
class Cost:
    """What one process took, and the last line that it printed, which is JSON."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    answers: dict[str, Any] = field(default_factory=dict)


def measure_process(words: Sequence[str | Path]) -> Cost:
    """Run a process to its end; it tells its peak itself, since what the system counts starts with its parent's."""
    start = time.perf_counter()
    with tempfile.TemporaryFile() as printed, tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen([str(word) for word in words], cwd=ROOT, stdout=printed, stderr=complaints)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        complaints.seek(0)
        lines, said = printed.read().decode().strip().splitlines(), complaints.read().decode()
    if status:
        raise SystemExit(f"{' '.join(map(str, words))} failed:\n{said[-2000:]}")
    answers = json.loads(lines[-1])
    return Cost(wall, used.ru_utime + used.ru_stime, answers.pop("peak_bytes") / 1e6, answers)


def tiers(
    folder: Path | str,
    *names: str,
    lake: str = "lake",
    run_id: str | None = None,
    engine: str = "polars",
    to: Sequence[str] = (),
) -> Cost:
    """Tiers of a run that is landed in a folder, made into a lake beside it by a process of its own."""
    places = ["--lake", f"{folder}/{lake}", "--landing", f"{folder}/landing", "--engine", engine]
    which = [] if run_id is None else ["--run", run_id]
    which += [word for name in to for word in ("--to", name)]
    return measure_process([sys.executable, "-m", "benchmarks.tier", *names, *places, *which])


def peak_bytes() -> int:
    """The peak of this process alone."""
    lines = Path("/proc/self/status").read_text("utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))


def count_moved_bytes() -> dict[str, int]:
    """What this process asked the system to read and to write, whatever lay in the disk's cache."""
    counters = dict(line.split(": ") for line in Path("/proc/self/io").read_text("utf-8").splitlines())
    return {"asked_bytes": int(counters["rchar"]), "written_bytes": int(counters["wchar"])}


def median(values: Sequence[float]) -> float:
    """The middle one."""
    return statistics.median(values)


def format_spread(values: Sequence[float], digits: int = 1) -> str:
    """The median, and from the least to the most where there are several."""
    middle = f"{median(values):,.{digits}f}"
    return middle if len(values) < 2 else f"{middle} ({min(values):,.{digits}f} to {max(values):,.{digits}f})"


def table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [names, ["---"] * len(names), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def machine() -> str:
    """Where and when, in a line."""
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}"
    )
