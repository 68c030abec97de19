"""The benchmark: starts the ranks, keeps going when a configuration fails, and prints what sealing cost."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .device import processor
from .tables import tables
from .window import Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .plan import Configuration

_ROOM_TO_FINISH_S = 45.0


@dataclass
class Benchmark:
    """Runs configurations world by world: ranks stay alive from one configuration to the next."""

    out: Path
    device: str
    window: Window
    time_limit_s: float
    patience_s: float
    traced_ranks: list[int] = field(default_factory=list)
    batch_size: int | None = None
    hop_s: float = 0.5
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    faults: dict[str, str] = field(default_factory=dict)

    def run(self, configurations: Sequence[Configuration]) -> int:
        """Record all; give the number of configurations that failed or were left out."""
        self.out.mkdir(parents=True, exist_ok=True)
        self._deadline = time.time() + self.time_limit_s
        for world in sorted({configuration.world for configuration in configurations}):
            left = [configuration for configuration in configurations if configuration.world == world]
            while left:
                if time.time() > self._deadline - _ROOM_TO_FINISH_S and self.results:
                    self._list_skipped(left)
                    break
                left = self._attempt(world, left)
        self._report(configurations)
        return len(self.faults)

    def _list_skipped(self, left: Sequence[Configuration]) -> None:
        for configuration in left:
            self.faults[configuration.run_id] = "not run: the time limit was reached"

    def _attempt(self, world: int, left: list[Configuration]) -> list[Configuration]:
        """Start the ranks and follow them; give what is still to be done after a failure."""
        with tempfile.TemporaryDirectory(prefix="collector-") as folder:
            ranks = self._start(world, left, Path(folder))
            try:
                current, fault = self._follow(ranks)
            finally:
                for rank in ranks:
                    rank.kill()
                    rank.wait()
        done = {*self.results, *self.faults}
        remaining = [configuration for configuration in left if configuration.run_id not in done]
        if fault:
            # Where no configuration had begun, the first one is to blame, lest we start again for ever.
            blamed = current or (remaining[0].run_id if remaining else None)
            if blamed is not None:
                self.faults[blamed] = fault
                _say(f"  {blamed} FAILED: {fault}")
            remaining = [configuration for configuration in remaining if configuration.run_id != blamed]
        else:
            self._list_skipped(remaining)
            remaining = []
        return remaining

    def _start(self, world: int, left: Sequence[Configuration], folder: Path) -> list[subprocess.Popen[bytes]]:
        cores = int(processor()["cores_count"])
        plan = {
            "world": world,
            "device": self.device,
            "threads": max(1, cores // (2 * world)),
            "rendezvous": str(folder / "rendezvous"),
            "landing": str(self.out / "landing"),
            "window": asdict(self.window),
            "traced_ranks": self.traced_ranks,
            "batch_size": self.batch_size,
            "hop_s": self.hop_s,
            "deadline_epoch_s": self._deadline - _ROOM_TO_FINISH_S,
            "configurations": [configuration.to_json() for configuration in left],
        }
        path = folder / "plan.json"
        path.write_text(json.dumps(plan), "utf-8")
        # Ranks of one host need no other interface, and a machine without a network has none.
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "TOKENIZERS_PARALLELISM": "false"}
        environment["PYTHONPATH"] = os.pathsep.join(part for part in sys.path if part)
        _say(f"world {world}: {len(left)} configurations")
        return [
            subprocess.Popen(
                [sys.executable, "-m", __package__, "rank", str(path), str(rank)],
                stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                env=environment,
            )
            for rank in range(world)
        ]

    def _follow(self, ranks: Sequence[subprocess.Popen[bytes]]) -> tuple[str | None, str | None]:
        """Take in what rank 0 tells, until all have ended; give what was being done, and the fault if there was one."""
        lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=_drain, args=(ranks[0].stdout, lines), daemon=True).start()
        current, last = None, time.monotonic()
        while True:
            try:
                event = _event(lines.get(timeout=0.2))
            except queue.Empty:
                event = None
            if event is not None:
                last, current = time.monotonic(), self._take_in(event)
                continue
            codes = [rank.poll() for rank in ranks]
            broken = [f"rank {rank} ended with {code}" for rank, code in enumerate(codes) if code]
            if broken:
                return current, broken[0]
            if all(code == 0 for code in codes) and lines.empty():
                return None, None
            if time.monotonic() - last > self.patience_s:
                return current, f"nothing was heard for {self.patience_s:g} s"

    def _take_in(self, event: dict[str, Any]) -> str | None:
        run_id = event.pop("run_id")
        kind = event.pop("event")
        if kind == "started":
            return str(run_id)
        if kind == "skipped":
            self.faults[run_id] = "not run: the time limit was reached"
        if kind == "done":
            self.results[run_id] = event
            _say(f"  {run_id}: {event['bare_step_s'] * 1000:.1f} ms per step, took {event['took_s']:.1f} s")
        return None

    def _report(self, configurations: Sequence[Configuration]) -> None:
        text = tables(configurations, self.results, self.faults)
        document = {
            "torch_version": torch.__version__,
            "device": torch.cuda.get_device_name(0) if self.device == "cuda" else "cpu",
            "processor": processor(),
            "window": asdict(self.window),
            "configurations": [item.to_json() for item in configurations],
            "results": self.results,
            "faults": self.faults,
        }
        (self.out / "bench.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
        (self.out / "bench.md").write_text(text, "utf-8")
        _say(text)


def _drain(pipe: Any, lines: queue.SimpleQueue[bytes]) -> None:
    for line in pipe:
        lines.put(line)


def _event(line: bytes) -> dict[str, Any] | None:
    """An event of rank 0; libraries may print what they like in between."""
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "event" in found else None


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
