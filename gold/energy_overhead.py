"""One row per pair whose devices were sampled: how much more energy a step takes inside the TEE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gold import comparison
from gold.step_energy import TIMERS
from gold.step_matching import WAYS, match_rows
from lake.tables import Scope, Table, float64, int64, text
from silver.steps import EVIDENCE
from silver.throughput import PERIODS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gold.pairs import Pair
    from gold.step_matching import MatchedSteps

    Rows = list[dict[str, Any]]

VERDICTS = ("more", "less", "within_noise", "inconclusive")

TABLE = Table(
    tier="gold",
    name="energy_overhead",
    grain="One row per run that claims a TEE and has a baseline without one, if power or energy of either was sampled.",
    key=("run_id",),
    inputs=("silver.runs", "gold.step_energy", "gold.time_breakdown"),
    scope=Scope.PAIR,
    columns=(
        *comparison.PAIR,
        text("timed_by", "Whose steps are compared: the profile's or the log's.", nullable=True, one_of=TIMERS),
        text("period", "What is compared: epochs or steps.", nullable=True, one_of=PERIODS),
        float64(
            "energy_j",
            "Median energy of a step of the run: of all its devices, and of the median over ranks.",
            nullable=True,
            minimum=0,
        ),
        float64("baseline_energy_j", "The same of its baseline.", nullable=True, minimum=0),
        float64("difference_j", "What the TEE adds to a step: the first less the second.", nullable=True),
        float64("energy_ratio", "Ratio of the two.", nullable=True, minimum=0),
        float64(
            "energy_low_ratio", "Lower end of its 95 % interval (paired bootstrap, seeded).", nullable=True, minimum=0
        ),
        float64("energy_high_ratio", "Upper end.", nullable=True, minimum=0),
        float64("mean_power_w", "Median over those steps of the power of all devices.", nullable=True, minimum=0),
        float64("baseline_mean_power_w", "The same of its baseline.", nullable=True, minimum=0),
        comparison.NOISE_FLOOR,
        int64("steps_count", "Steps or epochs of which both energies are known, warm-up aside.", minimum=0),
        int64("ranks_count", "Ranks on which both are.", minimum=0),
        int64("devices_count", "Devices that were sampled in the run.", minimum=0),
        int64("baseline_devices_count", "The same in its baseline.", minimum=0),
        text("matched_by", "Whether they were matched by number or by place.", one_of=WAYS),
        text("verdict_class", "What the numbers allow to say.", one_of=VERDICTS),
        text("evidence", "Weakest evidence of the energies compared.", one_of=EVIDENCE),
        text("reason", "Why a number is null, or what it does not say, as sentences.", nullable=True),
    ),
)
_RATIOS = {f"slowdown_{which}": f"energy_{which}" for which in ("ratio", "low_ratio", "high_ratio")}
_WEAKER = ("measured", "modelled", "unobservable")


def measure(
    pair: Pair, run: Mapping[str, Any], energies: tuple[pa.Table, pa.Table], repeats: Sequence[pa.Table]
) -> pa.Table:
    """Compare the energy of the same steps, of whichever clock knows it for more of them; unsampled is no row."""
    if not any(rows.num_rows for rows in energies):
        return TABLE.arrow_schema.empty_table()
    ours, baselines = (rows.to_pylist() for rows in energies)
    timer, period, both = _choose_periods(ours, baselines)
    row: dict[str, Any] = {
        **comparison.start_row(TABLE, pair, run),
        "devices_count": len({cell["device_id"] for cell in ours}),
        "baseline_devices_count": len({cell["device_id"] for cell in baselines}),
        "steps_count": both.steps_count if both.cells else 0,
        "ranks_count": both.ranks_count if both.cells else 0,
        "matched_by": both.matched_by,
    }
    if not both.cells:
        told = {
            "verdict_class": "inconclusive",
            "evidence": "unobservable",
            "reason": _describe_unmatched(ours, baselines),
        }
        return pa.Table.from_pylist([{**row, **told}], schema=TABLE.arrow_schema)
    row |= {"timed_by": timer, "period": period, **_compare_energy(both)}
    again = (_sums(rows, timer, period) for rows in (baselines, *(table.to_pylist() for table in repeats)))
    row["noise_floor_fraction"] = comparison.find_noise_floor(
        match_rows(rows, rows).times("energy_j")[0] for rows in again
    )
    row |= {"evidence": _pick_weakest(both), "verdict_class": _verdict(row)}
    return pa.Table.from_pylist([{**row, "reason": _reason(row, period, both)}], schema=TABLE.arrow_schema)


def _sums(rows: Rows, timer: str, period: str) -> Rows:
    """The steps of one clock with the energy of all devices; one whose energy is not known makes a step unknown."""
    steps: dict[tuple[int, int], Rows] = {}
    for row in rows:
        if row["timed_by"] == timer and row["period"] == period:
            steps.setdefault((row["rank"], row["step_number"]), []).append(row)
    return [
        {
            **{name: cells[0][name] for name in ("rank", "step_number", "is_warmup")},
            "energy_j": sum(cell["energy_j"] for cell in cells),
            "mean_power_w": sum(cell["mean_power_w"] or 0.0 for cell in cells),
            "evidence": max((cell["evidence"] for cell in cells), key=_WEAKER.index),
            "reasons": {part for cell in cells if cell["reason"] for part in cell["reason"].split("; ")},
        }
        for _, cells in sorted(steps.items())
        if all(cell["energy_j"] is not None for cell in cells)
    ]


def _choose_periods(ours: Rows, baselines: Rows) -> tuple[str, str, MatchedSteps]:
    choices = [
        (timer, period, match_rows(_sums(ours, timer, period), _sums(baselines, timer, period), period))
        for timer in TIMERS
        for period in PERIODS
    ]
    return max(choices, key=lambda choice: len(choice[2].cells))


def _compare_energy(both: MatchedSteps) -> dict[str, Any]:
    ours, baselines = both.times("energy_j")
    watts, baseline_watts = both.times("mean_power_w")
    found = comparison.compare_medians(ours, baselines)
    return {
        "energy_j": float(np.median(ours)),
        "baseline_energy_j": float(np.median(baselines)),
        "difference_j": float(np.median(ours) - np.median(baselines)),
        **{name: found.get(slowdown) for slowdown, name in _RATIOS.items()},
        "mean_power_w": float(np.median(watts)),
        "baseline_mean_power_w": float(np.median(baseline_watts)),
    }


def _verdict(row: Mapping[str, Any]) -> str:
    ratios = {slowdown: row[name] for slowdown, name in _RATIOS.items()}
    kind = comparison.classify_verdict(
        {**ratios, "noise_floor_fraction": row["noise_floor_fraction"]}, row["steps_count"]
    )
    return {"slower": "more", "faster": "less"}.get(kind, kind)


def _pick_weakest(both: MatchedSteps) -> str:
    found: str = max((row["evidence"] for cell in both.cells for row in cell), key=_WEAKER.index)
    return found


def _reason(row: Mapping[str, Any], noun: str, both: MatchedSteps) -> str | None:
    reasons = []
    if row["energy_low_ratio"] is None:
        reasons.append(f"one {noun}, or one that took nothing, has no interval")
    if row["noise_floor_fraction"] is None:
        reasons.append("no repeat of the baseline (repeat_of) gives a noise floor")
    if row["devices_count"] != row["baseline_devices_count"]:
        reasons.append("not as many devices were sampled in both")
    if row["energy_low_ratio"] is not None and row["evidence"] == "modelled":
        reasons.append("steps between the same readings are no samples of their own: the interval is too narrow")
    reasons += sorted({reason for cell in both.cells for one in cell for reason in one["reasons"]})
    return "; ".join(reasons) or None


def _describe_unmatched(ours: Rows, baselines: Rows) -> str:
    if not ours or not baselines:
        return f"no power or energy of {'the run' if not ours else 'its baseline'} was sampled"
    for rows, whose in ((ours, "the run"), (baselines, "its baseline")):
        if all(row["energy_j"] is None for row in rows):
            return f"no step of {whose} has a known energy"
    return "outside warm-up the two share no step of which both energies are known"
