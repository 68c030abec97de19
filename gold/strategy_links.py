"""What a message costs between GPUs of a node and between nodes, without a TEE and under a regime."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from silver.policy import POLICY

if TYPE_CHECKING:
    from gold.hardware import Gpu, Link, Regime

_BOUNDARIES = {"node": "gpu_to_gpu", "network": "gpu_to_network", "host": "gpu_to_host"}
_NS_PER_S = 1e9


@dataclass(frozen=True)
class Cluster:
    """GPUs, how many of them share a node, and the links inside of a node and between nodes."""

    gpus_count: int
    gpus_per_node: int
    gpu: Gpu
    node: Link
    network: Link | None = None

    def link(self, scope: str) -> Link:
        """The link of a scope; a cluster of one node has no network, and nothing asks for it."""
        return self.node if scope == "node" or self.network is None else self.network


@dataclass(frozen=True)
class Path:
    """One message: a fixed time and a time per byte, each of the link and of what seals."""

    fixed_ns: float
    byte_ns: float
    seal_fixed_ns: float
    seal_byte_ns: float
    operation_ns: float
    is_hidden: bool
    must_seal: bool


@dataclass(frozen=True)
class Hop:
    """The slowest message of a group, for arrays of groups: `rails` of its ranks share what crosses between nodes."""

    fixed_ns: Any
    byte_ns: Any
    seal_fixed_ns: Any
    seal_byte_ns: Any
    operation_ns: Any
    is_hidden: Any
    is_far: Any
    rails: Any

    def link_ns(self, size_bytes: Any) -> Any:
        """Time of a message on the link."""
        return self.fixed_ns + size_bytes * self.byte_ns

    def seal_ns(self, size_bytes: Any) -> Any:
        """Time that sealing, opening and bounce buffers add to it."""
        return self.seal_fixed_ns + size_bytes * self.seal_byte_ns


def make_path(cluster: Cluster, regime: Regime, scope: str, seal_and_open_ns: float | None = None) -> Path:
    """A message under a regime; `seal_and_open_ns` per byte, where measured, replaces the cipher's rate."""
    guard, link = regime.guard(scope), cluster.link(scope)
    cipher = 0.0
    if guard.cipher_bytes_per_second is not None:
        cipher = 2 * _NS_PER_S / guard.cipher_bytes_per_second if seal_and_open_ns is None else seal_and_open_ns
    on_link = 0.0 if guard.is_through_host else 1.0
    return Path(
        on_link * link.latency_ns,
        on_link * _NS_PER_S / (link.achieved_bytes_per_second * guard.kept_fraction),
        sum(copy.fixed_ns for copy in guard.copies),
        sum(_NS_PER_S / copy.bytes_per_second for copy in guard.copies) + cipher,
        guard.operation_ns,
        guard.is_hidden,
        must_seal(regime.name, scope),
    )


def must_seal(regime: str, scope: str) -> bool:
    """Whether a regime must seal messages of a scope, by the same policy that annotates recorded crossings."""
    boundary = _BOUNDARIES[scope]
    return any(
        promise.must_seal for promise in POLICY.promises if (promise.regime, promise.boundary) == (regime, boundary)
    )


def place_group(cluster: Cluster, ranks: Any, stride: Any) -> tuple[Any, Any]:
    """Whether a group of ranks that lie `stride` apart leaves its node, and how many of it share a node.

    Ranks fill nodes in their order, those of a tensor group first, then replicas, then stages.
    """
    span, per_node = ranks * stride, cluster.gpus_per_node
    is_far = (cluster.gpus_count > per_node) & (ranks > 1) & ((span > per_node) | (per_node % np.maximum(span, 1) != 0))
    return is_far, np.clip(per_node // np.maximum(stride, 1), 1, np.maximum(ranks, 1))


def find_ring_hop(cluster: Cluster, near: Path, far: Path, ranks: Any, stride: Any) -> Hop:
    """A step of a ring goes at the pace of its slowest link: between nodes, ranks of a node share the load."""
    is_far, rails = place_group(cluster, ranks, stride)
    far_bytes, near_bytes = (far.byte_ns + far.seal_byte_ns) / rails, near.byte_ns + near.seal_byte_ns
    by_network = is_far & (far_bytes >= near_bytes)
    return Hop(
        np.where(is_far, max(near.fixed_ns, far.fixed_ns), near.fixed_ns),
        np.where(by_network, far.byte_ns / rails, near.byte_ns),
        np.where(is_far, max(near.seal_fixed_ns, far.seal_fixed_ns), near.seal_fixed_ns),
        np.where(by_network, far.seal_byte_ns / rails, near.seal_byte_ns),
        np.where(is_far, max(near.operation_ns, far.operation_ns), near.operation_ns),
        np.where(is_far, near.is_hidden and far.is_hidden, near.is_hidden),
        is_far,
        rails,
    )


def find_direct_hop(near: Path, far: Path, is_far: Any) -> Hop:
    """A message from one rank to another."""
    names = ("fixed_ns", "byte_ns", "seal_fixed_ns", "seal_byte_ns", "operation_ns", "is_hidden")
    costs = {name: np.where(is_far, getattr(far, name), getattr(near, name)) for name in names}
    return Hop(**costs, is_far=is_far, rails=1)
