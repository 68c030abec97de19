"""A step of one GPU as one CUDA graph: what its GPU did, and the copies that its host waited for; nothing else is left.

Held against sixteen steps of six models on an H200 without CC (`graph_steps.toml`): 0.98 to 1.07 times the prediction.
No constant is fitted, so those errors make the interval.
"""

from __future__ import annotations

import math
import tomllib
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from gold.prediction_intervals import Spread, find_spread
from gold.time_breakdown import GPU_PARTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_FILE = Path(__file__).with_name("graph_steps.toml")
# The GPU whose steps were recorded: for any other the interval is taken over.
RECORDED_GPU = "H200"
# What stays of a step that is replayed as a graph. A blocking copy moves data before or after the graph.
KEPT_PARTS = (*GPU_PARTS, "blocking_copy")


def time_graph(breakdown: Iterable[Mapping[str, Any]]) -> float | None:
    """The mean step of rows of gold.time_breakdown as a graph; none where the GPU was not observed."""
    kept = [
        sum(row[f"{part}_ns"] for part in KEPT_PARTS)
        for row in breakdown
        if not row["is_warmup"] and all(row[f"{part}_ns"] is not None for part in KEPT_PARTS)
    ]
    return fmean(kept) if kept and sum(kept) > 0 else None


@cache
def read_steps() -> tuple[Mapping[str, Any], ...]:
    """The recorded steps, each eager and as a graph."""
    return tuple(tomllib.loads(_FILE.read_text("utf-8"))["step"])


@cache
def find_graph_spread() -> Spread | None:
    """How far recorded graphs were from their predictions, in logarithms, each model weighing the same."""
    errors: dict[str, list[float]] = {}
    for step in read_steps():
        error = math.log(step["graph_us"] / (step["gpu_us"] + step["copy_us"]))
        errors.setdefault(step["model"], []).append(abs(error))
    return find_spread(errors)
