"""What changed between two groups of runs: one row per kernel, operation or collective, and whether it is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold import comparison
from gold.inference import RunValue, compare_runs, judge_together
from gold.margin import MARGIN
from gold.step_work import KEY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gold.inference import Estimate

    Rows = list[dict[str, Any]]

# new, gone: runs of one side have it and none of the other does; the rest as in comparison.VERDICT_CLASS.
CHANGES = ("new", "gone", "slower", "faster", "no_difference", "not_shown", "inconclusive")
# Sums of a step that some kinds of work have and others do not.
_OPTIONAL = ("step_exposed_ns", "step_bytes")


def measure(candidates: Sequence[Rows], baselines: Sequence[Rows], *, margin: float = MARGIN) -> Rows:
    """Compare the time per step of each kind of work over runs; all of them are asked at once (Benjamini-Hochberg).

    Rows are those of gold.step_work, run by run. The largest change of a step's time comes first.
    """
    ours, theirs = (comparison.collect_runs(side, KEY) for side in (candidates, baselines))
    kinds = list(dict.fromkeys((*ours, *theirs)))
    judged = judge_together([_compare(ours.get(kind, []), theirs.get(kind, []), margin) for kind in kinds])
    rows = [
        _fill(kind, ours.get(kind, []), theirs.get(kind, []), estimate, q_value)
        for kind, (estimate, q_value) in zip(kinds, judged, strict=True)
    ]
    return sorted(rows, key=lambda row: (-abs(row["overhead_ns"]), *(row[name] for name in KEY)))


def _compare(ours: Rows, theirs: Rows, margin: float) -> Estimate | None:
    """Compare the totals of a step; work that takes no time in a run has no ratio."""
    runs = [[RunValue(row["step_total_ns"]) for row in side] for side in (ours, theirs)]
    if any(run.value <= 0 for side in runs for run in side):
        return None
    return compare_runs(runs[0], runs[1], margin=margin)


def _fill(
    kind: tuple[str, ...], ours: Rows, theirs: Rows, estimate: Estimate | None, q_value: float | None
) -> dict[str, Any]:
    total, baseline = (_find_mean(side, "step_total_ns") or 0 for side in (ours, theirs))
    change, reasons = _name_change(ours, theirs, estimate)
    if estimate is not None:
        reasons += comparison.find_reasons(estimate, (len(ours), len(theirs)), None)
    return {
        **dict(zip(KEY, kind, strict=True)),
        "change": change,
        "step_total_ns": total,
        "baseline_step_total_ns": baseline,
        "overhead_ns": total - baseline,
        "slowdown_ratio": estimate and estimate.ratio,
        "slowdown_low_ratio": estimate and estimate.low,
        "slowdown_high_ratio": estimate and estimate.high,
        "q_value": q_value,
        "step_count": _find_mean_count(ours),
        "baseline_step_count": _find_mean_count(theirs),
        **{
            f"{side}{name}": _find_mean(rows, name)
            for name in _OPTIONAL
            if any(name in row for row in (*ours, *theirs))
            for side, rows in (("", ours), ("baseline_", theirs))
        },
        "runs_count": len(ours),
        "baseline_runs_count": len(theirs),
        "evidence": "measured",
        "reason": "; ".join(reasons) or None,
    }


def _name_change(ours: Rows, theirs: Rows, estimate: Estimate | None) -> tuple[str, list[str]]:
    if not theirs:
        return "new", []
    if not ours:
        return "gone", []
    if estimate is None:
        return "inconclusive", ["work that takes no time has no ratio"]
    return estimate.verdict_class, []


def _find_mean(rows: Rows, name: str) -> int | None:
    """The mean over runs, rounded down: a step pays for all of it."""
    known = [row[name] for row in rows if row.get(name) is not None]
    return sum(known) // len(known) if known else None


def _find_mean_count(rows: Rows) -> float | None:
    known = [row["step_count"] for row in rows if row["step_count"] is not None]
    return sum(known) / len(known) if known else None
