"""A step as one CUDA graph: what the GPU did and the copies that blocked, held against recordings of both."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gold.changes import predict_change
from gold.graph_replay import KEPT_PARTS, find_graph_spread, read_steps, time_graph
from gold.pairs import OFF
from gold.regime_model import RegimeModel
from gold.time_breakdown import PARTS
from gold.what_if import describe
from tests.support.forecast_pairs import MS, make_run

if TYPE_CHECKING:
    from gold.forecast_runs import ForecastRun

ALONE = RegimeModel("hopper_spt_cc", (), ())


def make_row(**parts_ms: float) -> dict[str, Any]:
    """A row of gold.time_breakdown; parts that are not named took no time."""
    return {"is_warmup": False, **{f"{part}_ns": round(parts_ms.get(part, 0) * MS) for part in PARTS}}


def make_alone(step_ms: float, graph_ms: float | None, regime: str = OFF, **fields: Any) -> ForecastRun:
    run = make_run("alone", regime, step_ms, world_size=1, **fields)
    return replace(run, graph_ns=None if graph_ms is None else graph_ms * MS)


def test_a_graph_takes_what_the_gpu_did_and_the_copies_that_blocked() -> None:
    row = make_row(compute=5, copy=1, memset=0.5, blocking_copy=2, launch=7, host=4, sync=1, idle=3)
    assert time_graph([row]) == 8.5 * MS


def test_steps_are_averaged_and_warm_up_is_left_out() -> None:
    rows = [{**make_row(compute=100), "is_warmup": True}, make_row(compute=4), make_row(compute=6)]
    assert time_graph(rows) == 5 * MS


@pytest.mark.parametrize("part", KEPT_PARTS)
def test_a_step_whose_gpu_was_not_observed_says_nothing(part: str) -> None:
    assert time_graph([{**make_row(compute=5), f"{part}_ns": None}]) is None
    assert time_graph([make_row(host=5)]) is None
    assert time_graph([]) is None


def test_recorded_graphs_are_within_the_interval_and_most_are_close() -> None:
    spread = find_graph_spread()
    assert spread is not None
    assert (spread.groups_count, spread.level) == (6, 0.8)
    errors = sorted(abs(math.log(step["graph_us"] / (step["gpu_us"] + step["copy_us"]))) for step in read_steps())
    assert len(errors) == 16
    assert errors[len(errors) // 2] < 0.03
    assert sum(error <= spread.score for error in errors) >= spread.level * len(errors)


def test_dumb_guesses_do_worse() -> None:
    def find_median_error(guess: Any) -> float:
        errors = sorted(abs(math.log(step["graph_us"] / guess(step))) for step in read_steps())
        return errors[len(errors) // 2]

    ours = find_median_error(lambda step: step["gpu_us"] + step["copy_us"])
    assert ours < find_median_error(lambda step: step["eager_us"]) / 3
    assert ours < find_median_error(lambda step: step["eager_us"] - 5 * step["launches_count"]) / 3


def test_a_step_that_waits_for_launches_gains_and_the_interval_says_so() -> None:
    found = predict_change(make_alone(30, 7), ALONE, {"cuda_graphs": "true"})
    assert (found.method, found.current_ns, found.predicted_ns, found.level) == ("graph_replay", 30 * MS, 7 * MS, 0.8)
    assert found.low_ns is not None
    assert found.high_ns is not None
    assert found.low_ns < 7 * MS < found.high_ns < 8 * MS
    assert found.verdict == "worth it"
    assert found.is_extrapolated is False
    assert found.caveat == "the whole step must be capturable: shapes that do not change, and no decision on the host"


def test_a_step_that_is_all_gpu_gains_nothing_and_never_gets_longer() -> None:
    found = predict_change(make_alone(30, 31), ALONE, {"cuda_graphs": "true"})
    assert found.predicted_ns == 30 * MS
    assert found.verdict == "within model error"


@pytest.mark.parametrize(("regime", "gpu"), [("hopper_spt_cc", "NVIDIA H200"), (OFF, "NVIDIA B200")])
def test_another_gpu_or_cc_is_an_extrapolation_without_an_interval(regime: str, gpu: str) -> None:
    found = predict_change(make_alone(30, 7, regime, gpu=gpu), ALONE, {"cuda_graphs": "true"})
    assert (found.predicted_ns, found.is_extrapolated, found.verdict) == (7 * MS, True, "model error unknown")
    assert (found.low_ns, found.high_ns, found.level) == (None, None, None)
    assert "graphs were recorded on an H200 without CC" in (found.caveat or "")


def test_without_a_trace_or_with_another_change_it_is_refused() -> None:
    untraced = predict_change(make_alone(30, None), ALONE, {"cuda_graphs": "true"})
    assert untraced.refusal == "no trace of it shows what its GPU did in a step"
    both = predict_change(make_alone(30, 7), ALONE, {"cuda_graphs": "true", "regime": "hopper_spt_cc"})
    assert both.refusal == "no recording shows a CUDA graph together with regime: ask about it alone"


def test_what_is_saved_of_a_step_that_only_the_profiler_timed_is_not_said() -> None:
    run = replace(make_alone(30, 7), is_step_traced=True)
    found = predict_change(run, ALONE, {"cuda_graphs": "true"})
    assert (found.predicted_ns, found.verdict) == (7 * MS, "saving unknown")
    row = describe(OFF, run, found)
    assert (row["predicted_step_ns"], row["saved_ns"]) == (7 * MS, None)
    assert "its step was timed under the profiler" in row["reason"]
