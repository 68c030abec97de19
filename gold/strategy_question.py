"""A question about a training job, and every strategy for it, timed under one regime."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from gold.strategy_counts import EXCHANGES, INEXACT
from gold.strategy_links import Cluster, make_path
from gold.strategy_search import Timed, list_exchanges, list_layouts, time_layouts
from gold.strategy_time import Machine, Workload

if TYPE_CHECKING:
    from gold.hardware import Regime
    from gold.prediction_intervals import Spread
    from gold.strategy_time import Layouts

# Two strategies are a tie where their steps differ by less: a stated margin, because nobody has published what would
# give an interval. Public step times, with the utilisation given, stay within it (gold/published_steps.toml).
MODEL_ERROR = 0.15


@dataclass(frozen=True)
class MeasuredSealing:
    """What pairs of the lake say of a regime: time to seal and open a byte, and how far predictions were off."""

    seal_and_open_ns: float
    spread: Spread | None
    world_sizes: tuple[int, ...]
    machine: str


@dataclass(frozen=True)
class Question:
    """A model on a cluster: which strategies and regimes are asked about, and what is known of the machine."""

    model: str
    work: Workload
    cluster: Cluster
    regimes: Mapping[str, Regime]
    peak_flops: float
    utilisation: float
    exchanges: tuple[str, ...] = EXCHANGES
    bucket_bytes: float | None = None
    gossip_degree: int = 2
    measured: Mapping[str, MeasuredSealing] = field(default_factory=dict)

    @cached_property
    def layouts(self) -> Layouts:
        """Every layout of the GPUs."""
        return list_layouts(self.work, self.cluster.gpus_count)

    def machine(self, regime: str) -> Machine:
        """The cluster under a regime."""
        known, one = self.measured.get(regime), self.regimes[regime]
        rate = known.seal_and_open_ns if known else None
        near, far = (make_path(self.cluster, one, scope, rate) for scope in ("node", "network"))
        return Machine(
            self.cluster, one, near, far, self.peak_flops, self.utilisation, self.bucket_bytes, self.gossip_degree
        )

    def time_all(self, regime: str, *, is_exact: bool = False) -> list[Timed]:
        """All candidates under a regime, or those that keep the mathematics; one entry per exchange that any has."""
        machine = self.machine(regime)
        names = [one for one in list_exchanges(self.exchanges) if not (is_exact and one in INEXACT)]
        timed = (time_layouts(self.work, machine, self.layouts, one) for one in names)
        return [one for one in timed if len(one.layouts.data)]

    def scale(self, *, gpus_count: int | None = None, size: float = 1.0, speed: float = 1.0) -> Question:
        """The same question of more GPUs, of a larger model (wider, not deeper), or over a faster network.

        Over one node, `speed` is that of the node's link. A wider model keeps its tensor degrees.
        """
        work = replace(
            self.work,
            parameters_count=round(self.work.parameters_count * size),
            hidden_size=max(1, round(self.work.hidden_size * size**0.5)),
            cut_size=self.work.cut_size or self.work.hidden_size,
        )
        count = gpus_count or self.cluster.gpus_count
        part = "node" if self.cluster.network is None else "network"
        link = self.cluster.link(part)
        changed: dict[str, Any] = {
            "gpus_count": count,
            "gpus_per_node": min(count, self.cluster.gpus_per_node),
            part: replace(link, bytes_per_second=link.bytes_per_second * speed),
        }
        return replace(self, work=work, cluster=replace(self.cluster, **changed))


@dataclass(frozen=True)
class Steps:
    """The best step of each exact strategy and layout, in one order for all regimes; infinite where it does not fit."""

    names: tuple[tuple[str, int, int, int], ...]
    step_ns: np.ndarray[Any, np.dtype[np.float64]]

    @property
    def best(self) -> int | None:
        """Place of the fastest; none where nothing fits."""
        return int(np.argmin(self.step_ns)) if len(self.step_ns) and np.isfinite(self.step_ns.min()) else None


def find_steps(question: Question, regime: str) -> Steps:
    """The best step of each strategy and layout under a regime."""
    names: list[tuple[str, int, int, int]] = []
    steps = []
    for timed in question.time_all(regime, is_exact=True):
        chosen, one = timed.choose_best(), timed.layouts
        degrees = zip(*(getattr(one, name)[chosen].tolist() for name in ("data", "tensor", "pipeline")), strict=True)
        names += [(timed.exchange, *degree) for degree in degrees]
        steps.append(np.where(timed.is_fitting, timed.times.step, np.inf)[chosen])
    return Steps(tuple(names), np.concatenate(steps) if steps else np.array([]))


def compare_steps(off: Steps, on: Steps) -> float | None:
    """How much longer than the best strategy under a regime the step of those takes that are best without a TEE.

    Of all that tie without a TEE the one counts that does best under the regime. None where nothing fits.
    """
    if off.best is None or on.best is None:
        return None
    tied = off.step_ns <= off.step_ns[off.best] * (1 + MODEL_ERROR)
    return float(on.step_ns[tied].min() / on.step_ns[on.best])
