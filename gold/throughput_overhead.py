"""One row per pair with a training log: how much slower training went than in the baseline, by the logs' own numbers.

A table beside gold.step_overhead, not more rows of it: an epoch is no step, a log is written without a profiler's
burden, and a pair may have both answers, which are not to be mixed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gold import comparison
from gold.comparison import Sides
from gold.inference import RunValue, compare_runs, pool_noise
from gold.logged_steps import INFERRED
from gold.margin import MARGIN
from gold.rounding import describe_rounding, measure_rounding
from gold.step_cycles import measure_scatter
from gold.step_series import Series
from lake.tables import Scope, Table, float64, int64, text
from silver.steps import EVIDENCE
from silver.throughput import PERIODS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gold.pairs import Pair

    Rows = list[dict[str, Any]]

# What two logs can be compared by, the best first; only times of writing hold whatever else was done in between.
MEASURES = ("samples_per_second", "tokens_per_second", "duration", "elapsed")
# Scatter is relative: periods in trillionths of their mean are whole numbers of any unit.
_UNIT = 10**12
_RATES = ("samples_per_second", "tokens_per_second")

TABLE = Table(
    tier="gold",
    name="throughput_overhead",
    grain="One row per run that has a baseline, if either has a training log.",
    key=("run_id",),
    inputs=("silver.runs", "silver.throughput", "gold.time_breakdown"),
    scope=Scope.PAIR,
    columns=(
        *comparison.PAIR,
        text("period", "What is compared: epochs or steps.", nullable=True, one_of=PERIODS),
        text(
            "compared_by",
            "What both logs say of a period: its rate, its duration, or only when it was written.",
            nullable=True,
            one_of=MEASURES,
        ),
        float64(
            "samples_per_second",
            "Throughput of the run over all its periods, of the slowest rank; the geometric mean over its runs.",
            nullable=True,
            minimum=0,
        ),
        float64("baseline_samples_per_second", "The same of its baseline.", nullable=True, minimum=0),
        float64("tokens_per_second", "The same in tokens, where that is what the logs say.", nullable=True, minimum=0),
        float64("baseline_tokens_per_second", "The same of its baseline.", nullable=True, minimum=0),
        int64(
            "period_ns",
            "Mean period of the run, rounded down, where the logs say no rate; the geometric mean over its runs.",
            nullable=True,
            minimum=0,
        ),
        int64("baseline_period_ns", "The same of its baseline.", nullable=True, minimum=0),
        float64(
            "slowdown_ratio", "The baseline's rate over the run's; of times the inverse.", nullable=True, minimum=0
        ),
        float64(
            "slowdown_low_ratio",
            "Lower end of its 95 % interval; interval_over says of what.",
            nullable=True,
            minimum=0,
        ),
        float64("slowdown_high_ratio", "Upper end.", nullable=True, minimum=0),
        comparison.INTERVAL_OVER,
        float64("time_increase_fraction", "Ratio less 1: training takes that much longer.", nullable=True),
        float64("throughput_loss_fraction", "1 less 1/ratio: that much less is done in the same time.", nullable=True),
        *comparison.RUNS,
        int64("periods_count", "Epochs or steps of the run and its repeats, warm-up aside.", minimum=0),
        int64("baseline_periods_count", "The same of the baseline.", minimum=0),
        comparison.VERDICT_CLASS,
        text("verdict", "The same as a sentence."),
        text("caveat", "What a reader should know of the comparison, as sentences.", nullable=True),
        text("unobservable", "What no log can show and nothing else was recorded for.", nullable=True),
        text(
            "evidence",
            "measured: by what the logs say; modelled: by their times of writing, or by inferred durations.",
            one_of=EVIDENCE,
        ),
        text("reason", "Why a number is null, as sentences.", nullable=True),
    ),
)


@dataclass(frozen=True)
class _Choice:
    """One way to compare the logs of a pair, and the periods of its two leading runs that can be compared so."""

    period: str
    measure: str
    count: int


@dataclass(frozen=True, order=True)
class _Period:
    """How long a period took, and how many in a row are known to have taken that long each."""

    length: float
    count: int = 1
    # The number itself, as the log writes it; none where it is a difference of two.
    written: float | None = field(default=None, compare=False)


def measure(
    pair: Pair, runs: tuple[Mapping[str, Any], Mapping[str, Any]], logs: Sides, margin: float = MARGIN
) -> pa.Table:
    """Compare the logs of all runs of both sides by the best that both say; no log on either side is no row."""
    ours, theirs = logs.candidate[0], logs.baseline[0]
    if not ours and not theirs:
        return TABLE.arrow_schema.empty_table()
    row: dict[str, Any] = {
        **comparison.start_row(TABLE, pair, runs[0]),
        "margin_fraction": margin,
        "runs_count": len(logs.candidate),
        "baseline_runs_count": len(logs.baseline),
        "periods_count": 0,
        "baseline_periods_count": 0,
        "unobservable": _unobservable(*runs),
    }
    chosen = _choose(ours, theirs)
    if not chosen.count:
        reason = _explain_unmatched(ours, theirs)
        answer = {"verdict_class": "inconclusive", "verdict": f"no answer: {reason}", "evidence": "unobservable"}
        return _table(comparison.tell_progress({**row, **answer, "reason": reason}, runs[0]))
    row |= {"period": chosen.period, "compared_by": chosen.measure}
    return _table(comparison.tell_progress(row | _compare(logs, chosen, margin), runs[0]))


def _table(row: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([row], schema=TABLE.arrow_schema)


def _choose(ours: Rows, theirs: Rows) -> _Choice:
    """The best measure that covers at least half as many periods as any other does."""
    choices = [
        _Choice(period, name, min(len(_take_periods(rows, period, name)) for rows in (ours, theirs)))
        for name in MEASURES
        for period in PERIODS
    ]
    most = max(choice.count for choice in choices)
    return next(choice for choice in choices if 2 * choice.count >= most)


def _take_periods(rows: Rows, period: str, measure: str) -> list[_Period]:
    """How long each period took, or what a unit of work took, on the slowest rank that logged it; warm-up aside."""
    logs: dict[tuple[int, str], dict[int, _Period]] = {}
    for row in rows:
        value, count = _value(row, measure), row["stands_for_count"]
        if row["period"] == period and value and not row["is_warmup"]:
            log = logs.setdefault((row["rank"], row["source_sha256"]), {})
            if measure == "elapsed":
                log[row["period_number"]] = _Period(value / count, count)
            else:
                written = row[measure if measure in _RATES else "duration_ns"]
                log[row["period_number"]] = _Period(value, written=float(written))
    # Two logs of a rank may tell the same: the longest is taken.
    longest: dict[int, dict[int, _Period]] = {}
    for (rank, _), log in sorted(logs.items()):
        longest[rank] = max(longest.get(rank, {}), log, key=len)
    slowest: dict[int, _Period] = {}
    for log in longest.values():
        for number, one in log.items():
            slowest[number] = max(slowest.get(number, one), one)
    return [one for _, one in sorted(slowest.items())]


def _value(row: dict[str, Any], measure: str) -> float | None:
    """The time of a period; of a rate its inverse, so that the mean is that of all work over all time."""
    if measure in _RATES:
        return 1 / row[measure] if row[measure] else None
    is_elapsed = row["duration_source"] == "difference"
    return float(row["duration_ns"]) if row["duration_ns"] and is_elapsed == (measure == "elapsed") else None


def _compare(logs: Sides, chosen: _Choice, margin: float) -> dict[str, Any]:
    """Both sides under the measure's own name, the slowdown, and what it shows."""
    periods = [
        _drop_copies([_take_periods(rows, chosen.period, chosen.measure) for rows in side])
        for side in (logs.candidate, logs.baseline)
    ]
    runs = [[_summarise(values) for values in side] for side in periods]
    others = [_drop_copies([_take_periods(rows, chosen.period, chosen.measure) for rows in of]) for of in logs.others]
    noise = pool_noise([*runs, *([_summarise(values) for values in of] for of in others)])
    estimate = compare_runs(runs[0], runs[1], margin=margin, noise=noise)
    if estimate is None:  # a choice has a period on both sides
        return {"verdict_class": "inconclusive", "verdict": "no answer", "evidence": "unobservable"}
    counts = len(runs[0]), len(runs[1])
    ours, theirs = (comparison.find_middle([run.value for run in side]) for side in runs)
    answer: dict[str, Any] = {"period_ns": int(ours), "baseline_period_ns": int(theirs)}
    if chosen.measure in _RATES:
        answer = {chosen.measure: 1 / ours, f"baseline_{chosen.measure}": 1 / theirs}
    compared = (rows for side in (logs.candidate, logs.baseline) for rows in side)
    is_inferred = any(_is_inferred(rows, chosen) for rows in compared)
    is_modelled = chosen.measure == "elapsed" or is_inferred or estimate.is_modelled
    rounding = max(run.rounding_fraction for side in runs for run in side)
    said = [*_find_caveats(logs.candidate[0], logs.baseline[0], chosen), *describe_rounding(rounding, chosen.period)]
    return {
        **answer,
        **comparison.fill_ratio(estimate, margin),
        "time_increase_fraction": estimate.ratio - 1,
        "throughput_loss_fraction": 1 - 1 / estimate.ratio,
        "runs_count": counts[0],
        "baseline_runs_count": counts[1],
        "periods_count": sum(map(len, periods[0])),
        "baseline_periods_count": sum(map(len, periods[1])),
        "verdict": comparison.format_verdict(estimate, counts, margin),
        "caveat": "; ".join(said) or None,
        "evidence": "modelled" if is_modelled else "measured",
        "reason": "; ".join(comparison.find_reasons(estimate, counts, chosen.period)) or None,
    }


