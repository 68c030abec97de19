"""How many messages and bytes a rank sends per step under each strategy: pure counts, for numbers and for arrays alike.

`ranks` are those of the group that exchanges, `gradient_bytes` the gradients that one of its ranks holds, `buckets` how
often they are exchanged. One rank alone sends nothing. Messages are those of the named algorithm, whatever library runs
it: a library that cuts them further sends more, smaller ones, and the same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

# Ways to exchange gradients between replicas; `none` where there is one replica.
EXCHANGES = (
    "none",
    "ring_ddp",
    "parameter_server",
    "asynchronous_server",
    "decentralised",
    "gossip",
    "zero_1",
    "zero_2",
    "zero_3",
)
# These change the mathematics: replicas no longer take the same step from the mean of all gradients.
INEXACT = ("gossip", "asynchronous_server")
# Messages per layer, micro-batch and peer that tensor parallelism sends: four all-reduces, two more where the forward
# pass is repeated.
_TENSOR_REDUCES = 4
_RECOMPUTED_REDUCES = 2


@dataclass(frozen=True)
class Counts:
    """What one rank sends per step; rounds follow each other, and fan-in is how many send to one rank at once."""

    messages: Any
    payload_bytes: Any
    rounds: Any
    fan_in: Any


def count_exchange(exchange: str, ranks: Any, buckets: Any, gradient_bytes: Any, *, degree: int = 2) -> Counts:
    """An exchange of gradients once per step; `degree` is the number of a gossip's neighbours."""
    if exchange == "none":
        return Counts(ranks * 0, ranks * 0, ranks * 0, ranks * 0)
    if exchange in {"ring_ddp", "zero_1", "zero_2"}:
        return _count_ring(ranks, buckets, gradient_bytes, 2)
    if exchange == "zero_3":
        return _count_ring(ranks, buckets, gradient_bytes, 3)
    if exchange in {"parameter_server", "asynchronous_server"}:
        is_shared = np.minimum(ranks - 1, 1)  # a rank alone needs no server
        return Counts(
            2 * buckets * is_shared, 2 * gradient_bytes * is_shared, 2 * buckets * is_shared, ranks * is_shared
        )
    if exchange == "decentralised":
        return Counts(
            buckets * (ranks - 1), gradient_bytes * (ranks - 1), buckets * np.minimum(ranks - 1, 1), ranks - 1
        )
    if exchange == "gossip":
        peers = np.minimum(ranks - 1, degree)
        return Counts(buckets * peers, gradient_bytes * peers, buckets * np.minimum(peers, 1), peers)
    raise ValueError(f"no exchange {exchange!r}")


def count_server(ranks: Any, buckets: Any, gradient_bytes: Any) -> Counts:
    """What the one parameter server takes in and gives out: the gradients of all ranks, and parameters to all."""
    is_shared = np.minimum(ranks - 1, 1)
    return Counts(
        2 * ranks * buckets * is_shared,
        2 * ranks * gradient_bytes * is_shared,
        2 * buckets * is_shared,
        ranks * is_shared,
    )


def _count_ring(ranks: Any, buckets: Any, gradient_bytes: Any, passes: int) -> Counts:
    """Passes around a ring, each sending all but one share of 1/N: two reduce and gather, three are those of ZeRO-3."""
    messages = passes * buckets * (ranks - 1)
    return Counts(messages, passes * (ranks - 1) * gradient_bytes / ranks, messages, np.minimum(ranks - 1, 1))


def count_tensor(degree: Any, layers: Any, micro_batches: Any, activation_bytes: Any, is_recomputed: Any = 0) -> Counts:
    """All-reduces of a layer's activations: two in each direction, and two more where the forward pass is repeated."""
    messages = 2 * count_tensor_reduces(layers, micro_batches, is_recomputed) * (degree - 1)
    return Counts(messages, messages * activation_bytes / degree, messages, np.minimum(degree - 1, 1))


def count_tensor_reduces(layers: Any, micro_batches: Any, is_recomputed: Any = 0) -> Any:
    """How many collectives that is."""
    return (_TENSOR_REDUCES + _RECOMPUTED_REDUCES * is_recomputed) * layers * micro_batches


def count_pipeline_boundary(stages: Any, micro_batches: Any, activation_bytes: Any) -> Counts:
    """What crosses one boundary between stages: each micro-batch forward, and its gradient back."""
    messages = 2 * micro_batches * np.minimum(stages - 1, 1)
    return Counts(messages, messages * activation_bytes, messages, np.minimum(stages - 1, 1))


def count_pipeline(stages: Any, micro_batches: Any, activation_bytes: Any) -> Counts:
    """What the busiest rank of a pipeline sends: an inner stage has two boundaries and half of what crosses each."""
    one, sides = count_pipeline_boundary(stages, micro_batches, activation_bytes), np.minimum(stages - 1, 2)
    return Counts(one.messages * sides // 2, one.payload_bytes * sides / 2, one.rounds, sides)


def find_bubble_fraction(stages: Any, micro_batches: Any) -> Any:
    """Share of a pipelined step in which a stage has nothing to do."""
    return (stages - 1) / (micro_batches + stages - 1)
