"""One row per pair and kind of operation: what the TEE adds to one launch, one call, one copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gold import operation_costs
from gold.comparison import VERDICTS
from lake.tables import RUN_ID, Scope, Table, float64, int64, text
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from gold.pairs import Pair

_KEY = operation_costs.TABLE.key

TABLE = Table(
    tier="gold",
    name="operation_overhead",
    grain="One row per pair and kind of operation that both recorded.",
    key=_KEY,
    inputs=("silver.runs", "gold.operation_costs", "gold.time_breakdown"),
    scope=Scope.PAIR,
    columns=(
        RUN_ID,
        text("baseline_run_id", "The baseline without a TEE."),
        text("regime", "Regime of the run: results are never averaged over it."),
        *(operation_costs.TABLE.column(name) for name in _KEY),
        int64("median_ns", "Median duration in the run.", minimum=0),
        int64("baseline_median_ns", "The same in its baseline.", minimum=0),
        int64("overhead_ns", "The first less the second."),
        float64("slowdown_ratio", "Ratio of the two; null where the baseline's is 0.", nullable=True, minimum=0),
        float64(
            "slowdown_low_ratio",
            "Lower end of its 95 % interval, from observed bounds of both medians.",
            nullable=True,
            minimum=0,
        ),
        float64("slowdown_high_ratio", "Upper end.", nullable=True, minimum=0),
        int64("step_total_ns", "Time of all of them per rank and step of the run.", nullable=True, minimum=0),
        int64("baseline_step_total_ns", "The same in its baseline.", nullable=True, minimum=0),
        int64("step_overhead_ns", "The first less the second: what the TEE adds to a step by these.", nullable=True),
        int64("operations_count", "How many in the run.", minimum=1),
        int64("baseline_operations_count", "How many in its baseline.", minimum=1),
        text("verdict_class", "What the numbers allow to say.", one_of=VERDICTS),
        text("evidence", "Where the numbers come from.", one_of=EVIDENCE),
        text("reason", "Why a number is null, or what it does not say, as sentences.", nullable=True),
    ),
)


def measure(pair: Pair, tee: pa.Table, baseline: pa.Table) -> pa.Table:
    """Compare like with like; the interval is that of the bounds, whatever the distribution and however many."""
    baselines = {_kind(row): row for row in baseline.to_pylist()}
    rows = [
        {
            "run_id": pair.run_id,
            "baseline_run_id": pair.baseline_run_id,
            "regime": pair.regime,
            **_compare_costs(row, baselines[_kind(row)]),
        }
        for row in tee.to_pylist()
        if _kind(row) in baselines
    ]
    return pa.Table.from_pylist(rows, schema=TABLE.arrow_schema)


def _kind(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(row[name] for name in _KEY)


def _compare_costs(ours: dict[str, Any], baseline: dict[str, Any]) -> dict[str, Any]:
    low = _ratio(ours["median_low_ns"], baseline["median_high_ns"])
    high = _ratio(ours["median_high_ns"], baseline["median_low_ns"])
    if low is None or high is None:
        low = high = None
    kind = "inconclusive" if low is None or high is None else "within_noise" if low <= 1 <= high else "slower"
    reasons = dict.fromkeys(part for row in (ours, baseline) if row["reason"] for part in row["reason"].split("; "))
    return {
        **{name: ours[name] for name in _KEY},
        "median_ns": ours["median_ns"],
        "baseline_median_ns": baseline["median_ns"],
        "overhead_ns": ours["median_ns"] - baseline["median_ns"],
        "slowdown_ratio": _ratio(ours["median_ns"], baseline["median_ns"]),
        "slowdown_low_ratio": low,
        "slowdown_high_ratio": high,
        **_compare_totals(ours["step_total_ns"], baseline["step_total_ns"]),
        "operations_count": ours["operations_count"],
        "baseline_operations_count": baseline["operations_count"],
        "verdict_class": "faster" if kind == "slower" and high is not None and high < 1 else kind,
        "evidence": "measured",
        "reason": "; ".join(reasons) or None,
    }


def _compare_totals(ours: int | None, baseline: int | None) -> dict[str, int | None]:
    added = None if ours is None or baseline is None else ours - baseline
    return {"step_total_ns": ours, "baseline_step_total_ns": baseline, "step_overhead_ns": added}


def _ratio(over: int | None, under: int | None) -> float | None:
    return over / under if over is not None and under else None
