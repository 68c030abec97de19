"""All ways to spread a job over its GPUs, timed and sized at once: degrees, micro-batches, recomputation.

The search is exact: every divisor of the number of GPUs is a degree, every divisor of a replica's batch a micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from math import gcd
from typing import TYPE_CHECKING, Any

import numpy as np

from gold.strategy_counts import EXCHANGES, INEXACT, Counts, count_exchange, count_pipeline, count_tensor
from gold.strategy_links import place_group
from gold.strategy_memory import USABLE_FRACTION, Memory, size_activations, size_states
from gold.strategy_time import Layouts, Machine, Times, Workload, time_step

if TYPE_CHECKING:
    from gold.strategy_links import Cluster

# Puts what does not fit, by its bytes, behind every step that fits.
_FAR = 1e18
Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class Timed:
    """Candidates of one exchange under one regime: degrees, parts of the step, memory, and what crosses a boundary."""

    work: Workload
    machine: Machine
    exchange: str
    layouts: Layouts
    times: Times
    memory: Memory
    is_fitting: Array

    @property
    def is_exact(self) -> bool:
        """Whether it takes the same step as one GPU would."""
        return self.exchange not in INEXACT

    def choose_best(self) -> Array:
        """Of each layout the fastest candidate that fits, else the smallest one, in the order of the list."""
        one = self.layouts
        merit = np.where(self.is_fitting, self.times.step, self.memory.total * _FAR)
        is_new = (np.diff(one.tensor, prepend=0) != 0) | (np.diff(one.pipeline, prepend=0) != 0)
        cut = np.cumsum(is_new) - 1
        is_least = merit == np.minimum.reduceat(merit, np.flatnonzero(is_new))[cut]
        places: Array = np.flatnonzero(is_least)
        # Of equals the first: the smallest micro-batch, without recomputation.
        chosen: Array = places[np.diff(cut[places], prepend=-1) != 0]
        return chosen

    @cached_property
    def crossings(self) -> tuple[Counts, Counts]:
        """What the busiest rank sends per step, and what of it the regime must seal."""
        return _count(self.work, self.machine, self.layouts, self.exchange, self.times)


def list_layouts(work: Workload, gpus_count: int) -> Layouts:
    """Every layout that the model and its batch allow; candidates of one layout follow each other."""
    divided = gcd(work.cut_size or work.hidden_size, work.heads_count or 0)
    return _list_cuts(gpus_count, work.batch, work.layers_count, divided)


@cache
def _list_cuts(gpus_count: int, batch: int, layers: int, divided: int) -> Layouts:
    rows = [
        (data, tensor, pipeline, micro, is_recomputed)
        for tensor in list_divisors(gpus_count)
        if divided % tensor == 0
        for pipeline in list_divisors(gpus_count // tensor)
        if pipeline <= layers and batch % (data := gpus_count // (tensor * pipeline)) == 0
        for micro in list_divisors(batch // data)
        for is_recomputed in (0, 1)
    ]
    columns = np.array(rows, dtype=np.int64).reshape(-1, 5).T
    return Layouts(*columns)


def list_divisors(number: int) -> list[int]:
    """All divisors, in order."""
    small = [one for one in range(1, int(number**0.5) + 1) if number % one == 0]
    return sorted({*small, *(number // one for one in small)})


def list_exchanges(chosen: tuple[str, ...] = EXCHANGES) -> list[str]:
    """The exchanges in their fixed order; without replicas there is always `none`."""
    return [one for one in EXCHANGES if one == "none" or one in chosen]


def time_layouts(work: Workload, machine: Machine, layouts: Layouts, exchange: str) -> Timed:
    """Time and size the candidates that have replicas to exchange between, or for `none` those that have not."""
    kept = (layouts.data == 1) if exchange == "none" else (layouts.data > 1)
    names = ("data", "tensor", "pipeline", "micro_batch", "is_recomputed")
    mine = Layouts(**{name: getattr(layouts, name)[kept] for name in names})
    times = time_step(work, machine, mine, exchange)
    memory = _size(work, machine, mine, exchange, times)
    usable_bytes = machine.cluster.gpu.memory_bytes * USABLE_FRACTION
    return Timed(work, machine, exchange, mine, times, memory, np.asarray(memory.total <= usable_bytes))


def _size(work: Workload, machine: Machine, layouts: Layouts, exchange: str, times: Times) -> Memory:
    parameters, gradients, optimizer = size_states(exchange, layouts.data, layouts.stage_parameters(work))
    micro = layouts.micro_batches(work)
    shape = (work.sequence_length, work.hidden_size, work.vocabulary_size)
    activations = size_activations(
        shape,
        layouts.stage_layers(work),
        layouts.tensor,
        np.minimum(layouts.pipeline, micro),
        layouts.micro_batch,
        layouts.is_recomputed,
    )
    # ZeRO-3 holds two gathered layers and the gradients of one; others one bucket that fills and one that is sent.
    buffers = (3 if exchange == "zero_3" else 2) * times.bucket_bytes + machine.regime.reserved_bytes
    return Memory(parameters, gradients, optimizer, activations, buffers)


def _count(work: Workload, machine: Machine, layouts: Layouts, exchange: str, times: Times) -> tuple[Counts, Counts]:
    micro, activation = layouts.micro_batches(work), layouts.activation_bytes(work)
    gradients = times.bucket_bytes * times.buckets
    groups = (
        (
            count_exchange(exchange, layouts.data, times.buckets, gradients, degree=machine.gossip_degree),
            *_find_sealed_share(machine, layouts.data, layouts.tensor, exchange),
        ),
        (
            count_tensor(layouts.tensor, layouts.stage_layers(work), micro, activation, layouts.is_recomputed),
            *_find_sealed_share(machine, layouts.tensor, np.ones_like(layouts.tensor), "ring_ddp"),
        ),
        (
            count_pipeline(layouts.pipeline, micro, activation),
            *_find_boundary_share(machine, layouts.pipeline),
        ),
    )
    fan_in = np.maximum.reduce([np.broadcast_to(one.fan_in, layouts.data.shape) for one, _, _ in groups])
    rounds = sum(one.rounds for one, _, _ in groups)
    total = Counts(
        sum(one.messages for one, _, _ in groups), sum(one.payload_bytes for one, _, _ in groups), rounds, fan_in
    )
    sealed = Counts(
        sum(one.messages * share for one, share, _ in groups),
        sum(one.payload_bytes * share for one, _, share in groups),
        rounds,
        fan_in,
    )
    return total, sealed


def _find_sealed_share(machine: Machine, ranks: Any, stride: Any, exchange: str) -> tuple[Any, Any]:
    """Share of a group's messages and bytes that must be sealed: all where the node's link must, else what leaves it.

    Around a ring each rank of a node carries its share of what leaves the node; direct messages go to peers outside.
    """
    is_far, rails = place_group(machine.cluster, ranks, stride)
    if machine.near.must_seal or not machine.far.must_seal:
        share = np.full(np.shape(ranks), 1.0 if machine.near.must_seal else 0.0)
        return share, share
    if exchange in {"decentralised", "gossip"}:
        peers = (
            np.maximum(ranks - 1, 1) if exchange == "decentralised" else np.minimum(ranks - 1, machine.gossip_degree)
        )
        outside = np.where(is_far, np.maximum(peers - (rails - 1), 0), 0) / np.maximum(peers, 1)
        return outside, outside
    if exchange in {"parameter_server", "asynchronous_server"}:
        return is_far * 1.0, is_far * 1.0
    return is_far * 1.0, is_far / rails


def _find_boundary_share(machine: Machine, stages: Any) -> tuple[Any, Any]:
    is_far = machine.cluster.gpus_count > machine.cluster.gpus_per_node
    share = np.full(np.shape(stages), float(machine.far.must_seal if is_far else machine.near.must_seal))
    return share, share


def explain_no_layout(work: Workload, cluster: Cluster, layouts: Layouts) -> str | None:
    """Why no layout of the GPUs is possible, and what would make one so; none where there is one."""
    if len(layouts.data):
        return None
    return (
        f"no layout of {cluster.gpus_count} GPUs divides a batch of {work.batch} sequences over at most "
        f"{work.layers_count} stages: choose a batch that shares a larger divisor with the number of GPUs"
    )
