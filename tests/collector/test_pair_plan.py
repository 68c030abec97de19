"""The order and the number of a pair's runs: in turns, one side at most a block ahead, enough for the effect."""

from __future__ import annotations

import json
import math
import random
import statistics
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from scipy import stats

from collector.errors import CollectorError
from collector.models import BUILDERS
from collector.pair_plan import Attempt, PairPlan, load_plan, order_block, save_plan
from collector.pair_size import read_step_s, size_pair, student_t
from collector.plan import MODELS
from tests.support.paired_runs import SimulatedRecorder, define
from tests.support.ranks import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def _plan(tmp_path: Path, blocks: int, **more: object) -> PairPlan:
    plan = PairPlan(define(tmp_path / "landing", **more))
    for _ in range(blocks):
        plan.add_block()
    return plan


def _land(plan: PairPlan, possible: set[int]) -> list[str]:
    """Record as one process would that can run these sides only."""
    order = []
    while (slot := plan.next_slot(possible)) is not None:
        slot.attempts.append(Attempt(slot.next_run_id(), "landed", "now"))
        order.append("AB"[slot.side])
    return order


# -- order ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_blocks_mirror_each_other_two_by_two_and_the_first_begins_with_the_baseline(seed: int) -> None:
    blocks = [list(order_block(block, 3, 1, seed)) for block in range(8)]
    assert blocks[0] == [0, 1, 2]
    assert blocks[1::2] == [block[::-1] for block in blocks[::2]]
    assert all(sorted(block) == [0, 1, 2] for block in blocks)


def test_the_order_of_later_blocks_is_drawn_with_the_seed() -> None:
    drawn = {tuple(order_block(2, 2, 1, seed)) for seed in range(20)}
    assert drawn == {(0, 1), (1, 0)}
    assert [order_block(4, 4, 1, 7) for _ in range(3)] == [order_block(4, 4, 1, 7)] * 3


def test_sides_take_turns_where_both_can_run(tmp_path: Path) -> None:
    assert _land(_plan(tmp_path, 2), {0, 1}) == ["A", "B", "B", "A"]


def test_with_a_reboot_between_modes_no_side_is_more_than_a_block_ahead(tmp_path: Path) -> None:
    plan = _plan(tmp_path, 3)
    boots = [_land(plan, possible) for possible in ({0}, {1}, {0}, {1})]
    assert boots == [["A"], ["B", "B"], ["A", "A"], ["B"]]
    assert plan.pending() == []


def test_more_runs_in_a_block_need_fewer_reboots(tmp_path: Path) -> None:
    plan = _plan(tmp_path, 1, runs_per_block=3)
    assert [_land(plan, possible) for possible in ({0}, {1})] == [["A"] * 3, ["B"] * 3]


def test_no_candidate_is_recorded_before_the_baseline_that_it_names(tmp_path: Path) -> None:
    assert _land(_plan(tmp_path, 3), {1}) == []


def test_repeats_name_the_first_run_that_landed_whatever_was_tried_before(tmp_path: Path) -> None:
    plan = _plan(tmp_path, 2)
    first = plan.slots[0]
    first.attempts = [Attempt("line-off", "interrupted", "now"), Attempt("line-off-retry1", "landed", "now")]
    assert plan.reference(0) == "line-off-retry1"
    assert plan.reference(1) is None
    assert [slot.next_run_id() for slot in plan.slots[1:]] == ["line-on", "line-on-again1", "line-off-again1"]


def test_only_the_first_repeats_of_each_side_leave_a_trace(tmp_path: Path) -> None:
    traced = [slot.run_id for slot in _plan(tmp_path, 3).slots if slot.is_traced]
    assert traced == ["line-off", "line-on"]


# -- the file ------------------------------------------------------------------------------------------------------


def test_a_plan_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    plan = _plan(tmp_path, 2, detect_fraction=0.05, claims={"model": "line"}, traced_ranks=(0,))
    plan.slots[0].attempts.append(Attempt("line-off", "failed", "now", "rank 0 ended with 1", 3.5))
    save_plan(tmp_path / "plan.json", plan)
    assert load_plan(tmp_path / "plan.json") == plan
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"version": 1}', '{"version": 9}', '{"version": 1, "definition": 3}']
)
def test_a_file_that_is_no_plan_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text, "utf-8")
    with pytest.raises(CollectorError, match=r"plan\.json: expected a plan"):
        load_plan(tmp_path / "plan.json")


