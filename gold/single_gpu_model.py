"""The step of a single-GPU training job under CC, predicted from its CC-off side and from pairs of other models.

Host time beyond a fixed part grows by a fraction, or by a cost per launch where a trace counted launches; GPU and
loader time grow by a factor each; copies take what a sweep under CC says. What the parts are: `gold.single_gpu_parts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy

from gold.single_gpu_parts import (
    EAGER_KERNEL_NS,
    PAGEABLE_OFF,
    STEP_NOISE,
    CopyCost,
    SingleGpuRun,
    StepParts,
    bound_split,
    split_step,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    Values = np.ndarray[Any, np.dtype[np.float64]]
    Pair = tuple[SingleGpuRun, SingleGpuRun]  # CC off, CC on
    Prior = tuple[float, float]  # value, standard deviation

OTHER_MODELS_MIN = 2  # with pairs of fewer other models nothing is predicted
BATCH_RANGE_FACTOR = 2.0  # further outside the fitted batch sizes is an extrapolation
FIXED_HOST_MOST = 0.75  # of the host time of a run that is shorter than every fitted one
PAGEABLE_ON = CopyCost(42_560.0, 2.62e9)  # host to device under CC, ISPASS'25 sweep
# cudaLaunchKernel, medians of the ISPASS'25 API traces (H100 in a TDX guest): 5.15 us, under CC 12.87 us.
LAUNCH_ADDED_NS = 7_720.0

_FIXED_FRACTION: Prior = (0.5, 0.2)  # of the shortest host time among runs of the same training loop
_HOST_SLOWDOWN: Prior = (LAUNCH_ADDED_NS / EAGER_KERNEL_NS, 0.15)
_LAUNCH_ADDED_US: Prior = (LAUNCH_ADDED_NS / 1e3, 3.0)
_GPU_SLOWDOWN: Prior = (1.0, 0.01)  # published kernel times are equal with and without CC
_LOADER_SLOWDOWN: Prior = (1.05, 0.05)
# Precisions differ in launches per host time (autocast adds casts), so each may deviate from the shared slowdown.
_PRECISION_DEVIATION: Prior = (0.0, 0.15)


@dataclass(frozen=True)
class Constant:
    """A constant, its value before any pair is seen, and how many models have pairs whose longest part it scales."""

    value: float
    unit: str
    prior: float
    models_count: int


@dataclass(frozen=True)
class PlateauModel:
    """The constants of one hardware, and the models and batch sizes whose pairs they come from."""

    hardware: str
    fixed_host: Constant
    host_slowdown: Constant
    launch_added: Constant
    gpu_slowdown: Constant
    loader_slowdown: Constant
    precision_deviations: tuple[tuple[str, float], ...]
    copy_off: CopyCost
    copy_on: CopyCost
    models: tuple[str, ...]
    batch_sizes: tuple[int, ...]
    pairs_count: int = 0

    def apply_cc(self, run: SingleGpuRun, parts: StepParts) -> StepParts:
        """Counted launches are preferred to the launches that host time implies."""
        if run.launches_count is not None:
            added_ns = run.launches_count * self.launch_added.value
        else:
            added = self.host_slowdown.value * (1 + dict(self.precision_deviations).get(run.precision, 0.0))
            added_ns = added * (parts.host_ns - min(self.fixed_host.value, FIXED_HOST_MOST * parts.host_ns))
        return StepParts(
            host_ns=parts.host_ns + added_ns,
            gpu_ns=parts.gpu_ns * self.gpu_slowdown.value,
            loader_ns=parts.loader_ns * self.loader_slowdown.value,
            copy_ns=run.time_copies(self.copy_on),
        )

    def count_support(self, run: SingleGpuRun, term: str) -> int:
        """How many models support the constant that scales this part of this run; copies come from sweeps."""
        if term == "host":
            # Without traced pairs the cost of a launch is the published one, which other models need not support.
            return self.host_slowdown.models_count if run.launches_count is None else OTHER_MODELS_MIN
        return {"gpu": self.gpu_slowdown.models_count, "loader": self.loader_slowdown.models_count}.get(
            term, OTHER_MODELS_MIN
        )


@dataclass(frozen=True)
class Prediction:
    """The step of a run under CC and its parts before and after, or the reason why there is none.

    Where the split was assumed, the ends are the ratios if the step were all GPU or all host time: no interval of a
    stated level. Where it was seen, they are null.
    """

    run_id: str
    step_ns: float | None = None
    slowdown_ratio: float | None = None
    assumed_low_ratio: float | None = None
    assumed_high_ratio: float | None = None
    before: StepParts | None = None
    after: StepParts | None = None
    dominant_term: str | None = None
    is_extrapolated: bool = False
    refusal: str | None = None


def fit_plateau(
    hardware: str,
    pairs: Iterable[Pair],
    off_runs: Iterable[SingleGpuRun],
    copy_off: CopyCost = PAGEABLE_OFF,
    copy_on: CopyCost = PAGEABLE_ON,
) -> PlateauModel:
    """Constants stay near published micro-costs unless the pairs of this hardware say otherwise."""
    ours = sorted(
        (pair for pair in pairs if pair[0].hardware == hardware and all(run.is_measured for run in pair)),
        key=lambda pair: (pair[0].kind, pair[0].batch_size, pair[0].step_ns, pair[1].step_ns, pair[0].run_id),
    )
    known = {run for run in (*off_runs, *(off for off, _ in ours)) if run.is_measured}
    splits = [(off, on.step_ns / off.step_ns, split_step(off, known, copy_off)[0]) for off, on in ours]
    loops = {(off.hardware, off.dataset) for off, _ in ours}
    # A run of the same training loop takes at least its fixed time, with or without a pair.
    kinds = {run.kind: run for run in sorted(known, key=lambda run: run.run_id) if run.kind[:2] in loops}
    shortest_ns = min((split_step(run, known, copy_off)[0].host_ns for run in kinds.values()), default=0.0)
    precisions = sorted({off.precision for off, _ in ours})
    priors = [_FIXED_FRACTION, _HOST_SLOWDOWN, _LAUNCH_ADDED_US, _GPU_SLOWDOWN, _LOADER_SLOWDOWN]
    priors += [_PRECISION_DEVIATION] * len(precisions)
    start, spread = np.array(priors).T
    lowest = [0.0, 0.0, 0.0, 0.95, 0.95] + [-0.5] * len(precisions)
    highest = [0.95, 3.0, 50.0, 2.0, 2.0] + [0.5] * len(precisions)
    decided = {
        term: {off.model for off, _, parts in splits if parts.dominant_term == term}
        for term in ("host", "gpu", "loader")
    }
    counted = {off.model for off, _ in ours if off.launches_count is not None} & decided["host"]

    def build(values: Values) -> PlateauModel:
        fixed, host, launch, gpu, loader, *deviations = (float(value) for value in values)
        return PlateauModel(
            hardware=hardware,
            fixed_host=Constant(fixed * shortest_ns, "ns", _FIXED_FRACTION[0] * shortest_ns, len(decided["host"])),
            host_slowdown=Constant(host, "fraction", _HOST_SLOWDOWN[0], len(decided["host"])),
            launch_added=Constant(launch * 1e3, "ns", LAUNCH_ADDED_NS, len(counted)),
            gpu_slowdown=Constant(gpu, "ratio", _GPU_SLOWDOWN[0], len(decided["gpu"])),
            loader_slowdown=Constant(loader, "ratio", _LOADER_SLOWDOWN[0], len(decided["loader"])),
            precision_deviations=tuple(zip(precisions, deviations, strict=True)),
            copy_off=copy_off,
            copy_on=copy_on,
            models=tuple(sorted({off.model for off, _ in ours})),
            batch_sizes=tuple(sorted({off.batch_size for off, _ in ours})),
            pairs_count=len(ours),
        )

    def find_residuals(values: Values) -> Values:
        model = build(values)
        errors = [model.apply_cc(off, parts).step_ns / parts.step_ns - ratio for off, ratio, parts in splits]
        return np.concatenate([np.array(errors) / STEP_NOISE, (values - start) / spread])

    if not splits:
        return build(start)
    return build(scipy.optimize.least_squares(find_residuals, start, bounds=(lowest, highest), loss="soft_l1").x)


def _find_refusal(model: PlateauModel, run: SingleGpuRun) -> str | None:
    if not run.is_measured:
        return f"Run {run.run_id} has no step time without CC: nothing to start from."
    if run.hardware != model.hardware or not model.models:
        return f"There is no pair with and without CC on {run.hardware}: record one, or ask for a scenario instead."
    others = [name for name in model.models if name != run.model]
    if len(others) < OTHER_MODELS_MIN:
        return (
            f"Pairs of {len(others)} other model(s) are known on {run.hardware}, and {OTHER_MODELS_MIN} are needed: "
            "the error of the prediction cannot be checked."
        )
    return None


def predict_step(model: PlateauModel, run: SingleGpuRun, off_runs: Iterable[SingleGpuRun]) -> Prediction:
    """The predicted ratio scales the measured step, so that what the split leaves over is kept."""
    if refusal := _find_refusal(model, run):
        return Prediction(run.run_id, refusal=refusal)
    before, is_seen = split_step(run, off_runs, model.copy_off)
    after = model.apply_cc(run, before)
    ratio = after.step_ns / before.step_ns
    low, high = min(model.batch_sizes) / BATCH_RANGE_FACTOR, max(model.batch_sizes) * BATCH_RANGE_FACTOR
    ends = [] if is_seen else [model.apply_cc(run, end).step_ns / end.step_ns for end in bound_split(before)]
    is_supported = model.count_support(run, after.dominant_term) > 0
    return Prediction(
        run_id=run.run_id,
        step_ns=run.step_ns * ratio,
        slowdown_ratio=ratio,
        assumed_low_ratio=min((ratio, *ends)) if ends else None,
        assumed_high_ratio=max((ratio, *ends)) if ends else None,
        before=before,
        after=after,
        dominant_term=after.dominant_term,
        is_extrapolated=not (low <= run.batch_size <= high and is_seen and is_supported),
    )
