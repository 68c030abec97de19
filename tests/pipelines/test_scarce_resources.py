"""A machine that lacks space, rights, open files or memory: one line and the next step, and no process left behind."""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
import subprocess
import sys
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from bronze import runs
from lake.errors import LakeError
from lake.locations import report_unreachable
from lake.scarcity import next_step
from pipelines.cli import session
from pipelines.cli.main import main
from tests.support.mounts import may_mount, mount_memory, run
from tests.support.small_runs import OFF, trace
from tests.support.web_interface import COMMAND, ROOT, House

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from click.testing import Result

    from lake.store import Lake


def run_scarcely(house: House, words: Sequence[str], limit: Callable[[], None], output: int | None = None) -> str:
    """Run the command in a process that lacks something; give the one line that it prints."""
    with subprocess.Popen(
        [*COMMAND, *house.places, *words],
        cwd=ROOT,
        env={**house.environment, "TEETOTAL_LAKE": str(house.settings.lake)},
        text=True,
        stdout=subprocess.PIPE if output is None else output,
        stderr=subprocess.PIPE,
        preexec_fn=limit,  # noqa: PLW1509 - nothing else runs in the test's threads
    ) as command:
        _, said = command.communicate(timeout=500)
    assert command.returncode == 1, said
    assert house.left() == []
    assert said.startswith("teetotal: "), said
    assert said.count("\n") == 1, said
    return said


def limit_to(kind: int, amount: int) -> Callable[[], None]:
    return partial(resource.setrlimit, kind, (amount, amount))


def test_too_few_open_files_are_one_line(tmp_path: Path) -> None:
    said = run_scarcely(House(tmp_path), ["run", "--quiet"], limit_to(resource.RLIMIT_NOFILE, 32))
    assert "may open 32 files" in said
    assert "ulimit" in said


def test_a_low_limit_of_open_files_that_may_be_raised_is_raised() -> None:
    code = (
        "import resource; from pipelines.cli.failures import require_resources as r\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (32, 4096)); r(); print(resource.getrlimit(resource.RLIMIT_NOFILE))"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout == "(1024, 4096)\n"


def test_too_little_memory_is_one_line(tmp_path: Path) -> None:
    said = run_scarcely(House(tmp_path), ["status"], limit_to(resource.RLIMIT_AS, 1 << 30))
    assert "may use 1024 MB of address space" in said


def test_too_little_memory_to_draw_is_refused_before_it_hangs() -> None:
    code = (
        "import resource; from report.drawing import scripts\n"
        "resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)); scripts()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert "4096 MB of address space, V8, which draws figures, needs 73728 MB" in ran.stderr


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """No file may grow beyond a size, which ends a write as a full disk does, wherever the test runs."""
    house = House(tmp_path)
    house.land("resnet50-plain-w2")
    words = ["run", "--quiet", "--no-check", "--to", "bronze.runs"]
    said = run_scarcely(house, words, limit_to(resource.RLIMIT_FSIZE, 1 << 16))
    assert "free some space" in said


def test_an_output_that_is_full_is_one_line(tmp_path: Path) -> None:
    with open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        said = run_scarcely(House(tmp_path), ["status"], lambda: None, full.fileno())
    assert "No space left" in said
    assert "free some space" in said


def test_a_lake_that_may_not_be_written_is_one_line(tmp_path: Path) -> None:
    """Beside a lake in sysfs, where nobody may make anything, root neither."""
    house = House(tmp_path)
    house.land("resnet50-plain-w2")
    result = CliRunner().invoke(main, ["--lake", "/sys/teetotal/lake", *house.places[2:], "run", "--quiet"])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.stderr
    assert "/sys/teetotal/.dagster could not be written to" in result.stderr
    assert "check who owns it and how it is mounted" in result.stderr


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[House]:
    """A disk of its own with a lake of one run, and another run that has landed since."""
    if not may_mount(tmp_path):
        pytest.skip("nobody may mount a disk here; limits and devices stand in for it in the tests above")
    with mount_memory(tmp_path / "disk", "64m") as disk:
        house = House(disk)
        _land_small(house, "early")
        assert _invoke(house, *_BRONZE).exit_code == 0
        _land_small(house, "late")
        yield house


_BRONZE = ("run", "--quiet", "--no-check", "--to", "bronze.runs")


def _land_small(house: House, run_id: str) -> None:
    directory = house.settings.landing.directory / run_id
    directory.mkdir(parents=True)
    (directory / "rank0.json").write_bytes(trace(100))
    (directory / "run.toml").write_text(OFF)


def _invoke(house: House, *words: str) -> Result:
    return CliRunner().invoke(main, [*house.places, *words])


def _assert_one_line(result: Result, step: str) -> None:
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1), result.output
    assert result.stderr.startswith("teetotal: ")
    assert step in result.stderr


def test_a_lake_that_is_mounted_read_only_is_one_line_stays_readable_and_goes_on(
    small_disk: House, capfd: pytest.CaptureFixture[str]
) -> None:
    disk = small_disk.settings.lake.directory.parent
    run("mount", "-o", "remount,ro", disk)
    _assert_one_line(_invoke(small_disk, *_BRONZE), "how it is mounted")
    _assert_one_line(_invoke(small_disk, "forget", "early", "--yes"), "how it is mounted")
    words = ("show", "bronze.runs", "--columns", "run_id", "--format", "csv")
    assert _invoke(small_disk, *words).stdout.split() == ['"run_id"', '"early"']
    run("mount", "-o", "remount,rw", disk)
    assert _invoke(small_disk, *_BRONZE).exit_code == 0
    assert _invoke(small_disk, *words).stdout.split() == ['"run_id"', '"early"', '"late"']
    assert capfd.readouterr() == ("", "")


def test_a_lake_on_a_full_disk_is_one_line_and_goes_on_when_there_is_space(
    small_disk: House, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    filler, source = small_disk.settings.lake.directory.parent / "filler", tmp_path / "rank0.json"
    source.write_bytes(trace(100))
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
    assert os.statvfs(filler).f_bavail == 0
    _assert_one_line(_invoke(small_disk, *_BRONZE), "free some space")
    _assert_one_line(_invoke(small_disk, "land", str(source), "--run-id", "latest"), "free some space")
    filler.unlink()
    assert _invoke(small_disk, "land", str(source), "--run-id", "latest").exit_code == 0
    assert _invoke(small_disk, *_BRONZE).exit_code == 0
    assert small_disk.lake.snapshot(runs.TABLE).run_ids == ["early", "late", "latest"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["--landing", "/sys/landing", "land", __file__, "--run-id", "x"], "/sys/landing/x could not be written"),
        (["--keyring", "/sys/k/keyring.json", "keys", "create"], "/sys/k/keyring.json cannot be written"),
        (["report", "--out", "/sys/page.html"], "the report /sys/page.html"),
        (["export", "before", "--perfetto", "/sys/trace.json"], "the trace /sys/trace.json"),
    ],
)
def test_an_output_that_may_not_be_written_is_one_line(compared_lake: Lake, words: list[str], place: str) -> None:
    result = CliRunner().invoke(main, ["--lake", str(compared_lake.place), *words])
    assert (result.exit_code, result.output.count("\n")) == (1, 1), result.output
    assert place in result.output
    assert "who owns it" in result.output


