"""What tests run in a process of its own: `python -m tests.support.processes <job> <arguments>`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.build.bronze import materialise
from bronze.limits import Limits
from lake import landing_zone, regular_files
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from pipelines.process_costs import start_without_pandas
from tests.support.sample_tables import READINGS, VISITS, readings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lake.regular_files import SourceFile
    from lake.snapshot import Written

ROOT = Path(__file__).parent.parent.parent


def start(job: str, *arguments: str, options: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a job in a new process; storage options are handed over as its first argument."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.processes", job, json.dumps(dict(options or {})), *arguments],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def await_ready(*running: subprocess.Popen[str]) -> None:
    """Wait until jobs say that they stand ready."""
    for process in running:
        if process.stdout is None or process.stdout.readline() != "ready\n":
            raise AssertionError(process.communicate(timeout=10)[0])


def release(*running: subprocess.Popen[str]) -> None:
    """Wait until jobs stand ready, and let them all go at once."""
    await_ready(*running)
    for process in running:
        if process.stdin is not None:
            process.stdin.write("go\n")
            process.stdin.flush()


def finish(*running: subprocess.Popen[str]) -> None:
    """Wait for jobs to end; complain where one has failed."""
    said = [process.communicate(timeout=120)[0] for process in running]
    failed = [text for process, text in zip(running, said, strict=True) if process.returncode]
    if failed:
        raise AssertionError(f"{len(failed)} of {len(running)} processes failed, the first with:\n{failed[0]}")


class Forks:
    """Jobs to be killed, each a fork of one process that has imported everything and started no thread."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.processes", "serve", "{}"],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, job: str, *arguments: str) -> None:
        """Run a job to its end; complain where it fails."""
        self._tell(json.dumps([job, *arguments]))
        self._tell("wait")
        said, ended = self._await_end()
        if ended:
            raise AssertionError(f"{job} ended with {ended}:\n{said}")

    def is_killed(self, job: str, *arguments: str, line: str, times: int, seconds: float) -> bool:
        """Kill -9 a job so many seconds after it has said a line so many times; whether it was still at work."""
        self._tell(json.dumps([job, *arguments]))
        said = [self._read() for _ in range(times)]
        time.sleep(seconds)
        self._tell("kill")
        rest, ended = self._await_end()
        if said != [f"{line}\n"] * times or ended not in {0, -signal.SIGKILL}:
            raise AssertionError(f"{job} ended with {ended}:\n{''.join(said)}{rest}")
        return ended != 0

    def _await_end(self) -> tuple[str, int]:
        """What a job says up to its end, and how it ended."""
        said: list[str] = []
        for line in iter(self._read, ""):
            if line.startswith("ended "):
                return "".join(said), int(line.removeprefix("ended "))
            said.append(line)
        raise AssertionError("the process that jobs are forks of is gone: " + "".join(said))

    def _tell(self, line: str) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()

    def _read(self) -> str:
        return "" if self._process.stdout is None else self._process.stdout.readline()

    def end(self) -> None:
        """Let the process end."""
        self._process.communicate(timeout=60)


def serve(_: dict[str, str]) -> None:
    """Fork a process for a job; kill it, or wait for it, once told to; say how it ended, negative for a signal."""
    for line in sys.stdin:
        job, *arguments = json.loads(line)
        pid = os.fork()
        if pid == 0:
            try:
                _JOBS[job]({}, *arguments)
            except Exception:  # noqa: BLE001 - the other end shows what went wrong
                traceback.print_exc()
                os._exit(1)
            print("done", flush=True)  # noqa: T201 - who waits for another line learns that it will not come
            os._exit(0)
        if sys.stdin.readline() == "kill\n":
            os.kill(pid, signal.SIGKILL)  # where it has ended, it is still there until waited for
        ended = os.waitpid(pid, 0)[1]
        print("ended", os.waitstatus_to_exitcode(ended), flush=True)  # noqa: T201 - as above


def write(options: dict[str, str], root: str, run_id: str, power: str, rows: str, times: str) -> None:
    """Replace a run's readings a number of times, once told to go; each row says who wrote it."""
    lake = Lake(Location.of(root, options))
    print("ready", flush=True)  # noqa: T201 - the other end of `release`
    sys.stdin.readline()
    for _ in range(int(times)):
        lake.replace(READINGS, run_id, readings(run_id, [float(power)] * int(rows)), f"{int(power):064x}")


def open_keyring(_: dict[str, str], path: str) -> None:
    """Open a keyring that is made on first use, once told to go; say which key is active."""
    print("ready", flush=True)  # noqa: T201 - the other end of `release`
    sys.stdin.readline()
    print(KeyringFile(Path(path), is_made_on_first_use=True)().active_id)  # noqa: T201 - a test compares it


def rotate(options: dict[str, str], root: str, path: str) -> None:
    """Add a key and seal all visits again; say so before each run's partition."""
    keyring = KeyringFile(Path(path))
    keyring.rotate()
    lake = Lake(Location.of(root, options), keyring)
    for run_id in lake.snapshot(VISITS).run_ids:
        print("reseal", flush=True)  # noqa: T201 - a test waits for it
        lake.reseal(VISITS, run_id)


class Announced(Lake):
    """A lake that says so when it is about to commit."""

    def commit(self, *arguments: Any, **named: Any) -> Written:
        """Say so, and commit."""
        sys.stdout.write("commit\n")  # a test waits for it; in one piece, since tables are committed side by side
        sys.stdout.flush()
        return super().commit(*arguments, **named)


def land(options: dict[str, str], root: str, landing: str, run_id: str) -> None:
    """Land a run into bronze."""
    materialise(Announced(Location.of(root, options)), LandingZone(Location.of(landing, options)), run_id, Limits())


def land_halfway(options: dict[str, str], landing: str, run_id: str, *paths: str) -> None:
    """Copy files into the landing zone, and stand still after the first: something to kill."""
    copy = regular_files.copy_file

    def copy_and_stop(source: SourceFile, target: Path, *_: object) -> None:
        copy(source, target)
        print("ready", flush=True)  # noqa: T201 - the other end of `release`
        sys.stdin.readline()

    vars(landing_zone)["copy_file"] = copy_and_stop
    LandingZone(Location.of(landing, options)).land(run_id, {Path(path).name: Path(path) for path in paths}, "")


_KNOWN: tuple[Callable[..., None], ...] = (write, open_keyring, rotate, land, land_halfway, serve)
_JOBS = {function.__name__: function for function in _KNOWN}

if __name__ == "__main__":
    start_without_pandas()
    job, given, *arguments = sys.argv[1:]
    _JOBS[job](json.loads(given), *arguments)
