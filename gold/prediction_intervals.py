"""Intervals of predictions by their errors on models that were left out; errors of one model count together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gold.forecast_runs import ForecastPair

# No interval is stated above this level, however many models there are.
MOST_LEVEL = 0.8
# What repeats of a run differ by where nothing is added at all, as a fraction of the step.
_FLOOR = 0.03


@dataclass(frozen=True)
class Spread:
    """How far predictions were from the truth, per unit of what they added, at one level."""

    level: float
    score: float
    groups_count: int

    def widen(self, predicted_ns: float, base_ns: float) -> tuple[float, float]:
        """Both ends of the interval around a prediction that started from `base_ns`."""
        width = self.score * weigh(predicted_ns, base_ns)
        return predicted_ns * math.exp(-width), predicted_ns * math.exp(width)


def weigh(predicted_ns: float, base_ns: float) -> float:
    """The share of a prediction that was added or taken away: that is what can be wrong, besides noise."""
    return _FLOOR + abs(predicted_ns - base_ns) / predicted_ns


def score_error(predicted_ns: float, measured_ns: float, base_ns: float) -> float:
    """The error of a prediction per unit of what it added."""
    return abs(math.log(predicted_ns / measured_ns)) / weigh(predicted_ns, base_ns)


def find_model_spread(held_out: Iterable[tuple[str, ForecastPair, float]]) -> Spread | None:
    """The spread of predictions by their errors on models that were left out: what was left out, pair, prediction."""
    scores: dict[str, list[float]] = {}
    for _, pair, predicted in held_out:
        score = score_error(predicted, pair.candidate_ns, pair.baseline_ns)
        scores.setdefault(pair.candidate.model, []).append(score)
    return find_spread(scores)


def find_spread(scores: Mapping[str, Sequence[float]]) -> Spread | None:
    """The score that so many of all errors stay below, each group weighing the same; none below two groups.

    A further group may differ from all g that are known, and weighs as much as each of them: nothing is claimed above
    g / (g + 1), and at that level the largest score counts (hierarchical conformal prediction).
    """
    known = {name: sorted(values) for name, values in scores.items() if values}
    count = len(known)
    if count < 2:
        return None
    level = min(MOST_LEVEL, count / (count + 1))
    weighted = sorted((value, 1 / ((count + 1) * len(values))) for values in known.values() for value in values)
    reached = 0.0
    for value, weight in weighted:
        reached += weight
        if reached >= level - 1e-9:
            return Spread(level, value, count)
    return Spread(level, weighted[-1][0], count)
