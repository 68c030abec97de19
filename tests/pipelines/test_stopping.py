"""Ctrl-C in a real process: one sentence, status 130, no traceback, and no process left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.web_interface import COMMAND, ROOT, House

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE_S = 240

# Threads that still work keep a process alive after it has said that it stopped.
LIVES_ON = """
import os, signal, time
from pipelines.cli import stopping
with stopping.watch_interrupts():
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(60)
    except KeyboardInterrupt:
        stopping.tell_stop()
        time.sleep(1.5)
"""

# A person may be quicker than what is imported, and than what reads the options.
EARLY = """
import os, signal, sys
import click
from teetotal.__main__ import main

def interrupt(*_, **__):
    os.kill(os.getpid(), signal.SIGINT)
    raise AssertionError

class Finder:
    find_spec = interrupt

sys.argv[1:] = ["status"]
{where}
main()
"""
EARLY_PLACES = {
    "importing": "sys.meta_path.insert(0, Finder())",
    "reading options": "click.Context.__init__ = interrupt",
}


def start(house: House, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *house.places, *words],
        cwd=ROOT,
        env={**house.environment, "TEETOTAL_LAKE": str(house.settings.lake), "PYTHONUNBUFFERED": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def wait_for(path: Path, pattern: str) -> None:
    """Until the work has got so far that a file is there."""
    deadline = time.monotonic() + PATIENCE_S
    while not any(path.glob(pattern)):
        assert time.monotonic() < deadline, f"no {pattern} in {path}"
        time.sleep(0.02)


def press(command: subprocess.Popen[str]) -> None:
    """What a terminal does: every process of the group gets the signal."""
    os.killpg(command.pid, signal.SIGINT)


def require_stopped(house: House, command: subprocess.Popen[str], sentence: str) -> None:
    _, said = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 130, said
    assert "Traceback" not in said
    assert "Exception" not in said
    assert said.rstrip().endswith(f"teetotal: stopped; {sentence}"), said
    assert house.left() == []


@pytest.mark.parametrize(
    "begun", [".dagster/dagster.yaml", "lake/_staging/bronze.*", "lake/silver/spans/_delta_log/*.json"]
)
def test_a_run_that_is_stopped_says_how_it_continues_and_does(tmp_path: Path, begun: str) -> None:
    house = House(tmp_path)
    house.land("resnet50-plain-w2")
    command = start(house, "run", "--no-check", "--to", "gold.step_times")
    wait_for(tmp_path, begun)
    press(command)
    require_stopped(house, command, "`teetotal run` continues where it stopped")


def test_nothing_is_said_of_stopping_after_the_work_has_stopped() -> None:
    ended = subprocess.run([sys.executable, "-c", LIVES_ON], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ended.stderr == "teetotal: stopped; no file was left half-written\n"


@pytest.mark.parametrize("where", EARLY_PLACES)
def test_what_is_stopped_before_it_begins_says_so_in_a_line(where: str) -> None:
    program = EARLY.format(where=EARLY_PLACES[where])
    ended = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (130, "")
    assert ended.stderr.startswith("teetotal: stopped; ")
    assert ended.stderr.count("\n") == 1


def test_a_second_ctrl_c_ends_a_run_at_once(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.land("resnet50-plain-w2")
    command = start(house, "run", "--no-check", "--to", "gold.step_times")
    wait_for(tmp_path, "lake/_staging/bronze.*")
    press(command)
    time.sleep(0.05)
    press(command)
    require_stopped(house, command, "`teetotal run` continues where it stopped")


def test_a_landing_that_is_stopped_lands_nothing(tmp_path: Path) -> None:
    house = House(tmp_path)
    source = tmp_path / "big"
    source.mkdir()
    with (source / "numbers.csv").open("wb") as file:
        file.truncate(8 << 30)  # sparse: it takes seconds to copy and no space to make
    command = start(house, "land", str(source / "numbers.csv"), "--run-id", "big")
    wait_for(tmp_path, "landing/.landing-*")
    press(command)
    require_stopped(house, command, "nothing was landed")
    assert [path for path in (tmp_path / "landing").iterdir() if path.name[0] != "."] == []


def test_a_query_that_is_stopped_leaves_no_process(tmp_path: Path) -> None:
    house = House(tmp_path)
    (tmp_path / "lake" / "bronze" / "runs").mkdir(parents=True)
    command = start(house, "query", "FROM range(100000000000000)", "--format", "csv", "--timeout", "0")
    assert command.stdout is not None
    assert command.stdout.readline() == '"range"\n'
    command.stdout.close()
    command.stdout = None
    press(command)
    require_stopped(house, command, "nothing was changed")
