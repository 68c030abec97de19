"""Processes that need not import torch, which takes seconds: one process has imported it, and each job is its fork."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, field
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.context import ForkProcess

ROOT = Path(__file__).parent.parent.parent
# What the forks do, and what takes long to import; the first optimizer imports `torch._dynamo`.
_IMPORTED = (
    "torch._dynamo",
    "collector.rank",
    "collector.__main__",
    "tests.support.ranks",
    "tests.support.training_loops",
)


@dataclass(frozen=True)
class Job:
    """What one fork does: the `main` of a module, with these words on its command line; what it says goes to a log."""

    module: str
    words: Sequence[str]
    log: str
    environment: dict[str, str] = field(default_factory=dict)


class TorchForks:
    """Runs jobs, each in a process of its own."""

    def __init__(self) -> None:
        settings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=ROOT,
            env=settings,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        assert self._process.returncode == 0

    def run(self, jobs: Sequence[Job], timeout_s: float = 200) -> list[int]:
        """Run jobs side by side; give how each ended, as `subprocess` has it. Who takes longer is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([timeout_s, [asdict(job) for job in jobs]]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, "the process that jobs are forked from has ended"
        found: list[int] = json.loads(answer)
        return found


def _serve() -> None:
    for name in _IMPORTED:
        import_module(name)
    # A lock that another thread holds would stay closed in a fork.
    assert len([*Path("/proc/self/task").iterdir()]) == 1
    gc.freeze()
    context = get_context("fork")
    for line in sys.stdin:
        timeout_s, jobs = json.loads(line)
        processes = [context.Process(target=_work, args=(Job(**job),)) for job in jobs]
        sys.stdout.write(json.dumps(_run(processes, timeout_s)) + "\n")
        sys.stdout.flush()


def _run(processes: Sequence[ForkProcess], timeout_s: float) -> list[int | None]:
    deadline = time.monotonic() + timeout_s
    for process in processes:
        process.start()
    for process in processes:
        process.join(max(0.1, deadline - time.monotonic()))
    for process in processes:
        process.kill()
        process.join()
    return [process.exitcode for process in processes]


def _work(job: Job) -> None:
    log = os.open(job.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(job.environment)
    sys.argv = [job.module, *job.words]
    sys.exit(import_module(job.module).main())


if __name__ == "__main__":
    _serve()
