"""One row per pair: how much longer a step takes inside the TEE, how sure that is, and the verdict as a sentence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gold import comparison
from gold.comparison import VERDICTS
from gold.matched_steps import WAYS, matched
from gold.toll_breakdown import dominant
from lake.tables import Table, float64, int64, text
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gold.comparison import Values
    from gold.pairs import Pair

TABLE = Table(
    tier="gold",
    name="step_overhead",
    grain="One row per run that claims a TEE and has a twin without one.",
    key=("run_id",),
    columns=(
        *comparison.PAIR,
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
        text("dominant_part", "Part of the time that grew most (gold.toll_breakdown).", nullable=True),
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
    both = matched(tee, baseline)
    ours, twins = both.times()
    row: dict[str, Any] = {
        **comparison.begun(TABLE, pair, run),
        "steps_count": both.steps_count,
        "ranks_count": both.ranks_count,
        "matched_by": both.matched_by,
    }
    if not both.cells:
        told = {"verdict_class": "inconclusive", "verdict": f"no answer: {both.reason}", "evidence": "unobservable"}
        return _table({**row, **told, "reason": both.reason})
    row |= _compared(ours, twins)
    floor = comparison.floor(matched(table, table).times()[0] for table in (baseline, *repeats))
    row |= {"noise_floor_fraction": floor, "detectable_fraction": comparison.detectable(twins)}
    part, share = dominant(both.cells)
    kind = comparison.kind(row, both.steps_count)
    return _table(
        {
            **row,
            "dominant_part": part,
            "dominant_fraction": share,
            "verdict_class": kind,
            "verdict": comparison.sentence(row, kind, both.steps_count),
            "evidence": "measured",
            "reason": "; ".join(comparison.missing(row)) or None,
        }
    )


def _table(row: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([row], schema=TABLE.arrow_schema)


def _compared(ours: Values, twins: Values) -> dict[str, Any]:
    """Medians in whole nanoseconds, and their ratio with its interval; none where a step has no length."""
    step, twin = int(np.median(ours)), int(np.median(twins))
    found: dict[str, Any] = {"step_ns": step, "baseline_step_ns": twin, "difference_ns": step - twin}
    return found | comparison.compared(ours, twins) if twin and step else found
