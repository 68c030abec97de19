"""Jobs on one GPU under CC, predicted from their CC-off side: what `gold.single_gpu_model` makes of a lake's runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gold.prediction_intervals import HeldOut, Spread, find_model_spread, weigh
from gold.single_gpu_model import PlateauModel, Prediction, fit_plateau, predict_step
from gold.single_gpu_parts import SingleGpuRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gold.forecast_runs import ForecastPair, ForecastRun


def describe_run(run: ForecastRun, step_ns: float | None = None) -> SingleGpuRun | None:
    """A run on one GPU that says its batch size and has a step; none where it does not."""
    batch, step = run.number("batch_size"), step_ns or run.step_ns
    if run.world_size != 1 or not batch or not step:
        return None
    return SingleGpuRun(
        run.run_id,
        run.machine,
        run.fields.get("sequence_length", ""),
        run.model,
        run.fields.get("dtype", ""),
        int(batch),
        step,
    )


def _describe_all(runs: Iterable[ForecastRun]) -> list[SingleGpuRun]:
    return [one for run in runs if (one := describe_run(run)) is not None]


def fit_machines(pairs: Sequence[ForecastPair], off_runs: Sequence[ForecastRun]) -> dict[str, PlateauModel]:
    """The constants of each machine that has pairs on one GPU."""
    sides = []
    for pair in pairs:
        off, on = describe_run(pair.baseline, pair.baseline_ns), describe_run(pair.candidate, pair.candidate_ns)
        if off is not None and on is not None:
            sides.append((off, on))
    known = _describe_all(off_runs)
    return {name: fit_plateau(name, sides, known) for name in sorted({off.hardware for off, _ in sides})}


def predict_run(
    run: ForecastRun, step_ns: float, plateaus: Mapping[str, PlateauModel], off_runs: Sequence[ForecastRun]
) -> Prediction | None:
    """The step of a run under CC by the constants of its machine; none where it is no such run."""
    one = describe_run(run, step_ns)
    if one is None:
        return None
    plateau = plateaus.get(run.machine) or fit_plateau(run.machine, [], [])
    return predict_step(plateau, one, _describe_all(off_runs))


def leave_out_plateau(
    pairs: Sequence[ForecastPair], off_runs: Sequence[ForecastRun], key: Callable[[ForecastPair], str]
) -> list[HeldOut]:
    """Each pair predicted with the constants of those that differ from it in `key`; what is refused is left out."""
    found = []
    for left_out in sorted({key(pair) for pair in pairs}):
        plateaus = fit_machines([pair for pair in pairs if key(pair) != left_out], off_runs)
        for pair in (pair for pair in pairs if key(pair) == left_out):
            predicted = predict_run(pair.baseline, pair.baseline_ns, plateaus, off_runs)
            if predicted is not None and predicted.step_ns is not None:
                weight = weigh(predicted.step_ns, pair.baseline_ns)
                found.append(HeldOut(left_out, pair, predicted.step_ns, weight))
    return found


def find_one_gpu_spread(pairs: Sequence[ForecastPair], off_runs: Sequence[ForecastRun]) -> Spread | None:
    """How far predictions were off on models that were left out."""
    return find_model_spread(leave_out_plateau(pairs, off_runs, lambda one: one.candidate.model))
