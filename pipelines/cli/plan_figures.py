"""The figures of `teetotal plan`, as SVG files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold.strategy_crossovers import trace_counts
from pipelines.cli.whole_files import open_whole
from report.drawing import specification, svg
from report.plans import draw_counts, draw_grid

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gold.strategy_question import Question


def write_figures(question: Question, rows: Sequence[dict[str, Any]], grid: Path | None, scaling: Path | None) -> None:
    """Write what was asked for."""
    cluster = question.cluster
    where = f"{question.model} on {cluster.gpus_count:,} {cluster.gpu.name}"
    if grid is not None:
        _write(grid, svg(specification(draw_grid(rows, where), is_titled=True)))
    if scaling is not None:
        title = f"{question.model} on more or fewer {cluster.gpu.name}"
        drawn = draw_counts(trace_counts(question), title, cluster.gpus_count)
        _write(scaling, svg(specification(drawn, is_titled=True)))


def _write(path: Path, drawn: str) -> None:
    with open_whole(path, "the figure") as file:
        file.write(drawn.encode())
