"""Which steps of two runs are compared: those that both recorded on the same rank, warm-up aside."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

Cell = tuple[int, int]
WAYS = ("number", "place")


@dataclass(frozen=True)
class MatchedSteps:
    """Steps of two runs side by side: one cell per rank and step, as rows of gold.time_breakdown."""

    cells: list[tuple[dict[str, Any], dict[str, Any]]]
    steps_count: int
    ranks_count: int
    matched_by: str
    reason: str | None

    def times(
        self, of: str = "duration_ns"
    ) -> tuple[np.ndarray[Any, np.dtype[np.float64]], np.ndarray[Any, np.dtype[np.float64]]]:
        """Per step, the median over ranks of its duration or of another column: of the run, and of its baseline."""
        steps: dict[int, list[tuple[int, int]]] = {}
        for tee, baseline in self.cells:
            steps.setdefault(tee["step_number"], []).append((tee[of], baseline[of]))
        pairs = np.array([np.median(np.array(cells), axis=0) for _, cells in sorted(steps.items())], dtype=np.float64)
        return (pairs[:, 0], pairs[:, 1]) if len(pairs) else (np.array([]), np.array([]))


def match_steps(tee: pa.Table, baseline: pa.Table) -> MatchedSteps:
    """Match the steps of two recordings."""
    return match_rows(tee.to_pylist(), baseline.to_pylist())


def match_rows(tee: list[dict[str, Any]], baseline: list[dict[str, Any]], noun: str = "step") -> MatchedSteps:
    """Match by rank and step number, and where too few numbers are shared, by rank and place."""
    ours, baselines = _cells(tee), _cells(baseline)
    ranks = sorted({rank for rank, _ in ours} & {rank for rank, _ in baselines})
    if not ours or not baselines:
        which = "the run" if not ours else "its baseline"
        return MatchedSteps([], 0, len(ranks), "number", f"{which} has no {noun} outside warm-up")
    if not ranks:
        return MatchedSteps([], 0, 0, "number", "the two were not recorded on the same ranks")
    shared = sorted(ours.keys() & baselines.keys())
    way = "number"
    # Recordings that begin at different steps share no numbers: then the first is compared with the first.
    if 2 * len(shared) < min(_count_on_ranks(ours, ranks), _count_on_ranks(baselines, ranks)):
        way, ours, baselines = "place", _renumber_by_place(ours), _renumber_by_place(baselines)
        shared = sorted(ours.keys() & baselines.keys())
    cells = [(ours[cell], baselines[cell]) for cell in shared]
    return MatchedSteps(cells, len({step for _, step in shared}), len({rank for rank, _ in shared}), way, None)


def _cells(rows: list[dict[str, Any]]) -> dict[Cell, dict[str, Any]]:
    return {(row["rank"], row["step_number"]): row for row in rows if not row["is_warmup"]}


def _count_on_ranks(cells: dict[Cell, dict[str, Any]], ranks: list[int]) -> int:
    return sum(rank in ranks for rank, _ in cells)


def _renumber_by_place(cells: dict[Cell, dict[str, Any]]) -> dict[Cell, dict[str, Any]]:
    """The same cells, numbered by place within their rank."""
    placed: dict[Cell, dict[str, Any]] = {}
    places: dict[int, int] = {}
    for rank, step in sorted(cells):
        place = places.get(rank, 0)
        placed[rank, place] = {**cells[rank, step], "step_number": place}
        places[rank] = place + 1
    return placed
