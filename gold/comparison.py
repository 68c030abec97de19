"""How two runs are held against each other: ratio of medians, its interval, the noise, and the verdict in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lake.tables import RUN_ID, Table, float64, int64, text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gold.pairs import Pair

    Values = np.ndarray[Any, np.dtype[np.float64]]

VERDICTS = ("slower", "faster", "within_noise", "inconclusive")
# What every table that compares a pair begins with.
PAIR = (
    RUN_ID,
    text("baseline_run_id", "The baseline without a TEE."),
    text("regime", "Regime of the run: results are never averaged over it."),
    text("model", "Model that was trained.", nullable=True),
    int64("world_size", "Ranks of the job.", nullable=True, minimum=1),
)
NOISE_FLOOR = float64(
    "noise_floor_fraction",
    "Largest difference between repeats of the baseline; null without repeats.",
    nullable=True,
    minimum=0,
)
_RESAMPLES = 10_000
_SEED = 250_111_771
_POWER = 1.959964 + 0.841621


def start_row(table: Table, pair: Pair, run: Mapping[str, Any]) -> dict[str, Any]:
    """A row of such a table of which only the pair is known yet."""
    return {
        **dict.fromkeys(table.column_names),
        "run_id": pair.run_id,
        "baseline_run_id": pair.baseline_run_id,
        "regime": pair.regime,
        "model": run["model"],
        "world_size": run["found_world_size"] or run["world_size"],
    }


def compare_medians(over: Values, under: Values) -> dict[str, Any]:
    """The ratio of two medians, and its interval from steps drawn again in pairs; nothing where a median is nothing."""
    if not np.median(over) or not np.median(under):
        return {}
    ratio = float(np.median(over) / np.median(under))
    found = {"slowdown_ratio": ratio, "time_increase_fraction": ratio - 1, "throughput_loss_fraction": 1 - 1 / ratio}
    if len(over) > 1 and (under > 0).all():
        drawn = np.random.default_rng(_SEED).integers(0, len(over), (_RESAMPLES, len(over)))
        ratios = np.median(over[drawn], axis=1) / np.median(under[drawn], axis=1)
        low, high = np.quantile(ratios, [0.025, 0.975])
        found |= {"slowdown_low_ratio": float(low), "slowdown_high_ratio": float(high)}
    return found


def find_noise_floor(repeats: Iterable[Values]) -> float | None:
    """How far apart runs are that should be equal: the baseline and its repeats, each against each."""
    medians = [float(np.median(alone)) for alone in repeats if len(alone)]
    if len(medians) < 2 or not min(medians):
        return None
    return max(medians) / min(medians) - 1


def find_detectable_effect(baselines: Values) -> float | None:
    """The difference that a comparison of so many steps of this scatter would find four times out of five."""
    if len(baselines) < 3 or not np.mean(baselines):
        return None
    return float(_POWER * np.sqrt(2 * np.var(baselines, ddof=1) / len(baselines)) / np.mean(baselines))


def classify_verdict(row: Mapping[str, Any], count: int) -> str:
    """What the numbers allow to say of so many steps."""
    low, high, noise = row["slowdown_low_ratio"], row["slowdown_high_ratio"], row["noise_floor_fraction"]
    if low is None or count < 2:
        return "inconclusive"
    if low <= 1 <= high or (noise is not None and abs(row["slowdown_ratio"] - 1) <= noise):
        return "within_noise"
    return "slower" if low > 1 else "faster"


def format_verdict(row: Mapping[str, Any], kind: str, count: int, noun: str = "step") -> str:
    """`1.42x slower, 95 % 1.38 to 1.47, above the noise floor of 2.1 %`."""
    ratio, noise = row["slowdown_ratio"], row["noise_floor_fraction"]
    if ratio is None:
        return f"no answer: a median {noun} has no length"
    if row["slowdown_low_ratio"] is None:
        return f"{ratio:.2f}x in a single {noun}: no interval, so nothing can be concluded"
    interval = f"95 % {row['slowdown_low_ratio']:.2f} to {row['slowdown_high_ratio']:.2f}"
    size = (
        f"{1 / ratio:.2f}x faster"
        if kind == "faster"
        else f"{ratio:.2f}x slower"
        if kind == "slower"
        else f"{ratio:.2f}x"
    )
    if kind == "within_noise":
        size = f"no difference shown: {size}"
    where = "noise floor unknown, the baseline was not repeated"
    if noise is not None:
        where = f"{'within' if abs(ratio - 1) <= noise else 'above'} the noise floor of {noise:.1%}".replace("%", " %")
    few = f", from only {count} {noun}s" if count < 5 else f", {count} {noun}s"
    return f"{size}, {interval}, {where}{few}"


def list_missing(row: Mapping[str, Any], noun: str = "step") -> list[str]:
    """Why a number is null, as sentences."""
    reasons = []
    if row["slowdown_low_ratio"] is None:
        reasons.append(f"one {noun} has no interval")
    if row["noise_floor_fraction"] is None:
        reasons.append("no repeat of the baseline (repeat_of) gives a noise floor")
    if row["detectable_fraction"] is None:
        reasons.append(f"fewer than 3 {noun}s have no scatter to speak of")
    return reasons
