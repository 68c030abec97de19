"""A pair as it is recorded: killed and resumed at every boundary, and read by the product's own command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from bronze import manifest
from collector.errors import CollectorError
from collector.pair import PairRecorder
from collector.pair_plan import Attempt, PairPlan, Side, load_plan, save_plan
from pipelines.cli.main import main
from tests.support.paired_runs import SCRIPT, SimulatedRecorder, define, has_ended
from tests.support.ranks import ROOT

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Killed:
    """A plan whose recorder was killed in the middle of its first run, and how the landing zone looked then."""

    path: Path
    status: int
    plan_then: PairPlan
    landed_then: list[str]
    trainer_has_ended: bool

    @property
    def landing(self) -> Path:
        """Where its runs land."""
        return self.path.parent / "landing"

    def runs(self) -> list[str]:
        """What a reader of the landing zone takes for runs."""
        return sorted(path.name for path in self.landing.iterdir() if not path.name.startswith("."))

    def claims(self, run_id: str) -> manifest.Manifest:
        """What a run says of itself, as the product reads it."""
        return manifest.parse((self.landing / run_id / "run.toml").read_bytes(), "run.toml")


@pytest.fixture(scope="module")
def killed_recorder(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """The recorder is killed by its first run; a second process goes on with the plan alone."""
    home = tmp_path_factory.mktemp("pair")
    (home / "train.py").write_text(SCRIPT, "utf-8")
    (home / "marks").mkdir()
    words = [sys.executable, "-m", "collector", "pair", "--plan", str(home / "plan.json")]
    asked = ["--landing", str(home / "landing"), "--name", "line", "--repeats", "2", "--warmup", "1", "--bare", "8"]
    asked += ["--steps", "1", "--set", "model=line", "--set", "batch_size=4", "--candidate-regime", "hopper_spt_cc"]
    asked += [str(home / "train.py"), str(home / "marks")]
    first = subprocess.run([*words, *asked], cwd=ROOT, env=SETTINGS, capture_output=True, timeout=400, check=False)
    seen = Killed(
        home / "plan.json",
        first.returncode,
        load_plan(home / "plan.json"),
        [path.name for path in (home / "landing").iterdir() if not path.name.startswith(".")],
        has_ended(int((home / "marks" / "killed").read_text("utf-8"))),
    )
    second = subprocess.run(words, cwd=ROOT, env=SETTINGS, capture_output=True, text=True, timeout=400, check=False)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "line-baseline: interrupted; it will be recorded again as line-baseline-retry1" in second.stdout
    return seen


def test_a_recorder_that_is_killed_lands_nothing_half_written_and_its_trainer_ends_too(killed_recorder: Killed) -> None:
    assert killed_recorder.status == -9
    assert killed_recorder.landed_then == []
    assert [attempt.state for attempt in killed_recorder.plan_then.slots[0].attempts] == ["started"]
    assert killed_recorder.trainer_has_ended


def test_the_run_that_was_interrupted_is_recorded_again_under_a_new_name(killed_recorder: Killed) -> None:
    assert killed_recorder.runs() == [
        "line-baseline-again1",
        "line-baseline-retry1",
        "line-candidate",
        "line-candidate-again1",
    ]
    tried = [[(one.run_id, one.state) for one in slot.attempts] for slot in load_plan(killed_recorder.path).slots]
    again = [("line-baseline", "interrupted"), ("line-baseline-retry1", "landed")]
    rest = [[(name, "landed")] for name in ("line-candidate", "line-candidate-again1", "line-baseline-again1")]
    assert tried == [again, *rest]
    assert [path.name for path in killed_recorder.landing.iterdir() if path.name.startswith(".")] == []


def test_manifests_name_the_baseline_that_landed_and_tell_processes_apart(killed_recorder: Killed) -> None:
    baseline, candidate = killed_recorder.claims("line-baseline-retry1"), killed_recorder.claims("line-candidate")
    assert candidate.claims["baseline"] == "line-baseline-retry1"
    assert "repeat_of" not in candidate.claims
    assert baseline.claims.keys().isdisjoint({"baseline", "repeat_of"})
    assert (baseline.claims["regime"], candidate.claims["regime"]) == ("cc_off", "hopper_spt_cc")
    said = [baseline.extra, candidate.extra]
    assert [(one["pair_side"], one["pair_block"], one["pair_order"]) for one in said] == [
        ("baseline", 0, 0),
        ("candidate", 0, 1),
    ]
    assert said[0]["node_id"] == said[1]["node_id"]
    assert said[0]["process_started_at"] < said[1]["process_started_at"]
    assert {one["bare_steps_count"] for one in said} == {8}


def test_repeats_are_recorded_in_turn_without_a_trace_and_name_the_first_of_their_side(killed_recorder: Killed) -> None:
    baseline, candidate = (
        killed_recorder.claims("line-baseline-again1"),
        killed_recorder.claims("line-candidate-again1"),
    )
    assert (baseline.claims["repeat_of"], baseline.claims.get("baseline")) == ("line-baseline-retry1", None)
    assert (candidate.claims["repeat_of"], candidate.claims["baseline"]) == ("line-candidate", "line-baseline-retry1")
    began = [
        said.extra["process_started_at"] for said in (killed_recorder.claims("line-candidate"), candidate, baseline)
    ]
    assert began == sorted({*began})
    for run_id, has_trace in {"line-candidate": True, "line-candidate-again1": False}.items():
        names = {path.name for path in (killed_recorder.landing / run_id).iterdir()}
        assert names == {"run.toml", "steps-r0.csv"} | ({f"{run_id}-r0.json.gz"} if has_trace else set())
    phases = (killed_recorder.landing / "line-candidate-again1" / "steps-r0.csv").read_text("utf-8")
    assert (phases.count(",warmup,"), phases.count(",bare,"), phases.count("\n")) == (1, 11, 13)


def _resume(killed_recorder: Killed, home: Path, state: str, *, has_landed: bool) -> PairPlan:
    """The plan as it would be after a kill at this boundary, resumed."""
    plan = load_plan(killed_recorder.path)
    attempt = plan.slots[1].attempts[0]
    landing = home / "landing"
    landing.mkdir()
    if has_landed:
        (landing / attempt.run_id).symlink_to(killed_recorder.landing / attempt.run_id)
    (landing / f".{attempt.run_id}.0123abcd.partial").mkdir()
    (landing / ".line-candidate.other.0123abcd.partial").mkdir()
    document: dict[str, Any] = plan.to_json()
    document["definition"]["landing"] = str(landing)
    document["slots"][1]["attempts"] = [{**document["slots"][1]["attempts"][0], "state": state, "step_s": None}]
    changed = PairPlan.from_json(document)
    save_plan(home / "plan.json", changed)
    SimulatedRecorder(home / "plan.json", load_plan(home / "plan.json")).run()
    return load_plan(home / "plan.json")


def test_a_run_that_landed_just_before_the_kill_is_not_recorded_twice(killed_recorder: Killed, tmp_path: Path) -> None:
    (attempt,) = _resume(killed_recorder, tmp_path, "started", has_landed=True).slots[1].attempts
    assert (attempt.run_id, attempt.state) == ("line-candidate", "landed")
    assert attempt.step_s is not None


def test_a_run_that_was_planned_and_never_started_is_recorded_under_a_new_name(
    killed_recorder: Killed, tmp_path: Path
) -> None:
    attempts = _resume(killed_recorder, tmp_path, "started", has_landed=False).slots[1].attempts
    assert [(one.run_id, one.state) for one in attempts] == [
        ("line-candidate", "interrupted"),
        ("line-candidate-retry1", "landed"),
    ]
    left = {path.name for path in (tmp_path / "landing").iterdir()}
    assert left == {".line-candidate.other.0123abcd.partial", "line-candidate-retry1"}


def test_a_plan_that_is_done_stays_as_it_is(killed_recorder: Killed, tmp_path: Path) -> None:
    (attempt,) = _resume(killed_recorder, tmp_path, "landed", has_landed=True).slots[1].attempts
    assert attempt.state == "landed"


def test_the_product_reads_and_pairs_what_was_recorded(killed_recorder: Killed, tmp_path: Path) -> None:
    places = ["--landing", str(killed_recorder.landing), "--lake", str(tmp_path / "lake")]
    done = CliRunner().invoke(main, [*places, "run", "--to", "gold.pairs"])
    assert done.exit_code == 0, done.output
    question = "select run_id, baseline_run_id from gold.pairs order by run_id"
    answer = CliRunner().invoke(main, [*places, "query", question, "--format", "json"], catch_exceptions=False)
    pairs = [(pair["run_id"], pair["baseline_run_id"]) for pair in json.loads(answer.stdout)]
    assert pairs == [("line-candidate", "line-baseline-retry1"), ("line-candidate-again1", None)]  # a member, no pair


# -- machines whose mode needs a reboot ----------------------------------------------------------------------------


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose driver says the CC mode that stands in this file."""
    folder = tmp_path / "bin"
    folder.mkdir()
    mode = tmp_path / "mode"
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\n[ "$1" = conf-compute ] && echo "    CC State : $(cat {mode})"\n', "utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return mode


