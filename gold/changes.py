"""What a change would do to the step of a run: predicted by replaying its baseline's trace, or refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gold.bucket_replay import (
    ANY_SCALE,
    PROFILER_SCALES,
    TracedStep,
    fit_scale,
    rebucket,
    replay,
    replay_alone,
    seal_ring,
)
from gold.one_gpu_changes import PINNED, predict_one_gpu
from gold.outcomes import Outcome, Refusal
from gold.pairs import OFF
from gold.prediction_intervals import MOST_BURDEN, WIDE_BURDEN, find_fitted_time, weigh
from gold.ring_costs import solve_cost

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gold.forecast_runs import ForecastRun
    from gold.regime_model import RegimeModel

# What may be changed, and what its value is.
SETTINGS = {
    "regime": "a regime, such as sw_per_hop_aesgcm",
    "chains": "a number of threads that seal one message together",
    "bucket_cap_mib": "a bucket cap in MiB",
    "sealing_gb_per_second": "a rate in GB/s at which a byte is sealed and opened",
    "accumulate": "a number of micro-batches between two reductions",
    "batch_size": "a batch size per rank",
    "world_size": "a number of ranks",
    "pinned": "true",
    "cuda_graphs": "true",
    "pipelined": "true",
    "direct": "true",
}


def name_change(change: Mapping[str, str]) -> str:
    """A change as text: its settings in the order of their names."""
    return " ".join(f"{name}={value}" for name, value in sorted(change.items()))


def predict_change(run: ForecastRun, model: RegimeModel, change: Mapping[str, str]) -> Outcome:
    """The step of a run after a change, by the method that has something to go by; else the reason why not."""
    named = name_change(change)
    try:
        if not run.step_ns:
            raise Refusal("nothing timed a step of this run")
        if run.world_size == 1:
            return predict_one_gpu(run, model, change, named)
        return _replay_change(run, model, change, named)
    except Refusal as refused:
        pair = model.find_pair(run.run_id)
        return Outcome(named, current_ns=pair.candidate_ns if pair else run.step_ns, refusal=str(refused))


# -- distributed runs: replay ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Case:
    """A traced baseline, the step that its replays are anchored on, and what is known of the run now."""

    steps: Sequence[TracedStep]
    plain_ns: float
    current_ns: float
    chains: int | None
    cap_mib: float | None
    own_cost: float | None = None
    # How much recording slowed the steps that are replayed.
    burden: float = 1.0


def _replay_change(run: ForecastRun, model: RegimeModel, change: Mapping[str, str], named: str) -> Outcome:
    refuse_unpredictable(run, change)
    case = _find_case(run, model)
    if case.burden > MOST_BURDEN:
        raise Refusal(f"recording slowed the traced steps {case.burden:.2f} times: they say too little of bare ones")
    target = change.get("regime", run.regime)
    chains = None if target == OFF else int(change.get("chains", case.chains or 1))
    spread, costs = None, dict[int, float]()
    for count in sorted({count for count in (chains, case.chains) if count is not None}):
        costs[count], spread = model.find_cost(run, count)
    if case.own_cost is not None and case.chains is not None:
        # What sealing cost this very run: what is known of others then says only how a change scales it.
        scale = case.own_cost / costs[case.chains]
        costs = {count: cost * scale for count, cost in costs.items()}
    cost = costs[chains] if chains is not None else None
    if "sealing_gb_per_second" in change:
        cost = 1 / float(change["sealing_gb_per_second"])
    plain_ns = _scale_batch(run, model, change, case.plain_ns)
    bounds = ANY_SCALE if "batch_size" in change else PROFILER_SCALES
    own = costs[case.chains] if case.chains is not None else None
    before = _mean(case.steps, case.plain_ns, lambda step, scale: replay(step, scale, _seal(own)))
    cap = float(change["bucket_cap_mib"]) if "bucket_cap_mib" in change else None
    if cap is not None and case.cap_mib is None:
        raise Refusal("the run does not say its bucket cap")
    micro = int(change.get("accumulate", 1))

    def predict(ns_per_byte: float | None) -> float:
        def rerun(step: TracedStep, scale: float) -> float:
            changed = step if cap is None else rebucket(step, cap, case.cap_mib or cap)
            alone = replay_alone(step, scale)
            return ((micro - 1) * alone + replay(changed, scale, _seal(ns_per_byte))) / micro

        return case.current_ns * _mean(case.steps, plain_ns, rerun, bounds) / before

    predicted = predict(cost)
    parts = _split_time(case, plain_ns, bounds, _seal(cost), micro)
    # What is certain is the run and its baseline: the further a prediction is from either, the wider its interval.
    furthest = max(case.plain_ns, case.current_ns, key=lambda known: abs(known - predicted))
    weight = weigh(predicted, furthest, find_fitted_time(predict, cost) if cost is not None else 0.0)
    low, high = spread.widen(predicted, weight, case.burden) if spread else (None, None)
    caveats = (
        [f"recording slowed the traced steps {case.burden:.2f} times, so the interval is wider"]
        if case.burden > WIDE_BURDEN
        else []
    )
    caveats += [] if spread else ["errors on fewer than two other models make no interval"]
    if micro > 1 or "batch_size" in change:
        caveats.append("a step then is of another batch: this says nothing of the time to an accuracy")
    return Outcome(
        named,
        "bucket_replay",
        case.current_ns,
        predicted,
        low,
        high,
        spread.level if spread else None,
        max(parts, key=lambda name: parts[name]),
        _is_outside(run, model, cap, chains),
        caveat="; ".join(caveats) or None,
    )


def refuse_unpredictable(run: ForecastRun, change: Mapping[str, str]) -> None:
    """Refuse what no recording of ours supports."""
    for name in ("pipelined", "direct"):
        if name in change:
            raise Refusal(f"recordings differ even in whether {name} helps")
    if run.variant is not None:
        raise Refusal(f"the run is {run.variant}, and recordings differ in what that does")
    if "world_size" in change:
        raise Refusal("no recording in the lake shows how a step changes with the number of GPUs")
    if "cuda_graphs" in change:
        raise Refusal("collectives between ranks are issued by the host, and no recording shows them in a graph")
    if "pinned" in change:
        raise Refusal(PINNED)


def _find_case(run: ForecastRun, model: RegimeModel) -> _Case:
    """What is replayed: the run itself where it is plain, else its baseline, whose ready times nothing hides."""
    if run.regime == OFF:
        if not run.steps:
            raise Refusal("no trace of it shows when its gradients were ready")
        cap = run.number("bucket_cap_mib")
        return _Case(run.steps, run.step_ns or 0.0, run.step_ns or 0.0, None, cap, burden=run.burden or 1.0)
    pair = model.find_pair(run.run_id)
    if pair is None or not pair.traced:
        raise Refusal("no traced baseline of it is in the lake, and sealing hides when gradients were ready")
    return _Case(
        pair.traced[0],
        pair.baseline_ns,
        pair.candidate_ns,
        run.chains,
        pair.baseline.number("bucket_cap_mib"),
        solve_cost(pair),
        pair.baseline.burden or 1.0,
    )


def _seal(ns_per_byte: float | None) -> Callable[..., float] | None:
    return None if ns_per_byte is None else seal_ring(ns_per_byte)


def _mean(
    steps: Sequence[TracedStep],
    step_ns: float,
    run: Callable[[TracedStep, float], float],
    bounds: tuple[float, float] = PROFILER_SCALES,
) -> float:
    return sum(run(step, fit_scale(step, step_ns, bounds)) for step in steps) / len(steps)


def _scale_batch(run: ForecastRun, model: RegimeModel, change: Mapping[str, str], plain_ns: float) -> float:
    """The plain step at another batch size: on the line through the nearest two that the lake has."""
    if "batch_size" not in change:
        return plain_ns
    wanted, same = float(change["batch_size"]), ("model", "dtype", "world_size", "bucket_cap_mib", "sequence_length")
    known = sorted(
        {
            (size, other.step_ns)
            for other in model.off_runs
            if other.machine == run.machine
            and all(other.fields.get(name) == run.fields.get(name) for name in same)
            and (size := other.number("batch_size"))
            and other.step_ns
        },
        key=lambda point: (abs(point[0] - wanted), point),
    )
    first = known[0] if known else None
    second = next((point for point in known if first and point[0] != first[0]), None)
    if first is None or second is None:
        raise Refusal("the lake has no two batch sizes of this model without a TEE on this machine")
    slope = (second[1] - first[1]) / (second[0] - first[0])
    return first[1] + slope * (wanted - first[0])


def _split_time(
    case: _Case,
    plain_ns: float,
    bounds: tuple[float, float],
    sealing: Callable[..., float] | None,
    micro: int,
) -> dict[str, float]:
    """What the step would go to: compute, and what of plain communication and of sealing compute does not hide."""
    alone = _mean(case.steps, plain_ns, replay_alone, bounds)
    plain = _mean(case.steps, plain_ns, replay, bounds)
    sealed = _mean(case.steps, plain_ns, lambda step, scale: replay(step, scale, sealing), bounds)
    return {"compute": alone, "communication": (plain - alone) / micro, "sealing": (sealed - plain) / micro}


def _is_outside(run: ForecastRun, model: RegimeModel, cap: float | None, chains: int | None) -> bool:
    """Whether the run, or what it would become, lies outside of what the model was fitted on."""
    pairs = [pair for pair in model.of_machine(run) if pair.traced]
    sizes = [bucket.buffer_bytes for pair in pairs for steps in pair.traced for bucket in steps[-1].buckets]
    largest = max((b.buffer_bytes for step in run.steps[-1:] for b in step.buckets), default=0)
    caps = [value for pair in pairs if (value := pair.candidate.number("bucket_cap_mib"))]
    is_new_world = run.world_size not in {
        pair.candidate.world_size for pair in pairs if chains in {None, pair.candidate.chains}
    }
    is_new_cap = cap is not None and bool(caps) and not min(caps) <= cap <= max(caps)
    return is_new_world or is_new_cap or (bool(sizes) and largest > max(sizes))
