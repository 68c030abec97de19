"""What `teetotal validate` says: errors of predictions without what a scheme leaves out, goals, guesses, coverage."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from assets.build.comparisons import make_pairs
from assets.build.context import BuildContext
from assets.build.forecasts import build_forecasts
from assets.build.tiers import TIERS, build_tier
from gold import prediction_checks
from gold.prediction_checks import GUESSES
from lake.engines import engine
from lake.errors import EvidenceRejected
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from pipelines.cli import session

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import polars as pl

    from pipelines.settings import Settings

    Row = dict[str, Any]

# Median and 90th percentile of the error that a task may have; of one GPU in points of slowdown. Of bucket caps these
# are the median and the largest error of the prototype that the replay replaced.
GOALS = {"regime": (0.04, 0.10), "chains": (0.05, 0.05), "bucket_cap": (0.07, 0.23), "one_gpu": (0.025, 0.08)}
MOST_HIDDEN_ERROR = 0.02
# Intervals may miss by so much more than they say, over all runs and in each group of enough runs to tell.
COVERAGE_SLACK = 0.10
_FEWEST_IN_GROUP = 5
_TITLES = {
    "regime": "a distributed run under the regime, from its baseline",
    "chains": "a sealed run with several chains, from one chain",
    "bucket_cap": "a sealed run with another bucket cap",
    "one_gpu": "a job on one GPU under the regime, from its CC-off side",
}


@contextmanager
def open_checks(chosen: Settings, landing: str | None) -> Iterator[pl.DataFrame]:
    """The checks of the lake, or of what has landed somewhere else, built for this alone."""
    if landing is None:
        yield _read_checks(session.open_built_lake(chosen))
        return
    with tempfile.TemporaryDirectory(prefix="teetotal-validate-") as home:
        lake = Lake(
            Location.of(Path(home) / "lake"),
            KeyringFile(Path(home) / "keyring.json", is_made_on_first_use=True),
            seals_bronze=chosen.seals.seals_bronze,
        )
        _build(BuildContext(lake, LandingZone(Location.of(landing), chosen.seals), chosen.limits))
        yield _read_checks(lake)


def _build(context: BuildContext) -> None:
    """All that the checks are made from; a run that cannot be built is named and left out."""
    run_ids, _ = context.zone.run_ids()
    for tier in TIERS:
        made = build_tier(context, tier, run_ids, partial(engine, "polars"))
        for one in made:
            if one.fault is not None:
                session.print_lines(f"{one.run_id}: left out: {one.fault}", err=True)
        run_ids = [one.run_id for one in made if one.fault is None]
    make_pairs(context.lake)
    build_forecasts(context.lake)


def _read_checks(lake: Lake) -> pl.DataFrame:
    rows = lake.scan(prediction_checks.TABLE).collect().sort("regime", *prediction_checks.TABLE.key)
    if rows.is_empty():
        raise EvidenceRejected(
            "there is nothing to validate: no prediction was made without the pair that it is of",
            "`teetotal run` makes predictions; it takes pairs of two models or more with traces, or on one GPU",
        )
    return rows


def judge(checks: pl.DataFrame) -> tuple[list[str], bool]:
    """The lines of the answer, and whether every goal is met."""
    lines: list[str] = []
    is_met = True
    for (regime, task, scheme), rows in checks.group_by("regime", "task", "scheme", maintain_order=True):
        found, met = _judge_scheme(str(regime), str(task), str(scheme), rows.to_dicts())
        lines += found
        is_met &= met
    lines.append("all goals are met" if is_met else "a goal is missed, or a guess does better")
    return lines, is_met


def _judge_scheme(regime: str, task: str, scheme: str, rows: Sequence[Row]) -> tuple[list[str], bool]:
    errors = [_find_error(task, row, row["error_fraction"]) for row in rows]
    goal_median, goal_p90 = GOALS[task]
    middle, p90 = median(errors), float(np.quantile(errors, 0.9))
    unit = "points" if task == "one_gpu" else "%"
    verdicts = [middle <= goal_median and p90 <= goal_p90]
    folds = len({row["left_out"] for row in rows})
    title = f"{regime}: {_TITLES[task]}; {scheme} left out: {len(rows)} runs in {folds} folds"
    spread = f"median {100 * middle:.1f} {unit}, p90 {100 * p90:.1f}, max {100 * max(errors):.1f}"
    lines = [
        title,
        f"  error: {spread} (goal {100 * goal_median:g} and {100 * goal_p90:g}): {_word(verdicts[-1])}",
    ]
    hidden = [abs(row["error_fraction"]) for row in rows if row["is_hidden"] and task == "regime"]
    if hidden:
        verdicts.append(max(hidden) <= MOST_HIDDEN_ERROR)
        lines.append(
            f"  where compute hides communication: max {100 * max(hidden):.1f} % of {len(hidden)} runs "
            f"(goal {100 * MOST_HIDDEN_ERROR:g}): {_word(verdicts[-1])}"
        )
    guesses = _judge_guesses(task, rows)
    if guesses:
        verdicts.append(middle < min(guesses.values()))
        text = ", ".join(f"{name.replace('_', ' ')} {100 * value:.1f} {unit}" for name, value in guesses.items())
        lines.append(f"  guesses: {text}: {'beaten' if verdicts[-1] else 'one does better'}")
    stated = [row for row in rows if row["is_inside"] is not None]
    if stated:
        found, is_met = _judge_coverage(stated)
        lines += found
        verdicts.append(is_met)
    noise = [row["noise_fraction"] for row in rows if row["noise_fraction"] is not None]
    if noise:
        lines.append(f"  noise between repeats: median {100 * median(noise):.1f} %, of {len(noise)} pairs")
    return lines, all(verdicts)


def _find_error(task: str, row: Row, error: float) -> float:
    """The size of an error: of one GPU in slowdown, else of the step."""
    scale = row["measured_step_ns"] / row["known_step_ns"] if task == "one_gpu" else 1.0
    return abs(error) * scale


def _judge_guesses(task: str, rows: Sequence[Row]) -> dict[str, float]:
    found = {}
    for name in GUESSES:
        errors = [_find_error(task, row, value) for row in rows if (value := row[f"{name}_error_fraction"]) is not None]
        if errors:
            found[name] = median(errors)
    return found


def _judge_coverage(stated: Sequence[Row]) -> tuple[list[str], bool]:
    """How many intervals hold what was measured, over all runs and by model, whose errors go together."""
    groups: dict[str, list[Row]] = {}
    for row in sorted(stated, key=lambda row: str(row["model"])):
        groups.setdefault(row["model"] or "no model named", []).append(row)
    covered = {name: _cover(rows) for name, rows in groups.items()}
    worst = min(groups, key=lambda name: (covered[name][0], -len(groups[name]), name))
    low, high = _bound_fraction(round(covered[worst][0] * len(groups[worst])), len(groups[worst]))
    decisive = [_cover(stated), *(covered[name] for name in groups if len(groups[name]) >= _FEWEST_IN_GROUP)]
    is_met = all(inside >= level - COVERAGE_SLACK for inside, level in decisive)
    inside, level = decisive[0]
    whole = f"{100 * inside:.0f} % of {len(stated)} inside at a stated {100 * level:.0f} %"
    few = "" if len(groups[worst]) >= _FEWEST_IN_GROUP else ", too few to decide"
    named = f"{worst}, {100 * covered[worst][0]:.0f} % of {len(groups[worst])}{few}"
    counts = (f"{name} {sum(row['is_inside'] for row in rows)} of {len(rows)}" for name, rows in groups.items())
    return [
        f"  intervals: {whole}, no group below by more than {100 * COVERAGE_SLACK:g} points: {_word(is_met)}",
        f"    worst group: {named}; so few runs leave {100 * low:.0f} to {100 * high:.0f} % open",
        f"    by group: {', '.join(counts)}",
    ], is_met


def _cover(rows: Sequence[Row]) -> tuple[float, float]:
    """The share of intervals that hold what was measured, and the share that they say."""
    return sum(row["is_inside"] for row in rows) / len(rows), sum(row["interval_level"] for row in rows) / len(rows)


def _bound_fraction(count: int, total: int) -> tuple[float, float]:
    """Both ends of the exact 95 % interval of a fraction that was counted (Clopper and Pearson)."""
    low = scipy.special.betaincinv(count, total - count + 1, 0.025) if count else 0.0
    high = scipy.special.betaincinv(count + 1, total - count, 0.975) if count < total else 1.0
    return float(low), float(high)


def _word(is_met: bool) -> str:
    return "met" if is_met else "missed"
