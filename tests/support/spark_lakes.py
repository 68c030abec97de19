"""Lakes that Polars and Spark fill from one landing zone, each by a command in a process of its own."""

from __future__ import annotations

import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assets.build.catalogue import TABLES
from benchmarks.standalone import environment
from lake.keyring import KeyringFile
from lake.locations import Location
from lake.store import Lake
from tests.support.campaigns import is_soak

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S = 240
# Where a process dies in the midst of bronze: one answer and what it needs, in the soak all tables. Each takes a job.
ANSWER = "gold.trace_summary"
ASKED = () if is_soak() else ("--to", ANSWER)
# The content digest of every table and run.
State = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Bench:
    """One landing zone and one keyring, and a lake for each who writes."""

    home: Path
    recordings: tuple[str, ...]
    # Of the environment that holds the installed wheel.
    python: Path
    many: str = "many"

    def lake(self, name: str) -> Lake:
        return Lake(Location.of(self.home / name / "lake"), KeyringFile(self.home / "keyring.json"))

    def start(self, name: str, *words: str, **more: str) -> subprocess.Popen[str]:
        """Start the command on the lake of that name."""
        places = ("--lake", str(self.home / name / "lake"), "--landing", str(self.home / "landing"))
        return subprocess.Popen(
            [str(self.python), "-m", "teetotal", *places, "--keyring", str(self.home / "keyring.json"), *words],
            cwd=self.home,
            env=environment(**more),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def teetotal(self, name: str, *words: str, **more: str) -> str:
        """Run the command to its end."""
        process = self.start(name, *words, **more)
        said, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
        return said

    def state(self, name: str) -> State:
        """What the lake of that name holds."""
        lake = self.lake(name)
        snapshots = [lake.snapshot(table) for table in TABLES.values()]
        return {
            (one.table.full_name, run_id): one.content_sha256(run_id) for one in snapshots for run_id in one.run_ids
        }

    def spooled(self, name: str, table: str) -> list[Path]:
        """What executors have on the way into a table."""
        return list((self.home / name / "lake" / "_staging" / table / "spool").glob("*/executor-*"))

    def await_spooled(self, name: str, table: str, process: subprocess.Popen[str]) -> None:
        """Wait until executors are at work on a table."""
        deadline = time.monotonic() + PATIENCE_S
        while not self.spooled(name, table):
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.02)


def check_asked(found: State, wanted: State) -> None:
    """The tables that were asked for are there, of every tier, and each is what it should be."""
    assert found == {name: digest for name, digest in wanted.items() if name in found}
    assert {table.partition(".")[0] for table, _ in found} == {"bronze", "silver", "gold"}
    assert ANSWER in {table for table, _ in found}
    assert (len(found) == len(wanted)) == is_soak()


def of(state: State, *run_ids: str) -> State:
    """What a lake holds of some runs alone."""
    return {key: value for key, value in state.items() if key[1] in run_ids}