def _rebooting(tmp_path: Path) -> PairPlan:
    off, on = Side("baseline", "x-off", "script", cc_mode="off"), Side("candidate", "x-on", "script", cc_mode="on")
    return PairPlan(define(tmp_path / "landing", sides=(off, on), repeats=2, most_repeats=2))


def test_each_boot_records_what_its_mode_allows_and_says_what_to_do_next(
    tmp_path: Path, driver: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, said = tmp_path / "plan.json", []
    save_plan(path, _rebooting(tmp_path))
    for mode in ("OFF", "OFF", "ON", "OFF"):
        driver.write_text(mode, "utf-8")
        SimulatedRecorder(path, load_plan(path)).run()
        said.append(capsys.readouterr().out.splitlines())
    on = f"reboot into CC mode on and type python -m collector pair --plan {path} --side candidate"
    off = f"reboot into CC mode off and type python -m collector pair --plan {path} --side baseline"
    assert [lines[-1].partition(" Next: ")[2] for lines in said[:3]] == [on, on, off]
    assert said[3][-1].startswith("all 4 runs have landed")
    names = [[line.partition(":")[0] for line in lines[:-1]] for lines in said]
    assert names == [["x-off"], [], ["x-on", "x-on-again1"], ["x-off-again1"]]


def test_a_side_whose_mode_the_driver_denies_is_refused(tmp_path: Path, driver: Path) -> None:
    driver.write_text("OFF", "utf-8")
    with pytest.raises(
        CollectorError, match="the candidate needs CC mode on, and the driver says off: reboot into it first"
    ):
        SimulatedRecorder(tmp_path / "plan.json", _rebooting(tmp_path), "candidate").run()


def test_where_the_driver_says_nothing_the_side_must_be_named(tmp_path: Path, driver: Path) -> None:
    driver.write_text("", "utf-8")
    with pytest.raises(CollectorError, match="say what can run now with --side"):
        SimulatedRecorder(tmp_path / "plan.json", _rebooting(tmp_path)).run()
    assert SimulatedRecorder(tmp_path / "plan.json", _rebooting(tmp_path), "baseline").run() == 0
    assert [path.name for path in (tmp_path / "landing").iterdir()] == ["x-off"]


# -- what goes wrong -----------------------------------------------------------------------------------------------


class FailingRecorder(SimulatedRecorder):
    """Nothing that it starts lands."""

    def _launch(self, *_: object) -> str | None:
        return "rank 0 ended with 1"


def test_a_run_that_fails_again_and_again_ends_the_recording_with_its_reason(tmp_path: Path) -> None:
    plan = PairPlan(define(tmp_path / "landing"))
    with pytest.raises(CollectorError, match="line-off failed 3 times, last because rank 0 ended with 1"):
        FailingRecorder(tmp_path / "plan.json", plan).run()
    states = [(attempt.run_id, attempt.state) for attempt in load_plan(tmp_path / "plan.json").slots[0].attempts]
    assert states == [("line-off", "failed"), ("line-off-retry1", "failed"), ("line-off-retry2", "failed")]


def test_two_processes_do_not_record_one_plan(tmp_path: Path) -> None:
    plan = PairPlan(define(tmp_path / "landing"))

    class Nested(SimulatedRecorder):
        def _launch(self, *_: object) -> str | None:
            with pytest.raises(CollectorError, match="another process is recording this plan"):
                PairRecorder(self.path, self.plan).run()
            return "enough was seen"

    with pytest.raises(CollectorError, match="enough was seen"):
        Nested(tmp_path / "plan.json", plan).run()


def test_a_null_pair_is_one_run_and_its_repeats(tmp_path: Path) -> None:
    sides = (Side("baseline", "x", "plain"), Side("candidate", "x", "plain"))
    plan = PairPlan(define(tmp_path / "landing", sides=sides))
    plan.add_block()
    plan.add_block()
    plan.slots[0].attempts.append(Attempt("x", "landed", "now"))
    recorder = SimulatedRecorder(tmp_path / "plan.json", plan)
    assert [slot.run_id for slot in plan.slots] == ["x", "x-again1", "x-again2", "x-again3"]
    assert [recorder._claims(slot) for slot in plan.slots[1:]] == [{"repeat_of": "x"}] * 3
