"""`teetotal watch`, `land --open`, `land --append` and `close`: a run that grows, as a person sees it."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from assets.build import bronze
from assets.build.comparisons import COMPARISON_TABLES
from bronze.limits import Limits
from lake.attestation_keys import NO_KEYS
from lake.errors import EvidenceRejected, LakeError, SourceUnavailable
from lake.identity import MANIFEST, OPEN
from pipelines.cli import watching
from pipelines.cli.main import main
from pipelines.cli.watching import Limit, Standing, Watch
from pipelines.settings import settings
from tests.support.build_runs import build_runs, record_passed
from tests.support.compared_runs import open_lake
from tests.support.small_runs import OFF, TEE, trace
from tests.support.web_interface import COMMAND, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

    from lake.store import Lake

RUN = "tee"
SLOWER, HOSTILE = "after", "[red]evil\x1b]0;owned\x07\x1b[41;5m.json"


@pytest.fixture
def teetotal(tmp_path: Path) -> Callable[..., Result]:
    places = ["--lake", str(tmp_path / "lake"), "--landing", str(tmp_path / "landing")]
    return lambda *words: CliRunner().invoke(main, [*places, *map(str, words)], catch_exceptions=False)


def open_run(tmp_path: Path) -> Path:
    directory = tmp_path / "landing" / RUN
    directory.mkdir(parents=True)
    (directory / OPEN).touch()
    (directory / MANIFEST).write_text(TEE, "utf-8")
    return directory


def follow(tmp_path: Path, launch: Callable[[bool], LakeError | None], limit: Limit | None = None) -> Watch:
    chosen = settings(str(tmp_path / "lake"), str(tmp_path / "landing"), environment={})
    return Watch(chosen, RUN, NO_KEYS, launch, 0.01, limit)


def test_each_change_is_launched_once_and_the_close_ends_the_watch(tmp_path: Path) -> None:
    directory = open_run(tmp_path)
    launches: list[bool] = []

    def launch(is_open: bool) -> LakeError | None:
        launches.append(is_open)
        if len(launches) < 3:  # while it is read another file comes
            (directory / f"{len(launches)}.json").write_bytes(b"{}")
        elif is_open:
            (directory / OPEN).unlink()
        return None

    found = list(follow(tmp_path, launch).follow())
    assert launches == [True, True, True, False]
    assert [one.is_open for one in found] == [True, False]  # nothing new to say of the two in between


def test_what_fails_for_a_moment_is_tried_again_and_what_fails_for_good_ends_a_closed_run(tmp_path: Path) -> None:
    directory = open_run(tmp_path)
    faults: list[LakeError] = [SourceUnavailable("not now"), EvidenceRejected("never")]

    def launch(_is_open: bool) -> LakeError | None:
        fault = faults.pop(0)
        if not faults:
            (directory / OPEN).unlink(missing_ok=True)
            faults.append(fault)
        return fault

    found = list(follow(tmp_path, launch).follow())
    assert [(one.is_open, one.fault) for one in found] == [(True, "not now"), (True, "never"), (False, "never")]
    assert watching.find_exit(found[-1], None) == 1


@pytest.mark.parametrize(
    ("gate", "limit", "status"), [(None, None, 0), ("within", 1.1, 0), ("exceeded", 1.1, 1), ("undecided", 1.1, 3)]
)
def test_a_watch_ends_by_the_rules_of_the_gate_where_a_limit_is_given(
    gate: str | None, limit: float | None, status: int
) -> None:
    found = Standing(RUN, False, gate=gate)
    assert watching.find_exit(found, None if limit is None else Limit(limit)) == status


@pytest.mark.parametrize(("limit", "outcome"), [(1.05, "exceeded"), (5.0, "within")])
def test_the_limit_of_a_closed_run_is_decided_as_the_gate_does(
    tmp_path: Path, recorded_lake: Lake, limit: float, outcome: str
) -> None:
    directory = open_run(tmp_path)
    directory.rename(directory.with_name("resnet50-sealed-w2"))
    (tmp_path / "landing" / "resnet50-sealed-w2" / OPEN).unlink()
    chosen = settings(str(recorded_lake.place), str(tmp_path / "landing"), environment={})
    watch = Watch(chosen, "resnet50-sealed-w2", NO_KEYS, lambda _: None, 0.01, Limit(limit))
    (found,) = watch.follow()
    assert (found.gate, found.baseline_run_id, found.is_open) == (outcome, "resnet50-plain-w2", False)
    assert found.step_ns is not None
    assert found.so_far is None


def test_a_standing_is_a_line_and_says_what_is_wrong() -> None:
    found = Standing(RUN, True, so_far="so far, 2 cycles", files_count=1, cycles_count=2)
    line = watching.format_line(found)
    assert line[8:] == f" {RUN}: so far, 2 cycles; 1 file; step none timed yet; no baseline; 0 violations; took 0.0 s"
    bad = replace(
        found,
        step_ns=12_300_000,
        steps_count=24,
        step_source="trace",
        baseline_run_id="off",
        slowdown_ratio=1.2,
        slowdown_low_ratio=1.1,
        slowdown_high_ratio=1.3,
        violations_count=3,
        contradictions="it claims cc_off, yet …",
        waiting_files=("r1.json",),
    )
    line = watching.format_line(bad)
    assert "step 12.3 ms (24 steps, trace); slowdown 1.200x (1.100 to 1.300); 3 violations" in line
    assert list(watching.list_warnings(bad)) == [
        "its claim is contradicted: it claims cc_off, yet …",
        "not complete yet: r1.json",
    ]


def test_a_look_that_takes_long_says_how_its_cycles_are_bounded() -> None:
    slow = Standing(RUN, True, cycles_count=40, seconds=31.0)
    (warning,) = watching.list_warnings(slow)
    assert "`open_cycles_count` in run.toml has them count its last cycles" in warning
    for told in (
        replace(slow, seconds=29.0),
        replace(slow, cycles_count=1),
        replace(slow, open_cycles_count=8),
        replace(slow, is_open=False),
    ):
        assert list(watching.list_warnings(told)) == []


def test_a_standing_says_how_many_cycles_count(tmp_path: Path) -> None:
    directory = open_run(tmp_path)
    with (directory / MANIFEST).open("a", encoding="utf-8") as manifest:
        manifest.write("open_cycles_count = 1\n")
    (directory / "rank0.json").write_bytes(trace(100))
    lake, zone = open_lake(tmp_path)
    bronze.materialise(lake, zone, RUN, Limits())
    assert watching.read_standing(lake, RUN, is_open=True).open_cycles_count == 1


@pytest.fixture
def compared_place(tmp_path: Path, compared_lake: Lake) -> Path:
    """A copy of the lake of runs before and after a change, to be written to, and of what has landed of them."""
    shutil.copytree(compared_lake.place.directory.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_the_watch_of_a_closed_run_ends_with_the_status_of_the_gate(
    compared_place: Path, teetotal: Callable[..., Result]
) -> None:
    lake, zone = open_lake(compared_place)
    bronze.materialise(lake, zone, SLOWER, Limits())  # copies of files are other files: they are landed again
    record_passed(lake, [SLOWER])
    for table in COMPARISON_TABLES:
        record_passed(lake, lake.snapshot(table).run_ids, [table])
    ended = {limit: teetotal("watch", SLOWER, "--max-slowdown", limit) for limit in ("1.5", "1.1", "1.197")}
    assert {limit: result.exit_code for limit, result in ended.items()} == {"1.5": 0, "1.1": 1, "1.197": 3}
    assert not (compared_place / ".dagster").exists(), "nothing had to be launched"
    for limit, outcome in (("1.5", "within"), ("1.1", "exceeded"), ("1.197", "undecided")):
        assert f"\n  gate: {outcome}, --max-slowdown {limit}\n" in ended[limit].output
        assert f"{SLOWER}: closed; 2 files; " in ended[limit].output


def test_a_terminal_sees_a_table_of_an_open_run_that_a_limit_ends_and_nothing_of_it_steers_the_terminal(
    compared_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = compared_place / "landing" / SLOWER
    (directory / OPEN).touch()
    (directory / HOSTILE).write_bytes(trace(100)[:300])
    lake, zone = open_lake(compared_place)
    build_runs(lake, zone, [SLOWER])
    status, seen = run_on_a_terminal(
        monkeypatch, "--lake", str(lake.place), "--landing", str(zone.place), "watch", SLOWER, "--max-slowdown", "1.1"
    )
    assert status == 1, "at once: nobody has closed it"
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", seen)
    assert [char for char in shown if not char.isprintable() and char not in "\r\n"] == []
    assert "\x1b[41;5m" not in seen
    assert "reading what has come, 0:00:00; Ctrl-C ends the watch, not the run" in shown
    last = shown.rpartition(f"{SLOWER}, as its files come")[2].split("\r\n")
    assert last[1].split() == ["at", "so", "far", "files", "step", "steps", "slowdown", "violations"]
    assert re.fullmatch(r"\d\d:\d\d:\d\d +1 cycle +2 +120 ms +10 log +1\.19\dx \(1\.1\d+ to 1\.2\d+\) +0 *", last[3])
    assert last[4].startswith("so far, 1 cycle: 1.2")
    text = " ".join(line.strip() for line in last[4:])
    assert "not complete yet: [red]evil\\x1b]0;owned\\x07\\x1b[41;5m.json gate: exceeded, --max-slowdown 1.1" in text
    assert "Ctrl-C" not in text, "it has ended"


def run_on_a_terminal(patch: pytest.MonkeyPatch, *words: str) -> tuple[object, str]:
    """The command in this process, whose output is a terminal: its exit status, and all that was drawn."""
    screen, far_end = pty.openpty()
    drawn: list[bytes] = []

    def read() -> None:
        try:
            while True:
                drawn.append(os.read(screen, 65_536))
        except OSError:  # the other end has closed
            return

    reader = threading.Thread(target=read)
    reader.start()
    with patch.context() as own, os.fdopen(far_end, "w") as output:
        for name, value in (("TERM", "xterm"), ("COLUMNS", "100"), ("LINES", "30")):
            own.setenv(name, value)
        own.setattr("sys.stdout", output)
        with pytest.raises(SystemExit) as ended:
            main([*words])
    reader.join()
    os.close(screen)
    return ended.value.code, b"".join(drawn).decode()


@pytest.mark.usefixtures("records_at_hand")
def test_a_run_is_opened_added_to_watched_stopped_and_closed(tmp_path: Path, teetotal: Callable[..., Result]) -> None:
    for run_id, manifest, step_us in (("off", OFF, 100), ("new", TEE, 120)):
        source = tmp_path / "recorded" / run_id
        source.mkdir(parents=True)
        (source / "rank0.json").write_bytes(trace(step_us))
        (source / MANIFEST).write_text(manifest, "utf-8")
    new = tmp_path / "recorded" / "new"
    assert teetotal("land", tmp_path / "recorded" / "off").exit_code == 0
    opened = teetotal("land", "--open", "--run-id", RUN, new / MANIFEST)
    assert opened.exit_code == 0, opened.output
    assert "landed tee: 0 files" in opened.output
    assert teetotal("land", "--append", "off", new / "rank0.json").exit_code == 2  # it is complete
    words = [*COMMAND, "--lake", str(tmp_path / "lake"), "--landing", str(tmp_path / "landing"), "watch", RUN, "--json"]
    watch = subprocess.Popen(
        words,
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    assert watch.stdout is not None
    first = json.loads(watch.stdout.readline())
    assert (first["is_open"], first["files_count"], first["step_ns"]) == (True, 0, None)
    added = teetotal("land", "--append", RUN, new / "rank0.json")
    assert "added to tee: rank0.json" in added.output
    second = json.loads(watch.stdout.readline())
    assert (second["so_far"], second["files_count"]) == ("so far, 1 cycle", 1)
    assert second["step_ns"] > 0
    os.killpg(watch.pid, signal.SIGINT)
    _, said = watch.communicate(timeout=120)
    assert watch.returncode == 130
    assert said.rstrip().endswith("teetotal: stopped; the run goes on; the same command shows it again")
    assert "Traceback" not in said
    status = teetotal("status")
    assert "tee: open, so far, 1 cycle: `teetotal close tee` when its last file is there" in status.output
    assert teetotal("close", RUN).exit_code == 0
    assert teetotal("close", RUN).exit_code == 2
    ended = teetotal("watch", RUN, "--max-slowdown", "1.05", "--against", "off")
    assert "closed; 1 file" in ended.output
    assert "no run 'off' with gold tables" in ended.output
    assert ended.exit_code == 2
