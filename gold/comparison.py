"""How a pair is compared: the columns that every comparison has, and the verdict in words."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gold.inference import INTERVALS, VERDICTS, Estimate
from gold.margin import MARGIN
from gold.power import ENOUGH_RUNS, MOST_RUNS
from lake.tables import RUN_ID, Table, float64, int64, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gold.pairs import Pair

    Row = Mapping[str, Any]
    Rows = list[dict[str, Any]]

# What every table that compares a pair begins with.
SIDES = (
    RUN_ID,
    text("baseline_run_id", "The baseline."),
    text("regime", "Regime of the run: results are never averaged over it."),
    text(
        "baseline_regime",
        "Regime of the baseline. Where it is cc_off and the run's is not, what is added is the overhead of a TEE; else "
        "it is a difference between two runs.",
    ),
)
PAIR = (
    *SIDES,
    text("model", "Model that was trained.", nullable=True),
    int64("world_size", "Ranks of the job.", nullable=True, minimum=1),
)
INTERVAL_OVER = text(
    "interval_over",
    "What the interval is over. runs: the runs of both sides; modelled: the noise of other repeats on the same "
    "hardware and software; within_run: only the scatter inside the runs, which is no conclusion.",
    nullable=True,
    one_of=INTERVALS,
)
P_VALUE = float64(
    "p_value",
    "Chance of a ratio so far from 1 between equal runs (Welch's t test on logarithms).",
    nullable=True,
    minimum=0,
    maximum=1,
)
EQUIVALENCE = float64(
    "equivalence_p_value",
    "Chance of a ratio so near to 1 if the true one lay at the margin (two one-sided tests).",
    nullable=True,
    minimum=0,
    maximum=1,
)
MARGIN_FRACTION = float64("margin_fraction", "Largest difference that counts as none.", minimum=0)
# What a comparison over runs rests on.
RUNS = (
    P_VALUE,
    EQUIVALENCE,
    MARGIN_FRACTION,
    float64(
        "run_noise_fraction",
        "Standard deviation between repeats: of both sides where each has 3 runs, else of other repeats on the same "
        "hardware and software; null where there are none.",
        nullable=True,
        minimum=0,
    ),
    int64("noise_runs_count", "Runs that this noise is from.", nullable=True, minimum=2),
    float64(
        "detectable_fraction",
        "Smallest true difference that so many runs of this noise call one four times out of five; null below 3 runs "
        "per side.",
        nullable=True,
        minimum=0,
    ),
    int64("runs_count", "Runs of the candidate: the run and its repeats.", minimum=0),
    int64("baseline_runs_count", "Runs of the baseline.", minimum=0),
    int64(
        "more_runs_count",
        "Further runs per side that would settle it if ratio and noise are as they look; 0 where it is settled, null "
        f"where {MOST_RUNS} per side would not.",
        nullable=True,
        minimum=0,
    ),
)
VERDICT_CLASS = text(
    "verdict_class",
    "slower, faster: shown; no_difference: shown to lie within the margin; not_shown: enough runs, but neither is "
    "shown; inconclusive: too few runs or no value.",
    one_of=VERDICTS,
)
_WEAKER = ("measured", "modelled", "unobservable")


@dataclass(frozen=True)
class Sides:
    """Rows of one table, run by run: of the candidate, of the baseline, and of other groups of repeats."""

    candidate: Sequence[Rows]
    baseline: Sequence[Rows]
    others: Sequence[Sequence[Rows]] = ()


def name_sides(pair: Pair) -> dict[str, Any]:
    """The columns that say which runs are compared."""
    return {column.name: getattr(pair, column.name) for column in SIDES}


def start_row(table: Table, pair: Pair, run: Row) -> dict[str, Any]:
    """A row of such a table of which only the pair is known yet."""
    return {
        **dict.fromkeys(table.column_names),
        **name_sides(pair),
        "model": run["model"],
        "world_size": run["found_world_size"] or run["world_size"],
    }


def tell_progress(row: dict[str, Any], run: Row) -> dict[str, Any]:
    """The same row, whose verdict says first how far the run has come while it is open."""
    return {**row, "verdict": f"{run['so_far']}: {row['verdict']}"} if run.get("so_far") else row


def fill_ratio(estimate: Estimate, margin: float, prefix: str = "slowdown") -> dict[str, Any]:
    """The columns that an estimate fills."""
    return {
        f"{prefix}_ratio": estimate.ratio,
        f"{prefix}_low_ratio": estimate.low,
        f"{prefix}_high_ratio": estimate.high,
        "interval_over": estimate.interval_over,
        "p_value": estimate.p_value,
        "equivalence_p_value": estimate.equivalence_p_value,
        "margin_fraction": margin,
        "run_noise_fraction": estimate.run_noise_fraction,
        "noise_runs_count": estimate.noise_runs_count,
        "detectable_fraction": estimate.detectable_fraction,
        "more_runs_count": estimate.more_runs_count,
        "verdict_class": estimate.verdict_class,
    }


def collect_runs(runs: Iterable[Rows], key: Sequence[str]) -> dict[tuple[str, ...], Rows]:
    """The rows of all runs of a side, by key; a run that equals another in all of its rows is a copy of it."""
    found: dict[tuple[str, ...], Rows] = {}
    seen = set()
    for run in runs:
        rows = sorted(run, key=lambda row: tuple(row[name] for name in key))
        content = tuple(tuple(row.values()) for row in rows)
        if content not in seen:
            for row in rows:
                found.setdefault(tuple(row[name] for name in key), []).append(row)
        seen.add(content)
    return found


def find_weakest(evidence: Iterable[str]) -> str:
    """The weakest evidence of some: what is computed from something modelled is modelled."""
    return max(evidence, key=_WEAKER.index, default="unobservable")


def find_middle(values: Sequence[float]) -> float:
    """The geometric mean over runs: the ratio of two of them is the ratio that is tested."""
    return values[0] if len(values) == 1 else math.exp(math.fsum(map(math.log, values)) / len(values))


def format_verdict(estimate: Estimate, counts: tuple[int, int], margin: float = MARGIN, word: str = "slower") -> str:
    """`1.42x slower, 95 % 1.38 to 1.47, over 3 and 3 runs`; a conclusion never stands on one run."""
    ratio, kind = estimate.ratio, estimate.verdict_class
    over = f"over {counts[0]} and {counts[1]} runs"
    if estimate.is_modelled:
        over += "; modelled: the noise of other runs stands in for missing repeats"
    interval = _format_interval(estimate)
    if kind == "slower":
        return f"{ratio:.2f}x {word}{interval}, {over}"
    if kind == "faster":
        opposite = {"slower": "faster", "more": "less"}[word]
        inverted = f"{1 / ratio:.2f}x {opposite}{_format_interval(estimate, is_inverted=True)}"
        return f"{inverted} ({ratio:.2f}x the baseline{interval}), {over}"
    if kind == "no_difference":
        return f"no difference beyond {_percent(margin)}: {ratio:.3f}x{_format_interval(estimate, digits=3)}, {over}"
    if kind == "not_shown":
        said = f"a difference beyond {_percent(margin)} is neither shown nor ruled out: {ratio:.2f}x{interval}, {over}"
        return f"{said}; {format_more_runs(estimate)}"
    if estimate.reason is not None:
        return f"nothing can be concluded, because {estimate.reason}: {ratio:.2f}x"
    few = f"{counts[0]} and {counts[1]} runs" if max(counts) > 1 else "one run per side"
    return f"nothing can be concluded from {few}: {ratio:.2f}x{interval or _NO_INTERVAL}; {format_more_runs(estimate)}"


_NO_INTERVAL = ", no interval"


def format_more_runs(estimate: Estimate) -> str:
    """How many repeats would settle it."""
    more = estimate.more_runs_count
    if more is None:
        return f"at the known noise, even {MOST_RUNS} runs per side would not settle it"
    runs = f"{more} more run{'' if more == 1 else 's'} per side"
    if estimate.run_noise_fraction is None:
        return f"at least {runs} are needed (repeat_of), and how many would settle it is unknown without repeats"
    noise = f"the noise of {_percent(estimate.run_noise_fraction)} that {estimate.noise_runs_count} runs show"
    return f"at {noise}, {runs} would settle it"


def find_reasons(estimate: Estimate, counts: tuple[int, int], noun: str | None = "step") -> list[str]:
    """Why a number is null or nothing is concluded; without a noun, no scatter inside a run is known."""
    reasons = [] if estimate.reason is None else [estimate.reason]
    if estimate.interval_over is None and noun is not None and min(counts) < ENOUGH_RUNS:
        reasons.append(f"fewer than 8 {noun}s have no interval")
    if min(counts) < ENOUGH_RUNS:
        reasons.append(f"a conclusion needs {ENOUGH_RUNS} runs per side, and there are {counts[0]} and {counts[1]}")
    return reasons


def _format_interval(estimate: Estimate, *, is_inverted: bool = False, digits: int = 2) -> str:
    if estimate.low is None or estimate.high is None:
        return ""
    low, high = (1 / estimate.high, 1 / estimate.low) if is_inverted else (estimate.low, estimate.high)
    called = "within-run scatter only" if estimate.interval_over == "within_run" else "95 %"
    if estimate.interval_over == "modelled" and estimate.verdict_class == "inconclusive":
        called = "95 % by the noise of other runs (modelled)"
    return f", {called} {low:.{digits}f} to {high:.{digits}f}"


def _percent(fraction: float) -> str:
    return f"{fraction * 100:.2g} %"
