"""One row per pair: how much longer a step takes than in its baseline, whether that is shown, the verdict."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gold import comparison
from gold.comparison import Sides
from gold.inference import Estimate, RunValue, compare_runs, pool_noise, withhold
from gold.margin import MARGIN
from gold.overhead_breakdown import find_dominant_part
from gold.power import ENOUGH_RUNS
from gold.samples_per_step import describe_other_work
from gold.step_matching import match_steps
from gold.step_times import SOURCES
from lake.tables import Scope, Table, float64, int64, text
from silver.steps import EVIDENCE
from silver.throughput import PERIODS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gold.pairs import Pair

    Rows = list[dict[str, Any]]

TABLE = Table(
    tier="gold",
    name="step_overhead",
    grain="One row per run that has a baseline; its repeats are part of the row.",
    key=("run_id",),
    inputs=("silver.runs", "gold.step_times", "gold.time_breakdown"),
    scope=Scope.PAIR,
    columns=(
        *comparison.PAIR,
        text(
            "source",
            "What timed the steps (gold.step_times): the log leads, because the profiler slows both sides, not alike.",
            nullable=True,
            one_of=SOURCES,
        ),
        text("period", "What a step of that source is.", nullable=True, one_of=PERIODS),
        int64(
            "step_ns",
            "Mean step over whole cycles, and the geometric mean of that over the runs of the candidate; rounded down.",
            nullable=True,
            minimum=0,
        ),
        int64("baseline_step_ns", "The same of the baseline.", nullable=True, minimum=0),
        int64("overhead_ns", "The first less the second: what is added to a step.", nullable=True),
        float64("slowdown_ratio", "Ratio of the two.", nullable=True, minimum=0),
        float64(
            "slowdown_low_ratio",
            "Lower end of its 95 % interval; interval_over says of what.",
            nullable=True,
            minimum=0,
        ),
        float64("slowdown_high_ratio", "Upper end.", nullable=True, minimum=0),
        comparison.INTERVAL_OVER,
        float64("time_increase_fraction", "Ratio less 1: a step takes that much longer.", nullable=True),
        float64("throughput_loss_fraction", "1 less 1/ratio: that much less is done in the same time.", nullable=True),
        float64(
            "median_slowdown_ratio",
            "Ratio of median steps, beside that of means: it hides what only some steps pay.",
            nullable=True,
            minimum=0,
        ),
        *comparison.RUNS,
        int64("steps_count", "Steps of the candidate, over its runs, warm-up aside.", minimum=0),
        int64("baseline_steps_count", "Steps of the baseline.", minimum=0),
        text("other_source", "The other source, where both sides have it.", nullable=True, one_of=SOURCES),
        float64("other_slowdown_ratio", "Ratio by that source.", nullable=True, minimum=0),
        float64("other_slowdown_low_ratio", "Lower end of its interval.", nullable=True, minimum=0),
        float64("other_slowdown_high_ratio", "Upper end.", nullable=True, minimum=0),
        text("disagreement", "How the two sources disagree beyond their intervals, as a sentence.", nullable=True),
        text("dominant_part", "Part of the time that grew most (gold.overhead_breakdown).", nullable=True),
        float64("dominant_fraction", "Its share of the overhead.", nullable=True),
        comparison.VERDICT_CLASS,
        text("verdict", "The same as a sentence, beginning with what matters most."),
        text("caveat", "What a reader should know of the values, as sentences.", nullable=True),
        text("evidence", "Weakest evidence of the values compared.", one_of=EVIDENCE),
        text("reason", "Why a number is null, or why nothing is concluded, as sentences.", nullable=True),
    ),
)


@dataclass(frozen=True)
class _Found:
    """What one source says of a pair."""

    source: str
    rows: tuple[Rows, Rows]
    estimate: Estimate
    copies_count: int
    # Why its steps cannot be held against the baseline's, whatever their ratio.
    other_work: str | None = None

    @property
    def counts(self) -> tuple[int, int]:
        return len(self.rows[0]), len(self.rows[1])

    @property
    def evidence(self) -> str:
        return comparison.find_weakest(row["evidence"] for side in self.rows for row in side)


def measure(
    pair: Pair,
    run: Mapping[str, Any],
    sides: Sides,
    breakdowns: tuple[pa.Table, pa.Table],
    margin: float = MARGIN,
) -> pa.Table:
    """Compare the mean steps of all runs of both sides, by the source that leads."""
    found = [one for one in (_compare(source, sides, margin) for source in SOURCES) if one is not None]
    row: dict[str, Any] = {
        **comparison.start_row(TABLE, pair, run),
        "margin_fraction": margin,
        "runs_count": len(sides.candidate),
        "baseline_runs_count": len(sides.baseline),
        "steps_count": 0,
        "baseline_steps_count": 0,
    }
    if not found:
        reason = _explain_nothing(sides)
        answer = {"verdict_class": "inconclusive", "verdict": f"no answer: {reason}", "evidence": "unobservable"}
        return _table(comparison.tell_progress({**row, **answer, "reason": reason}, run))
    lead, other = _choose(found)
    part, share = find_dominant_part(match_steps(*breakdowns).cells)
    row |= _fill(lead, margin) | {"dominant_part": part, "dominant_fraction": share}
    if other is not None:
        row |= _fill_other(other)
        row["disagreement"] = describe_disagreement(lead.source, lead.estimate, other.source, other.estimate, margin)
    if row["disagreement"] is not None and _contradict(lead, other):
        row |= {"verdict_class": "inconclusive", "verdict": f"nothing can be concluded: {row['verdict']}"}
    if row["disagreement"] is not None:
        row["verdict"] = f"{row['disagreement']}; by the {lead.source}: {row['verdict']}"
    return _table(comparison.tell_progress(row, run))


def describe_disagreement(
    source: str, estimate: Estimate, other_source: str, other: Estimate, margin: float = MARGIN
) -> str | None:
    """Say where two sources differ by more than the margin and beyond their intervals; None where they do not."""
    if abs(math.log(estimate.ratio / other.ratio)) <= math.log1p(margin):
        return None
    ranges = [
        (one.ratio, one.ratio) if one.low is None or one.high is None else (one.low, one.high)
        for one in (estimate, other)
    ]
    if all(low == high for low, high in ranges):
        return None  # nothing says how far either may be off
    if max(low for low, _ in ranges) <= min(high for _, high in ranges):
        return None
    return f"the sources disagree: {estimate.ratio:.2f}x by the {source}, {other.ratio:.2f}x by the {other_source}"


def _compare(source: str, sides: Sides, margin: float) -> _Found | None:
    """Compare by one source; a run that it does not time, or times in other periods, is no part of it."""
    ours, theirs = ([_pick(rows, source) for rows in side] for side in (sides.candidate, sides.baseline))
    period = next((row["period"] for row in ours if row is not None), None)
    timed = [[row for row in side if row is not None and row["period"] == period] for side in (ours, theirs)]
    kept = [_drop_copies(side) for side in timed]
    runs = [[_value(row) for row in side] for side in kept]
    groups = [_drop_copies([row for row in (_pick(rows, source) for rows in of) if row]) for of in sides.others]
    noise = pool_noise([*runs, *([_value(row) for row in group] for group in groups)])
    estimate = compare_runs(runs[0], runs[1], margin=margin, noise=noise)
    other_work = None if estimate is None else describe_other_work(sides, period, estimate.ratio)
    if estimate is not None and other_work is not None:
        estimate = withhold(estimate, other_work)
    copies = sum(map(len, timed)) - sum(map(len, kept))
    return None if estimate is None else _Found(source, (kept[0], kept[1]), estimate, copies, other_work)


def _pick(rows: Rows, source: str) -> dict[str, Any] | None:
    return next((row for row in rows if row["source"] == source and row["step_ns"]), None)


def _value(row: dict[str, Any]) -> RunValue:
    rounding = row["rounding_fraction"] or 0.0
    return RunValue(row["step_ns"], row["log_standard_error"], row["effective_steps_count"], rounding)


def _drop_copies(rows: Rows) -> Rows:
    """The rows without those that equal another one to the last digit: copies of one recording are no repeats."""
    names = ("step_ns", "median_step_ns", "steps_count", "log_standard_error")
    return list({tuple(row[name] for name in names): row for row in reversed(rows)}.values())[::-1]


def _choose(found: Sequence[_Found]) -> tuple[_Found, _Found | None]:
    """The source with enough runs for a conclusion leads, then what is measured, then the log."""
    lead, *other = sorted(found, key=lambda one: (min(one.counts) < ENOUGH_RUNS, one.evidence != "measured"))
    return lead, other[0] if other else None


def _contradict(one: _Found, other: _Found | None) -> bool:
    """Whether two sources conclude opposite things: then neither is believed."""
    classes = {found.estimate.verdict_class for found in (one, other) if found is not None}
    return classes == {"slower", "faster"}


def _fill(lead: _Found, margin: float) -> dict[str, Any]:
    estimate = lead.estimate
    step, baseline = (int(comparison.find_middle([row["step_ns"] for row in side])) for side in lead.rows)
    reasons = comparison.find_reasons(estimate, lead.counts, lead.rows[0][0]["period"])
    if lead.copies_count:
        reasons.append("recordings that are equal to the last digit are copies and count once")
    median = _compare_medians(lead.rows)
    answer = {
        **comparison.fill_ratio(estimate, margin),
        "source": lead.source,
        "period": lead.rows[0][0]["period"],
        "step_ns": step,
        "baseline_step_ns": baseline,
        "overhead_ns": step - baseline,
        "time_increase_fraction": estimate.ratio - 1,
        "throughput_loss_fraction": 1 - 1 / estimate.ratio,
        "median_slowdown_ratio": median,
        "runs_count": lead.counts[0],
        "baseline_runs_count": lead.counts[1],
        "steps_count": sum(row["steps_count"] for row in lead.rows[0]),
        "baseline_steps_count": sum(row["steps_count"] for row in lead.rows[1]),
        "verdict": comparison.format_verdict(estimate, lead.counts, margin),
        "caveat": "; ".join(_find_caveats(lead, median, margin)) or None,
        "evidence": comparison.find_weakest([lead.evidence, "modelled" if estimate.is_modelled else "measured"]),
        "reason": "; ".join(reasons) or None,
    }
    if lead.other_work is not None:
        added = ("overhead_ns", "time_increase_fraction", "throughput_loss_fraction")
        answer |= dict.fromkeys(added) | {"verdict": f"nothing can be concluded, because {lead.other_work}"}
    return answer


def _fill_other(other: _Found) -> dict[str, Any]:
    return {
        "other_source": other.source,
        "other_slowdown_ratio": other.estimate.ratio,
        "other_slowdown_low_ratio": other.estimate.low,
        "other_slowdown_high_ratio": other.estimate.high,
    }


def _compare_medians(sides: tuple[Rows, Rows]) -> float | None:
    medians = [[row["median_step_ns"] for row in side] for side in sides]
    if not all(value for side in medians for value in side):
        return None
    return comparison.find_middle(medians[0]) / comparison.find_middle(medians[1])


def _find_caveats(lead: _Found, median: float | None, margin: float) -> list[str]:
    said = []
    if median is not None and abs(math.log(lead.estimate.ratio / median)) > math.log1p(margin):
        said.append(f"by median steps it is {median:.2f}x: some steps cost far more than most do")
    timings = [{row["timed_by"] for row in side} for side in lead.rows]
    if timings[0] != timings[1]:
        said.append("the steps of the two sides are not timed in the same way")
    for side, whose in zip(lead.rows, ("the run", "its baseline"), strict=True):
        caveats = dict.fromkeys(part for row in side if row["caveat"] for part in row["caveat"].split("; "))
        said += [f"of {whose}: {caveat}" for caveat in caveats]
    return said


def _explain_nothing(sides: Sides) -> str:
    for side, whose in ((sides.candidate, "the run"), (sides.baseline, "its baseline")):
        rows = [row for run in side for row in run]
        if not any(row["step_ns"] for row in rows):
            reasons = dict.fromkeys(row["reason"] for row in rows if row["reason"])
            return f"{whose} has no timed step" + (f": {'; '.join(reasons)}" if reasons else "")
    return "the two are not timed by the same source in the same periods"


def _table(row: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([row], schema=TABLE.arrow_schema)
