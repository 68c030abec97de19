"""Whether a run stays within a limit: decided by the whole interval, or not decided."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gold.inference import NO_NOISE, subtract_runs
from gold.power import ENOUGH_RUNS, MOST_RUNS, count_runs_needed

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True)
class Bound:
    """A limit and what was measured of it; times are in nanoseconds, a slowdown is a ratio."""

    what: str
    limit: float
    value: float | None
    low: float | None
    high: float | None
    outcome: str
    evidence: str
    # Further runs per side that would decide it, where that can be said.
    more_runs_count: int | None = None
    reason: str | None = None


def decide(low: float | None, high: float | None, limit: float) -> str:
    """Exceeded where the whole interval lies above the limit, within where none of it does, else undecided.

    Where the true value is the limit, a 95 % interval lies wholly above it in 2.5 % of cases, wholly below as often.
    """
    if low is None or high is None:
        return "undecided"
    if low > limit:
        return "exceeded"
    return "within" if high <= limit else "undecided"


def bound_slowdown(step: Mapping[str, Any], limit: float) -> Bound:
    """Hold a row of gold.step_overhead against a limit; what it calls inconclusive decides nothing."""
    ratio, counts = step["slowdown_ratio"], (step["runs_count"], step["baseline_runs_count"])
    is_open = step["verdict_class"] == "inconclusive"
    low, high = (None if is_open else step[f"slowdown_{end}_ratio"] for end in ("low", "high"))
    outcome = decide(low, high, limit)
    more = None
    if outcome == "undecided" and ratio is not None:
        noise = step["run_noise_fraction"]
        deviation = None if noise is None else math.log1p(noise)
        more = _count_more(math.log(ratio / limit), deviation, min(counts))
    return Bound(
        "slowdown",
        limit,
        ratio,
        low,
        high,
        outcome,
        step["evidence"],
        more,
        _explain(outcome, more, (step["disagreement"] or step["reason"]) if is_open else None),
    )


def bound_part(
    part: str, candidate: Sequence[float], baseline: Sequence[float], limit_ns: float, *, lacking: int = 0
) -> Bound:
    """Hold what a part of the step takes more than in the baseline against a limit; one value per traced run."""
    if not candidate or not baseline:
        reason = "no run of a side has traced steps in which it was observed"
        return Bound(part, limit_ns, None, None, None, "undecided", "unobservable", None, reason)
    found = subtract_runs(candidate, baseline)
    outcome = decide(found.low, found.high, limit_ns)
    fewest = min(len(candidate), len(baseline))
    more, open_because = None, None
    if outcome == "undecided":
        more = _count_more(found.value - limit_ns, found.deviation, fewest)
        if fewest < ENOUGH_RUNS:
            untraced = f", and {lacking} have no traced steps" if lacking else ""
            open_because = f"traced runs per side: {len(candidate)} and {len(baseline)}{untraced}"
        elif found.low is None:
            open_because = NO_NOISE
    return Bound(
        part,
        limit_ns,
        found.value,
        found.low,
        found.high,
        outcome,
        "measured",
        more,
        _explain(outcome, more, open_because),
    )


def combine(bounds: Iterable[Bound]) -> str:
    """The outcome of several limits: one that is exceeded is enough, and all must be within."""
    found = {bound.outcome for bound in bounds}
    return next(outcome for outcome in ("exceeded", "undecided", "within") if outcome in found)


def _count_more(distance: float, deviation: float | None, fewest: int) -> int | None:
    """Runs per side that would decide a value at this distance from its limit; three per side are the fewest."""
    if deviation is None:
        return max(1, ENOUGH_RUNS - fewest)
    needed = count_runs_needed(distance, deviation, 0.0)
    return None if needed is None else max(1, needed - fewest)


def _explain(outcome: str, more: int | None, open_because: str | None) -> str | None:
    if outcome != "undecided":
        return None
    needed = f"{MOST_RUNS} runs per side would not decide it at this noise"
    if more is not None:
        needed = f"record at least {more} more run{'' if more == 1 else 's'} per side (repeat_of)"
    return "; ".join(filter(None, (open_because, needed)))
