"""What one run does in a step, one row per kernel, operation or collective: how often, and how long, per rank and step.

No table of the lake: it is asked for two runs at a time, whichever they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw

from gold.operation_costs import NONE
from lake.frames import divide_down

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lake.frames import Frame

    Rows = list[dict[str, Any]]

# What tells one kind of work from another within a run.
KEY = ("kind", "name", "detail")
_INT = nw.Int64


def measure_kernels(spans: Frame, steps: Frame, shapes: Frame | None = None) -> Frame:
    """Count the kernels that steps outside warm-up launched, by name, and by the shapes of their operator if given.

    Copies are left out: they are operations. `shapes` has a row per rank, source and external id.
    """
    steady = steps.filter(~nw.col("is_warmup")).select("rank", _step="step_number").unique()
    work = spans.filter(nw.col("is_gpu"), nw.col("kind") != "copy").select(
        *("rank", "source_sha256", "external_id", "kind", "duration_ns"),
        name=nw.col("name").fill_null(""),
        _step=nw.coalesce(nw.col("launch_step_number"), nw.col("step_number")),
    )
    work = work.join(steady, on=["rank", "_step"], how="inner")
    if shapes is not None:
        work = work.join(shapes, on=["rank", "source_sha256", "external_id"], how="left")
    shape = nw.lit("") if shapes is None else nw.col("shape").fill_null("")
    sums = (
        work.with_columns(detail=shape)
        .group_by(*KEY)
        .agg(work_count=nw.len().cast(_INT), total_ns=nw.col("duration_ns").sum().cast(_INT))
    )
    cells = steady.select(_cells=nw.len().cast(_INT))
    return sums.join(cells, how="cross").select(
        *KEY,
        step_count=nw.col("work_count") / nw.col("_cells"),
        step_total_ns=divide_down(nw.col("total_ns"), nw.col("_cells")),
    )


def list_operations(costs: Iterable[Mapping[str, Any]]) -> Rows:
    """Calls of the CUDA API and copies of gold.operation_costs in total per step; one-time set-up is no part of one."""
    return [
        {
            "kind": row["operation"],
            "name": row["name"] or row["direction"],
            "detail": ", ".join(row[name] for name in ("memory", "size_class") if row[name] != NONE),
            "step_count": None,
            "step_total_ns": row["step_total_ns"],
        }
        for row in costs
        if row["operation"] != "first_call" and row["step_total_ns"] is not None
    ]


def sum_collectives(exposures: Iterable[Mapping[str, Any]]) -> Rows:
    """Collectives of gold.exposure per rank and step, warm-up aside: time, what of it compute did not hide, bytes."""
    steady = [row for row in exposures if not row["is_warmup"]]
    cells = len({(row["rank"], row["step_number"]) for row in steady})
    groups: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for row in steady:
        groups.setdefault((row["path"], row["collective"]), []).append(row)
    return [
        {
            "kind": path,
            "name": collective,
            "detail": "",
            "step_count": len(rows) / cells,
            "step_total_ns": sum(row["end_ns"] - row["start_ns"] for row in rows) // cells,
            "step_exposed_ns": _divide_whole((_find_exposed(row) for row in rows), cells),
            "step_bytes": _divide_whole((row["buffer_bytes"] for row in rows), cells),
        }
        for (path, collective), rows in sorted(groups.items())
    ]


def _find_exposed(row: Mapping[str, Any]) -> int | None:
    """Time of a collective that no compute kernel hid; None where the GPU was not observed."""
    return None if row["hidden_ns"] is None else row["end_ns"] - row["start_ns"] - row["hidden_ns"]


def _divide_whole(values: Iterable[int | None], cells: int) -> int | None:
    """The sum per rank and step, rounded down; None where one value is not known."""
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) // cells if len(known) == len(found) else None
