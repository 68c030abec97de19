"""One row per machine, term and number of chains: what an operation under a regime costs, and how far that holds."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gold.operation_costs import NONE, UNKNOWN
from gold.operation_terms import COPY_TERMS, NO_COPY, describe_operations
from gold.ring_costs import fit_cost, leave_out, select_replayed
from gold.single_gpu_model import OTHER_MODELS_MIN
from lake.tables import Scope, Table, float64, int64, text
from silver.spans import DIRECTIONS, MEMORIES
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gold.forecast_runs import ForecastPair
    from gold.operation_terms import RowsByRun
    from gold.ring_costs import RingCost
    from gold.single_gpu_model import PlateauModel

_ONE_GPU_TERMS = ("host_slowdown", "fixed_host", "launch_added", "gpu_slowdown", "loader_slowdown")
TERMS = ("seal_and_open", "host_copy", *COPY_TERMS, "launch", *_ONE_GPU_TERMS)
SOURCES = ("lake", "published")

TABLE = Table(
    tier="gold",
    name="cost_model",
    grain="One row per regime, machine, term, kind of copy and number of chains: from the regime's pairs in the lake.",
    key=("machine", "term", "direction", "memory", "chains_count"),
    inputs=(
        "silver.runs",
        "silver.throughput",
        "gold.step_times",
        "gold.exposure",
        "gold.operation_costs",
        "gold.launches",
    ),
    scope=Scope.REGIME,
    partition_by=("regime",),
    columns=(
        text("regime", "Regime of the pairs."),
        text("machine", "Hardware and software that the runs share, as `field=value` parts."),
        text(
            "term",
            "seal_and_open: a byte of a message, sealed by one rank and opened by the next; host_copy: a byte that the "
            "plain ring copies where the sealed one seals or opens it; copy: on the GPU's own track; copy_call: the "
            "call of one, in which CC seals it; launch: after the first of its rank. For one GPU: host_slowdown, "
            "gpu_slowdown and "
            "loader_slowdown multiply a part of the step, fixed_host is the host time that takes no longer under CC, "
            "launch_added the time that CC adds to one launch.",
            one_of=TERMS,
        ),
        text("direction", "Where a copy went.", one_of=(*DIRECTIONS, UNKNOWN, NONE)),
        text("memory", "Host memory of a copy.", one_of=(*MEMORIES, UNKNOWN, NONE)),
        int64("chains_count", "Threads that seal one message together; 1 where that means nothing.", minimum=1),
        int64("alpha_ns", "Time of one operation whatever its size.", nullable=True, minimum=0),
        int64("low_alpha_ns", "Least time of a fit without one of the models.", nullable=True, minimum=0),
        int64("high_alpha_ns", "Most time.", nullable=True, minimum=0),
        int64("baseline_alpha_ns", "The same time in the baselines of those runs.", nullable=True, minimum=0),
        float64("bytes_per_second", "Rate beyond that.", nullable=True, minimum=0),
        float64("low_bytes_per_second", "Lowest rate of a fit without one of the models.", nullable=True, minimum=0),
        float64("high_bytes_per_second", "Highest one.", nullable=True, minimum=0),
        float64("baseline_bytes_per_second", "The same rate in the baselines.", nullable=True, minimum=0),
        float64("slowdown_ratio", "What a part of the step is multiplied with.", nullable=True, minimum=0),
        int64("smallest_bytes", "Smallest message that it was fitted on; of copies a mean.", nullable=True, minimum=0),
        int64("largest_bytes", "Largest one.", nullable=True, minimum=0),
        int64("points_count", "Means of a run and size class that it was fitted on.", nullable=True, minimum=0),
        int64("pairs_count", "Pairs that it was fitted on.", minimum=0),
        int64("models_count", "Models of those pairs.", minimum=0),
        text("held_out_scheme", "What was left out to find the error.", nullable=True),
        float64("median_error_fraction", "Median error of a step predicted so.", nullable=True, minimum=0),
        float64("p90_error_fraction", "Error that nine in ten stay below.", nullable=True, minimum=0),
        text("source", "Whether runs of the lake or publications say so.", one_of=SOURCES),
        text("evidence", "Where the number comes from.", one_of=EVIDENCE),
        text("reason", "Why a number is null, as sentences.", nullable=True),
    ),
)
_NS_PER_S = 1e9


def measure(
    regime: str,
    pairs: Sequence[ForecastPair],
    plateaus: Sequence[PlateauModel] = (),
    operations: RowsByRun | None = None,
    launches: RowsByRun | None = None,
) -> pa.Table:
    """Fit each machine by itself: a rate of one says nothing of another.

    `operations` and `launches` are the rows of gold.operation_costs and gold.launches of both sides, by run.
    """
    rows: list[dict[str, Any]] = []
    for machine in sorted({pair.candidate.machine for pair in pairs}):
        mine = [pair for pair in pairs if pair.candidate.machine == machine]
        for chains in sorted({pair.candidate.chains for pair in mine}):
            cost = fit_cost(mine, chains)
            if cost is not None:
                rows.append(_describe_cost(machine, mine, cost))
        copies = [bucket for pair in select_replayed(mine) for steps in pair.traced for bucket in steps[-1].buckets]
        if copies:
            rows.append(_describe_copies(machine, mine, sum(b.sealed_bytes for b in copies), copies))
        timed = describe_operations(mine, operations or {}, launches or {})
        rows += [{**row, "machine": machine, "chains_count": 1, "source": "lake"} for row in timed]
    # Constants of one GPU say something only where several models support them.
    supported = [plateau for plateau in plateaus if len(plateau.models) >= OTHER_MODELS_MIN]
    rows += [row for plateau in supported for row in _describe_plateau(plateau)]
    empty = {**dict.fromkeys(TABLE.column_names), **NO_COPY}
    return pa.Table.from_pylist([{**empty, **row, "regime": regime} for row in rows], schema=TABLE.arrow_schema)


def find_percentile(values: Iterable[float], fraction: float) -> float | None:
    """The value at that fraction of the order, on the line between its neighbours."""
    ordered = sorted(values)
    return float(np.quantile(ordered, fraction)) if ordered else None


def _describe_cost(machine: str, pairs: Sequence[ForecastPair], cost: RingCost) -> dict[str, Any]:
    held_out = leave_out(pairs, lambda pair: pair.candidate.model, cost.chains)
    errors = [abs(one.predicted_ns / one.pair.candidate_ns - 1) for one in held_out]
    without = [
        fit.ns_per_byte
        for model in sorted(cost.models)
        if (fit := fit_cost([pair for pair in cost.pairs if pair.candidate.model != model], cost.chains))
    ]
    sizes = [
        bucket.buffer_bytes // bucket.group_size
        for pair in cost.pairs
        for steps in pair.traced
        for bucket in steps[-1].buckets
    ]
    return {
        "machine": machine,
        "term": "seal_and_open",
        "chains_count": cost.chains,
        "bytes_per_second": _NS_PER_S / cost.ns_per_byte,
        "low_bytes_per_second": _NS_PER_S / max(without) if without else None,
        "high_bytes_per_second": _NS_PER_S / min(without) if without else None,
        "smallest_bytes": min(sizes),
        "largest_bytes": max(sizes),
        "pairs_count": len(cost.pairs),
        "models_count": len(cost.models),
        "held_out_scheme": "one model left out" if errors else None,
        "median_error_fraction": median(errors) if errors else None,
        "p90_error_fraction": find_percentile(errors, 0.9),
        "source": "lake",
        "evidence": "modelled",
        "reason": None if errors else "pairs of one model alone: no error on another model is known",
    }


def _describe_copies(
    machine: str, pairs: Sequence[ForecastPair], total: float, copies: Sequence[Any]
) -> dict[str, Any]:
    copied = sum(bucket.host_copy_ns for bucket in copies)
    usable = select_replayed(pairs)
    return {
        "machine": machine,
        "term": "host_copy",
        "chains_count": 1,
        "bytes_per_second": total / copied * _NS_PER_S if copied else None,
        "pairs_count": len(usable),
        "models_count": len({pair.baseline.model for pair in usable}),
        "source": "lake",
        "evidence": "measured" if copied else "unobservable",
        "reason": None if copied else "no span shows a copy in host memory",
    }


def _describe_plateau(plateau: PlateauModel) -> Iterable[dict[str, Any]]:
    shared = {
        "machine": plateau.hardware,
        "chains_count": 1,
        "pairs_count": plateau.pairs_count,
        "held_out_scheme": None,
        "evidence": "modelled",
    }
    for term in _ONE_GPU_TERMS:
        constant = getattr(plateau, term)
        is_time = constant.unit == "ns"
        has_pairs = constant.models_count > 0
        yield {
            **shared,
            "term": term,
            "alpha_ns": round(constant.value) if is_time else None,
            "slowdown_ratio": None if is_time else constant.value + (1 if constant.unit == "fraction" else 0),
            "models_count": constant.models_count,
            "source": "lake" if has_pairs else "published",
            "reason": None if has_pairs else "no pair depends on it: it is the published value",
        }
