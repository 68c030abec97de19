"""How many runs a side must have for an effect to be detected, from the noise between runs seen so far."""

from __future__ import annotations

import csv
import math
import statistics
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

LEAST_REPEATS = 3
LEAST_BARE_STEPS = 8
_CONFIDENCE = 0.95
_POWER = 0.8
_INTERVALS = 400


@dataclass(frozen=True)
class Size:
    """Runs that each side needs, and the noise that says so."""

    repeats: int
    noise_fraction: float
    degrees: int


def size_pair(step_s: Mapping[str, Sequence[float]], detect_fraction: float) -> Size | None:
    """Runs a side to detect a slowdown of this fraction with 80 % power at 95 % confidence; none without repeats.

    Stein's two-stage rule on the logarithms of the runs' steps: quantiles of Student's t at the degrees of freedom of
    the noise seen so far, so that noise known from few runs asks for more of them.
    """
    logs = [[math.log(value) for value in values] for values in step_s.values()]
    degrees = sum(len(values) - 1 for values in logs if values)
    if degrees < 1:
        return None
    squares = sum(math.fsum((value - statistics.fmean(values)) ** 2 for value in values) for values in logs if values)
    noise = math.sqrt(squares / degrees)
    reach = student_t((1 + _CONFIDENCE) / 2, degrees) + student_t(_POWER, degrees)
    needed = math.ceil(2 * (noise * reach / math.log1p(detect_fraction)) ** 2)
    return Size(max(LEAST_REPEATS, needed), math.expm1(noise), degrees)


@cache
def student_t(probability: float, degrees: int) -> float:
    """The quantile of Student's t above the median, by bisection: scipy is not there beside the GPU."""
    scale = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)) / math.sqrt(math.pi)
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        # With t = sqrt(degrees) tan(angle) the density is a power of a cosine on a finite interval.
        if 0.5 + scale * _integrate_cosine(middle, degrees - 1) < probability:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan(low)


def _integrate_cosine(angle: float, power: int) -> float:
    width = angle / _INTERVALS
    inner = math.fsum((4 if at % 2 else 2) * math.cos(at * width) ** power for at in range(1, _INTERVALS))
    return width / 3 * (1 + inner + math.cos(angle) ** power)


def read_step_s(folder: Path) -> float | None:
    """A landed run's step: the median over its bare steps of the time of the slowest rank."""
    slowest: dict[int, float] = {}
    for row in _bare_steps(sorted(folder.glob("steps-r*.csv"))):
        number = int(row["step"])
        slowest[number] = max(slowest.get(number, 0.0), float(row["duration_s"]))
    return statistics.median(slowest.values()) if slowest else None


def _bare_steps(paths: Iterable[Path]) -> Iterable[dict[str, str]]:
    for path in paths:
        with path.open(encoding="utf-8", newline="") as file:
            yield from (row for row in csv.DictReader(file) if row["phase"] == "bare")
