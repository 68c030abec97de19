"""What tests run in a process of its own: `python -m tests.support.processes <job> <arguments>`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
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
from tests.support.forks import serve_jobs
from tests.support.sample_tables import READINGS, SECOND, VISITS, many_readings, readings

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


def upload(options: dict[str, str], root: str, landing: str, run_id: str, path: str) -> None:
    """Land a large file and write a large data file, side by side."""
    zone, lake = LandingZone(Location.of(landing, options)), Lake(Location.of(root, options))
    threading.Thread(target=zone.land, args=(run_id, {Path(path).name: Path(path)}, "")).start()
    lake.replace(READINGS, run_id, many_readings(run_id), SECOND)


_KNOWN: tuple[Callable[..., None], ...] = (write, open_keyring, rotate, land, land_halfway, upload)
_JOBS = {function.__name__: function for function in _KNOWN}

if __name__ == "__main__":
    start_without_pandas()
    if sys.argv[1:] == ["serve"]:
        serve_jobs(_JOBS)
    else:
        job, given, *arguments = sys.argv[1:]
        _JOBS[job](json.loads(given), *arguments)
