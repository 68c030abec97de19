"""One row per public step time: what the planner's model says of it, and what it was given."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from gold.hardware import HARDWARE
from gold.pairs import OFF
from gold.strategy_links import Cluster, make_path
from gold.strategy_time import Layouts, Machine, Workload, count_operations, time_step

_FILE = Path(__file__).with_name("published_steps.toml")
_GPUS_PER_NODE = 8
_HALVINGS = 60

Row = dict[str, Any]


def read_sets() -> list[Row]:
    """The sets of the file; rows of a set share model, hardware, software and strategy."""
    document: Row = tomllib.loads(_FILE.read_text("utf-8"))
    return list(document["set"])


def check_steps() -> list[Row]:
    """Predict every public step twice: by its own stated utilisation, and by that of another row of its set.

    The first is given almost everything, and holds only the count of operations. The second is given what kernels
    reach, solved from the set's first row, and must find the rest: exchange, bubble, and what overlaps.
    """
    found = []
    for one in read_sets():
        (given,) = [row for row in one["rows"] if row.get("is_given")]
        reached = _solve_utilisation(one, given)
        for row in one["rows"]:
            stated = _predict_by_operations(one, row)
            predicted = _predict(one, row, reached)
            found.append(
                {
                    "set": one["id"],
                    "source": one["source"],
                    "url": one["url"],
                    "exchange": one["exchange"],
                    "gpus": row["gpus"],
                    "degrees": _find_degrees(one, row),
                    "measured_s": row["step_s"],
                    "stated_error_fraction": stated / row["step_s"] - 1,
                    "utilisation": reached,
                    "is_given": bool(row.get("is_given")),
                    "predicted_s": predicted,
                    "error_fraction": predicted / row["step_s"] - 1,
                    "note": one.get("note"),
                }
            )
    return found


def _find_degrees(one: Row, row: Row) -> tuple[int, int, int]:
    tensor, pipeline = int(one.get("tensor", 1)), int(one.get("pipeline", 1))
    return row["gpus"] // (tensor * pipeline), tensor, pipeline


def _predict_by_operations(one: Row, row: Row) -> float:
    work, gpu = Workload(**one["model"], batch=row["batch"]), HARDWARE.gpu(one["gpu"])
    operations = count_operations(work, is_recomputed=int(one["counts_recomputed"])) * work.batch
    return float(operations / (row["gpus"] * gpu.peak_flops["bf16"] * row["stated_fraction"]))


def _predict(one: Row, row: Row, utilisation: float) -> float:
    gpu, regime = HARDWARE.gpu(one["gpu"]), HARDWARE.regime(OFF)
    network = HARDWARE.link(one["network"])
    cluster = Cluster(row["gpus"], min(_GPUS_PER_NODE, row["gpus"]), gpu, HARDWARE.link(gpu.node_link), network)
    near, far = (make_path(cluster, regime, scope) for scope in ("node", "network"))
    machine = Machine(cluster, regime, near, far, gpu.peak_flops["bf16"], utilisation)
    cut: list[Any] = [
        np.array([value]) for value in (*_find_degrees(one, row), row["micro_batch"], int(one["is_recomputed"]))
    ]
    work = Workload(**one["model"], batch=row["batch"])
    return float(time_step(work, machine, Layouts(*cut), one["exchange"]).step[0]) / 1e9


def _solve_utilisation(one: Row, row: Row) -> float:
    """What kernels must reach for the step to be what was measured, by halving: more makes it shorter."""
    low, high = 0.01, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _predict(one, row, middle) > row["step_s"]:
            low = middle
        else:
            high = middle
    return high
