"""One row per pair with a training log: how much slower training went inside the TEE, by the logs' own numbers.

A table beside gold.step_overhead, not more rows of it: an epoch is no step, a log is written without a profiler's
burden, and a pair may have both answers, which are not to be mixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gold import comparison
from gold.comparison import VERDICTS
from gold.step_matching import WAYS, MatchedSteps, match_rows
from lake.tables import Scope, Table, float64, int64, text
from silver.steps import EVIDENCE
from silver.throughput import PERIODS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gold.pairs import Pair

    Rows = list[dict[str, Any]]

# What two logs can be compared by, the best first; only times of writing hold whatever else was done in between.
MEASURES = ("samples_per_second", "tokens_per_second", "duration", "elapsed")
_RATES = ("samples_per_second", "tokens_per_second")

TABLE = Table(
    tier="gold",
    name="throughput_overhead",
    grain="One row per run that claims a TEE and has a baseline without one, if either has a training log.",
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
            "Median throughput of the run over the matched periods, of the median over ranks.",
            nullable=True,
            minimum=0,
        ),
        float64("baseline_samples_per_second", "The same of its baseline.", nullable=True, minimum=0),
        float64("tokens_per_second", "The same in tokens, where that is what the logs say.", nullable=True, minimum=0),
        float64("baseline_tokens_per_second", "The same of its baseline.", nullable=True, minimum=0),
        int64(
            "period_ns",
            "Median period of the run, rounded down, where the logs say no rate.",
            nullable=True,
            minimum=0,
        ),
        int64("baseline_period_ns", "The same of its baseline.", nullable=True, minimum=0),
        float64(
            "slowdown_ratio",
            "The baseline's median rate over the run's; of times the inverse.",
            nullable=True,
            minimum=0,
        ),
        float64(
            "slowdown_low_ratio",
            "Lower end of its 95 % interval (paired bootstrap over periods, seeded).",
            nullable=True,
            minimum=0,
        ),
        float64("slowdown_high_ratio", "Upper end.", nullable=True, minimum=0),
        float64("time_increase_fraction", "Ratio less 1: training takes that much longer.", nullable=True),
        float64("throughput_loss_fraction", "1 less 1/ratio: that much less is done in the same time.", nullable=True),
        comparison.NOISE_FLOOR,
        float64(
            "detectable_fraction",
            "Smallest difference that so many periods could show (80 % power); null below 3 periods.",
            nullable=True,
            minimum=0,
        ),
        int64("periods_count", "Epochs or steps that both logged, warm-up aside.", minimum=0),
        int64("ranks_count", "Ranks on which both did.", minimum=0),
        text("matched_by", "Whether they were matched by number or by place.", one_of=WAYS),
        text("verdict_class", "What the numbers allow to say.", one_of=VERDICTS),
        text("verdict", "The same as a sentence."),
        text("caveat", "What a reader should know of the comparison, as sentences.", nullable=True),
        text("unobservable", "What no log can show and nothing else was recorded for.", nullable=True),
        text("evidence", "measured: by what the logs say; modelled: by their times of writing.", one_of=EVIDENCE),
        text("reason", "Why a number is null, as sentences.", nullable=True),
    ),
)


@dataclass(frozen=True)
class _Choice:
    """One way to compare two logs, and the periods that can be compared so."""

    period: str
    measure: str
    both: MatchedSteps


def measure(
    pair: Pair,
    runs: tuple[Mapping[str, Any], Mapping[str, Any]],
    logs: tuple[pa.Table, pa.Table],
    repeats: Sequence[pa.Table],
) -> pa.Table:
    """Compare two logs by the best that both say of the same epochs or steps; no log on either side is no row."""
    if not any(log.num_rows for log in logs):
        return TABLE.arrow_schema.empty_table()
    ours, baselines = (log.to_pylist() for log in logs)
    chosen = _choose_measure(ours, baselines)
    row: dict[str, Any] = {
        **comparison.start_row(TABLE, pair, runs[0]),
        "periods_count": chosen.both.steps_count,
        "ranks_count": chosen.both.ranks_count,
        "matched_by": chosen.both.matched_by,
        "unobservable": _unobservable(*runs),
    }
    if not chosen.both.cells:
        reason = _describe_unmatched(ours, baselines)
        told = {"verdict_class": "inconclusive", "verdict": f"no answer: {reason}", "evidence": "unobservable"}
        return _table({**row, **told, "reason": reason})
    row |= {"period": chosen.period, "compared_by": chosen.measure, "caveat": _caveat(ours, baselines, chosen)}
    row |= _compare_throughput(chosen)
    again = (
        _select_usable(rows, chosen.period, chosen.measure)
        for rows in (baselines, *(log.to_pylist() for log in repeats))
    )
    row["noise_floor_fraction"] = comparison.find_noise_floor(
        match_rows(rows, rows).times("value")[0] for rows in again
    )
    kind = comparison.classify_verdict(row, chosen.both.steps_count)
    return _table(
        {
            **row,
            "verdict_class": kind,
            "verdict": comparison.format_verdict(row, kind, chosen.both.steps_count, chosen.period),
            "evidence": "modelled" if chosen.measure == "elapsed" else "measured",
            "reason": "; ".join(comparison.list_missing(row, chosen.period)) or None,
        }
    )


def _table(row: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist([row], schema=TABLE.arrow_schema)


def _choose_measure(ours: Rows, baselines: Rows) -> _Choice:
    """The best measure that covers at least half as many periods as any other does."""
    choices = [
        _Choice(
            period,
            name,
            match_rows(_select_usable(ours, period, name), _select_usable(baselines, period, name), period),
        )
        for name in MEASURES
        for period in PERIODS
    ]
    most = max(len(choice.both.cells) for choice in choices)
    return next(choice for choice in choices if 2 * len(choice.both.cells) >= most)


def _select_usable(rows: Rows, period: str, measure: str) -> Rows:
    """The periods of which the measure is known, of each rank's longest log: two logs of a rank may tell the same."""
    logs: dict[tuple[int, str], Rows] = {}
    for row in rows:
        value = _value(row, measure)
        if row["period"] == period and value is not None:
            found = {"rank": row["rank"], "step_number": row["period_number"], "is_warmup": row["is_warmup"]}
            logs.setdefault((row["rank"], row["source_sha256"]), []).append({**found, "value": value})
    longest: dict[int, Rows] = {}
    for (rank, _), log in sorted(logs.items()):
        longest[rank] = max(longest.get(rank, []), log, key=len)
    return [row for log in longest.values() for row in log]


