"""What is measured: large traces and runs of many ranks, made from a bundled recording and kept."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.exports import write_export
from benchmarks.measuring import CACHE, ROOT
from benchmarks.traces import enlarge, many_ranks

if TYPE_CHECKING:
    from collections.abc import Callable

_RECORDING = ROOT / "samples" / "resnet50-sealed-w2" / "resnet50-sealed-w2-r0.json.gz"


@dataclass(frozen=True)
class Trace:
    """A trace, how many events it has, and how large it is before it was packed."""

    path: Path
    events: int
    plain_bytes: int

    @property
    def name(self) -> str:
        """Its size in words."""
        return f"{self.events / 1e6:.1f} M events" if self.events >= 1_000_000 else f"{self.events / 1e3:.0f} k events"


def trace(events: int) -> Trace:
    """A trace of at least so many events, from the cache or made now."""
    CACHE.mkdir(exist_ok=True)
    made_from = hashlib.sha256(_RECORDING.read_bytes() + Path(__file__).with_name("traces.py").read_bytes()).hexdigest()
    path = CACHE / f"{events}-{made_from[:12]}.json.gz"
    facts = path.with_suffix(".facts")
    if not facts.exists():
        print(f"making {path.name} …", file=sys.stderr)
        facts.write_text(json.dumps(_apart(enlarge, _RECORDING, path, events)))
    found, size = json.loads(facts.read_text())
    return Trace(path, found, size)


def read_trace(path: Path) -> Trace:
    """A trace that somebody named, counted by Python's own json."""
    import gzip

    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as file:
        data = file.read()
    return Trace(path, len(json.loads(data)["traceEvents"]), len(data))


def land_trace(folder: Path, source: Path, run_id: str = "bench") -> None:
    """Land a trace as a run of one rank."""
    run = _run(folder, run_id, ranks=1)
    shutil.copyfile(source, run / f"{run_id}-rank0.json.gz")


def land_ranks(folder: Path, ranks: int, events: int, run_id: str = "bench") -> int:
    """Land a run of many ranks, no two of which have the same file: equal files are one; gives the events of all."""
    made, _ = _apart(many_ranks, _RECORDING, _run(folder, run_id, ranks), ranks, events)
    return made


def land_export(folder: Path, rows: int, run_id: str = "bench") -> int:
    """Land an export of Nsight Systems; gives its rows."""
    return write_export(_run(folder, run_id, ranks=8) / f"{run_id}.sqlite", rows)


def _run(folder: Path, run_id: str, ranks: int) -> Path:
    run = folder / "landing" / run_id
    run.mkdir(parents=True)
    (run / "run.toml").write_text(f'regime = "cc_off"\nworld_size = {ranks}\n')
    return run


def _apart(make: Callable[..., tuple[int, int]], *given: object) -> tuple[int, int]:
    """Make inputs in a process of its own: the peak of a child starts with what its parent holds when it is forked."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(make, *given).result()
