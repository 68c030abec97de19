"""What a CC-off step of a single-GPU training job is made of: host, GPU, loader and copy time.

T = ‖H, G, L‖ₚ + X: host, GPU and loader time overlap, blocking copies do not. H is one number per model and precision,
G grows with the batch, L with the batch and alike for all runs of a dataset; X follows from bytes and a copy sweep.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    Values = np.ndarray[Any, np.dtype[np.float64]]
    Kind = tuple[str, str, str, str]

NORM_ORDER = 6.0  # p of the soft maximum
STEP_NOISE = 0.02  # runs of equal work differ by about so much: neither a fit nor a split is asked for more
BATCH_SPAN_MIN = 4.0  # batch sizes of one kind of run that differ by less do not tell host from GPU time
LOADER_AGREEMENT = 0.03  # two kinds of run whose best times per sample are as close as this share a bound: the loader
# Host time per kernel of an eager step without CC: 2,644 us for 181 kernels (arXiv 2608.26575, B200).
EAGER_KERNEL_NS = 14_600.0
# How far, in logarithms, host and GPU time may be from where they are looked for.
_SPREAD_UNKNOWN, _SPREAD_OTHER_MODELS, _SPREAD_LAUNCHES, _SPREAD_SAME_MODEL = 3.0, 0.7, 0.5, 0.3


@dataclass(frozen=True)
class CopyCost:
    """A blocking copy takes `alpha_ns` and its bytes at `bytes_per_second`."""

    alpha_ns: float
    bytes_per_second: float


PAGEABLE_OFF = CopyCost(9_160.0, 10.09e9)  # host to device, ISPASS'25 sweep


@dataclass(frozen=True)
class SingleGpuRun:
    """One run: its step and, where a trace was taken, the launches and the busy GPU time of that step."""

    run_id: str
    hardware: str
    dataset: str
    model: str
    precision: str
    batch_size: int
    step_ns: float
    bytes_per_sample: float | None = None
    copies_count: float = 2.0  # inputs and labels
    launches_count: float | None = None
    gpu_ns: float | None = None

    @property
    def kind(self) -> Kind:
        """Runs of one kind differ in batch size alone."""
        return self.hardware, self.dataset, self.model, self.precision

    @property
    def is_measured(self) -> bool:
        """A step without a duration says nothing."""
        return self.batch_size > 0 and math.isfinite(self.step_ns) and self.step_ns > 0

    def time_copies(self, cost: CopyCost) -> float:
        """A run whose bytes are not known copies nothing: its copies stay in host time."""
        if self.bytes_per_sample is None:
            return 0.0
        payload_bytes = self.bytes_per_sample * self.batch_size
        return self.copies_count * cost.alpha_ns + payload_bytes / cost.bytes_per_second * 1e9


@dataclass(frozen=True)
class StepParts:
    """Host, GPU, loader and copy time of one step."""

    host_ns: float
    gpu_ns: float
    loader_ns: float
    copy_ns: float

    @property
    def step_ns(self) -> float:
        """Host, GPU and loader overlap; copies do not."""
        return float(_overlap(np.array([self.host_ns]), self.gpu_ns, self.loader_ns)[0]) + self.copy_ns

    @property
    def dominant_term(self) -> str:
        """The longest part."""
        return max(("host", "gpu", "loader", "copy"), key=lambda name: float(getattr(self, f"{name}_ns")))


def _overlap(host: Values, gpu: Values | float, loader: float) -> Values:
    longest = np.maximum(np.maximum(host, gpu), max(loader, 1e-9))
    powers = sum((term / longest) ** NORM_ORDER for term in (host, gpu, loader))
    return np.asarray(longest * powers ** (1 / NORM_ORDER))


def find_loader_time(runs: Iterable[SingleGpuRun], copy_off: CopyCost = PAGEABLE_OFF) -> float:
    """The loader takes the best time per sample, in ns, if two kinds of run reach it; else it is never in the way."""
    best: dict[Kind, float] = {}
    for run in runs:
        sample_ns = max(run.step_ns - run.time_copies(copy_off), 0.0) / run.batch_size
        best[run.kind] = min(sample_ns, best.get(run.kind, math.inf))
    fastest = sorted(best.values())[:2]
    return fastest[0] if len(fastest) > 1 and fastest[1] <= fastest[0] * (1 + LOADER_AGREEMENT) else 0.0


def _spans_batches(runs: Sequence[SingleGpuRun]) -> bool:
    sizes = [run.batch_size for run in runs]
    return max(sizes) >= BATCH_SPAN_MIN * min(sizes)


@dataclass(frozen=True)
class _Expected:
    """Where host time per step and GPU time per sample are looked for before a step is seen."""

    host_ns: float
    gpu_ns: float
    spread: float


def _split_kind(
    runs: Sequence[SingleGpuRun], loader_ns: float, copy_off: CopyCost, expected: _Expected | None = None
) -> tuple[float, float]:
    """Of all host times per step and GPU times per sample that explain the steps, the expected ones are taken."""
    steps = [(run, max(run.step_ns - run.time_copies(copy_off), 1.0)) for run in runs]
    own = _Expected(
        host_ns=min(step_ns for _, step_ns in steps),
        gpu_ns=min(step_ns / run.batch_size for run, step_ns in steps),
        spread=_SPREAD_UNKNOWN,
    )
    expected = expected or own
    host_centre, host_spread = math.log(expected.host_ns), expected.spread
    if launches := [run.launches_count for run in runs if run.launches_count]:
        host_centre, host_spread = math.log(median(launches) * EAGER_KERNEL_NS), _SPREAD_LAUNCHES
    host_log, gpu_log, width = math.log(own.host_ns), math.log(own.gpu_ns), 6.0
    for _ in range(7):  # grids that narrow: the misfit has flat valleys, in which a descent ends where it began
        around = np.linspace(-width, width, 49)
        hosts, gpus = np.meshgrid(host_log + around, gpu_log + around, indexing="ij")
        misfit = ((hosts - host_centre) / host_spread) ** 2
        misfit += ((gpus - math.log(expected.gpu_ns)) / expected.spread) ** 2
        for run, step_ns in steps:
            gpu_ns = np.exp(gpus) * run.batch_size if run.gpu_ns is None else run.gpu_ns
            explained_ns = _overlap(np.exp(hosts), gpu_ns, loader_ns * run.batch_size)
            misfit += (np.log(explained_ns / step_ns) / STEP_NOISE) ** 2
        row, column = np.unravel_index(np.argmin(misfit), misfit.shape)
        host_log, gpu_log, width = float(hosts[row, column]), float(gpus[row, column]), width / 5
    return math.exp(host_log), math.exp(gpu_log)


def _expect_parts(
    run: SingleGpuRun, kinds: Mapping[Kind, Sequence[SingleGpuRun]], loader_ns: float, copy_off: CopyCost
) -> _Expected | None:
    """Another precision of the model says most about host and GPU time, then the median of other models."""
    spanning = {kind: runs for kind, runs in kinds.items() if kind != run.kind and _spans_batches(runs)}
    same_model = {kind: runs for kind, runs in spanning.items() if kind[2] == run.model}
    hosts: list[float] = []
    gpus: list[float] = []
    hidden: list[float] = []
    for runs in (same_model or spanning).values():
        host_ns, gpu_ns = _split_kind(runs, loader_ns, copy_off)
        largest = max(runs, key=lambda other: other.batch_size)
        hosts.append(host_ns)
        # Below half of its step, GPU time is hidden and only bounded from above.
        (gpus if gpu_ns * largest.batch_size > largest.step_ns / 2 else hidden).append(gpu_ns)
    if not hosts:
        return None
    return _Expected(median(hosts), median(gpus or hidden), _SPREAD_SAME_MODEL if same_model else _SPREAD_OTHER_MODELS)


def split_step(
    run: SingleGpuRun, off_runs: Iterable[SingleGpuRun], copy_off: CopyCost = PAGEABLE_OFF
) -> tuple[StepParts, bool]:
    """A step is split by what other batch sizes of its kind show; False where they do not and the split is assumed."""
    peers = {
        other
        for other in (*off_runs, run)
        if (other.hardware, other.dataset) == (run.hardware, run.dataset) and other.is_measured
    }
    kinds: dict[Kind, list[SingleGpuRun]] = {}
    for other in sorted(peers, key=lambda one: (one.kind, one.batch_size, one.step_ns, one.run_id)):
        kinds.setdefault(other.kind, []).append(other)
    loader_ns = find_loader_time(peers, copy_off)
    own = kinds[run.kind]
    is_seen = _spans_batches(own) or run.gpu_ns is not None
    expected = None if is_seen else _expect_parts(run, kinds, loader_ns, copy_off)
    host_ns, gpu_ns = _split_kind(own, loader_ns, copy_off, expected)
    return StepParts(
        host_ns=host_ns,
        gpu_ns=gpu_ns * run.batch_size if run.gpu_ns is None else run.gpu_ns,
        loader_ns=loader_ns * run.batch_size,
        copy_ns=run.time_copies(copy_off),
    ), is_seen


def bound_split(parts: StepParts) -> tuple[StepParts, StepParts]:
    """The same step, once with no host time and once with no GPU time: what one batch size alone cannot tell apart."""
    overlapped_ns = parts.step_ns - parts.copy_ns
    rest_ns = max(overlapped_ns**NORM_ORDER - parts.loader_ns**NORM_ORDER, 0.0) ** (1 / NORM_ORDER)
    return replace(parts, host_ns=0.0, gpu_ns=rest_ns), replace(parts, host_ns=rest_ns, gpu_ns=0.0)
