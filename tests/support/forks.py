"""Jobs that may be killed, each a fork of one process that has imported everything: none pays for a start."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ROOT = Path(__file__).parent.parent.parent


class Forks:
    """The end that asks: runs jobs one after the other, to their end or until they are killed."""

    def __init__(self, module: str, *before: str) -> None:
        """`module` calls `serve_jobs`; `before` are words before the command: a program that gives it another clock."""
        self._process = subprocess.Popen(
            [*before, sys.executable, "-m", module, "serve"],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(
        self,
        job: str,
        *arguments: object,
        kill_after_s: float | None = None,
        line: str = "",
        times: int = 0,
        is_due: Callable[[], bool] = lambda: True,
    ) -> int:
        """Run a job, or kill it some seconds after it has said a line so many times; its end, negative for a signal.

        The seconds are counted from when the kill is due, or from when the job says anything more, such as its end.
        """
        self._tell(json.dumps([job, *arguments], default=str))
        said = [self._read() for _ in range(times)]
        while kill_after_s is not None and not is_due() and not self._speaks():
            pass
        if kill_after_s is None:
            self._tell("wait")
        else:
            time.sleep(kill_after_s)
            self._tell("kill")
        rest, ended = self._await_end()
        if said != [f"{line}\n"] * times or ended > 0:
            raise AssertionError(f"{job} ended with {ended}:\n{''.join(said)}{rest}")
        return ended

    def end(self) -> None:
        """Let the process end."""
        self._process.communicate(timeout=60)

    def _await_end(self) -> tuple[str, int]:
        """What a job says up to its end, and how it ended."""
        said: list[str] = []
        for line in iter(self._read, ""):
            if line.startswith("ended "):
                return "".join(said), int(line.removeprefix("ended "))
            said.append(line)
        raise AssertionError("the process that jobs are forks of is gone: " + "".join(said))

    def _speaks(self) -> bool:
        """Whether there is a line to read; waits for one for a moment."""
        return self._process.stdout is None or bool(select.select([self._process.stdout], [], [], 0.001)[0])

    def _tell(self, line: str) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def _read(self) -> str:
        return "" if self._process.stdout is None else self._process.stdout.readline()


def serve_jobs(jobs: Mapping[str, Callable[..., None]]) -> None:
    """The other end: fork a process for a job; kill it, or wait for it, once told to; say how it ended."""
    for line in sys.stdin:
        job, *arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                jobs[job](*arguments)
            except Exception:  # noqa: BLE001 - the other end shows what went wrong
                traceback.print_exc()
                os._exit(1)
            print("done", flush=True)  # noqa: T201 - who waits for another line learns that it will not come
            os._exit(0)
        if sys.stdin.readline() == "kill\n":
            os.kill(pid, signal.SIGKILL)  # where it has ended, it is still there until waited for
        ended = os.waitpid(pid, 0)[1]
        print("ended", os.waitstatus_to_exitcode(ended), flush=True)  # noqa: T201 - the other end reads it
