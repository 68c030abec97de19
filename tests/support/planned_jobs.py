"""Questions for the planner, small and large, made without the command line."""

from __future__ import annotations

from typing import Any

import numpy as np

from gold import strategy_plan
from gold.hardware import HARDWARE
from gold.strategy_links import Cluster, make_path
from gold.strategy_question import Question
from gold.strategy_time import Layouts, Machine, Workload

SMALL = Workload(1_557_611_200, 48, 1600, 1024, 50257, 128)


def ask(
    model: str, gpus: int, batch: int, gpu: str = "h100-sxm", network: str = "infiniband-ndr", **fields: Any
) -> Question:
    """A public model on nodes of eight."""
    known, card = HARDWARE.model(model), HARDWARE.gpu(gpu)
    sizes = (
        known.parameters_count,
        known.layers_count,
        known.hidden_size,
        known.sequence_length,
        known.vocabulary_size,
    )
    per_node = min(8, gpus)
    link = HARDWARE.link(network) if gpus > per_node else None
    cluster = Cluster(gpus, per_node, card, HARDWARE.link(card.node_link), link)
    regimes = {name: HARDWARE.regime(name) for name in HARDWARE.regimes if name in card.regimes}
    work = Workload(*sizes, batch, known.heads_count)
    return Question(model, work, cluster, regimes, card.peak_flops["bf16"], card.utilisation_fraction, **fields)


def plan(question: Question) -> list[dict[str, Any]]:
    """The rows of its plan."""
    rows: list[dict[str, Any]] = strategy_plan.measure(question).to_pylist()
    return rows


def make_machine(regime: str, gpus: int = 64, gpu: str = "h100-sxm", **fields: Any) -> Machine:
    """A cluster of nodes of eight under a regime."""
    card, held = HARDWARE.gpu(gpu), HARDWARE.regime(regime)
    cluster = Cluster(gpus, min(8, gpus), card, HARDWARE.link(card.node_link), HARDWARE.link("infiniband-ndr"))
    near, far = (make_path(cluster, held, scope) for scope in ("node", "network"))
    return Machine(cluster, held, near, far, card.peak_flops["bf16"], 0.4, **fields)


def make_cut(data: int, tensor: int = 1, pipeline: int = 1, micro_batch: int = 1, is_recomputed: int = 0) -> Layouts:
    """One cut, as arrays of one."""
    return Layouts(*(np.array([one]) for one in (data, tensor, pipeline, micro_batch, is_recomputed)))
