"""The first commands on a new lake, all at once: each finds Dagster's records set up, and set up once."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from pipelines.cli.main import main
from tests.support.campaigns import pick_size
from tests.support.web_interface import ROOT, House

if TYPE_CHECKING:
    from pathlib import Path

# They differ from commands only in that one import serves them all: they are forked from it, and let go at once.
OPEN_AT_ONCE = """
import os, sys, traceback
from pipelines.instance import open_instance
from pipelines.settings import settings

home, (waiting, go), children = settings(sys.argv[1], environment={}).home, os.pipe(), []
for _ in range(int(sys.argv[2])):
    children.append(os.fork())
    if not children[-1]:
        os.read(waiting, 1)
        try:
            open_instance(home).get_runs()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
os.write(go, b"." * len(children))
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def test_first_launches_at_once_set_the_records_up_once(tmp_path: Path) -> None:
    for place in (tmp_path / str(trial) for trial in range(pick_size(1, 20))):
        together = subprocess.run(
            [sys.executable, "-c", OPEN_AT_ONCE, str(place / "lake"), str(pick_size(3, 16))],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert together.returncode == 0, together.stderr
        for path in (place / ".dagster" / "storage").rglob("*.db"):
            with sqlite3.connect(path) as records:
                assert len(records.execute("SELECT version_num FROM alembic_version").fetchall()) == 1, path
            records.close()


@pytest.mark.usefixtures("records_at_hand")
def test_records_that_cannot_be_opened_are_one_line_with_the_way_out(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.land("resnet50-plain-w2")
    # What two first launches at once once left.
    with sqlite3.connect(tmp_path / ".dagster" / "storage" / "history" / "runs.db") as records:
        records.execute("INSERT INTO alembic_version VALUES ('5771160a95ad')")
    records.close()
    result = CliRunner().invoke(main, [*house.places, "run", "--quiet"])
    assert result.exit_code == 1, result.output
    assert result.stderr.count("\n") == 1
    assert "has more than one head" in result.stderr
    assert f"the lake is not affected: move {tmp_path / '.dagster'} away" in result.stderr
