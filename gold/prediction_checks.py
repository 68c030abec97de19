"""One row per pair, task and scheme: what was predicted without it, what was measured, and what a guess would say."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gold.prediction_intervals import MOST_BURDEN, HeldOut, Spread, find_fitted_time, find_model_spread, weigh
from gold.ring_costs import (
    HIDDEN_FRACTION,
    average_factor,
    find_chain_factors,
    find_siblings,
    guess_constant,
    guess_nearest,
    guess_per_byte,
    leave_out,
    rebucket_ratio,
    select_replayed,
    solve_cost,
)
from gold.single_gpu_forecast import leave_out_plateau
from lake.tables import Scope, Table, boolean, float64, int64, text
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gold.forecast_runs import ForecastPair, ForecastRun

TASKS = ("regime", "chains", "bucket_cap", "one_gpu")
SCHEMES = ("model", "batch_size", "world_size", "bucket_cap_mib", "machine")
GUESSES = ("constant", "nearest", "per_byte")

TABLE = Table(
    tier="gold",
    name="prediction_checks",
    grain="One row per regime, task, scheme and pair: the step of a run, predicted without what the scheme leaves out.",
    key=("task", "scheme", "predicted_run_id"),
    inputs=("silver.runs", "silver.throughput", "gold.step_times", "gold.exposure"),
    scope=Scope.REGIME,
    partition_by=("regime",),
    columns=(
        text("regime", "Regime of the pairs."),
        text(
            "task",
            "regime: a distributed baseline under the regime; chains: a run with one chain, given several; bucket_cap: "
            "a run, given another bucket cap; one_gpu: a job on one GPU under the regime.",
            one_of=TASKS,
        ),
        text("scheme", "What the fit left out: all pairs that share this with the predicted one.", one_of=SCHEMES),
        text("left_out", "Its value: the fold."),
        text("model", "Model of the predicted run: errors of one model go together, so coverage is told by model."),
        text("predicted_run_id", "The run whose step was predicted."),
        text("known_run_id", "The run that it was predicted from."),
        int64("predicted_step_ns", "Predicted step.", minimum=0),
        int64("measured_step_ns", "Step as measured, over all repeats.", minimum=0),
        int64("known_step_ns", "Step of that run.", minimum=0),
        float64("error_fraction", "Predicted over measured, less one."),
        int64("predicted_low_ns", "Lower end of the stated interval.", nullable=True, minimum=0),
        int64("predicted_high_ns", "Upper end.", nullable=True, minimum=0),
        float64("interval_level", "Level of that interval.", nullable=True, minimum=0, maximum=1),
        boolean("is_inside", "Whether the measured step lies in it.", nullable=True),
        boolean("is_hidden", "Whether the regime added so little that compute hid it."),
        float64("noise_fraction", "Standard deviation between repeats; null without any.", nullable=True, minimum=0),
        float64(
            "constant_error_fraction",
            "Error of the others' median slowdown; of a change to a run, of no change at all.",
            nullable=True,
        ),
        float64("nearest_error_fraction", "Error of the slowdown of the nearest baseline.", nullable=True),
        float64("per_byte_error_fraction", "Error of the others' median overhead per byte.", nullable=True),
        text("evidence", "Where the prediction comes from.", one_of=EVIDENCE),
        text("reason", "Why a number is null, as sentences.", nullable=True),
    ),
)


def _name_machine(pair: ForecastPair) -> str:
    """The machine that a pair was recorded on."""
    return pair.candidate.machine


def _name_fold(name: str, pair: ForecastPair) -> str:
    """What is left out with a pair: the same model at the same batch size, world size or bucket cap."""
    return f"{pair.candidate.model} {pair.candidate.fields.get(name, '')}"


_KEYS: Mapping[str, Callable[[ForecastPair], str]] = {
    "model": lambda pair: pair.candidate.model,
    **{name: partial(_name_fold, name) for name in ("batch_size", "world_size", "bucket_cap_mib")},
}


def measure(regime: str, pairs: Sequence[ForecastPair], off_runs: Sequence[ForecastRun] = ()) -> pa.Table:
    """Predict each pair without what a scheme leaves out, and hold naive guesses against the same others.

    Predictions on one machine go by pairs of that machine alone; only a machine that is left out goes by others.
    """
    pairs = sorted(pairs, key=lambda pair: pair.candidate.run_id)
    rows = _check("regime", "machine", _name_machine, select_replayed(pairs), leave_out(pairs, _name_machine))
    for machine in sorted({_name_machine(pair) for pair in pairs}):
        rows += _check_machine([pair for pair in pairs if _name_machine(pair) == machine], off_runs)
    return pa.Table.from_pylist([{**row, "regime": regime} for row in rows], schema=TABLE.arrow_schema)


def _check_machine(pairs: Sequence[ForecastPair], off_runs: Sequence[ForecastRun]) -> list[dict[str, Any]]:
    held_out = leave_out(pairs, _KEYS["model"])
    rows = [_describe_change(*found, held_out) for found in (*_predict_chains(pairs), *_predict_caps(pairs))]
    for scheme, key in _KEYS.items():
        rows += _check("regime", scheme, key, select_replayed(pairs), leave_out(pairs, key))
    single = [pair for pair in pairs if pair.candidate.world_size == 1]
    for scheme in ("model", "batch_size"):
        key = _KEYS[scheme]
        rows += _check("one_gpu", scheme, key, single, leave_out_plateau(single, off_runs, key))
    return rows


def _predict_chains(pairs: Sequence[ForecastPair]) -> Iterator[tuple[str, str, ForecastPair, HeldOut]]:
    """Each run with several chains, from the first by name with one and from what chains did to other models."""
    known: dict[str, tuple[ForecastPair, ForecastPair]] = {}
    for one, other in find_siblings(pairs, "ring_chains"):
        is_asked = one.candidate.chains == 1 < other.candidate.chains
        if is_asked and one.baseline.run_id == other.baseline.run_id:
            known.setdefault(other.candidate.run_id, (one, other))
    for one, other in known.values():
        chains, model = other.candidate.chains, other.candidate.model
        factors = find_chain_factors(pairs, chains)
        factor = average_factor({name: values for name, values in factors.items() if name != model})
        cost = solve_cost(one)
        if factor and cost:
            yield "chains", "model", one, _hold_out_change(model, one, other, one.predict, cost * factor)


def _predict_caps(pairs: Sequence[ForecastPair]) -> Iterator[tuple[str, str, ForecastPair, HeldOut]]:
    """Each run of another bucket cap than its siblings, from the one with the nearest cap."""
    known: dict[str, tuple[float, str, ForecastPair, ForecastPair]] = {}
    for one, other in find_siblings(pairs, "bucket_cap_mib"):
        caps = one.candidate.number("bucket_cap_mib"), other.candidate.number("bucket_cap_mib")
        if caps[0] and caps[1] and one.candidate.chains == 1:
            found = (abs(math.log(caps[1] / caps[0])), one.candidate.run_id, one, other)
            name = other.candidate.run_id
            known[name] = min(known.get(name, found), found, key=lambda each: each[:2])
    for _, _, one, other in known.values():
        cost, cap = solve_cost(one), other.candidate.number("bucket_cap_mib")
        if cost and cap:
            predict = partial(_predict_cap, one, cap, cost)
            yield "bucket_cap", "bucket_cap_mib", one, _hold_out_change(f"{cap:g}", one, other, predict, cost)


def _predict_cap(one: ForecastPair, cap_mib: float, own_cost: float, ns_per_byte: float) -> float:
    return one.candidate_ns * rebucket_ratio(one, ns_per_byte, cap_mib, own_cost)


def _hold_out_change(
    left_out: str, one: ForecastPair, other: ForecastPair, predict: Callable[[float], float], cost: float
) -> HeldOut:
    """A run that was predicted from another with other settings, weighed as `teetotal what-if` does it."""
    predicted = predict(cost)
    furthest = max(one.baseline_ns, one.candidate_ns, key=lambda known: abs(known - predicted))
    weight = weigh(predicted, furthest, find_fitted_time(predict, cost))
    return HeldOut(left_out, other, predicted, weight, one.baseline.burden or 1.0)


def _describe_change(
    task: str, scheme: str, one: ForecastPair, held: HeldOut, held_out: Sequence[HeldOut]
) -> dict[str, Any]:
    return {
        **_describe(task, scheme, held, [], held_out),
        "known_run_id": one.candidate.run_id,
        "known_step_ns": round(one.candidate_ns),
        "is_hidden": False,
        "constant_error_fraction": one.candidate_ns / held.pair.candidate_ns - 1,
    }


def find_regime_spread(pairs: Sequence[ForecastPair]) -> Spread | None:
    """The spread of predictions of a regime: by the errors on models that were left out."""
    return find_model_spread(leave_out(pairs, _KEYS["model"]))


def _check(
    task: str,
    scheme: str,
    key: Callable[[ForecastPair], str],
    usable: Sequence[ForecastPair],
    held_out: Sequence[HeldOut],
) -> list[dict[str, Any]]:
    return [
        _describe(task, scheme, one, [pair for pair in usable if key(pair) != one.left_out], held_out)
        for one in held_out
    ]


def _describe(
    task: str, scheme: str, held: HeldOut, others: Sequence[ForecastPair], held_out: Sequence[HeldOut]
) -> dict[str, Any]:
    pair, predicted, measured = held.pair, held.predicted_ns, held.pair.candidate_ns
    # The interval is made of the errors on other models only: as for a model that nobody has seen.
    spread = find_model_spread(one for one in held_out if one.pair.candidate.model != pair.candidate.model)
    reason = None if spread else "errors on fewer than two other models make no interval"
    if held.burden > MOST_BURDEN:
        spread, reason = None, f"recording slowed the traced steps {held.burden:.2f} times: no interval is stated"
    low, high = spread.widen(predicted, held.weight, held.burden) if spread else (None, None)
    guesses: dict[str, float | None] = dict.fromkeys(GUESSES)
    if others:
        guesses["constant"], guesses["nearest"] = guess_constant(pair, others), guess_nearest(pair, others)
        guesses["per_byte"] = guess_per_byte(pair, others)
    return {
        "task": task,
        "scheme": scheme,
        "left_out": held.left_out,
        "model": pair.candidate.model,
        "predicted_run_id": pair.candidate.run_id,
        "known_run_id": pair.baseline.run_id,
        "predicted_step_ns": round(predicted),
        "measured_step_ns": round(measured),
        "known_step_ns": round(pair.baseline_ns),
        "error_fraction": predicted / measured - 1,
        "predicted_low_ns": round(low) if low is not None else None,
        "predicted_high_ns": round(high) if high is not None else None,
        "interval_level": spread.level if spread else None,
        "is_inside": low <= measured <= high if low is not None and high is not None else None,
        "is_hidden": pair.slowdown - 1 < HIDDEN_FRACTION,
        "noise_fraction": pair.noise_fraction,
        **{f"{name}_error_fraction": guess / measured - 1 if guess else None for name, guess in guesses.items()},
        "evidence": "modelled",
        "reason": reason,
    }
