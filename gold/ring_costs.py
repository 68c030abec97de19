"""What sealing a byte costs on the ring, fitted on pairs: the one number that makes replays of baselines come true."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gold.bucket_replay import find_root, fit_scale, rebucket, replay, seal_ring
from gold.forecast_runs import COSTS
from gold.prediction_intervals import HeldOut, find_fitted_time, weigh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from gold.forecast_runs import ForecastPair

# Costs that are tried between two of those at which pairs are replayed.
_BETWEEN = 129
# What adds less than this to a step is hidden.
HIDDEN_FRACTION = 0.03


@dataclass(frozen=True)
class RingCost:
    """Nanoseconds to seal and open one byte of a message, and what that was fitted on."""

    ns_per_byte: float
    chains: int
    pairs: tuple[ForecastPair, ...]

    @property
    def models(self) -> frozenset[str]:
        """The models that it was fitted on."""
        return frozenset(pair.candidate.model for pair in self.pairs)


def select_replayed(pairs: Iterable[ForecastPair], chains: int = 1) -> list[ForecastPair]:
    """The pairs that can be replayed: a traced ring without options that no model covers, and so many chains."""
    return [
        pair
        for pair in pairs
        if pair.traced and pair.candidate.variant is None and pair.candidate.chains == chains and _is_alike(pair)
    ]


def _is_alike(pair: ForecastPair) -> bool:
    """Whether the sides differ in nothing but the sealing, as far as is told."""
    names = ("world_size", "bucket_cap_mib", "batch_size", "model")
    return all(pair.candidate.fields.get(name) == pair.baseline.fields.get(name) for name in names)


def fit_cost(pairs: Sequence[ForecastPair], chains: int = 1) -> RingCost | None:
    """The cost per byte with the least sum of relative errors, which one odd recording cannot move far."""
    usable = sorted(select_replayed(pairs, chains), key=lambda pair: pair.candidate.run_id)
    if not usable:
        return None
    logarithms = np.log(COSTS)
    errors = np.array([pair.errors_by_cost for pair in usable])
    best = int(np.abs(errors).sum(axis=0).argmin())
    around = np.linspace(logarithms[max(0, best - 1)], logarithms[min(len(COSTS) - 1, best + 1)], _BETWEEN)
    sums = sum(np.abs(np.interp(around, logarithms, row)) for row in errors)
    return RingCost(math.exp(float(around[int(np.argmin(sums))])), chains, tuple(usable))


def solve_cost(pair: ForecastPair) -> float | None:
    """The cost per byte at which the replay of a pair comes true; none where sealing is hidden or the pair is odd."""
    errors = pair.errors_by_cost if pair.traced else np.zeros(1)
    if not errors[0] < 0 < errors[-1]:
        return None
    above = int(np.argmax(errors > 0))
    low, high = float(COSTS[above - 1]), float(COSTS[above])
    return find_root(lambda cost: pair.predict(cost) - pair.candidate_ns, low, high)


def find_siblings(pairs: Iterable[ForecastPair], name: str) -> list[tuple[ForecastPair, ForecastPair]]:
    """Pairs that differ in one setting and in nothing else that is told: one that is known, one to be predicted."""
    usable = [pair for pair in pairs if pair.candidate.variant is None and pair.traced]
    return [
        (one, other)
        for one in usable
        for other in usable
        if one.candidate.fields.get(name) != other.candidate.fields.get(name)
        and _drop(one.candidate.fields, name) == _drop(other.candidate.fields, name)
    ]


def _drop(fields: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in fields.items() if key != name}


def find_chain_factors(pairs: Iterable[ForecastPair], chains: int) -> dict[str, list[float]]:
    """What several chains leave of the cost of one, by model: of pairs with one baseline that differ in that alone."""
    factors: dict[str, list[float]] = {}
    for one, other in find_siblings(pairs, "ring_chains"):
        is_asked = one.candidate.chains == 1 and other.candidate.chains == chains
        if is_asked and one.baseline.run_id == other.baseline.run_id:
            costs = solve_cost(one), solve_cost(other)
            if costs[0] and costs[1]:
                factors.setdefault(one.candidate.model, []).append(costs[1] / costs[0])
    return factors


def rebucket_ratio(
    pair: ForecastPair, ns_per_byte: float, cap_mib: float, own_ns_per_byte: float | None = None
) -> float:
    """What another bucket cap makes of the candidate's step: its replay with other buckets over that with its own.

    The replay with its own buckets is at the cost of the run, where that differs from the cost that is tried.
    """
    own = pair.baseline.number("bucket_cap_mib") or cap_mib
    now, added, ratios = seal_ring(own_ns_per_byte or ns_per_byte), seal_ring(ns_per_byte), []
    for step in pair.traced[0]:
        scale = fit_scale(step, pair.baseline_ns)
        ratios.append(replay(rebucket(step, cap_mib, own), scale, added) / replay(step, scale, now))
    return math.fsum(ratios) / len(ratios)


def average_factor(factors: Mapping[str, Sequence[float]]) -> float | None:
    """The geometric mean over models, each weighing the same."""
    logs = [math.fsum(map(math.log, values)) / len(values) for values in factors.values() if values]
    return math.exp(math.fsum(logs) / len(logs)) if logs else None


def leave_out(pairs: Sequence[ForecastPair], key: Callable[[ForecastPair], str], chains: int = 1) -> list[HeldOut]:
    """Each pair predicted with the cost of those that differ from it in `key`."""
    usable = select_replayed(pairs, chains)
    found = []
    for left_out in sorted({key(pair) for pair in usable}):
        cost = fit_cost([pair for pair in usable if key(pair) != left_out], chains)
        if cost is not None:
            mine = (pair for pair in usable if key(pair) == left_out)
            found += [_hold_out(left_out, pair, cost.ns_per_byte) for pair in mine]
    return found


def _hold_out(left_out: str, pair: ForecastPair, ns_per_byte: float) -> HeldOut:
    predicted = pair.predict(ns_per_byte)
    weight = weigh(predicted, pair.baseline_ns, find_fitted_time(pair.predict, ns_per_byte))
    return HeldOut(left_out, pair, predicted, weight, pair.baseline.burden or 1.0)


# -- what any prediction must beat ------------------------------------------------------------------------------------


def guess_constant(pair: ForecastPair, others: Sequence[ForecastPair]) -> float:
    """The median slowdown of the others."""
    ratios = sorted(other.slowdown for other in others)
    middle = len(ratios) // 2
    median = ratios[middle] if len(ratios) % 2 else (ratios[middle - 1] + ratios[middle]) / 2
    return pair.baseline_ns * median


def guess_nearest(pair: ForecastPair, others: Sequence[ForecastPair]) -> float:
    """The slowdown of the pair whose baseline takes the most similar time."""
    nearest = min(
        others, key=lambda other: (abs(math.log(other.baseline_ns / pair.baseline_ns)), other.candidate.run_id)
    )
    return pair.baseline_ns * nearest.slowdown


def guess_per_byte(pair: ForecastPair, others: Sequence[ForecastPair]) -> float | None:
    """The median overhead per sealed byte of the others; none where bytes are not known."""
    rates = sorted(
        (other.candidate_ns - other.baseline_ns) / other.baseline.sealed_bytes
        for other in others
        if other.baseline.sealed_bytes > 0
    )
    if not rates or not pair.baseline.sealed_bytes:
        return None
    return pair.baseline_ns + pair.baseline.sealed_bytes * rates[len(rates) // 2]