def _value(row: dict[str, Any], measure: str) -> float | int | None:
    if measure in _RATES:
        value: float | None = row[measure]
        return value
    is_elapsed = row["duration_source"] == "difference"
    return row["duration_ns"] or None if is_elapsed == (measure == "elapsed") else None


def _compare_throughput(chosen: _Choice) -> dict[str, Any]:
    """Medians of both sides under the measure's own name, and the slowdown."""
    ours, baselines = chosen.both.times("value")
    found: dict[str, Any] = {
        "slowdown_low_ratio": None,
        "slowdown_ratio": None,
        "detectable_fraction": comparison.find_detectable_effect(baselines),
    }
    if chosen.measure in _RATES:
        found |= {chosen.measure: float(np.median(ours)), f"baseline_{chosen.measure}": float(np.median(baselines))}
        return found | comparison.compare_medians(baselines, ours)
    found |= {"period_ns": int(np.median(ours)), "baseline_period_ns": int(np.median(baselines))}
    return found | comparison.compare_medians(ours, baselines)


def _describe_unmatched(ours: Rows, baselines: Rows) -> str:
    if not ours or not baselines:
        return f"{'the run' if not ours else 'its baseline'} has no training log"
    periods = [{row["period"] for row in rows} for rows in (ours, baselines)]
    if periods[0].isdisjoint(periods[1]):
        return f"the run logged {'s and '.join(sorted(periods[0]))}s, its baseline {'s and '.join(sorted(periods[1]))}s"
    return "outside warm-up the two logs share no period of which both say the same"


def _caveat(ours: Rows, baselines: Rows, chosen: _Choice) -> str | None:
    """What makes the comparison less than it seems."""
    found = []
    sizes = [sorted({row["batch_size"] for row in rows if row["batch_size"] is not None}) for rows in (ours, baselines)]
    if sizes[0] and sizes[1] and sizes[0] != sizes[1]:
        found.append(f"the logs differ in batch size: {_join_sizes(sizes[0])} against {_join_sizes(sizes[1])}")
    for rows, whose in ((ours, "the run"), (baselines, "its baseline")):
        logs = {(row["rank"], row["source_sha256"]) for row in rows if row["period"] == chosen.period}
        if len(logs) > len({rank for rank, _ in logs}):
            found.append(f"{whose} has several logs of one rank: the longest was taken")
    if chosen.measure == "elapsed":
        found.append("only times of writing are known: whatever else was done in between is part of it")
    return "; ".join(found) or None


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
