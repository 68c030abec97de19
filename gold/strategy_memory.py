"""What a GPU must hold under a strategy, in bytes: parameters, gradients, optimizer, activations, buffers.

Mixed precision with Adam, as in ZeRO (Rajbhandari et al. 2020): 2 bytes per parameter and per gradient, 12 of optimizer
(parameters in fp32, two moments). Activations as in Korthikanti et al. 2022, without the attention scores, which
FlashAttention or selective recomputation never keep: a layer keeps s·b·h·(10 + 24/t) bytes, or 2·s·b·h where it is
recomputed as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

PARAMETER_BYTES = 2
GRADIENT_BYTES = 2
OPTIMIZER_BYTES = 12
# A checkpoint keeps what cannot be computed again: the parameters in fp32 and both moments.
CHECKPOINT_BYTES = 12
# Read and written by the optimizer per parameter: gradient, parameters in fp32 and moments read; the latter and the
# parameters in bf16 written.
UPDATE_BYTES = GRADIENT_BYTES + 2 * OPTIMIZER_BYTES + PARAMETER_BYTES
# What the allocator, the context and the libraries leave of a GPU's memory: assumed.
USABLE_FRACTION = 0.9
_LOGIT_BYTES = 6  # in fp32, and their gradient in bf16
_SHARDED = {
    # parameters, gradients, optimizer: whether replicas share them
    "zero_1": (False, False, True),
    "zero_2": (False, True, True),
    "zero_3": (True, True, True),
}


@dataclass(frozen=True)
class Memory:
    """Bytes per GPU."""

    parameters: Any
    gradients: Any
    optimizer: Any
    activations: Any
    buffers: Any

    @property
    def total(self) -> Any:
        """All of it."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.buffers


def size_states(exchange: str, ranks: Any, parameters: Any) -> tuple[Any, Any, Any]:
    """Bytes of parameters, gradients and optimizer of a rank that holds so many parameters with its replicas."""
    shares = [ranks if is_sharded else 1 for is_sharded in _SHARDED.get(exchange, (False, False, False))]
    # A worker of a parameter server keeps no optimizer: the server updates.
    optimizer = 0 if exchange in {"parameter_server", "asynchronous_server"} else OPTIMIZER_BYTES
    sizes = (PARAMETER_BYTES, GRADIENT_BYTES, optimizer)
    first, second, third = (size * parameters / share for size, share in zip(sizes, shares, strict=True))
    return first, second, third


def size_activations(
    shape: tuple[int, int, int], layers: Any, tensor: Any, in_flight: Any, micro_batch: Any, is_recomputed: Any
) -> Any:
    """Bytes of activations on the stage that keeps most; `shape` is sequence, hidden and vocabulary size.

    The first stage keeps those of all micro-batches in flight, the last one those of one and the logits.
    """
    sequence, hidden, vocabulary = shape
    token = sequence * micro_batch * hidden
    whole = token * (10 + 24 / tensor)
    kept = np.where(is_recomputed, 2.0 * token, whole) * layers
    working = np.where(is_recomputed, whole, 0.0)
    logits = _LOGIT_BYTES * sequence * micro_batch * vocabulary / tensor
    return np.maximum(kept * in_flight + working, kept + working + logits)
