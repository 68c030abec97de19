"""What copies and launches take under a regime and in its baselines, from the operations that their traces hold."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from statistics import fmean
from typing import TYPE_CHECKING, Any

from gold.operation_costs import NONE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gold.forecast_runs import ForecastPair, ForecastRun

    Row = Mapping[str, Any]
    RowsByRun = Mapping[str, Sequence[Row]]

COPY_TERMS = ("copy", "copy_call")
NO_COPY = {"direction": NONE, "memory": NONE}
_PROFILED = "timed while a profiler recorded, which slows the host"
_ONE_SIZE = "copies of one size do not tell what a copy costs whatever its size"
_WAITED = "the call may have waited for work that was queued before it"
# Sizes that differ by less are one: a line through them says nothing.
_SIZES_APART = 2


@dataclass(frozen=True)
class _Point:
    """Operations of one kind and size class in one run."""

    model: str
    run_id: str
    count: int
    total_ns: float
    size_bytes: float = 0.0

    @property
    def mean_ns(self) -> float:
        return self.total_ns / self.count


@dataclass(frozen=True)
class Line:
    """An operation takes `alpha_ns` and its bytes at a rate; either may not be told."""

    alpha_ns: float | None
    ns_per_byte: float | None


def fit_line(points: Sequence[tuple[float, float, int]]) -> Line:
    """Size, mean time and count: neither part below 0, least relative errors, and the sum over all of them is right."""
    # In fractions: a machine's own way to solve least squares would show in the last digits.
    rows = [(Fraction(size), Fraction(time), count) for size, time, count in points]
    sizes = [size for size, _, _ in rows]
    spent = sum(time * count for _, time, count in rows)
    if max(sizes) < _SIZES_APART * max(min(sizes), Fraction(1)):
        total = sum(size * count for size, _, count in rows)
        return Line(None, float(spent / total) if total else None)
    # Of each the share of its own time, so that small copies say as much as large ones.
    shares = [(1 / time, size / time) for size, time, _ in rows]
    fixed, moved = (sum(share[place] for share in shares) for place in (0, 1))
    squares = [sum(share[one] * share[other] for share in shares) for one, other in ((0, 0), (0, 1), (1, 1))]
    determinant = squares[0] * squares[2] - squares[1] ** 2
    alpha = (fixed * squares[2] - moved * squares[1]) / determinant
    slope = (moved * squares[0] - fixed * squares[1]) / determinant
    if alpha < 0:
        alpha, slope = Fraction(0), moved / squares[2]
    elif slope < 0:
        alpha, slope = fixed / squares[0], Fraction(0)
    explained = sum((alpha + slope * size) * count for size, _, count in rows)
    return Line(float(alpha * spent / explained), float(slope * spent / explained) or None)


def describe_operations(
    pairs: Sequence[ForecastPair], operations: RowsByRun, launches: RowsByRun
) -> Iterable[dict[str, Any]]:
    """A row per direction and memory of copies, and one of launches: of a machine's runs under the regime."""
    runs = ((pair.candidate for pair in pairs), (pair.baseline for pair in pairs))
    sides = [{run.run_id: run for run in sorted(side, key=lambda one: one.run_id)} for side in runs]
    kinds = sorted(
        {
            (row["operation"], row["direction"], row["memory"])
            for run_id in sides[0]
            for row in operations.get(run_id, ())
            if row["operation"] == "copy" or (row["operation"] == "copy_call" and row["direction"] != "on_gpu")
        }
    )
    for kind in kinds:
        own, base = (_list_copies(side.values(), operations, kind) for side in sides)
        if own:
            yield _describe_copies(kind, own, base)
    own, base = (_list_launches(side.values(), launches) for side in sides)
    if own:
        yield _describe_launches(own, base)


