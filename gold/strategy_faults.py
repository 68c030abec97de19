"""What interruptions cost under a strategy: a checkpoint under sealing, attestation after a restart, a lost rank."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold.strategy_links import make_path, must_seal
from gold.strategy_memory import CHECKPOINT_BYTES, PARAMETER_BYTES

if TYPE_CHECKING:
    from gold.strategy_question import Question
    from gold.strategy_search import Timed

_NS_PER_S = 1e9


def describe_faults(question: Question, regime: str, timed: Timed, place: int) -> dict[str, Any]:
    """The columns of one row.

    A replica writes one copy of what its ranks hold, ZeRO a share from each. Replicas that hold everything restore a
    lost rank; where it alone held a share of the optimizer, or there is no replica, all go back to a checkpoint.
    """
    layouts, held = timed.layouts, question.regimes[regime]
    parameters = float(layouts.stage_parameters(question.work)[place])
    replicas = int(layouts.data[place])
    is_sharded = timed.exchange.startswith("zero")
    written = CHECKPOINT_BYTES * parameters / (replicas if is_sharded else 1)
    must_roll_back = is_sharded or replicas == 1
    if timed.exchange.endswith("server"):
        lost = PARAMETER_BYTES * parameters  # the server keeps the optimizer
    else:
        lost = written + PARAMETER_BYTES * parameters / (replicas if timed.exchange == "zero_3" else 1)
    to_host = _NS_PER_S / held.host_bytes_per_second + _seal_for_storage(question, regime)
    is_far = question.cluster.gpus_count > question.cluster.gpus_per_node
    path = make_path(question.cluster, held, "network" if is_far else "node")
    sent = to_host if must_roll_back else path.byte_ns + path.seal_byte_ns
    # One guest per GPU where peers cannot reach each other, else one per node.
    attested = 1 if held.node.is_through_host else question.cluster.gpus_per_node
    return {
        "checkpoint_bytes": round(written),
        "checkpoint_ns": round(written * to_host),
        "reattestation_ns": round(held.attestation_ns * attested),
        "lost_rank_bytes": round(lost),
        "lost_rank_ns": round(lost * sent),
        "must_roll_back": must_roll_back,
    }


def _seal_for_storage(question: Question, regime: str) -> float:
    """Nanoseconds to seal a byte for the disk, where the regime seals what leaves the GPU for the host."""
    rate = question.regimes[regime].network.cipher_bytes_per_second
    return _NS_PER_S / rate if rate and must_seal(regime, "host") else 0.0
