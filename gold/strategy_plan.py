"""One row per regime, strategy and layout of the GPUs: what a step takes, what must be sealed, whether it fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gold.pairs import OFF
from gold.prediction_intervals import weigh
from gold.strategy_counts import EXCHANGES
from gold.strategy_faults import describe_faults
from gold.strategy_question import MODEL_ERROR
from lake.tables import Scope, Table, boolean, float64, int64, text
from silver.policy import POLICY
from silver.runs import TABLE as RUNS
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from gold.hardware import Gpu, Link
    from gold.strategy_question import Question
    from gold.strategy_search import Timed

    Row = dict[str, Any]

PARTS = ("compute", "launch", "communication", "sealing", "bubble", "update")
VERDICTS = ("best", "tie", "slower", "does not fit", "changes the mathematics")
_NS_PER_DAY = 86_400e9

TABLE = Table(
    tier="gold",
    name="strategy_plan",
    grain="One row per regime, strategy and layout of the GPUs of the question asked, at its best micro-batch.",
    key=("strategy", "data_size", "tensor_size", "pipeline_size"),
    scope=Scope.QUESTION,
    partition_by=("regime",),
    columns=(
        text("regime", "How links are secured.", one_of=RUNS.column("regime").one_of),
        text("model", "Model that is trained."),
        text("gpu", "GPU of the cluster."),
        int64("world_size", "GPUs of the cluster.", minimum=1),
        text("strategy", "How replicas exchange gradients; none where there is one replica.", one_of=EXCHANGES),
        int64("data_size", "Replicas.", minimum=1),
        int64("tensor_size", "GPUs that share each layer.", minimum=1),
        int64("pipeline_size", "Stages that layers are split into.", minimum=1),
        int64("micro_batch_size", "Sequences that a replica takes at once.", minimum=1),
        int64("micro_batches_count", "Micro-batches of a replica per step.", minimum=1),
        boolean("is_recomputed", "Whether activations are recomputed in the backward pass."),
        int64(
            "buckets_count", "Parts that gradients are exchanged in; for ZeRO-3 layers times micro-batches.", minimum=0
        ),
        int64("bucket_bytes", "Size of one of them.", minimum=0),
        int64("rounds_count", "Exchanges of a step that follow each other.", minimum=0),
        int64("message_count", "Messages that the busiest rank sends per step.", minimum=0),
        int64("fan_in_count", "Most messages that reach one rank at once.", minimum=0),
        int64("payload_bytes", "Bytes of data that the busiest rank sends per step.", minimum=0),
        int64("sealed_message_count", "Those messages that the regime must seal.", minimum=0),
        int64("sealed_bytes", "Those bytes that the regime must seal.", minimum=0),
        int64("compute_ns", "Kernels of forward and backward pass.", minimum=0),
        int64("launch_ns", "What launching takes longer than the GPU.", minimum=0),
        int64("communication_ns", "What of communication nothing hides, without sealing.", minimum=0),
        int64("sealing_ns", "What of sealing, opening and bounce buffers nothing hides.", minimum=0),
        int64("bubble_ns", "What stages of a pipeline wait for the first and last micro-batch.", minimum=0),
        int64("update_ns", "Update of the parameters.", minimum=0),
        int64("predicted_step_ns", "The whole step: the sum of these parts.", minimum=0),
        int64(
            "predicted_low_ns", "Lower end of its interval; only where the lake has pairs.", nullable=True, minimum=0
        ),
        int64("predicted_high_ns", "Upper end.", nullable=True, minimum=0),
        float64("interval_level", "Level of that interval.", nullable=True, minimum=0, maximum=1),
        float64("slowdown_ratio", "The step over that of the same strategy and layout without a TEE.", minimum=0),
        text("dominant_term", "What the step mostly is.", one_of=PARTS),
        int64("parameters_bytes", "Parameters on a GPU.", minimum=0),
        int64("gradients_bytes", "Gradients on a GPU.", minimum=0),
        int64("optimizer_bytes", "State of the optimizer on a GPU.", minimum=0),
        int64("activations_bytes", "Activations on the GPU that keeps most.", minimum=0),
        int64("buffers_bytes", "Buckets, gathered layers, and what CC keeps of the memory for itself.", minimum=0),
        int64("memory_bytes", "All of it.", minimum=0),
        boolean("is_fitting", "Whether that fits into nine tenths of the GPU's memory."),
        float64(
            "nonce_budget_days",
            "Days until a key of a rank has sealed as many messages as it may (silver.nonce_budgets); null where the "
            "regime seals none of them.",
            nullable=True,
            minimum=0,
        ),
        boolean("is_exact", "Whether the mathematics is that of one GPU; not for gossip and an asynchronous server."),
        int64("checkpoint_bytes", "What the busiest GPU writes into a checkpoint.", minimum=0),
        int64("checkpoint_ns", "Copying that to the host, and sealing it where the regime seals copies.", minimum=0),
        int64("reattestation_ns", "Attesting a guest's GPUs one after another, after a restart.", minimum=0),
        int64("lost_rank_bytes", "What must be sent again to a rank that takes the place of a lost one.", minimum=0),
        int64("lost_rank_ns", "Sending that, sealed where it must be.", minimum=0),
        boolean(
            "must_roll_back", "Whether a lost rank takes state with it that no other has: all go back to a checkpoint."
        ),
        int64("place_number", "Place by step among those that fit and are exact.", nullable=True, minimum=1),
        text(
            "verdict",
            "Whether it is the best, ties with it within model error, or why it is not ranked.",
            one_of=VERDICTS,
        ),
        boolean(
            "is_scenario", "Whether no pair of the lake supports it: made from published constants, without interval."
        ),
        text("evidence", "Always modelled.", one_of=EVIDENCE),
        text(
            "constants",
            "What it is made of, each with its evidence class: entries of gold/hardware.toml, and for the regime those "
            "of gold.published.",
        ),
        text("reason", "What to know before it is used.", nullable=True),
    ),
)


def measure(question: Question) -> pa.Table:
    """Rank all strategies of a question under each of its regimes."""
    off = {one.exchange: one for one in question.time_all(OFF)}
    frames = [_rank(_describe_regime(question, regime, off)) for regime in question.regimes]
    rows = [row for frame in frames for row in frame]
    return pa.Table.from_pylist(rows, schema=TABLE.arrow_schema)


def _describe_regime(question: Question, regime: str, off: dict[str, Timed]) -> list[Row]:
    rows = []
    for timed in question.time_all(regime):
        plain = off[timed.exchange]
        # The same layout without a TEE, at its own best micro-batch.
        for place, other in zip(timed.choose_best(), plain.choose_best(), strict=True):
            rows.append(_describe(question, regime, timed, int(place), float(plain.times.step[other])))
            if regime in question.measured:
                _add_interval(rows[-1], question, regime, float(plain.times.step[place]))
    return rows


def _describe(question: Question, regime: str, timed: Timed, place: int, plain_ns: float) -> Row:
    layouts, times, memory = timed.layouts, timed.times, timed.memory
    parts = {f"{name}_ns": _whole(getattr(times, name), place) for name in PARTS}
    step_ns = sum(parts.values())
    counts, sealed = timed.crossings
    sealed_count = _whole(sealed.messages, place)
    held = question.regimes[regime]
    return {
        "regime": regime,
        "model": question.model,
        "gpu": question.cluster.gpu.name,
        "world_size": question.cluster.gpus_count,
        "strategy": timed.exchange,
        "data_size": _whole(layouts.data, place),
        "tensor_size": _whole(layouts.tensor, place),
        "pipeline_size": _whole(layouts.pipeline, place),
        "micro_batch_size": _whole(layouts.micro_batch, place),
        "micro_batches_count": _whole(layouts.micro_batches(question.work), place),
        "is_recomputed": bool(layouts.is_recomputed[place]),
        "buckets_count": _whole(times.buckets, place),
        "bucket_bytes": _whole(times.bucket_bytes, place),
        "rounds_count": _whole(counts.rounds, place),
        "message_count": _whole(counts.messages, place),
        "fan_in_count": _whole(counts.fan_in, place),
        "payload_bytes": _whole(counts.payload_bytes, place),
        "sealed_message_count": sealed_count,
        "sealed_bytes": _whole(sealed.payload_bytes, place),
        **parts,
        "predicted_step_ns": step_ns,
        "predicted_low_ns": None,
        "predicted_high_ns": None,
        "interval_level": None,
        "slowdown_ratio": step_ns / plain_ns,
        "dominant_term": max(PARTS, key=lambda name: parts[f"{name}_ns"]),
        **{
            f"{name}_bytes": _whole(getattr(memory, name), place)
            for name in ("parameters", "gradients", "optimizer", "activations", "buffers")
        },
        "memory_bytes": _whole(memory.total, place),
        "is_fitting": bool(timed.is_fitting[place]),
        "nonce_budget_days": POLICY.messages_per_key / sealed_count * step_ns / _NS_PER_DAY if sealed_count else None,
        "is_exact": timed.is_exact,
        **describe_faults(question, regime, timed, place),
        "is_scenario": regime != OFF and regime not in question.measured,
        "evidence": "modelled",
        "constants": ", ".join((*_list_hardware(question), *held.constants)),
        "reason": held.note,
    }


def _list_hardware(question: Question) -> list[str]:
    cluster = question.cluster
    links = [cluster.node, *([cluster.network] if cluster.network else [])]
    entries: list[Gpu | Link] = [cluster.gpu, *links]
    return [f"{one.name} ({one.evidence_class})" for one in entries]


def _whole(values: Any, place: int) -> int:
    return round(float(values[place]))


def _add_interval(row: Row, question: Question, regime: str, plain_ns: float) -> None:
    """Ends by the errors that predictions of the lake's pairs had, for what those pairs are; all else has none."""
    known = question.measured[regime]
    is_recorded = question.cluster.gpus_count in known.world_sizes and _is_plain_ring(row)
    if known.spread is not None and is_recorded:
        weight = weigh(row["predicted_step_ns"], plain_ns, row["sealing_ns"])
        low, high = known.spread.widen(row["predicted_step_ns"], weight)
        row |= {"predicted_low_ns": round(low), "predicted_high_ns": round(high), "interval_level": known.spread.level}
    if not is_recorded:
        sizes = ", ".join(map(str, known.world_sizes))
        pairs = f"its pairs are of ring DDP with {sizes} ranks, which share one GPU"
        row["reason"] = f"Extrapolated, without an interval: {pairs}. {row['reason']}"


