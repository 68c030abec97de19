"""How often a change is found in a workload that never changed, and in one that did: `gold.history` on drawn series.

`python -m benchmarks.change_points [--trials N]` draws histories of nights with three runs each, sends them through the
code that makes the table, prints a line per question, and exits with 1 where more false alarms come than are promised.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.inference import Score
from gold.change_points import find_change_points
from gold.history import RecordedRun, measure
from gold.power import LEVEL

if TYPE_CHECKING:
    from collections.abc import Sequence

    Values = np.ndarray[Any, np.dtype[np.float64]]

RUNS_PER_NIGHT = 3
_FIELDS = ("cc_mode", "found_cc_mode", "world_size", "bucket_cap_mib", "warmup_steps_count", "model", "regime")
_MORE = ("parameters_count", "dtype", "batch_size", "sequence_length", "parallelism", "backend", "gpu", "host_cpu")
_VERSIONS = ("driver_version", "cuda_version", "torch_version", "nccl_version", "nodes_count", "family")
_BEGIN = datetime(2026, 1, 1, 2, tzinfo=UTC)


@dataclass(frozen=True)
class NightNoise:
    """How runs of a workload differ, as standard deviations of logarithms: nights, runs of a night, and the rest."""

    name: str
    night: float = 0.01
    run: float = 0.01
    # Share of nights on which something else ran on the machine, and how much longer a step then took.
    slow_fraction: float = 0.0
    slow: float = 0.1
    # How much of its own level a night hands on to the next.
    carry: float = 0.0


NOISES = (
    NightNoise("nights and runs differ by 1 % each"),
    NightNoise("nights differ by 2 %, runs by 1 %", night=0.02),
    NightNoise("as the first, one night in ten 10 % slower", slow_fraction=0.1),
)
# Not promised: a machine whose level drifts from night to night.
DRIFTING = NightNoise("as the first, and a night hands 0.5 of its level on", carry=0.5)


def draw_nights(random: np.random.Generator, noise: NightNoise, nights: int, shift: float = 0.0) -> Values:
    """Logarithms of steps, a row per night; `shift` is added to the second half of the nights."""
    levels = random.normal(0, noise.night, nights)
    for place in range(1, nights):
        levels[place] += noise.carry * levels[place - 1]
    levels += noise.slow * (random.random(nights) < noise.slow_fraction)
    levels += shift * (np.arange(nights) >= nights // 2)
    rows: Values = levels[:, np.newaxis] + random.normal(0, noise.run, (nights, RUNS_PER_NIGHT))
    return rows


def make_history(nights: Values, versions: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The rows of `gold.history` of such runs; `versions` are those of the driver, one per night."""
    recorded = []
    for night, row in enumerate(nights):
        for place, value in enumerate(row):
            at = _BEGIN + timedelta(days=night, hours=place)
            run = dict.fromkeys((*_FIELDS, *_MORE, *_VERSIONS)) | {
                "run_id": f"night{night:03}-{place}",
                "recorded_at": at.isoformat(),
                "driver_version": versions[night] if versions else "570",
            }
            step = {
                "source": "log",
                "period": "step",
                "step_ns": round(1e8 * np.exp(value)),
                "evidence": "measured",
                "rounding_fraction": 0.0,
            }
            recorded.append(RecordedRun(run, [step]))
    return list(measure("model=m", "cc_off", recorded).to_pylist())


def list_changes(nights: Values) -> list[dict[str, Any]]:
    """The change points of such runs."""
    return [row for row in make_history(nights) if row["is_change_point"]]


def score_alarms(random: np.random.Generator, noise: NightNoise, nights: int, trials: int) -> Score:
    """How many series without a change have a change point."""
    found = [bool(list_changes(draw_nights(random, noise, nights))) for _ in range(trials)]
    return Score(f"false alarms, {nights} nights: {noise.name}", (0.0, LEVEL), found)


def score_found(random: np.random.Generator, noise: NightNoise, nights: int, shift: float, trials: int) -> Score:
    """How many series with a change in their middle have a change point within two nights of it."""
    found = []
    for _ in range(trials):
        rows = list_changes(draw_nights(random, noise, nights, float(np.log1p(shift))))
        found.append(any(abs(row["session_number"] - 1 - nights // 2) <= 2 for row in rows))
    return Score(f"{shift:.0%} slower found, {nights} nights: {noise.name}", (0.0, 1.0), found)


def score_runs_as_unit(random: np.random.Generator, noise: NightNoise, nights: int, trials: int) -> Score:
    """The same false alarms if every run counted for itself: what the nights are there to prevent."""
    found = [bool(find_change_points(draw_nights(random, noise, nights).ravel().tolist())) for _ in range(trials)]
    return Score(f"false alarms if runs were the unit, {nights} nights: {noise.name}", (0.0, 1.0), found)


def score_looks(random: np.random.Generator, noise: NightNoise, nights: int, trials: int) -> Score:
    """How many series without a change have a change point at some night, if one looks every night."""
    found = []
    for _ in range(trials):
        rows = draw_nights(random, noise, nights).mean(axis=1).tolist()
        found.append(any(find_change_points(rows[:seen]) for seen in range(2, nights + 1)))
    return Score(f"false alarms in {nights} nights, looked at every night: {noise.name}", (0.0, 1.0), found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print what was asked and what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    trials = parser.parse_args(arguments).trials
    random = np.random.default_rng(40)
    scores = [score_alarms(random, noise, nights, trials) for noise in NOISES for nights in (8, 14, 30)]
    scores += [
        score_found(random, NOISES[0], nights, shift, trials) for nights in (8, 14, 30) for shift in (0.02, 0.03, 0.05)
    ]
    scores += [score_found(random, NOISES[2], 30, 0.05, trials)]
    scores += [score_runs_as_unit(random, NOISES[0], 30, trials), score_looks(random, NOISES[0], 30, trials)]
    scores += [score_alarms(random, DRIFTING, 30, trials)]
    for score in scores:
        sys.stdout.write(f"{score.rate:6.1%}  {score.what}\n")
    return 0 if all(score.is_met for score in scores[:-1]) else 1


if __name__ == "__main__":
    sys.exit(main())
