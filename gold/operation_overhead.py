"""One row per pair and kind of operation: how much longer one launch, one call, one copy takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gold import comparison, operation_costs
from gold.inference import Estimate, RunValue, compare_runs, judge_together
from gold.margin import MARGIN
from gold.power import ENOUGH_RUNS
from lake.tables import Scope, Table, float64, int64, text
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gold.pairs import Pair

    Row = dict[str, Any]

_KEY = operation_costs.TABLE.key

TABLE = Table(
    tier="gold",
    name="operation_overhead",
    grain="One row per pair and kind of operation that both recorded.",
    key=_KEY,
    inputs=("silver.runs", "gold.operation_costs", "gold.time_breakdown"),
    scope=Scope.PAIR,
    columns=(
        *comparison.SIDES,
        *(operation_costs.TABLE.column(name) for name in _KEY),
        int64("median_ns", "Median duration in a run; the geometric mean over its runs, rounded down.", minimum=0),
        int64("baseline_median_ns", "The same of the baseline.", minimum=0),
        int64("overhead_ns", "The first less the second: what is added to one."),
        float64("slowdown_ratio", "Ratio of the two; null where one is 0.", nullable=True, minimum=0),
        float64(
            "slowdown_low_ratio",
            "Lower end of its 95 % interval over runs; null below 3 runs per side.",
            nullable=True,
            minimum=0,
        ),
        float64("slowdown_high_ratio", "Upper end.", nullable=True, minimum=0),
        comparison.P_VALUE,
        float64(
            "q_value",
            "The p value, adjusted because all operations of the pair are asked at once (Benjamini-Hochberg): the "
            "verdict goes by it.",
            nullable=True,
            minimum=0,
            maximum=1,
        ),
        comparison.EQUIVALENCE,
        comparison.MARGIN_FRACTION,
        int64(
            "step_total_ns", "Time of all of them per rank and step; the mean over its runs.", nullable=True, minimum=0
        ),
        int64("baseline_step_total_ns", "The same of the baseline.", nullable=True, minimum=0),
        int64("step_overhead_ns", "The first less the second: what such calls add to a step.", nullable=True),
        int64("runs_count", "Runs of the candidate that recorded the operation.", minimum=1),
        int64("baseline_runs_count", "Runs of the baseline that did.", minimum=1),
        int64("operations_count", "How many in all runs of the candidate.", minimum=1),
        int64("baseline_operations_count", "How many in all runs of the baseline.", minimum=1),
        comparison.VERDICT_CLASS,
        text("evidence", "Weakest evidence of the numbers.", one_of=EVIDENCE),
        text("reason", "Why a number is null, or what it does not say, as sentences.", nullable=True),
    ),
)


def measure(
    pair: Pair, candidates: Sequence[pa.Table], baselines: Sequence[pa.Table], margin: float = MARGIN
) -> pa.Table:
    """Compare the medians of all runs; of the differences that a pair is said to show, 5 % are false on average."""
    ours, theirs = (
        comparison.collect_runs((table.drop_columns(["run_id"]).to_pylist() for table in tables), _KEY)
        for tables in (candidates, baselines)
    )
    kinds = [kind for kind in ours if kind in theirs]
    judged = judge_together([_compare(ours[kind], theirs[kind], margin) for kind in kinds])
    rows = []
    for kind, (estimate, q_value) in zip(kinds, judged, strict=True):
        filled = _fill(ours[kind], theirs[kind], estimate, q_value)
        rows.append({**comparison.name_sides(pair), **filled, "margin_fraction": margin})
    return pa.Table.from_pylist(rows, schema=TABLE.arrow_schema)


def _compare(ours: Sequence[Row], theirs: Sequence[Row], margin: float) -> Estimate | None:
    """Compare the runs' medians; a side on which one is nothing has no logarithm and no ratio."""
    runs = [[RunValue(row["median_ns"]) for row in side] for side in (ours, theirs)]
    if any(run.value <= 0 for side in runs for run in side):
        return None
    return compare_runs(runs[0], runs[1], margin=margin)


def _fill(ours: Sequence[Row], theirs: Sequence[Row], estimate: Estimate | None, q_value: float | None) -> Row:
    sides = (ours, theirs)
    median, baseline = (_find_middle([row["median_ns"] for row in side]) for side in sides)
    reasons = list(
        dict.fromkeys(part for side in sides for row in side if row["reason"] for part in row["reason"].split("; "))
    )
    # What is said of bounds within one run is not said of an interval over runs.
    reasons = [reason for reason in reasons if reason != operation_costs.TOO_FEW]
    counts = len(ours), len(theirs)
    if estimate is None:
        reasons.append("a median of nothing gives no ratio")
    else:
        reasons += comparison.find_reasons(estimate, counts, None)
    return {
        **{name: ours[0][name] for name in _KEY},
        "median_ns": median,
        "baseline_median_ns": baseline,
        "overhead_ns": median - baseline,
        "slowdown_ratio": estimate and estimate.ratio,
        "slowdown_low_ratio": estimate and estimate.low,
        "slowdown_high_ratio": estimate and estimate.high,
        "p_value": estimate and estimate.p_value,
        "q_value": q_value,
        "equivalence_p_value": estimate and estimate.equivalence_p_value,
        **_compare_totals(*([row["step_total_ns"] for row in side] for side in sides)),
        "runs_count": counts[0],
        "baseline_runs_count": counts[1],
        "operations_count": sum(row["operations_count"] for row in ours),
        "baseline_operations_count": sum(row["operations_count"] for row in theirs),
        "verdict_class": "inconclusive" if estimate is None or min(counts) < ENOUGH_RUNS else estimate.verdict_class,
        "evidence": comparison.find_weakest(row["evidence"] for side in sides for row in side),
        "reason": "; ".join(reasons) or None,
    }


def _compare_totals(ours: Sequence[int | None], theirs: Sequence[int | None]) -> dict[str, int | None]:
    """What such operations take of a step: the mean over runs, because a step pays for all of them."""
    known = [[value for value in side if value is not None] for side in (ours, theirs)]
    total, baseline = (sum(side) // len(side) if side else None for side in known)
    added = None if total is None or baseline is None else total - baseline
    return {"step_total_ns": total, "baseline_step_total_ns": baseline, "step_overhead_ns": added}


def _find_middle(medians: Sequence[int]) -> int:
    """The geometric mean over runs, rounded down; nothing where one is nothing."""
    return int(comparison.find_middle(medians)) if all(medians) else 0