def _is_plain_ring(row: Row) -> bool:
    return bool(row["strategy"] == "ring_ddp" and row["tensor_size"] == row["pipeline_size"] == 1)


def _rank(rows: list[Row]) -> list[Row]:
    """Places by step; within model error, or where intervals overlap, nobody is best."""
    rows = sorted(rows, key=_order)
    able = [row for row in rows if row["is_fitting"] and row["is_exact"]]
    tied = [row for row in able if is_tie(able[0], row)]
    for row in rows:
        row["place_number"], row["verdict"] = None, "slower"
        if not row["is_fitting"]:
            row["verdict"] = "does not fit"
        elif not row["is_exact"]:
            row["verdict"] = "changes the mathematics"
    for place, row in enumerate(able, start=1):
        row["place_number"] = place
    for row in tied:
        row["verdict"] = "tie" if len(tied) > 1 else "best"
    return rows


def _order(row: Row) -> tuple[Any, ...]:
    """Fastest first, then what needs least memory; the rest keeps the order the same on every machine."""
    degrees = (row["data_size"], row["tensor_size"], row["pipeline_size"])
    return row["predicted_step_ns"], row["memory_bytes"], EXCHANGES.index(row["strategy"]), degrees


def is_tie(best: Row, row: Row) -> bool:
    """Whether the order of two rows is undecided: steps within the model's error, or overlapping intervals."""
    if row["predicted_step_ns"] <= best["predicted_step_ns"] * (1 + MODEL_ERROR):
        return True
    low, high = row["predicted_low_ns"], best["predicted_high_ns"]
    return low is not None and high is not None and bool(low <= high)
