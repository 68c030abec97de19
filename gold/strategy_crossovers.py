"""Where the strategy must change when a TEE is switched on: by model size, by GPU count, and by the speed of the link.

The strategies that are best without a TEE, ties included, are held against the best under a regime; the choice changes
where all of them are slower by more than the model's error. Looked for on a grid, then refined between its points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gold.pairs import OFF
from gold.strategy_question import MODEL_ERROR, compare_steps, find_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gold.strategy_question import Question, Steps

AXES = ("parameters", "gpus", "link")
MOST_GPUS = 4096
_SIZES = tuple(2.0 ** (step / 2) for step in range(-6, 7))
_SPEEDS = tuple(2.0 ** (step / 2) for step in range(-8, 9))
_CLOSE = 0.02
_Place = tuple[str, int, int, int]


@dataclass(frozen=True)
class Crossover:
    """A range of one axis in which the choice changes under a regime; an end is bounded where the search found it."""

    axis: str
    regime: str
    low: float
    high: float
    is_low_bounded: bool
    is_high_bounded: bool
    without: _Place
    under: _Place


@dataclass(frozen=True)
class _Seen:
    """What was found at one place of an axis."""

    place: float
    off: Steps
    on: Steps

    @property
    def is_changed(self) -> bool | None:
        ratio = compare_steps(self.off, self.on)
        return None if ratio is None else ratio > 1 + MODEL_ERROR


def find_crossovers(question: Question) -> list[Crossover]:
    """All ranges, by axis and regime in their order."""
    found = []
    for axis in AXES:
        places, ask = _lay_grid(question, axis)
        asked = {place: ask(place) for place in places}
        offs = {place: find_steps(one, OFF) for place, one in asked.items()}
        for regime in question.regimes:
            if regime != OFF:
                seen = [_Seen(place, offs[place], find_steps(one, regime)) for place, one in asked.items()]
                found += _join_ranges(axis, regime, seen, ask)
    return found


def _lay_grid(question: Question, axis: str) -> tuple[Sequence[float], Callable[[float], Question]]:
    """Places of an axis and the question at each: factors of size and speed, numbers of GPUs."""
    if axis == "parameters":
        return _SIZES, lambda place: question.scale(size=place)
    if axis == "link":
        return _SPEEDS, lambda place: question.scale(speed=place)
    return list_counts(question), lambda place: question.scale(gpus_count=int(place))


def list_counts(question: Question) -> list[float]:
    """Powers of two of GPUs that a batch and the links can use, the number asked about among them."""
    most = MOST_GPUS if question.cluster.network is not None else question.cluster.gpus_per_node
    counts = {2**power for power in range(13) if 2**power <= most} | {question.cluster.gpus_count}
    return [float(one) for one in sorted(counts) if len(question.scale(gpus_count=one).layouts.data)]


def _join_ranges(axis: str, regime: str, seen: Sequence[_Seen], ask: Callable[[float], Question]) -> list[Crossover]:
    """Neighbouring places at which the choice changes are one range; its ends are refined."""
    found: list[Crossover] = []
    start: _Seen | None = None
    is_low_bounded = False
    for before, one in zip((None, *seen), (*seen, None), strict=True):
        was, now = (None if each is None else each.is_changed for each in (before, one))
        if now and not was and one is not None:
            is_low_bounded = was is False
            start = _refine(axis, regime, before, one, ask) if before is not None and is_low_bounded else one
        if was and not now and start is not None and before is not None:
            is_high_bounded = now is False
            end = _refine(axis, regime, one, before, ask) if one is not None and is_high_bounded else before
            found.append(_describe(axis, regime, start, end, is_low_bounded, is_high_bounded))
            start = None
    return found


def _refine(axis: str, regime: str, same: _Seen, changed: _Seen, ask: Callable[[float], Question]) -> _Seen:
    """The place nearest to one where the choice is the same at which it changes, by halving."""
    while True:
        middle = _halve(axis, same.place, changed.place, ask)
        if middle is None:
            return changed
        question = ask(middle)
        seen = _Seen(middle, find_steps(question, OFF), find_steps(question, regime))
        if seen.is_changed:
            changed = seen
        else:
            same = seen


def _halve(axis: str, first: float, second: float, ask: Callable[[float], Question]) -> float | None:
    if axis != "gpus":
        return None if max(first, second) / min(first, second) < 1 + _CLOSE else (first * second) ** 0.5
    low, high = sorted((int(first), int(second)))
    per_node = ask(high).cluster.gpus_per_node
    able = [one for one in range(low + 1, high) if _is_usual(one, per_node) and len(ask(one).layouts.data)]
    return float(able[len(able) // 2]) if able else None


def _is_usual(count: int, per_node: int) -> bool:
    """Whether clusters have so many GPUs: whole nodes, and a number that can be divided in many ways."""
    rest = count
    for prime in (2, 3, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1 and (count < per_node or count % per_node == 0)


def _describe(
    axis: str, regime: str, start: _Seen, end: _Seen, is_low_bounded: bool, is_high_bounded: bool
) -> Crossover:
    without, under = (steps.names[steps.best or 0] for steps in (start.off, start.on))
    return Crossover(axis, regime, start.place, end.place, is_low_bounded, is_high_bounded, without, under)


def trace_counts(question: Question) -> list[dict[str, Any]]:
    """The best step under each regime at each number of GPUs, which share the same batch."""
    found = []
    for count in list_counts(question):
        asked = question.scale(gpus_count=int(count))
        for regime in question.regimes:
            steps = find_steps(asked, regime)
            if steps.best is not None:
                place = steps.names[steps.best]
                found.append(
                    {
                        "regime": regime,
                        "gpus": int(count),
                        "step_ns": float(steps.step_ns[steps.best]),
                        "place": place,
                    }
                )
    return found
