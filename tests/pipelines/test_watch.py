"""`teetotal watch`, `land --open`, `land --append` and `close`: a run that grows, as a person sees it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from lake.attestation_keys import NO_KEYS
from lake.errors import EvidenceRejected, LakeError, SourceUnavailable
from lake.identity import MANIFEST, OPEN
from pipelines.cli import watching
from pipelines.cli.main import main
from pipelines.cli.watching import Limit, Standing, Watch
from pipelines.settings import settings
from tests.support.small_runs import OFF, TEE, trace
from tests.support.web_interface import COMMAND, ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from lake.store import Lake

RUN = "tee"


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


def test_an_exceeded_limit_ends_the_watch_while_the_run_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_run(tmp_path)
    monkeypatch.setattr(Watch, "_decide", lambda *_: "exceeded")
    found = list(follow(tmp_path, lambda _: None, Limit(1.05)).follow())
    assert [(one.is_open, one.gate) for one in found] == [(True, "exceeded")]


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
