"""Do conclusions hold? Coverage, false calls and power by simulation, through the product's own functions.

`python -m benchmarks.inference [--trials N] [--seed N]` prints a table and exits with 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gold import operation_costs, operation_overhead, step_overhead, time_breakdown
from gold.comparison import Sides
from gold.margin import MARGIN
from gold.pairs import Pair
from gold.step_cycles import mean_step, measure_scatter
from gold.step_series import Series

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Row = dict[str, Any]

STEPS = (2, 5, 8, 50, 200)
RUNS = (1, 3, 5)
# Coefficient of variation of steps inside a run.
_STEP_CV = 0.03
_STEP_NS = 100_000_000
_PAIR = Pair("candidate", "hopper_ppcie", "baseline", "manifest")
_RUN = {"model": "m", "world_size": 1, "found_world_size": None}
_EMPTY = time_breakdown.TABLE.arrow_schema.empty_table()
# Goals of docs/conclusions.md; beyond them a simulation may lie by so many of its own standard errors.
COVERAGE, FALSE_CALLS, POWER = (0.93, 0.98), (0.0, 0.06), (0.75, 0.85)
_ERRORS = 2.0


@dataclass(frozen=True)
class Noise:
    """How steps and runs differ that should be equal."""

    name: str
    correlation: float = 0.0
    run_deviation: float = 0.0


NOISES = (
    Noise("independent"),
    Noise("AR(1) 0.5", correlation=0.5),
    Noise("AR(1) 0.8", correlation=0.8),
    Noise("run-to-run SD 1 %", run_deviation=0.01),
    Noise("run-to-run SD 2 %", run_deviation=0.02),
)


@dataclass
class Score:
    """How often something held, in one cell of the table, and the goal for it."""

    what: str
    goal: tuple[float, float]
    outcomes: list[bool] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """The fraction of trials in which it held."""
        return sum(self.outcomes) / len(self.outcomes)

    @property
    def is_met(self) -> bool:
        """Whether the goal is met, as far as so many trials can tell."""
        low, high = self.goal
        return self._reaches(low, self.rate - low) and self._reaches(high, high - self.rate)

    def _reaches(self, bound: float, room: float) -> bool:
        return room >= -_ERRORS * math.sqrt(bound * (1 - bound) / len(self.outcomes)) - 1e-12


def simulate_run(random: np.random.Generator, noise: Noise, steps: int, ratio: float = 1.0) -> list[Row]:
    """The rows of gold.step_times of one run whose steps are drawn from a noise."""
    drawn = random.normal(0, 1, steps)
    for place in range(1, steps):
        drawn[place] = noise.correlation * drawn[place - 1] + math.sqrt(1 - noise.correlation**2) * drawn[place]
    level = _STEP_NS * ratio * math.exp(random.normal(0, noise.run_deviation)) if noise.run_deviation else None
    values = [int(value) for value in (level or _STEP_NS * ratio) * (1 + _STEP_CV * drawn)]
    series = Series(values=values, weights=[1] * steps, has_collective=[True] * steps, starts_part=[False] * steps)
    scatter = measure_scatter(series, 1)
    return [
        {
            "source": "log",
            "period": "step",
            "timed_by": "log_duration",
            "evidence": "measured",
            "caveat": None,
            "reason": None,
            "steps_count": steps,
            "step_ns": mean_step(series),
            "median_step_ns": series.median(),
            "log_standard_error": scatter.log_standard_error,
            "effective_steps_count": scatter.effective_count,
            "rounding_fraction": 0.0,
            **dict.fromkeys(("batch_size", "samples_per_step", "tokens_per_step")),
        }
    ]


def compare(
    random: np.random.Generator, noise: Noise, steps: int, runs: int, ratio: float = 1.0, others: Sequence[Any] = ()
) -> Row:
    """The row of gold.step_overhead of a pair with so many runs per side and a true ratio."""
    sides = Sides(
        candidate=[simulate_run(random, noise, steps, ratio) for _ in range(runs)],
        baseline=[simulate_run(random, noise, steps) for _ in range(runs)],
        others=others,
    )
    (row,) = step_overhead.measure(_PAIR, _RUN, sides, (_EMPTY, _EMPTY)).to_pylist()
    return dict(row)


def score_null_pairs(
    random: np.random.Generator, noise: Noise, steps: int, runs: int, trials: int, groups: int = 0
) -> list[Score]:
    """Pairs whose true ratio is 1: how often the interval holds it, and how often a difference is called.

    With `groups`, so many groups of three repeats elsewhere in the lake stand in for missing repeats.
    """
    covered, called = Score("coverage", COVERAGE), Score("false calls", FALSE_CALLS)
    for _ in range(trials):
        others = [[simulate_run(random, noise, steps) for _ in range(3)] for _ in range(groups)]
        row = compare(random, noise, steps, runs, others=others)
        called.outcomes.append(row["verdict_class"] in {"slower", "faster"})
        if row["interval_over"] in {"runs", "modelled"}:
            covered.outcomes.append(row["slowdown_low_ratio"] <= 1 <= row["slowdown_high_ratio"])
    if runs == 1:
        return [Score("conclusions", (0.0, 0.0), called.outcomes), *([covered] if groups else [])]
    return [covered, called]


def score_power(random: np.random.Generator, noise: Noise, steps: int, runs: int, trials: int) -> list[Score]:
    """How often a true effect of the size that a pair states is found: each pair's own, and the median one."""
    stated = [compare(random, noise, steps, runs)["detectable_fraction"] for _ in range(trials)]
    middle = float(np.median(stated))
    own, typical = Score("power, own", POWER), Score("power, median", POWER)
    for effect in stated:
        for score, size in ((own, effect), (typical, middle)):
            row = compare(random, noise, steps, runs, 1 + size)
            score.outcomes.append(row["verdict_class"] == "slower")
    return [own, typical]


