"""Pairs for tests: a script that trains a line, and a recorder whose runs take no time but have noise."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

from collector.pair import PairRecorder
from collector.pair_plan import Definition, Side, Slot

WINDOW = {"warmup_steps": 1, "bare_steps": 8, "recorded_steps": 1}
# The first run of all kills the process that records it, in the middle of its training. Its optimizer is its own:
# those of torch import its compiler, which takes half as long as all the rest of a run.
SCRIPT = """
import os, pathlib, signal, sys, time
import torch


class Descent(torch.optim.Optimizer):
    def add_param_group(self, group):
        self.param_groups.append(group)

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            parameter -= 0.1 * parameter.grad


marks = pathlib.Path(sys.argv[1])
model = torch.nn.Linear(8, 1)
optimizer = Descent(model.parameters(), {})
for step in range(12):
    model.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
    if step == 5 and marks.is_dir() and not (marks / "killed").exists():
        (marks / "killed").write_text(str(os.getpid()))
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
"""


def define(landing: Path, **more: Any) -> Definition:
    """A pair of one rank on this machine."""
    sides = (Side("baseline", "line-off", "script"), Side("candidate", "line-on", "script"))
    fields: dict[str, Any] = {
        "landing": str(landing),
        "workload": {"script": "train.py", "arguments": [], "world": 1},
        "window": WINDOW,
        "sides": sides,
        "repeats": 3,
        "detect_fraction": None,
        "most_repeats": 12,
    }
    return Definition(**{**fields, **more})


class SimulatedRecorder(PairRecorder):
    """Its runs land at once, with steps that differ from run to run by so much noise."""

    noise = 0.03
    slowdown = 1.0
    draw = random.Random(29)

    def _launch(self, slot: Slot, run_id: str) -> str | None:
        run_s = 0.1 * self.draw.lognormvariate(0, self.noise) * (self.slowdown if slot.side else 1)
        folder = self.landing / run_id
        folder.mkdir(parents=True)
        rows = [f"0,{step},bare,{step},{run_s:.9f}" for step in range(8)]
        (folder / "steps-r0.csv").write_text("\n".join(["rank,step,phase,began_epoch_s,duration_s", *rows]), "utf-8")
        (folder / "run.toml").write_text("schema = 1\n", "utf-8")
        return None

    @property
    def landing(self) -> Path:
        """Where its runs land."""
        return self.path.parent / "landing"


def has_ended(process_id: int, patience_s: float = 20) -> bool:
    """Whether a process ends within so long; one that nobody waits for has ended too."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process_id}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.05)
    return False
