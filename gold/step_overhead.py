"""One row per pair: how much longer a step takes inside the TEE, how sure that is, and the verdict as a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gold import comparison
from gold.comparison import VERDICTS
from gold.overhead_breakdown import find_dominant_part
from gold.step_matching import WAYS, match_steps
from lake.tables import Scope, Table, float64, int64, text
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gold.comparison import Values
    from gold.pairs import Pair

TABLE = Table(
    tier="gold",
    name="step_overhead",
    grain="One row per run that claims a TEE and has a baseline without one.",
    key=("run_id",),
    inputs=("silver.runs", "gold.time_breakdown"),
    scope=Scope.PAIR,
    columns=(
        *comparison.PAIR,
        int64(
            "step_ns",
            "Median step of the run, over steps of the median over ranks, rounded down.",
            nullable=True,
            minimum=0,
        ),
        int64("baseline_step_ns", "The same of its baseline.", nullable=True, minimum=0),
        int64("overhead_ns", "The first less the second.", nullable=True),
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
        comparison.NOISE_FLOOR,
        float64(
            "detectable_fraction",
            "Smallest difference that so many steps could show (80 % power); null below 3 steps.",
            nullable=True,
            minimum=0,
        ),
        int64("steps_count", "Steps that both recorded, warm-up aside.", minimum=0),
        int64("ranks_count", "Ranks on which both did.", minimum=0),
        text("matched_by", "Whether steps were matched by number or by place.", one_of=WAYS),
        text("dominant_part", "Part of the time that grew most (gold.overhead_breakdown).", nullable=True),
        float64("dominant_fraction", "Its share of the difference.", nullable=True),
        text("verdict_class", "What the numbers allow to say.", one_of=VERDICTS),
        text("verdict", "The same as a sentence."),
        text("evidence", "Where the numbers come from.", one_of=EVIDENCE),
        text("reason", "Why a number is null, as a sentence.", nullable=True),
    ),
)


def measure(
    pair: Pair, run: Mapping[str, Any], tee: pa.Table, baseline: pa.Table, repeats: Sequence[pa.Table]
) -> pa.Table:
    """Compare the two runs step by step; what the recording is too short to say is not said."""
    both = match_steps(tee, baseline)
    ours, baselines = both.times()
    row: dict[str, Any] = {
        **comparison.start_row(TABLE, pair, run),
        "steps_count": both.steps_count,
        "ranks_count": both.ranks_count,
        "matched_by": both.matched_by,
    }
    if not both.cells:
        told = {"verdict_class": "inconclusive", "verdict": f"no answer: {both.reason}", "evidence": "unobservable"}
        return _table({**row, **told, "reason": both.reason})
    row |= _compare_steps(ours, baselines)
    floor = comparison.find_noise_floor(match_steps(table, table).times()[0] for table in (baseline, *repeats))
    row |= {"noise_floor_fraction": floor, "detectable_fraction": comparison.find_detectable_effect(baselines)}
    part, share = find_dominant_part(both.cells)
    kind = comparison.classify_verdict(row, both.steps_count)
    return _table(
        {
            **row,
            "dominant_part": part,
            "dominant_fraction": share,
            "verdict_class": kind,
            "verdict": comparison.format_verdict(row, kind, both.steps_count),
            "evidence": "measured",
            "reason": "; ".join(comparison.list_missing(row)) or None,
        }
    )


def _table(row: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([row], schema=TABLE.arrow_schema)


def _compare_steps(ours: Values, baselines: Values) -> dict[str, Any]:
    """Medians in whole nanoseconds, and their ratio with its interval; none where a step has no length."""
    step, baseline = int(np.median(ours)), int(np.median(baselines))
    found: dict[str, Any] = {"step_ns": step, "baseline_step_ns": baseline, "overhead_ns": step - baseline}
    return found | comparison.compare_medians(ours, baselines) if baseline and step else found
