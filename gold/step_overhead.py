"""One row per pair: how much longer a step takes inside the TEE, how sure that is, and the verdict as a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gold.matched_steps import WAYS, Matched, matched
from gold.toll_breakdown import dominant
from lake.tables import RUN_ID, Table, float64, int64, text
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gold.pairs import Pair

    Times = np.ndarray[Any, np.dtype[np.float64]]

VERDICTS = ("slower", "faster", "within_noise", "inconclusive")

TABLE = Table(
    tier="gold",
    name="step_overhead",
    grain="One row per run that claims a TEE and has a twin without one.",
    key=("run_id",),
    columns=(
        RUN_ID,
        text("baseline_run_id", "The twin without a TEE."),
        text("regime", "Regime of the run: results are never averaged over it."),
        text("model", "Model that was trained.", nullable=True),
        int64("world_size", "Ranks of the job.", nullable=True, minimum=1),
        int64(
            "step_ns",
            "Median step of the run, over steps of the median over ranks, rounded down.",
            nullable=True,
            minimum=0,
        ),
        int64("baseline_step_ns", "The same of its twin.", nullable=True, minimum=0),
        int64("difference_ns", "The first less the second.", nullable=True),
        float64("slowdown_ratio", "Ratio of the two medians.", nullable=True, minimum=0),
        float64(
            "slowdown_low_ratio",
            "Lower end of its 95 % interval (paired bootstrap over steps, seeded).",
            nullable=True,
            minimum=0,
        ),
        float64("slowdown_high_ratio", "Upper end.", nullable=True, minimum=0),
        float64("time_increase_fraction", "Ratio less 1: a step takes that much longer.", nullable=True),
        float64("throughput_loss_fraction", "1 less 1/ratio: that much less is done in the same time.", nullable=True),
        float64(
            "noise_floor_fraction",
            "Largest difference between repeats of the twin; null without repeats.",
            nullable=True,
            minimum=0,
        ),
        float64(
            "detectable_fraction",
            "Smallest difference that so many steps could show (80 % power); null below 3 steps.",
            nullable=True,
            minimum=0,
        ),
        int64("steps_count", "Steps that both recorded, warm-up aside.", minimum=0),
        int64("ranks_count", "Ranks on which both did.", minimum=0),
        text("matched_by", "Whether steps were matched by number or by place.", one_of=WAYS),
        text("dominant_part", "Part of the time that grew most (gold.toll_breakdown).", nullable=True),
        float64("dominant_fraction", "Its share of the difference.", nullable=True),
        text("verdict_class", "What the numbers allow to say.", one_of=VERDICTS),
        text("verdict", "The same as a sentence."),
        text("evidence", "Where the numbers come from.", one_of=EVIDENCE),
        text("reason", "Why a number is null, as a sentence.", nullable=True),
    ),
)
_RESAMPLES = 10_000
_SEED = 250_111_771
_POWER = 1.959964 + 0.841621


def measure(
    pair: Pair, run: Mapping[str, Any], tee: pa.Table, baseline: pa.Table, repeats: Sequence[pa.Table]
) -> pa.Table:
    """Compare the two runs step by step; what the recording is too short to say is not said."""
    both = matched(tee, baseline)
    ours, twins = both.times()
    row: dict[str, Any] = {
        **dict.fromkeys(TABLE.column_names),
        "run_id": pair.run_id,
        "baseline_run_id": pair.baseline_run_id,
        "regime": pair.regime,
        "model": run["model"],
        "world_size": run["found_world_size"] or run["world_size"],
        "steps_count": both.steps_count,
        "ranks_count": both.ranks_count,
        "matched_by": both.matched_by,
    }
    if not both.cells:
        told = {"verdict_class": "inconclusive", "verdict": f"no answer: {both.reason}", "evidence": "unobservable"}
        return _table({**row, **told, "reason": both.reason})
    row |= _compared(ours, twins)
    row |= {"noise_floor_fraction": _floor(baseline, repeats), "detectable_fraction": _detectable(twins)}
    part, share = dominant(both.cells)
    kind = _kind(row)
    return _table(
        {
            **row,
            "dominant_part": part,
            "dominant_fraction": share,
            "verdict_class": kind,
            "verdict": _sentence(row, kind, both),
            "evidence": "measured",
            "reason": _missing(row),
        }
    )


def _table(row: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([row], schema=TABLE.arrow_schema)


def _compared(ours: Times, twins: Times) -> dict[str, Any]:
    """Medians, their ratio, and its interval from steps drawn again in pairs."""
    step, twin = int(np.median(ours)), int(np.median(twins))
    found: dict[str, Any] = {"step_ns": step, "baseline_step_ns": twin, "difference_ns": step - twin}
    if not twin or not step:
        return found
    ratio = float(np.median(ours) / np.median(twins))
    found |= {
        "slowdown_ratio": ratio,
        "time_increase_fraction": ratio - 1,
        "throughput_loss_fraction": 1 - 1 / ratio,
    }
    if len(ours) > 1 and (twins > 0).all():
        drawn = np.random.default_rng(_SEED).integers(0, len(ours), (_RESAMPLES, len(ours)))
        ratios = np.median(ours[drawn], axis=1) / np.median(twins[drawn], axis=1)
        low, high = np.quantile(ratios, [0.025, 0.975])
        found |= {"slowdown_low_ratio": float(low), "slowdown_high_ratio": float(high)}
    return found


def _floor(baseline: pa.Table, repeats: Sequence[pa.Table]) -> float | None:
    """How far apart runs are that should be equal: the twin and its repeats, each against each."""
    medians = []
    for table in (baseline, *repeats):
        alone, _ = matched(table, table).times()
        if len(alone):
            medians.append(float(np.median(alone)))
    if len(medians) < 2 or not min(medians):
        return None
    return max(medians) / min(medians) - 1


def _detectable(twins: Times) -> float | None:
    """The difference that a comparison of so many steps of this scatter would find four times out of five."""
    if len(twins) < 3 or not np.mean(twins):
        return None
    return float(_POWER * np.sqrt(2 * np.var(twins, ddof=1) / len(twins)) / np.mean(twins))


def _kind(row: Mapping[str, Any]) -> str:
    low, high, floor = row["slowdown_low_ratio"], row["slowdown_high_ratio"], row["noise_floor_fraction"]
    if low is None or row["steps_count"] < 2:
        return "inconclusive"
    if low <= 1 <= high or (floor is not None and abs(row["slowdown_ratio"] - 1) <= floor):
        return "within_noise"
    return "slower" if low > 1 else "faster"


def _sentence(row: Mapping[str, Any], kind: str, both: Matched) -> str:
    """`1.42x slower, 95 % 1.38 to 1.47, above the noise floor of 2.1 %`."""
    ratio, floor = row["slowdown_ratio"], row["noise_floor_fraction"]
    if ratio is None:
        return "no answer: a median step has no length"
    if row["slowdown_low_ratio"] is None:
        return f"{ratio:.2f}x in a single step: no interval, so nothing can be concluded"
    interval = f"95 % {row['slowdown_low_ratio']:.2f} to {row['slowdown_high_ratio']:.2f}"
    size = (
        f"{1 / ratio:.2f}x faster"
        if kind == "faster"
        else f"{ratio:.2f}x slower"
        if kind == "slower"
        else f"{ratio:.2f}x"
    )
    if kind == "within_noise":
        size = f"no difference shown: {size}"
    where = "noise floor unknown, the twin was not repeated"
    if floor is not None:
        where = f"{'within' if abs(ratio - 1) <= floor else 'above'} the noise floor of {floor:.1%}".replace("%", " %")
    few = f", from only {both.steps_count} steps" if both.steps_count < 5 else f", {both.steps_count} steps"
    return f"{size}, {interval}, {where}{few}"


def _missing(row: Mapping[str, Any]) -> str | None:
    reasons = []
    if row["slowdown_low_ratio"] is None:
        reasons.append("one step has no interval")
    if row["noise_floor_fraction"] is None:
        reasons.append("no repeat of the twin (repeat_of) gives a noise floor")
    if row["detectable_fraction"] is None:
        reasons.append("fewer than 3 steps have no scatter to speak of")
    return "; ".join(reasons) or None
