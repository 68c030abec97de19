"""What a change would do to a job on one GPU: a soft maximum of its parts under CC, one CUDA graph, or refused."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gold.graph_replay import RECORDED_GPU, find_graph_spread
from gold.outcomes import Outcome, Refusal
from gold.pairs import OFF
from gold.prediction_intervals import weigh
from gold.single_gpu_forecast import predict_run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gold.forecast_runs import ForecastRun
    from gold.regime_model import RegimeModel

PINNED = (
    "under CC a pinned copy waits as a pageable one does and is as slow (published: 2.8 and 2.6 GB/s), and recordings "
    "without CC differ by 30 % in what it saves"
)


def predict_one_gpu(run: ForecastRun, model: RegimeModel, change: Mapping[str, str], named: str) -> Outcome:
    """A job on one GPU under another regime; no other change to it has been recorded in pairs."""
    if "cuda_graphs" in change:
        return _replay_graph(run, model, change, named)
    if "pinned" in change:
        raise Refusal(PINNED)
    others = sorted(set(change) - {"regime"})
    if others:
        raise Refusal(f"the lake has no pair on one GPU that differs in {', '.join(others)}")
    if run.regime != OFF:
        raise Refusal(f"it is a run under {run.regime} already: ask what a run without a TEE would take")
    found = predict_run(run, run.step_ns or 0.0, model.plateaus, model.off_runs)
    if found is None or found.step_ns is None:
        reason = found.refusal if found and found.refusal else "it does not say its batch size"
        raise Refusal(f"{reason[0].lower()}{reason[1:].rstrip('.')}")
    spread = model.find_one_gpu_spread(run)
    weight = weigh(found.step_ns, run.step_ns or found.step_ns)
    low, high = spread.widen(found.step_ns, weight) if spread else (None, None)
    caveats = [] if spread else ["errors on fewer than two other models make no interval"]
    ends = found.assumed_low_ratio, found.assumed_high_ratio
    if low is not None and high is not None and ends[0] is not None and ends[1] is not None and run.step_ns:
        # One batch size and no trace: whether host or GPU bounds the step is not known, so both ends are kept open.
        low, high = min(low, run.step_ns * ends[0]), max(high, run.step_ns * ends[1])
        caveats.append("nothing shows whether the host or the GPU bounds its step: the interval holds both")
    return Outcome(
        named,
        "plateau",
        run.step_ns,
        found.step_ns,
        low,
        high,
        spread.level if spread else None,
        found.dominant_term,
        found.is_extrapolated,
        caveat="; ".join(caveats) or None,
    )


def _replay_graph(run: ForecastRun, model: RegimeModel, change: Mapping[str, str], named: str) -> Outcome:
    """The step of a job on one GPU as one CUDA graph: its host launches once and is in the way no more."""
    others = sorted(set(change) - {"cuda_graphs"})
    if others:
        raise Refusal(f"no recording shows a CUDA graph together with {', '.join(others)}: ask about it alone")
    if run.graph_ns is None:
        raise Refusal("no trace of it shows what its GPU did in a step")
    pair = model.find_pair(run.run_id)
    current = pair.candidate_ns if pair else run.step_ns or 0.0
    # Launches cost a step nothing where the GPU is never idle: a graph makes no step longer.
    predicted = min(run.graph_ns, current)
    caveats = ["the whole step must be capturable: shapes that do not change, and no decision on the host"]
    is_other = run.regime != OFF or RECORDED_GPU not in run.fields.get("gpu", "")
    if run.is_step_traced:
        caveats.append("its step was timed under the profiler, which slows the host: a log of steps says what is saved")
    if is_other:
        caveats.append(f"graphs were recorded on an {RECORDED_GPU} without CC, so nothing says how far off this is")
    spread = None if is_other else find_graph_spread()
    width = math.exp(spread.score) if spread else None
    return Outcome(
        named,
        "graph_replay",
        current,
        predicted,
        predicted / width if width else None,
        predicted * width if width else None,
        spread.level if spread else None,
        "gpu",
        is_other,
        is_current_slowed=run.is_step_traced,
        caveat="; ".join(caveats),
    )