def _list_copies(runs: Iterable[ForecastRun], operations: RowsByRun, kind: tuple[str, str, str]) -> list[_Point]:
    return [
        _Point(run.model, run.run_id, count, row["total_ns"], row["payload_bytes"] / count)
        for run in runs
        for row in operations.get(run.run_id, ())
        if (row["operation"], row["direction"], row["memory"]) == kind
        and row["payload_bytes"] is not None
        and row["total_ns"] > 0
        and (count := row["operations_count"])
    ]


def _list_launches(runs: Iterable[ForecastRun], launches: RowsByRun) -> list[_Point]:
    """Launches after the first of each rank, which may set up the GPU."""
    return [
        _Point(run.model, run.run_id, row["launches_count"] - 1, row["launch_total_ns"] - row["first_launch_ns"])
        for run in runs
        for row in launches.get(run.run_id, ())
        if (row["launches_count"] or 0) > 1
    ]


def _describe_copies(kind: tuple[str, str, str], own: Sequence[_Point], base: Sequence[_Point]) -> dict[str, Any]:
    operation, direction, memory = kind
    line, plain = _fit(own), _fit(base)
    without = [_fit([point for point in own if point.model != model]) for model in _list_models(own)]
    reasons = [
        *([_ONE_SIZE] if line.alpha_ns is None else []),
        *([_WAITED, _PROFILED] if operation == "copy_call" else []),
    ]
    return {
        "term": operation,
        "direction": direction,
        "memory": memory,
        **_bound("alpha_ns", line.alpha_ns, [one.alpha_ns for one in without], is_whole=True),
        **_bound("bytes_per_second", _invert(line), [_invert(one) for one in without]),
        "baseline_alpha_ns": None if plain.alpha_ns is None else round(plain.alpha_ns),
        "baseline_bytes_per_second": _invert(plain),
        "smallest_bytes": round(min(point.size_bytes for point in own)),
        "largest_bytes": round(max(point.size_bytes for point in own)),
        "points_count": len(own),
        **_count(own),
        "evidence": "measured" if line.alpha_ns is None else "modelled",
        "reason": "; ".join(reasons) or None,
    }


def _describe_launches(own: Sequence[_Point], base: Sequence[_Point]) -> dict[str, Any]:
    without = [_average([point for point in own if point.model != model]) for model in _list_models(own)]
    plain = _average(base)
    return {
        "term": "launch",
        **NO_COPY,
        **_bound("alpha_ns", _average(own), without, is_whole=True),
        "baseline_alpha_ns": None if plain is None else round(plain),
        "points_count": len(own),
        **_count(own),
        "evidence": "measured",
        "reason": _PROFILED,
    }


def _fit(points: Sequence[_Point]) -> Line:
    if not points:
        return Line(None, None)
    return fit_line([(point.size_bytes, point.mean_ns, point.count) for point in points])


def _average(points: Sequence[_Point]) -> float | None:
    """The mean of each model's mean: a model that was recorded more often weighs no more."""
    means = []
    for model in _list_models(points):
        mine = [point for point in points if point.model == model]
        means.append(sum(point.total_ns for point in mine) / sum(point.count for point in mine))
    return fmean(means) if means else None


def _invert(line: Line) -> float | None:
    return 1e9 / line.ns_per_byte if line.ns_per_byte else None


def _list_models(points: Sequence[_Point]) -> list[str]:
    return sorted({point.model for point in points})


def _bound(
    name: str, value: float | None, without: Sequence[float | None], *, is_whole: bool = False
) -> dict[str, Any]:
    """A number, and the least and the most of what it is without one of the models."""
    known = [one for one in without if one is not None]
    ends = (value, min(known, default=None), max(known, default=None))
    names = (name, f"low_{name}", f"high_{name}")
    return {key: None if one is None else round(one) if is_whole else one for key, one in zip(names, ends, strict=True)}


def _count(points: Sequence[_Point]) -> dict[str, int]:
    return {"pairs_count": len({point.run_id for point in points}), "models_count": len(_list_models(points))}