def _drop_copies(runs: Sequence[list[_Period]]) -> list[list[_Period]]:
    """The runs that have a period, without copies of one recording, which are no repeats."""
    return [list(values) for values in dict.fromkeys(map(tuple, runs)) if values]


def _summarise(periods: list[_Period]) -> RunValue:
    """The mean period, and how well it is known within the run; neighbours may be alike."""
    weights = [one.count for one in periods]
    mean = math.fsum(one.length * one.count for one in periods) / sum(weights)
    relative = [round(one.length * one.count / mean * _UNIT) for one in periods]
    scatter = measure_scatter(Series(values=relative, weights=weights), 1)
    rounding = measure_rounding([one.written for one in periods if one.written is not None])
    return RunValue(mean, scatter.log_standard_error, scatter.effective_count, rounding)


def _explain_unmatched(ours: Rows, theirs: Rows) -> str:
    if not ours or not theirs:
        return f"{'the run' if not ours else 'its baseline'} has no training log"
    periods = [{row["period"] for row in rows} for rows in (ours, theirs)]
    if periods[0].isdisjoint(periods[1]):
        return f"the run logged {'s and '.join(sorted(periods[0]))}s, its baseline {'s and '.join(sorted(periods[1]))}s"
    return "outside warm-up the two logs share no period of which both say the same"


