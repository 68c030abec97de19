"""The steps of a job as one series, made of the series of its ranks: what the readers of traces and logs share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from gold.step_cycles import mean_step
from silver.warmup import FEWER, NOT_SLOW

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    Numbers = np.ndarray[Any, np.dtype[np.int64]]

TIMINGS = ("host_step", "gpu_completion", "log_duration", "log_elapsed")
RANK_RULES = ("one_rank", "median_rank", "slowest_rank")
# Ranks whose mean steps differ by more are not tied, whatever collectives they share.
MOST_SPREAD_FRACTION = 0.05


@dataclass(frozen=True)
class StepWork:
    """How much one step does, as far as a log says: its batch size, and what its rates make of its time."""

    batch_size: int | None = None
    samples_per_step: float | None = None
    tokens_per_step: float | None = None


@dataclass(frozen=True)
class Series:
    """Steps in their order: how long each row took, how many steps it stands for, and where the order breaks off."""

    values: list[int] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    has_collective: list[bool] = field(default_factory=list)
    starts_part: list[bool] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    period: str = "step"
    timed_by: str | None = None
    rank_rule: str | None = None
    ranks_count: int = 0
    warmup_count: int = 0
    lag_ns: int | None = None
    lag_fraction: float | None = None
    evidence: str = "measured"
    # Whether no profiler ran during these steps, as far as is known.
    is_bare: bool = False
    # Whether it is known when each of these steps was.
    is_placed: bool = True
    # How far the rounding of a log leaves the mean open.
    rounding_fraction: float | None = None
    # What a log says of the work of one step.
    work: StepWork = StepWork()
    caveats: tuple[str, ...] = ()
    reason: str | None = None

    def median(self) -> int:
        """The median step, rounded down; exact however long steps are."""
        ordered = sorted(value // weight for value, weight in zip(self.values, self.weights, strict=True))
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


def split(table: pa.Table, by: Sequence[str], order: str) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """The rows of each group, in their order: one sort, and no row becomes an object of its own."""
    if not table.num_rows:
        return
    ordered = table.sort_by([*((name, "ascending") for name in by), (order, "ascending")]).combine_chunks()
    is_first = np.ones(ordered.num_rows, dtype=bool)
    is_first[1:] = False
    for name in by:
        codes = ordered.column(name).combine_chunks().dictionary_encode().indices.to_numpy()
        is_first[1:] |= codes[1:] != codes[:-1]
    begins = [*np.flatnonzero(is_first).tolist(), ordered.num_rows]
    for begin, end in pairwise(begins):
        yield tuple(ordered.column(name)[begin].as_py() for name in by), ordered.slice(begin, end - begin)


def read_numbers(table: pa.Table, name: str) -> Numbers:
    """A column without nulls as numbers."""
    return np.asarray(table.column(name).to_numpy(), dtype=np.int64)


def read_flags(table: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A column of yes and no."""
    return np.asarray(table.column(name).to_numpy(zero_copy_only=False), dtype=bool)


def describe_warmup(ranks: Iterable[pa.Table], noun: str) -> list[str]:
    """Where the manifest and what was recorded disagree on warm-up, as sentences."""
    unseen = more = 0
    for rows in ranks:
        counted = rows.column("warmup_reason").value_counts().to_pylist()
        reasons = {one["values"]: one["counts"] for one in counted if one["values"] is not None}
        unseen = max(unseen, reasons.get(NOT_SLOW, 0))
        more = max(more, sum(count for reason, count in reasons.items() if reason.endswith(FEWER)))
    said = []
    if unseen:
        said.append(
            f"the manifest counts {_count(unseen, noun)} as warm-up that {_be(unseen)} not slower than the others"
        )
    if more:
        said.append(f"{_count(more, noun)} more than the manifest counts {_be(more)} warm-up")
    return said


def join_ranks(ranks: list[Series], *, is_tied: bool) -> Series:
    """The step of the job: the median over ranks where collectives tie them, else the slowest rank's."""
    if not ranks:
        return Series()
    if len(ranks) == 1:
        return replace(ranks[0], rank_rule="one_rank", caveats=())
    means = [mean_step(one) for one in ranks]
    slowest = replace(ranks[means.index(max(means))], rank_rule="slowest_rank", caveats=())
    # In whole numbers: times of any length compare exactly.
    is_even = max(means) * 100 <= min(means) * round(100 * (1 + MOST_SPREAD_FRACTION))
    if is_tied and is_even:
        middle = _take_medians(ranks)
        return replace(middle, rank_rule="median_rank") if middle.values else slowest
    if is_even:
        return slowest
    spread = f"by {max(means) / min(means) - 1:.1%}".replace("%", " %") if min(means) else "beyond any ratio"
    return replace(slowest, caveats=(f"mean {slowest.period}s of ranks differ {spread}: the slowest is the job's",))


def _take_medians(ranks: list[Series]) -> Series:
    """Per step that all ranks have, the median over them, rounded down."""
    numbers = [np.array(one.numbers, dtype=np.int64) for one in ranks]
    orders = [np.argsort(own, kind="stable") for own in numbers]
    shared = numbers[0][orders[0]]
    for own in numbers[1:]:
        shared = shared if np.array_equal(shared, own) else np.intersect1d(shared, own, assume_unique=True)
    places = [order[np.searchsorted(own[order], shared)] for own, order in zip(numbers, orders, strict=True)]
    values = np.sort(_gather([one.values for one in ranks], places, np.int64), axis=0)
    low, high = values[(len(ranks) - 1) // 2], values[len(ranks) // 2]
    starts = _gather([one.starts_part for one in ranks], places, bool).max(axis=0)
    if len(shared):
        starts[1:] |= np.diff(shared) != 1
    return Series(
        values=(low + (high - low) // 2).tolist(),
        weights=_gather([one.weights for one in ranks], places, np.int64).max(axis=0).tolist(),
        has_collective=_gather([one.has_collective for one in ranks], places, bool).max(axis=0).tolist(),
        starts_part=starts.tolist(),
        numbers=shared.tolist(),
        period=ranks[0].period,
    )


def _gather(columns: Sequence[Sequence[Any]], places: list[Numbers], kind: type) -> np.ndarray[Any, Any]:
    return np.stack([np.array(column, dtype=kind)[at] for column, at in zip(columns, places, strict=True)])


def _count(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _be(count: int) -> str:
    return "is" if count == 1 else "are"
