"""Intervals of predictions by their errors on models that were left out; errors of one model count together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gold.forecast_runs import ForecastPair

# No interval is stated above this level, however many models there are.
MOST_LEVEL = 0.8
# Recording that slowed the traced steps more than this widens an interval; above the other, nothing is stated.
WIDE_BURDEN = 1.1
MOST_BURDEN = 1.5
# What repeats of a run differ by where nothing is added at all, as a fraction of the step.
_FLOOR = 0.03
# How much higher and lower the fitted cost is tried: so far off it may well be.
_TRIED = 1.1


@dataclass(frozen=True)
class Spread:
    """How far predictions were from the truth, per unit of what could be wrong in them, at one level."""

    level: float
    score: float
    groups_count: int

    def widen(self, predicted_ns: float, weight: float, burden: float = 1.0) -> tuple[float, float]:
        """Both ends of the interval around a prediction of this weight; wider by what recording slowed its trace."""
        factor = math.exp(self.score * weight) * (burden if burden > WIDE_BURDEN else 1.0)
        return predicted_ns / factor, predicted_ns * factor


@dataclass(frozen=True)
class HeldOut:
    """A pair, predicted without what a scheme leaves out, and what could be wrong in that."""

    left_out: str
    pair: ForecastPair
    predicted_ns: float
    weight: float
    # How much recording slowed the steps that were replayed.
    burden: float = 1.0


def weigh(predicted_ns: float, known_ns: float, fitted_ns: float = 0.0) -> float:
    """The share of a prediction that can be wrong, besides noise: what fitted costs make, or what was added."""
    return _FLOOR + max(abs(predicted_ns - known_ns), fitted_ns) / predicted_ns


def find_fitted_time(predict: Callable[[float], float], cost: float) -> float:
    """The time of a prediction that its fitted cost makes: by how it grows with that cost.

    Sealing replaces copies, so more rests on the cost than was added; and where compute hides sealing just so, a cost
    that is a little higher shows all at once.
    """
    return (predict(cost * _TRIED) - predict(cost / _TRIED)) / (2 * math.log(_TRIED))


def score_error(predicted_ns: float, measured_ns: float, weight: float) -> float:
    """The error of a prediction per unit of what could be wrong in it."""
    return abs(math.log(predicted_ns / measured_ns)) / weight


def find_model_spread(held_out: Iterable[HeldOut]) -> Spread | None:
    """The spread of predictions by their errors on models that were left out."""
    scores: dict[str, list[float]] = {}
    for one in held_out:
        score = score_error(one.predicted_ns, one.pair.candidate_ns, one.weight)
        scores.setdefault(one.pair.candidate.model, []).append(score)
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