def test_a_full_disk_stops_a_forget_in_one_line_before_anything_is_removed(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.land("resnet50-plain-w2")
    said = run_scarcely(house, ["forget", "resnet50-plain-w2", "--yes"], limit_to(resource.RLIMIT_FSIZE, 2000))
    assert "free some space" in said
    assert house.zone.run_ids()[0] == ["resnet50-plain-w2"]


@pytest.mark.parametrize(
    ("error", "step"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "free some space"),
        (OSError(errno.EROFS, "Read-only file system"), "how it is mounted"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (sqlite3.OperationalError("database or disk is full"), "free some space"),
        (sqlite3.OperationalError("attempt to write a readonly database"), "how it is mounted"),
        (RuntimeError("can't start new thread"), "TEETOTAL_WORKERS"),
        (MemoryError(), "TEETOTAL_WORKERS"),
    ],
)
def test_what_the_machine_lacks_is_told_with_the_next_step(error: Exception, step: str) -> None:
    def fail() -> None:
        raise ValueError("a step failed") from error

    with pytest.raises(ValueError, match="a step failed") as caught:
        fail()
    assert step in str(next_step(caught.value))


def test_storage_that_is_full_says_so_in_the_lake_s_own_error() -> None:
    with pytest.raises(LakeError, match="free some space"), report_unreachable("the lake could not be written"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_an_error_that_nobody_expected_is_one_line_and_its_traceback_is_printed_on_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("silver")

    monkeypatch.setattr(session, "open_lake", fail)
    words = [*House(tmp_path).places, "status"]
    short = CliRunner().invoke(main, words)
    assert (short.exit_code, short.stderr.count("\n")) == (1, 1)
    assert "KeyError: 'silver' (this is a fault of teetotal" in short.stderr
    monkeypatch.setenv("TEETOTAL_DEBUG", "1")
    assert "Traceback" in CliRunner().invoke(main, words).stderr
