"""Runs and pairs as the cost model sees them: what they are, how long their steps take, and their traced steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gold.bucket_replay import TracedStep, predict, read_steps, seal_ring
from gold.pairs import MACHINE, OFF, read_fields

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gold.pairs import Index, Pair

    Rows = Sequence[Mapping[str, Any]]

# Nanoseconds per byte at which each pair is replayed, from 50 GB/s to 50 MB/s; costs between them are interpolated.
COSTS = np.geomspace(0.02, 20.0, 200)
# No regime's model is fitted on more pairs: adding a run costs the same in a lake of any size.
MOST_PAIRS = 128
# Of one workload so many pairs are enough.
_MOST_ALIKE = 3


@dataclass(frozen=True)
class ForecastRun:
    """One run: its workload, its step without the profiler where that was logged, and what was traced of it."""

    run_id: str
    regime: str | None
    fields: Mapping[str, str]
    step_ns: float | None = None
    burden: float | None = None
    steps: tuple[TracedStep, ...] = ()
    # Of a job on one GPU: what its traced step would take as one CUDA graph.
    graph_ns: float | None = None
    # Whether nothing but a trace timed its step: the profiler slows the host.
    is_step_traced: bool = False

    @property
    def model(self) -> str:
        """Name of the model; empty where the manifest does not say."""
        return self.fields.get("model", "")

    @property
    def machine(self) -> str:
        """Hardware and software, as `field=value` parts."""
        return _name_machine(self.fields)

    @property
    def chains(self) -> int:
        """Threads that seal one message together."""
        chains = self.fields.get("ring_chains", "")
        return int(chains) if chains.isdigit() else 1

    @property
    def variant(self) -> str | None:
        """The option of the ring whose effect no model of ours predicts; none in the plain case."""
        named = [name for name in ("pipelined", "direct") if self.fields.get(f"ring_{name}") == "true"]
        return " and ".join(named) or None

    def number(self, name: str) -> float | None:
        """A number of the workload; none where the manifest does not say."""
        try:
            return float(self.fields[name])
        except (KeyError, ValueError):
            return None

    @property
    def world_size(self) -> int:
        """Ranks of the job; 1 where nothing says."""
        return int(self.number("world_size") or 1)

    @property
    def sealed_bytes(self) -> float:
        """Bytes that a rank seals per step; by the number of parameters where no step was traced."""
        if self.steps:
            return sum(bucket.sealed_bytes for bucket in self.steps[-1].buckets)
        parameters = self.number("parameters_count") or 0.0
        return 2 * (self.world_size - 1) / self.world_size * parameters * 4


@dataclass(frozen=True)
class ForecastPair:
    """Runs of a regime and of their baseline: both sides' steps are means over the repeats that have one."""

    candidate: ForecastRun
    baseline: ForecastRun
    candidate_ns: float
    baseline_ns: float
    # Of each run of the baseline that was traced.
    traced: tuple[tuple[TracedStep, ...], ...]
    # How far the repeats of a side lie apart: the standard deviation of their logarithms, both sides together.
    noise_fraction: float | None = None

    @cached_property
    def errors_by_cost(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Logarithm of predicted over measured step at each of `COSTS`: made once, however often the pair is fitted."""
        return np.array([math.log(max(self.predict(cost), 1.0) / self.candidate_ns) for cost in COSTS])

    def predict(self, ns_per_byte: float) -> float:
        """The candidate's step from its baseline's traces and step: the mean over the traced runs."""
        added = seal_ring(ns_per_byte)
        return math.fsum(predict(steps, self.baseline_ns, added) for steps in self.traced) / len(self.traced)

    @property
    def slowdown(self) -> float:
        """Step of the candidate over step of the baseline."""
        return self.candidate_ns / self.baseline_ns


def read_run(
    run_id: str,
    run: Mapping[str, str | None],
    times: Rows,
    exposure: Rows,
    rate: float | None = None,
    graph_ns: float | None = None,
) -> ForecastRun:
    """A run from its row in the log of silver.runs and from its rows of gold.step_times and gold.exposure.

    `rate` is its throughput in samples per second: what a log of epochs says of a step. `graph_ns` is what the
    step of a job on one GPU would take as one CUDA graph.
    """
    fields = _read_all_fields(run)
    by_source = {row["source"]: row for row in times if row["step_ns"] and row["period"] == "step"}
    steps = by_source.get("log") or by_source.get("trace")
    batch = fields.get("batch_size", "")
    if steps is None and rate and batch.isdigit():
        steps = {"step_ns": int(batch) / rate * 1e9}
    burdens = [row["recording_slowdown_ratio"] for row in times if row["recording_slowdown_ratio"]]
    return ForecastRun(
        run_id,
        run["regime"],
        fields,
        float(steps["step_ns"]) if steps else None,
        burdens[0] if burdens else None,
        read_steps(exposure),
        graph_ns,
        steps is not None and steps.get("source") == "trace",
    )


def make_pair(pair: Pair, runs: Mapping[str, ForecastRun]) -> ForecastPair | None:
    """A pair whose sides both have a step; none where one has not."""
    sides = [
        [runs[name] for name in names if name in runs and runs[name].step_ns]
        for names in (pair.candidates, pair.baselines)
    ]
    if not all(sides):
        return None
    logs = [[math.log(run.step_ns) for run in side if run.step_ns] for side in sides]
    means = [math.fsum(values) / len(values) for values in logs]
    freedom = sum(len(values) - 1 for values in logs)
    squares = math.fsum((value - mean) ** 2 for values, mean in zip(logs, means, strict=True) for value in values)
    return ForecastPair(
        sides[0][0],
        sides[1][0],
        math.exp(means[0]),
        math.exp(means[1]),
        tuple(run.steps for run in sides[1] if run.steps),
        math.sqrt(squares / freedom) if freedom else None,
    )


def _read_all_fields(run: Mapping[str, str | None]) -> dict[str, str]:
    return {**read_fields(run["workload"]), **read_fields(run["family"])}


def _name_machine(fields: Mapping[str, str]) -> str:
    return "|".join(f"{name}={fields.get(name, '')}" for name in MACHINE)


def choose_off_runs(pairs: Sequence[Pair], index: Index) -> list[str]:
    """The runs without a TEE on the machines of these pairs: predictions are asked of them; bounded.

    A repeat is none of them: it says no more than the run that it repeats.
    """
    machines = {_name_machine(_read_all_fields(index[pair.run_id])) for pair in pairs}
    plain = (name for name, run in sorted(index.items()) if run["regime"] == OFF and not run["repeat_of"])
    return [name for name in plain if _name_machine(_read_all_fields(index[name])) in machines][:MOST_PAIRS]


def choose_pairs(pairs: Mapping[str, Pair], index: Index, regime: str) -> list[Pair]:
    """The pairs of a regime that its model is fitted on: a few of each workload, so that no lake is too large.

    A pair that says nothing of a TEE, such as one of two runs under it, is no evidence of what the regime costs.
    """
    alike: dict[str, int] = {}
    chosen = []
    for run_id, pair in sorted(pairs.items()):
        if pair.regime != regime or not pair.is_tee_overhead:
            continue
        kind = f"{index[run_id]['workload']} {index[run_id]['family']}"
        alike[kind] = alike.get(kind, 0) + 1
        if alike[kind] <= _MOST_ALIKE:
            chosen.append(pair)
    return chosen[:MOST_PAIRS]
