"""One row per pair whose devices were sampled: how much more energy a step takes than in the baseline."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gold import comparison
from gold.comparison import Sides
from gold.inference import RunValue, compare_runs, withhold
from gold.margin import MARGIN
from gold.samples_per_step import describe_other_work
from gold.step_energy import TIMERS
from lake.tables import Scope, Table, float64, int64, text
from silver.steps import EVIDENCE
from silver.throughput import PERIODS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gold.pairs import Pair

    Rows = list[dict[str, Any]]

VERDICTS = ("more", "less", "no_difference", "not_shown", "inconclusive")
_WORDS = {"slower": "more", "faster": "less"}
# Fewer readings of a run, or a window of fewer sensor periods, say nothing about its energy.
ENOUGH_READINGS = 10
ENOUGH_PERIODS = 5

TABLE = Table(
    tier="gold",
    name="energy_overhead",
    grain="One row per run that has a baseline, if power or energy of either was sampled.",
    key=("run_id",),
    inputs=("silver.runs", "gold.step_energy", "gold.step_times", "gold.time_breakdown"),
    scope=Scope.PAIR,
    columns=(
        *comparison.PAIR,
        text("timed_by", "Whose steps are compared: the profile's or the log's.", nullable=True, one_of=TIMERS),
        text("period", "What is compared: epochs or steps.", nullable=True, one_of=PERIODS),
        float64(
            "energy_j",
            "Mean energy of a step of the run, of all devices and of the median over ranks; the geometric mean over "
            "its runs.",
            nullable=True,
            minimum=0,
        ),
        float64("baseline_energy_j", "The same of its baseline.", nullable=True, minimum=0),
        float64("overhead_j", "The first less the second: what is added to a step.", nullable=True),
        float64("energy_ratio", "Ratio of the two.", nullable=True, minimum=0),
        float64(
            "energy_low_ratio",
            "Lower end of its 95 % interval over runs; null below 3 runs per side.",
            nullable=True,
            minimum=0,
        ),
        float64("energy_high_ratio", "Upper end.", nullable=True, minimum=0),
        comparison.INTERVAL_OVER,
        float64("mean_power_w", "Energy of those steps over their time.", nullable=True, minimum=0),
        float64("baseline_mean_power_w", "The same of its baseline.", nullable=True, minimum=0),
        *comparison.RUNS,
        int64("steps_count", "Steps or epochs of the run whose energy is known, warm-up aside.", minimum=0),
        int64("baseline_steps_count", "The same of its baseline.", minimum=0),
        int64("readings_count", "Fewest readings of a run of either side within those steps.", minimum=0),
        int64("devices_count", "Devices that were sampled in the run.", minimum=0),
        int64("baseline_devices_count", "The same in its baseline.", minimum=0),
        text("verdict_class", "more, less: shown; the others as in gold.step_overhead.", one_of=VERDICTS),
        text("verdict", "The same as a sentence."),
        text("evidence", "Weakest evidence of the energies compared.", one_of=EVIDENCE),
        text("reason", "Why a number is null, or what it does not say, as sentences.", nullable=True),
    ),
)


@dataclass(frozen=True)
class _Run:
    """What one run says of the energy of a step."""

    energy_j: float
    power_w: float
    steps_count: int
    readings_count: int
    # How many sensor periods its steps last.
    periods: float
    evidence: str
    reasons: frozenset[str]


def measure(
    pair: Pair,
    run: Mapping[str, Any],
    candidates: Sequence[pa.Table],
    baselines: Sequence[pa.Table],
    timed: Sides,
    margin: float = MARGIN,
) -> pa.Table:
    """Compare the mean energy of a step over runs, by the clock that knows it for more steps; unsampled is no row.

    `timed` are the rows of gold.step_times of both sides, which say whether their steps do the same work.
    """
    ours, theirs = ([table.to_pylist() for table in side] for side in (candidates, baselines))
    if not ours[0] and not theirs[0]:
        return TABLE.arrow_schema.empty_table()
    timer, period = _choose(ours[0], theirs[0])
    found = [[_summarise(rows, timer, period) for rows in side] for side in (ours, theirs)]
    # Runs that are equal to the last digit are copies of one recording and count once.
    sides = [list(dict.fromkeys(one for one in side if one is not None)) for side in found]
    row: dict[str, Any] = {
        **comparison.start_row(TABLE, pair, run),
        "margin_fraction": margin,
        "devices_count": len({cell["device_id"] for cell in ours[0]}),
        "baseline_devices_count": len({cell["device_id"] for cell in theirs[0]}),
        "runs_count": len(sides[0]),
        "baseline_runs_count": len(sides[1]),
        **dict.fromkeys(("steps_count", "baseline_steps_count", "readings_count"), 0),
    }
    if not sides[0] or not sides[1]:
        reason = _explain_unmatched(ours[0], theirs[0])
        answer = {"verdict_class": "inconclusive", "verdict": f"no answer: {reason}", "evidence": "unobservable"}
        told = comparison.tell_progress({**row, **answer, "reason": reason}, run)
        return pa.Table.from_pylist([told], schema=TABLE.arrow_schema)
    row |= {
        "timed_by": timer,
        "period": period,
        **_compare(sides[0], sides[1], margin, partial(describe_other_work, timed, period)),
    }
    if row["devices_count"] != row["baseline_devices_count"]:
        row["reason"] = "; ".join(filter(None, ("not as many devices were sampled in both", row["reason"])))
    return pa.Table.from_pylist([comparison.tell_progress(row, run)], schema=TABLE.arrow_schema)


def _choose(ours: Rows, theirs: Rows) -> tuple[str, str]:
    """The clock and the period that know most steps of both."""
    choices = [(timer, period) for timer in TIMERS for period in PERIODS]
    return max(choices, key=lambda choice: min(len(_sums(rows, *choice)) for rows in (ours, theirs)))


def _sums(rows: Rows, timer: str, period: str) -> Rows:
    """The steps of one clock with the energy of all devices; one whose energy is not known makes a step unknown."""
    steps: dict[tuple[int, int], Rows] = {}
    for row in rows:
        if row["timed_by"] == timer and row["period"] == period and not row["is_warmup"]:
            steps.setdefault((row["rank"], row["step_number"]), []).append(row)
    return [
        {
            "rank": rank,
            "energy_j": sum(cell["energy_j"] for cell in cells),
            "duration_ns": cells[0]["duration_ns"],
            "count": cells[0]["stands_for_count"],
            # The device with the fewest readings, and the slowest sensor, limit what is known.
            "readings_count": min(cell["samples_count"] for cell in cells),
            "sensor_ns": max((cell["sensor_period_ns"] or cell["sampling_ns"] or 0 for cell in cells), default=0),
            "evidence": comparison.find_weakest(cell["evidence"] for cell in cells),
            "reasons": {part for cell in cells if cell["reason"] for part in cell["reason"].split("; ")},
        }
        for (rank, _), cells in sorted(steps.items())
        if all(cell["energy_j"] is not None for cell in cells)
    ]


def _summarise(rows: Rows, timer: str, period: str) -> _Run | None:
    """The mean over the steps of each rank, and the median over ranks; None where no energy is known."""
    ranks: dict[int, Rows] = {}
    for step in _sums(rows, timer, period):
        ranks.setdefault(step["rank"], []).append(step)
    if not ranks:
        return None
    energies = [
        math.fsum(step["energy_j"] for step in steps) / sum(step["count"] for step in steps) for steps in ranks.values()
    ]
    windows = [sum(step["duration_ns"] for step in steps) for steps in ranks.values()]
    powers = [
        math.fsum(step["energy_j"] for step in steps) / window * 1e9 if window else 0.0
        for steps, window in zip(ranks.values(), windows, strict=True)
    ]
    sampling = max(step["sensor_ns"] for steps in ranks.values() for step in steps)
    return _Run(
        energy_j=float(np.median(energies)),
        power_w=float(np.median(powers)),
        steps_count=max(map(len, ranks.values())),
        # Ranks that share a device see the same readings: those of one rank are counted.
        readings_count=max(sum(step["readings_count"] for step in steps) for steps in ranks.values()),
        periods=max(windows) / sampling if sampling else math.inf,
        evidence=comparison.find_weakest(step["evidence"] for steps in ranks.values() for step in steps),
        reasons=frozenset(reason for steps in ranks.values() for step in steps for reason in step["reasons"]),
    )


def _compare(
    ours: Sequence[_Run], theirs: Sequence[_Run], margin: float, explain_work: Callable[[float], str | None]
) -> dict[str, Any]:
    both = [*ours, *theirs]
    counts = len(ours), len(theirs)
    answer: dict[str, Any] = {
        "energy_j": _find_middle([run.energy_j for run in ours]),
        "baseline_energy_j": _find_middle([run.energy_j for run in theirs]),
        "mean_power_w": _find_middle([run.power_w for run in ours]),
        "baseline_mean_power_w": _find_middle([run.power_w for run in theirs]),
        "steps_count": sum(run.steps_count for run in ours),
        "baseline_steps_count": sum(run.steps_count for run in theirs),
        "readings_count": min(run.readings_count for run in both),
        "evidence": comparison.find_weakest(run.evidence for run in both),
    }
    answer["overhead_j"] = answer["energy_j"] - answer["baseline_energy_j"]
    reasons = sorted({reason for run in both for reason in run.reasons})
    # Runs without a standard error: noise of other runs never stands in for repeats here.
    sides = [[RunValue(run.energy_j) for run in side] for side in (ours, theirs)]
    estimate = compare_runs(sides[0], sides[1], margin=margin)
    if estimate is None:
        reason = "a step took no energy, which gives no ratio"
        answer |= {"verdict_class": "inconclusive", "verdict": f"no answer: {reason}"}
        return answer | {"reason": "; ".join([reason, *reasons])}
    other_work = explain_work(estimate.ratio)
    estimate = estimate if other_work is None else withhold(estimate, other_work)
    answer |= comparison.fill_ratio(estimate, margin, "energy")
    blind = _find_blindness(both)
    reasons = [*blind, *comparison.find_reasons(estimate, counts, None), *reasons]
    answer["verdict"] = comparison.format_verdict(estimate, counts, margin, "more")
    answer["verdict_class"] = _WORDS.get(estimate.verdict_class, estimate.verdict_class)
    if other_work is not None or blind:
        nothing = dict.fromkeys(("p_value", "equivalence_p_value", "energy_low_ratio", "energy_high_ratio"))
        answer |= {**nothing, "interval_over": None, "detectable_fraction": None, "verdict_class": "inconclusive"}
        answer["verdict"] = f"nothing can be concluded, because {other_work or blind[0]}"
    return answer | {"reason": "; ".join(reasons) or None}


def _find_blindness(runs: Sequence[_Run]) -> list[str]:
    """Why the sensors were too slow for any verdict."""
    readings, periods = min(run.readings_count for run in runs), min(run.periods for run in runs)
    found = []
    if readings < ENOUGH_READINGS:
        found.append(f"a run has {readings} readings within its steps, and a verdict needs {ENOUGH_READINGS}")
    if periods < ENOUGH_PERIODS:
        found.append(f"the steps of a run last {periods:.1f} sensor periods, and a verdict needs {ENOUGH_PERIODS}")
    return found


def _find_middle(values: Sequence[float]) -> float:
    """The geometric mean over runs; nothing where one is nothing."""
    return comparison.find_middle(values) if all(values) else 0.0


def _explain_unmatched(ours: Rows, theirs: Rows) -> str:
    if not ours or not theirs:
        return f"no power or energy of {'the run' if not ours else 'its baseline'} was sampled"
    for rows, whose in ((ours, "the run"), (theirs, "its baseline")):
        if all(row["energy_j"] is None for row in rows):
            return f"no step of {whose} has a known energy"
    return "outside warm-up the two share no step of which both energies are known"