def _find_caveats(ours: Rows, theirs: Rows, chosen: _Choice) -> list[str]:
    """What makes the comparison less than it seems."""
    found = []
    sizes = [sorted({row["batch_size"] for row in rows if row["batch_size"] is not None}) for rows in (ours, theirs)]
    if sizes[0] and sizes[1] and sizes[0] != sizes[1]:
        found.append(f"the logs differ in batch size: {_join_sizes(sizes[0])} against {_join_sizes(sizes[1])}")
    for rows, whose in ((ours, "the run"), (theirs, "its baseline")):
        logs = {(row["rank"], row["source_sha256"]) for row in rows if row["period"] == chosen.period}
        if len(logs) > len({rank for rank, _ in logs}):
            found.append(f"{whose} has several logs of one rank: the longest was taken")
    if chosen.measure == "elapsed":
        found.append("only times of writing are known: whatever else was done in between is part of it")
    if _is_inferred(ours, chosen) or _is_inferred(theirs, chosen):
        found.append(INFERRED)
    return found


def _is_inferred(rows: Rows, chosen: _Choice) -> bool:
    """Whether durations are compared of which a log does not say that they are durations."""
    return chosen.measure == "duration" and any(row["duration_source"] == "inferred" for row in rows)


def _join_sizes(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes[:4])) + (" …" if sizes[4:] else "")


def _unobservable(run: Mapping[str, Any], baseline: Mapping[str, Any]) -> str | None:
    """What only a profile would show, and whose is missing."""
    blind = [name for name, row in (("the run", run), ("its baseline", baseline)) if not row["found_spans_count"]]
    if blind:
        whose = "neither has a profile" if blind[1:] else f"{blind[0]} has no profile"
        return f"{whose}: where the time went, what crossed a boundary and whether it was sealed are unobservable"
    dark = [
        name for name, row in (("the run", run), ("its baseline", baseline)) if row["gpu_evidence"] == "unobservable"
    ]
    return f"no GPU rows of {' and '.join(dark)}: what the GPU did is unobservable" if dark else None