def score_equivalence(random: np.random.Generator, noise: Noise, steps: int, runs: int, trials: int) -> list[Score]:
    """Pairs that truly differ by the margin: how often they are called no difference."""
    called = Score("false no difference", FALSE_CALLS)
    for _ in range(trials):
        row = compare(random, noise, steps, runs, 1 + MARGIN)
        called.outcomes.append(row["verdict_class"] == "no_difference")
    return [called]


def score_operations(random: np.random.Generator, runs: int, trials: int) -> list[Score]:
    """Forty operations per pair, ten of them truly 1.2 times as slow: how many of the differences shown are false."""
    found = Score("false discoveries", FALSE_CALLS)
    for _ in range(max(10, trials // 20)):
        effects = [1.2 if place < 10 else 1.0 for place in range(40)]
        sides = [[_draw_operations(random, some) for _ in range(runs)] for some in (effects, [1.0] * 40)]
        for row in operation_overhead.measure(_PAIR, sides[0], sides[1]).to_pylist():
            if row["verdict_class"] in {"slower", "faster"}:
                found.outcomes.append(int(row["name"]) >= 10)
    return [found]


def _draw_operations(random: np.random.Generator, effects: Sequence[float]) -> Any:
    known = {"operation": "call", "direction": "none", "memory": "none", "size_class": "none", "run_id": "r"}
    import pyarrow as pa

    rows = [
        {
            **dict.fromkeys(operation_costs.TABLE.column_names),
            **known,
            "name": str(place),
            "median_ns": int(1_000_000 * effect * math.exp(random.normal(0, 0.02))),
            "operations_count": 100,
            "evidence": "measured",
        }
        for place, effect in enumerate(effects)
    ]
    return pa.Table.from_pylist(rows, schema=operation_costs.TABLE.arrow_schema)


def run_all(trials: int, seed: int, steps: Sequence[int] = STEPS, only: str = "") -> Iterator[tuple[str, list[Score]]]:
    """Every cell by name, with its scores; each has its own stream of chance, so that one can be run alone."""
    cells: list[tuple[str, Callable[[np.random.Generator], list[Score]]]] = [
        (
            f"{noise.name}, {count} steps, {runs} runs",
            partial(score_null_pairs, noise=noise, steps=count, runs=runs, trials=trials),
        )
        for noise in NOISES
        for count in steps
        for runs in RUNS
    ]
    for runs in (1, 2):
        for noise in NOISES:
            score = partial(score_null_pairs, noise=noise, steps=50, runs=runs, trials=trials, groups=4)
            cells.append((f"{noise.name}, 50 steps, {runs} runs, noise of 4 groups", score))
    for runs in (3, 5):
        for noise in NOISES[1::2]:
            named = f"{noise.name}, 50 steps, {runs} runs"
            cells.append((named, partial(score_power, noise=noise, steps=50, runs=runs, trials=trials)))
            cells.append((named, partial(score_equivalence, noise=noise, steps=50, runs=runs, trials=trials)))
        cells.append((f"40 operations, {runs} runs", partial(score_operations, runs=runs, trials=trials)))
    for place, (name, score_cell) in enumerate(cells):
        if only in f"{name}, {getattr(score_cell, 'func', score_cell).__name__}":
            yield name, score_cell(np.random.default_rng([seed, place]))


def main() -> int:
    """Print one line per cell; 1 where a goal is missed."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.inference", description=__doc__)
    parser.add_argument("--trials", type=int, default=1000, help="Pairs per cell.")
    parser.add_argument("--seed", type=int, default=1, help="Seed of the simulation.")
    parser.add_argument("--only", default="", help="Only cells whose name holds this, such as score_power.")
    given = parser.parse_args()
    missed = 0
    for name, scores in run_all(given.trials, given.seed, only=given.only):
        for score in scores:
            low, high = score.goal
            is_met = score.is_met
            missed += not is_met
            outcome = f"{score.rate:7.1%}  goal {low:.0%} to {high:.0%}  {'met' if is_met else 'MISSED'}"
            sys.stdout.write(f"{name:55} {score.what:20} {outcome}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{missed} goals missed\n")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