# -- the number ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("degrees", [1, 2, 4, 10, 100])
@pytest.mark.parametrize("probability", [0.8, 0.975])
def test_quantiles_are_those_of_students_t(probability: float, degrees: int) -> None:
    assert student_t(probability, degrees) == pytest.approx(stats.t.ppf(probability, degrees), rel=1e-6)


def test_the_number_of_runs_follows_from_noise_and_effect() -> None:
    values = {"0": [1.0, 1.02, 0.98], "1": [2.0, 2.04, 1.96]}
    size = size_pair(values, 0.05)
    assert size is not None
    assert (size.repeats, size.degrees) == (5, 4)
    assert size.noise_fraction == pytest.approx(0.02, rel=0.03)
    larger = size_pair(values, 0.2)
    assert larger is not None
    assert larger.repeats == 3
    assert size_pair({"0": [1.0], "1": [2.0]}, 0.05) is None


@pytest.mark.parametrize(("noise", "detect"), [(0.01, 0.05), (0.03, 0.05), (0.03, 0.1)])
def test_a_pair_of_the_planned_size_detects_the_effect_four_times_in_five(noise: float, detect: float) -> None:
    """Noise is seen anew after each block, as the recorder does; Welch's t on logarithms decides, as gold does."""
    draw = random.Random(29)
    found = 0
    pairs = 300
    for _ in range(pairs):
        sides: dict[str, list[float]] = {"0": [], "1": []}
        while True:
            sides["0"].append(draw.lognormvariate(0, noise))
            sides["1"].append(draw.lognormvariate(math.log1p(detect), noise))
            size = size_pair(sides, detect) if len(sides["0"]) >= 3 else None
            if size is not None and len(sides["0"]) >= size.repeats:
                break
        logs = [[math.log(value) for value in values] for values in sides.values()]
        found += stats.ttest_ind(*logs, equal_var=False).pvalue < 0.05
    assert found / pairs > 0.76


@pytest.mark.parametrize(("noise", "repeats"), [(0.001, 3), (0.5, 6)])
def test_the_recorder_stops_when_the_effect_can_be_seen_or_at_the_maximum(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], noise: float, repeats: int
) -> None:
    plan = PairPlan(define(tmp_path / "landing", repeats=None, detect_fraction=0.05, most_repeats=6))
    recorder = SimulatedRecorder(tmp_path / "plan.json", plan)
    recorder.noise = noise
    assert recorder.run() == 0
    said = capsys.readouterr().out
    assert len([*recorder.landing.iterdir()]) == 2 * repeats
    assert f"all {2 * repeats} runs have landed" in said
    assert ("6 is the maximum: the pair will not detect it" in said) == (repeats == 6)
    assert load_plan(tmp_path / "plan.json") == plan


def test_a_recorder_that_has_no_time_for_another_run_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.json"
    recorder = SimulatedRecorder(path, PairPlan(define(tmp_path / "landing")), time_limit_s=0)
    recorder.run()
    assert f"6 runs left. Next: python -m collector pair --plan {path}" in capsys.readouterr().out
    assert not recorder.landing.exists()


def test_a_runs_step_is_the_median_over_bare_steps_of_the_slowest_rank(tmp_path: Path) -> None:
    header = "rank,step,phase,began_epoch_s,duration_s\n"
    (tmp_path / "steps-r0.csv").write_text(
        header + "0,0,warmup,0,9\n0,1,bare,0,1\n0,2,bare,0,3\n0,3,bare,0,2\n", "utf-8"
    )
    (tmp_path / "steps-r1.csv").write_text(
        header + "1,0,warmup,0,9\n1,1,bare,0,5\n1,2,bare,0,1\n1,3,bare,0,1\n", "utf-8"
    )
    assert read_step_s(tmp_path) == statistics.median([5, 3, 2])


def test_the_plan_says_in_plain_values_what_was_tried(tmp_path: Path) -> None:
    plan = PairPlan(define(tmp_path / "landing", repeats=1, most_repeats=1))
    SimulatedRecorder(tmp_path / "plan.json", plan).run()
    document = json.loads((tmp_path / "plan.json").read_text("utf-8"))
    tried = [(slot["run_id"], [attempt["state"] for attempt in slot["attempts"]]) for slot in document["slots"]]
    assert tried == [("line-off", ["landed"]), ("line-on", ["landed"])]


def test_the_models_that_a_pair_may_name_are_those_that_can_be_built() -> None:
    assert tuple(BUILDERS) == MODELS


def test_a_recorder_that_only_waits_for_its_runs_does_not_import_torch() -> None:
    code = "import sys, collector.command; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
