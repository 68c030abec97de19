"""One row per run and change: what its step would take, with which certainty, and whether that is worth it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gold.changes import predict_change
from lake.tables import RUN_ID, Scope, Table, boolean, float64, int64, text
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gold.forecast_runs import ForecastRun
    from gold.outcomes import Outcome
    from gold.regime_model import RegimeModel

METHODS = ("bucket_replay", "plateau", "graph_replay")
TERMS = ("compute", "communication", "sealing", "host", "gpu", "loader", "copy")
# What is asked of every run of a regime; whatever else, `teetotal what-if` answers.
ASKED: tuple[dict[str, str], ...] = (
    *({"chains": count} for count in ("2", "4")),
    *({"bucket_cap_mib": cap} for cap in ("5", "25", "100")),
    *({"accumulate": count} for count in ("2", "4")),
    *({"sealing_gb_per_second": rate} for rate in ("2", "5", "10", "20", "50")),
    {"pipelined": "true"},
    {"direct": "true"},
)
# The same of a job on one GPU that has a trace.
ASKED_ALONE: tuple[dict[str, str], ...] = ({"cuda_graphs": "true"},)

TABLE = Table(
    tier="gold",
    name="what_if",
    grain="One row per regime, run and change: runs of the regime with remedies, and runs without a TEE under it.",
    key=("run_id", "change"),
    inputs=("silver.runs", "silver.throughput", "gold.step_times", "gold.exposure", "gold.time_breakdown"),
    scope=Scope.REGIME,
    partition_by=("regime",),
    columns=(
        text("regime", "Regime whose pairs the prediction goes by."),
        RUN_ID,
        text("change", "What is changed, as `setting=value`."),
        text(
            "method",
            "bucket_replay: the baseline's trace replayed with other costs; plateau: a soft maximum of host, GPU and "
            "loader time; graph_replay: what the GPU did and copies that blocked; null where it is refused.",
            nullable=True,
            one_of=METHODS,
        ),
        int64("current_step_ns", "Step as it was measured.", nullable=True, minimum=0),
        int64("predicted_step_ns", "Predicted step.", nullable=True, minimum=0),
        int64("predicted_low_ns", "Lower end of its interval.", nullable=True, minimum=0),
        int64("predicted_high_ns", "Upper end.", nullable=True, minimum=0),
        float64("interval_level", "Level of that interval: g models support no more than g / (g + 1).", nullable=True),
        float64("slowdown_ratio", "Predicted over current step.", nullable=True, minimum=0),
        int64("saved_ns", "Current less predicted step; negative where it would take longer.", nullable=True),
        text("dominant_term", "What the predicted step mostly is.", nullable=True, one_of=TERMS),
        boolean("is_extrapolated", "Whether it lies outside of what the model was fitted on.", nullable=True),
        text(
            "verdict",
            "worth it, within model error, costs more, model error unknown (without an interval), saving unknown (the "
            "profiler alone timed the step), or not predictable because of what.",
        ),
        text("evidence", "modelled; unobservable where it is refused.", one_of=EVIDENCE),
        text("reason", "What a reader should know, as sentences.", nullable=True),
    ),
)


def measure(model: RegimeModel) -> pa.Table:
    """Ask the usual changes of each run of the regime, and the regime of each run without a TEE."""
    rows = [describe(model.regime, run, predict_change(run, model, change)) for run, change in _list_questions(model)]
    return pa.Table.from_pylist(rows, schema=TABLE.arrow_schema)


def _list_questions(model: RegimeModel) -> Iterator[tuple[ForecastRun, Mapping[str, str]]]:
    machines = {pair.candidate.machine for pair in model.pairs}
    for run in sorted(model.off_runs, key=lambda one: one.run_id):
        if run.machine in machines and (run.steps or run.world_size == 1):
            yield run, {"regime": model.regime}
    for pair in sorted(model.pairs, key=lambda one: one.candidate.run_id):
        for change in list_asked(pair.candidate):
            yield pair.candidate, change


def list_asked(run: ForecastRun) -> list[dict[str, str]]:
    """The usual changes to a run of a regime, but for what it does already."""
    asked = ASKED if run.world_size > 1 else ASKED_ALONE if run.graph_ns is not None else ()
    return [dict(change) for change in asked if not _is_so_already(run, change)]


def _is_so_already(run: ForecastRun, change: Mapping[str, str]) -> bool:
    cap = run.number("bucket_cap_mib")
    return change.get("chains") == str(run.chains) or (
        "bucket_cap_mib" in change and cap is not None and float(change["bucket_cap_mib"]) == cap
    )


def describe(regime: str, run: ForecastRun, outcome: Outcome) -> dict[str, Any]:
    """The row of an answer."""
    current, predicted = outcome.current_ns, outcome.predicted_ns
    saved = None if current is None or predicted is None or outcome.is_current_slowed else round(current - predicted)
    return {
        "regime": regime,
        "run_id": run.run_id,
        "change": outcome.change,
        "method": outcome.method,
        "current_step_ns": _whole(current),
        "predicted_step_ns": _whole(predicted),
        "predicted_low_ns": _whole(outcome.low_ns),
        "predicted_high_ns": _whole(outcome.high_ns),
        "interval_level": outcome.level,
        "slowdown_ratio": predicted / current if current and predicted else None,
        "saved_ns": saved,
        "dominant_term": outcome.dominant_term,
        "is_extrapolated": outcome.is_extrapolated,
        "verdict": outcome.verdict,
        "evidence": "unobservable" if outcome.refusal else "modelled",
        "reason": outcome.caveat,
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
