"""How long a step takes under a strategy, by part: compute, launches, communication, sealing, bubble, update.

Compute is 6 operations per parameter and token, and 12·layers·hidden·sequence per token for attention, at the peak
times the utilisation that kernels reach, never faster than parameters can be read. Gradients are exchanged during the
backward pass of the last micro-batch, ZeRO-3 gathers during all of compute; nothing hides tensor and pipeline traffic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from gold.strategy_counts import count_server, count_tensor_reduces, find_bubble_fraction
from gold.strategy_links import Cluster, Hop, Path, find_direct_hop, find_ring_hop, place_group
from gold.strategy_memory import GRADIENT_BYTES, PARAMETER_BYTES, UPDATE_BYTES

if TYPE_CHECKING:
    from gold.hardware import Regime

# What NCCL's tuner adds to a ring, whatever its size, under its protocol for large messages (src/graph/tuning.cc).
COLLECTIVE_NS = 8_400.0
# Kernels per layer of a forward and backward pass, its share of the update included: the recording gpt2-plain-w4.
LAUNCHES_PER_LAYER = 62
_LEAST_BUCKET = 1 << 20
_NS_PER_S = 1e9
_ACTIVATION_BYTES = 2


@dataclass(frozen=True)
class Workload:
    """A dense transformer and its batch: sequences per step, over all replicas."""

    parameters_count: int
    layers_count: int
    hidden_size: int
    sequence_length: int
    vocabulary_size: int
    batch: int
    heads_count: int | None = None
    # What a tensor degree must divide, where that is not the hidden size.
    cut_size: int | None = None

    @property
    def embedding_count(self) -> int:
        """Parameters of the embedding, which no pipeline splits."""
        return min(self.vocabulary_size * self.hidden_size, self.parameters_count)


@dataclass(frozen=True)
class Layouts:
    """Degrees, micro-batches and recomputation of many candidates, as arrays of one length."""

    data: Any
    tensor: Any
    pipeline: Any
    micro_batch: Any
    is_recomputed: Any

    def micro_batches(self, work: Workload) -> Any:
        """Micro-batches of a step per replica."""
        return work.batch // (self.data * self.micro_batch)

    def stage_layers(self, work: Workload) -> Any:
        """Layers of the fullest stage."""
        return -(-work.layers_count // self.pipeline)

    def stage_parameters(self, work: Workload) -> Any:
        """Parameters that a rank and its replicas hold, on the fullest stage, with an embedding."""
        layers = (work.parameters_count - work.embedding_count) * self.stage_layers(work) / work.layers_count
        return (layers + work.embedding_count) / self.tensor

    def activation_bytes(self, work: Workload) -> Any:
        """Activations of a micro-batch between two layers."""
        return _ACTIVATION_BYTES * self.micro_batch * work.sequence_length * work.hidden_size


@dataclass(frozen=True)
class Machine:
    """What is fixed while candidates differ: cluster, regime, what messages cost, and how well kernels do."""

    cluster: Cluster
    regime: Regime
    near: Path
    far: Path
    peak_flops: float
    utilisation: float
    bucket_bytes: float | None = None
    gossip_degree: int = 2


@dataclass(frozen=True)
class Times:
    """Nanoseconds of a step by part, and the buckets that gradients are exchanged in."""

    compute: Any
    launch: Any
    communication: Any
    sealing: Any
    bubble: Any
    update: Any
    buckets: Any
    bucket_bytes: Any

    @property
    def step(self) -> Any:
        """The whole step."""
        return self.compute + self.launch + self.communication + self.sealing + self.bubble + self.update


def time_step(work: Workload, machine: Machine, layouts: Layouts, exchange: str) -> Times:
    """A step of each candidate."""
    micro = layouts.micro_batches(work)
    bubble = find_bubble_fraction(layouts.pipeline, micro)
    compute = _time_compute(work, machine, layouts)
    tensor = _time_tensor(work, machine, layouts)
    pipe = _time_boundaries(work, machine, layouts)
    passes = 1 + layouts.is_recomputed / 3
    launching = LAUNCHES_PER_LAYER * layouts.stage_layers(work) * passes * machine.regime.launch_ns
    launch = np.maximum(0.0, launching - compute - tensor[0] - tensor[1])
    whole = compute + launch + sum(tensor) + sum(pipe)
    exchanged, buckets, bucket_bytes = time_exchange(work, machine, layouts, exchange, compute)
    shares = layouts.data if exchange in {"zero_1", "zero_2", "zero_3"} else 1
    update = UPDATE_BYTES * layouts.stage_parameters(work) / shares / machine.cluster.gpu.memory_bytes_per_second
    return Times(
        micro * compute,
        micro * launch,
        micro * (tensor[0] + pipe[0]) + exchanged[0],
        micro * (tensor[1] + pipe[1]) + exchanged[1],
        micro * whole * bubble / (1 - bubble),
        update * _NS_PER_S,
        buckets,
        bucket_bytes,
    )


def count_operations(work: Workload, share: Any = 1.0, is_recomputed: Any = 0) -> Any:
    """Operations of a step for one sequence on a stage with that share of the layers, and the embedding."""
    attention = 12 * work.layers_count * work.hidden_size * work.sequence_length
    layers = (6 * (work.parameters_count - work.embedding_count) + attention) * share * (1 + is_recomputed / 3)
    return (layers + 6 * work.embedding_count) * work.sequence_length


def _time_compute(work: Workload, machine: Machine, layouts: Layouts) -> Any:
    """Forward and backward pass of a micro-batch on the fullest stage, a repeated forward pass included."""
    share = layouts.stage_layers(work) / work.layers_count
    operations = count_operations(work, share, layouts.is_recomputed) / layouts.tensor * layouts.micro_batch
    read = (3 + layouts.is_recomputed) * PARAMETER_BYTES * layouts.stage_parameters(work)
    by_memory = read / machine.cluster.gpu.memory_bytes_per_second
    return np.maximum(operations / (machine.peak_flops * machine.utilisation), by_memory) * _NS_PER_S


def _time_tensor(work: Workload, machine: Machine, layouts: Layouts) -> tuple[Any, Any]:
    """All-reduces of a micro-batch on link and for sealing: nothing hides them."""
    degree = layouts.tensor
    hop = find_ring_hop(machine.cluster, machine.near, machine.far, degree, np.ones_like(degree))
    size = layouts.activation_bytes(work) / degree
    reduces = count_tensor_reduces(layouts.stage_layers(work), 1, layouts.is_recomputed) * (degree > 1)
    steps = 2 * (degree - 1)
    return reduces * (steps * hop.link_ns(size) + hop.operation_ns + COLLECTIVE_NS), reduces * steps * hop.seal_ns(size)


def _time_boundaries(work: Workload, machine: Machine, layouts: Layouts) -> tuple[Any, Any]:
    """A stage waits for each micro-batch twice: for its activations, and for their gradient."""
    is_far = np.full_like(layouts.pipeline, machine.cluster.gpus_count > machine.cluster.gpus_per_node, dtype=bool)
    hop, size = find_direct_hop(machine.near, machine.far, is_far), layouts.activation_bytes(work)
    messages = 2 * (layouts.pipeline > 1)
    return messages * hop.link_ns(size), messages * hop.seal_ns(size)


def time_exchange(
    work: Workload, machine: Machine, layouts: Layouts, exchange: str, compute_ns: Any
) -> tuple[tuple[Any, Any], Any, Any]:
    """What of the exchange between replicas compute does not hide (link and sealing), its buckets and their size."""
    if exchange == "none":
        nothing = np.zeros_like(layouts.data)
        return (nothing, nothing), nothing, nothing
    hop = find_ring_hop(machine.cluster, machine.near, machine.far, layouts.data, layouts.tensor)
    if exchange == "zero_3":
        return _gather_units(work, layouts, hop, compute_ns)
    gradients = GRADIENT_BYTES * layouts.stage_parameters(work)
    costs = _cost_buckets(machine, layouts, exchange, hop)
    buckets = _choose_buckets(gradients, costs, machine.bucket_bytes)
    size = gradients / buckets
    link, seal = ((fixed + size * rate) * buckets for fixed, rate in costs)
    backward = compute_ns * np.where(layouts.is_recomputed, 3 / 4, 2 / 3)
    if exchange in {"zero_1", "zero_2"}:
        # Half of it gathers parameters, after the update, while nothing computes.
        exposed = _expose(link / 2 + seal / 2, buckets, backward * hop.is_hidden) + link / 2 + seal / 2
    elif exchange == "asynchronous_server":
        # Nobody waits for others: only what the server cannot serve while a rank computes is left.
        exposed = np.maximum(0.0, link + seal - compute_ns * layouts.micro_batches(work) * hop.is_hidden)
    else:
        exposed = _expose(link + seal, buckets, backward * hop.is_hidden)
    share = exposed / (link + seal)
    return (link * share, seal * share), buckets, size


def _expose(total_ns: Any, buckets: Any, hidden_ns: Any) -> Any:
    """What is left of an exchange: the last bucket is never hidden."""
    return np.maximum(total_ns / buckets, total_ns - hidden_ns)


def _cost_buckets(
    machine: Machine, layouts: Layouts, exchange: str, hop: Hop
) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    """Of one bucket, on the link and for sealing: what it costs whatever its size, and what a byte of it costs."""
    ranks = layouts.data
    if exchange in {"ring_ddp", "zero_1", "zero_2"}:
        steps = 2 * (ranks - 1)
        collectives = 1 if exchange == "ring_ddp" else 2
        fixed = steps * hop.fixed_ns + collectives * (hop.operation_ns + COLLECTIVE_NS)
        shares = steps / ranks
        return (fixed, shares * hop.byte_ns), (steps * hop.seal_fixed_ns, shares * hop.seal_byte_ns)
    is_far, rails = place_group(machine.cluster, ranks, layouts.tensor)
    near, far = (find_direct_hop(machine.near, machine.far, np.full_like(is_far, flag)) for flag in (False, True))
    if exchange in {"parameter_server", "asynchronous_server"}:
        # The server takes in all gradients over one link, then gives parameters to all.
        one, served = find_direct_hop(machine.near, machine.far, is_far), count_server(ranks, 1, 1)
        return (
            (served.rounds * one.fixed_ns, served.payload_bytes * one.byte_ns),
            (served.messages * one.seal_fixed_ns, served.payload_bytes * one.seal_byte_ns),
        )
    peers = ranks - 1 if exchange == "decentralised" else np.minimum(ranks - 1, machine.gossip_degree)
    inside = np.where(is_far, np.minimum(peers, rails - 1), peers)
    outside = peers - inside
    return (
        (inside * near.fixed_ns + outside * far.fixed_ns, inside * near.byte_ns + outside * far.byte_ns),
        (
            inside * near.seal_fixed_ns + outside * far.seal_fixed_ns,
            inside * near.seal_byte_ns + outside * far.seal_byte_ns,
        ),
    )


def _choose_buckets(gradients: Any, costs: Any, bucket_bytes: float | None) -> Any:
    """As many buckets as a cap asks for, or as balance what each costs against the last one, which nothing hides."""
    fixed, rate = (costs[0][place] + costs[1][place] for place in (0, 1))
    best = np.sqrt(gradients * fixed / np.maximum(rate, 1e-12)) if bucket_bytes is None else bucket_bytes
    return np.maximum(1.0, np.ceil(gradients / np.clip(best, _LEAST_BUCKET, None)))


def _gather_units(work: Workload, layouts: Layouts, hop: Hop, compute_ns: Any) -> tuple[tuple[Any, Any], Any, Any]:
    """ZeRO-3: for each layer and micro-batch parameters are gathered twice, and gradients scattered once."""
    units, micro = layouts.stage_layers(work), layouts.micro_batches(work)
    size = PARAMETER_BYTES * layouts.stage_parameters(work) / units
    steps = 3 * (layouts.data - 1)
    link = units * (steps * hop.link_ns(size / layouts.data) + 3 * (hop.operation_ns + COLLECTIVE_NS))
    seal = units * steps * hop.seal_ns(size / layouts.data)
    exposed = micro * np.maximum((link + seal) / (3 * units), link + seal - compute_ns * hop.is_hidden)
    share = exposed / (link + seal)
    return (link * share, seal * share), units * micro, size
