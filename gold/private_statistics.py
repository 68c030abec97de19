"""Statistics of many runs that may leave: bounded by tenant, over declared groups, bounds and bins, with noise.

Everything that is not noise is whole numbers, so that no rounding of floating point tells more than the noise allows.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.errors import ContractBroken, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    # Adds noise to whole numbers that one tenant can change by so much in all, at the price of this epsilon; gives the
    # noisy numbers and the scale of the noise.
    Noise = Callable[[Sequence[int], int, float], tuple[list[int], float]]

QUANTILES = (0.1, 0.5, 0.9)
# What of the epsilon of a metric counts, means and quantiles get: a count is the easiest to tell.
SHARES = {"count": 0.2, "mean": 0.3, "quantiles": 0.5}
_REGIMES = ("hopper_spt_cc", "hopper_ppcie", "blackwell_mpt_nvle", "tee_io_tdisp", "sw_per_hop_aesgcm", "other")
_GPUS = ("A100", "H100", "H200", "GH200", "B200", "GB200", "B300", "other")
_MODEL_CLASSES = {
    "below 100 M": (0, 100_000_000),
    "100 M to 1 B": (100_000_000, 1_000_000_000),
    "1 B to 10 B": (1_000_000_000, 10_000_000_000),
    "10 B to 100 B": (10_000_000_000, 100_000_000_000),
    "100 B and more": (100_000_000_000, 1 << 63),
}


@dataclass(frozen=True)
class Metric:
    """A quantity with its declared bounds in whole units: what lies beyond them is taken for the bound."""

    name: str
    unit: str
    low: int
    high: int
    # Of how many units one of the unit that people read is made.
    per_unit: int
    # The bins of the histogram that quantiles are read from.
    edges: tuple[int, ...]

    def clamp(self, value: float) -> int:
        """A value in whole units, within the bounds."""
        return min(max(round(value * self.per_unit), self.low), self.high)


def _spread(low: int, high: int, count: int) -> tuple[int, ...]:
    """Edges whose distances grow from the low bound on: most overheads are small."""
    found = {low + round((high - low) * (place / count) ** 2) for place in range(count + 1)}
    return tuple(sorted(found))


METRICS = {
    "slowdown": Metric("slowdown", "ratio", 900, 4_000, 1_000, _spread(900, 4_000, 24)),
    "overhead": Metric("overhead", "ms per step", 0, 2_000_000, 1_000, _spread(0, 2_000_000, 24)),
}
# Groups are declared, not found: that one is there says nothing of the data.
GROUPINGS: dict[str, tuple[str, ...]] = {
    "regime": _REGIMES,
    "model_class": (*_MODEL_CLASSES, "unknown"),
    "gpu": _GPUS,
}


@dataclass(frozen=True)
class MeasuredRun:
    """One run with its overhead, and whose it is."""

    run_id: str
    tenant: str
    regime: str
    gpu: str | None
    parameters_count: int | None
    values: Mapping[str, float]

    def group(self, by: Sequence[str]) -> tuple[str, ...]:
        """The declared group that the run falls into."""
        classes = {
            "regime": self.regime if self.regime in _REGIMES else "other",
            "model_class": _find_class(self.parameters_count),
            "gpu": _find_gpu(self.gpu),
        }
        return tuple(classes[name] for name in by)


def list_groups(by: Sequence[str]) -> list[tuple[str, ...]]:
    """All groups of a release, by declaration; a wrong name is answered with the nearest right one."""
    for name in by:
        if name not in GROUPINGS:
            raise ContractBroken(f"there is no grouping {name!r}", nearest(name, GROUPINGS))
    if len(set(by)) != len(by):
        raise ContractBroken("a grouping is named twice", "name each of them once")
    return list(itertools.product(*(GROUPINGS[name] for name in by)))


def list_metrics(names: Sequence[str]) -> list[Metric]:
    """The metrics of a release, each once; a wrong name is answered with the nearest right one."""
    for name in names:
        if name not in METRICS:
            raise ContractBroken(f"there is no metric {name!r}", nearest(name, METRICS))
    if not names or len(set(names)) != len(names):
        raise ContractBroken("a release tells of at least one metric, and of each once", nearest("", METRICS))
    return [METRICS[name] for name in names]


def bound_tenants(runs: Iterable[MeasuredRun], most: int) -> list[MeasuredRun]:
    """At most so many runs of each tenant, by the digests of their ids: which count depends on no other tenant."""
    by_tenant: dict[str, list[MeasuredRun]] = {}
    for run in runs:
        by_tenant.setdefault(run.tenant, []).append(run)
    return [
        run
        for _, own in sorted(by_tenant.items())
        for run in sorted(own, key=lambda run: hashlib.sha256(run.run_id.encode()).digest())[:most]
    ]


@dataclass(frozen=True)
class Released:
    """One number that may leave: what it is of, its noise, and what it cost."""

    group: tuple[str, ...]
    metric: str
    statistic: str
    value: float | None
    unit: str
    # The scale of the Laplace noise in whole units: of a mean that of its sum, of a quantile that of each bin's count.
    noise_scale: float
    epsilon: float
    # About how far the noise alone moves the number; none where that is not known.
    noise_error: float | None


def release_statistics(
    runs: Sequence[MeasuredRun], by: Sequence[str], metrics: Sequence[str], epsilon: float, most: int, noise: Noise
) -> list[Released]:
    """Counts, means and quantiles of every declared group, also of those without a run.

    One tenant has at most `most` runs, each in one group and one bin. So it changes all counts by at most `most` in
    all, all sums around the middle of the bounds by at most `most` times half their distance, and all bins by `most`.
    """
    groups, chosen, kept = list_groups(by), list_metrics(metrics), bound_tenants(runs, most)
    found: list[Released] = []
    for metric in chosen:
        name, share = metric.name, epsilon / len(chosen)
        values: dict[tuple[str, ...], list[int]] = {group: [] for group in groups}
        for run in kept:
            if name in run.values and math.isfinite(run.values[name]):
                values[run.group(by)].append(metric.clamp(run.values[name]))
        found += _release_metric(metric, values, share, most, noise)
    return found


def _release_metric(
    metric: Metric, values: Mapping[tuple[str, ...], Sequence[int]], epsilon: float, most: int, noise: Noise
) -> list[Released]:
    groups = list(values)
    price = {name: epsilon * share for name, share in SHARES.items()}
    counts, count_scale = noise([len(values[group]) for group in groups], most, price["count"])
    middle, half = (metric.low + metric.high) // 2, (metric.high - metric.low + 1) // 2
    sums = [sum(value - middle for value in values[group]) for group in groups]
    sums, sum_scale = noise(sums, most * half, price["mean"])
    bins = [_count_bins(values[group], metric.edges) for group in groups]
    width = len(metric.edges) - 1
    flat, bin_scale = noise([count for row in bins for count in row], most, price["quantiles"])
    found = []
    for place, group in enumerate(groups):
        count = counts[place]

        def tell(
            statistic: str,
            value: float | None,
            unit: str,
            scale: float,
            paid: str,
            error: float | None,
            group: tuple[str, ...] = group,
        ) -> Released:
            return Released(group, metric.name, statistic, value, unit, scale, price[paid], error)

        found.append(tell("count", count, "runs", count_scale, "count", count_scale * math.sqrt(2)))
        # Told from noise by noise alone: below this a group may as well be empty.
        is_told = count > 3 * count_scale
        mean = min(max(middle + sums[place] / count, metric.low), metric.high) / metric.per_unit if is_told else None
        error = sum_scale * math.sqrt(2) / count / metric.per_unit if is_told else None
        found.append(tell("mean", mean, metric.unit, sum_scale, "mean", error))
        own = [max(bin_count, 0) for bin_count in flat[place * width : (place + 1) * width]]
        for fraction in QUANTILES:
            value = _read_quantile(own, metric.edges, fraction) / metric.per_unit if is_told and any(own) else None
            found.append(tell(f"p{fraction * 100:.0f}", value, metric.unit, bin_scale, "quantiles", None))
    return found


def _count_bins(values: Sequence[int], edges: Sequence[int]) -> list[int]:
    counts = [0] * (len(edges) - 1)
    for value in values:
        place = next(place for place in range(len(counts)) if value <= edges[place + 1])
        counts[place] += 1
    return counts


def _read_quantile(counts: Sequence[int], edges: Sequence[int], fraction: float) -> float:
    """The value below which a fraction of the noisy counts lies, straight through its bin."""
    wanted, below = fraction * sum(counts), 0
    for place, count in enumerate(counts):
        if count and below + count >= wanted:
            return edges[place] + (edges[place + 1] - edges[place]) * (wanted - below) / count
        below += count
    return float(edges[-1])


def _find_class(parameters_count: int | None) -> str:
    if parameters_count is None:
        return "unknown"
    return next((name for name, (low, high) in _MODEL_CLASSES.items() if low <= parameters_count < high), "unknown")


def _find_gpu(gpu: str | None) -> str:
    words = (gpu or "").upper().replace("-", " ").split()
    return next((name for name in _GPUS if name in words), "other")
