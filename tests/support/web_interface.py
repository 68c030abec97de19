"""`teetotal ui` as a process of its own, with a lake of its own, and all that it leaves behind when it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

import dagster as dg
import psutil

from lake.landing_zone import LandingZone
from lake.store import Lake
from pipelines.cli.land import land_files
from pipelines.instance import open_instance
from pipelines.settings import settings

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parent.parent.parent
SAMPLES = ROOT / "samples"
COMMAND = (sys.executable, "-c", "from pipelines.cli.main import main; main()")
_PATIENCE_S = 240.0
_POLL_S = 0.25
_OURS = ("TEETOTAL_", "DAGSTER_")

T = TypeVar("T")


def eventually(ask: Callable[[], T | None], what: str, patience_s: float = _PATIENCE_S) -> T:
    """The first answer that is not empty."""
    deadline = time.monotonic() + patience_s
    while True:
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"after {patience_s:.0f} s not yet: {what}"
        time.sleep(_POLL_S)


class House:
    """A lake, a landing zone and Dagster's records under one directory, as the command finds them."""

    def __init__(self, directory: Path, store: str | None = None, **variables: str) -> None:
        """With a `store`, an object store's URL, lake and landing zone lie there, and the records here."""
        place = store or str(directory)
        self.places = ("--lake", f"{place}/lake", "--landing", f"{place}/landing")
        if store is not None:
            home = directory / ".dagster"
            home.mkdir()
            own = (ROOT / "dagster.yaml").read_text("utf-8")
            (home / "dagster.yaml").write_text(own.replace("base_dir: .dagster", f"base_dir: {home}"), "utf-8")
            variables |= {"DAGSTER_HOME": str(home), "TEETOTAL_DOCS": str(directory / "docs")}
        self.settings = settings(self.places[1], self.places[3], environment=variables)
        self.lake = Lake(self.settings.lake, self.settings.keyring)
        self.zone = LandingZone(self.settings.landing)
        # What a test was started with must not decide where its processes keep their records.
        kept = {name: value for name, value in os.environ.items() if not name.startswith(_OURS)}
        self.environment = {**kept, **variables}

    def land(self, sample: str) -> None:
        """Put a bundled recording into the landing zone."""
        land_files(self.zone, [SAMPLES / sample], self.settings.limits, run_id=None, given={})

    def records(self) -> dg.DagsterInstance:
        """What Dagster knows; to be closed by whoever asks."""
        return open_instance(self.settings.home)

    def start(self, *words: str, output: int | None = None) -> subprocess.Popen[str]:
        """The command, in a process group of its own, as a shell would start it."""
        return subprocess.Popen(
            [*COMMAND, *self.places, *words],
            cwd=ROOT,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE if output is None else output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def left(self) -> list[str]:
        """Processes that still work on this lake, whoever their parent is now."""
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get("TEETOTAL_LAKE") == str(self.settings.lake):
                    found.append(" ".join(process.cmdline()))
            except (psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                continue
        return found


class Serving:
    """`teetotal ui`, until it is stopped."""

    def __init__(self, house: House, log: Path, *words: str) -> None:
        self.house = house
        self._log = log
        with log.open("w") as file:
            self.process = house.start("ui", "--port", "0", *words, output=file.fileno())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.stop(signal.SIGTERM)

    def said(self) -> str:
        """All that it and its children printed."""
        return self._log.read_text("utf-8")

    def wait_for_line(self, pattern: str) -> str:
        """The first group of a line that it prints, sooner or later."""

        def found() -> str | None:
            assert self.process.poll() is None, self.said()
            match = re.search(pattern, self.said(), re.MULTILINE)
            return match and match[1]

        return eventually(found, pattern)

    def stop(self, *numbers: signal.Signals) -> int:
        """Send signals to its process group, one soon after the other, as a terminal does; give the exit status."""
        for number in numbers:
            os.killpg(self.process.pid, number)
            time.sleep(_POLL_S)
        return self.process.wait(90)
