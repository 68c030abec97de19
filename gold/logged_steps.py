"""The steps of a job as its training log times them: the finest period that covers most of the logged time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np
import pyarrow.compute as pc

from gold.rounding import describe_rounding, measure_rounding
from gold.step_series import Series, StepWork, describe_warmup, join_ranks, read_flags, read_numbers, split

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from lake.frames import Frame

INFERRED = "the log calls a column only `time`: that its numbers are durations is inferred from how they vary"
_SECOND_NS = 1_000_000_000
# Periods that follow each other take no longer than from the end of the first to that of the last, but for rounding.
_MOST_OVERLAP = 1.5
_FINEST = ("step", "block", "epoch")
_READ = (
    *("run_id", "rank", "source_sha256", "ordinal", "period", "period_number", "ts_ns", "duration_ns"),
    *("duration_source", "stands_for_count", "is_warmup", "warmup_reason"),
    *("batch_size", "samples_per_second", "tokens_per_second"),
)


def observe_log(throughput: Frame) -> Frame:
    """What is read of a training log."""
    return throughput.select(*(nw.col(name) for name in _READ))


@dataclass(frozen=True)
class _Log:
    """The periods of one kind in one log of one rank."""

    rank: int
    rows: pa.Table
    series: Series
    # Those that have a time, warm-up aside.
    timed: pa.Table

    @property
    def total_ns(self) -> int:
        """The time that they take."""
        return sum(self.series.values)


def read_log(log: pa.Table, traced: tuple[int, int] | None, *, is_tied: bool) -> Series | None:
    """Take each rank's longest log; `traced` is the time that the profiler recorded, where there is a trace."""
    if not log.num_rows:
        return None
    logs: dict[str, dict[int, _Log]] = {period: {} for period in _FINEST}
    for (period, rank, _), rows in split(log, ["period", "rank", "source_sha256"], "ordinal"):
        one, other = _read_one(rank, period, rows), logs[period].get(rank)
        if other is None or len(one.series.values) > len(other.series.values):
            logs[period][rank] = one
    covered = {period: sum(one.total_ns for one in ranks.values()) for period, ranks in logs.items()}
    most = max(covered.values())
    period = next(period for period in _FINEST if logs[period] and 2 * covered[period] >= most)
    ranks = [one for one in logs[period].values() if one.series.values]
    warmups = sum(int(read_flags(one.rows, "is_warmup").sum()) for one in logs[period].values())
    known = Series(period=period, ranks_count=len(ranks), warmup_count=warmups)
    if not ranks:
        return replace(known, evidence="unobservable", reason="the log gives no time outside warm-up")
    joined = join_ranks([one.series for one in ranks], is_tied=is_tied)
    is_elapsed = any(one.series.timed_by == "log_elapsed" for one in ranks)
    is_inferred = any(_equals(one.timed, "duration_source", "inferred").any() for one in ranks)
    said = [*joined.caveats, *describe_warmup((one.rows for one in ranks), period)]
    if is_elapsed:
        said.append("only times of writing are known: whatever else was done in between is part of it")
    if is_inferred:
        said.append(INFERRED)
    rounding = max(one.series.rounding_fraction or 0.0 for one in ranks)
    said += [*describe_rounding(rounding, period), *_describe_overlap([one.timed for one in ranks], period)]
    overlapping, is_placed = _count_traced(ranks, traced)
    if overlapping:
        count = sum(one.timed.num_rows for one in ranks)
        said.append(f"the profiler recorded during {overlapping} of {count} {period}s of the log")
    return replace(
        joined,
        period=period,
        ranks_count=len(ranks),
        warmup_count=warmups,
        timed_by="log_elapsed" if is_elapsed else "log_duration",
        evidence="modelled" if is_elapsed or is_inferred else "measured",
        is_bare=is_placed and not overlapping,
        is_placed=is_placed,
        rounding_fraction=rounding,
        work=_find_work([one.timed for one in ranks]),
        caveats=tuple(said),
    )


def _read_one(rank: int, period: str, rows: pa.Table) -> _Log:
    """The periods that have a time, warm-up aside; one timed by its writing stands for all since the one before."""
    is_kept = ~read_flags(rows, "is_warmup") & np.asarray(rows.column("duration_ns").is_valid().to_numpy(), dtype=bool)
    timed = rows.filter(is_kept)
    is_elapsed = _equals(timed, "duration_source", "difference")
    count = timed.num_rows
    values = read_numbers(timed, "duration_ns").tolist()
    series = Series(
        values=values,
        weights=read_numbers(timed, "stands_for_count").tolist(),
        has_collective=[False] * count,
        starts_part=[True, *[False] * (count - 1)][:count],
        numbers=read_numbers(timed, "period_number").tolist(),
        period=period,
        timed_by="log_elapsed" if is_elapsed.any() else "log_duration",
        # Times of writing are differences: all of them together are rounded once.
        rounding_fraction=0.0 if is_elapsed.any() else measure_rounding(values),
    )
    return _Log(rank, rows, series, timed)


def _describe_overlap(ranks: Iterable[pa.Table], period: str) -> list[str]:
    """Say where periods would have to overlap: their times are in another unit, or those of several processes."""
    for rows in ranks:
        placed = rows.filter(rows.column("ts_ns").is_valid())
        lengths = read_numbers(placed, "duration_ns")
        ends = read_numbers(placed, "ts_ns") + lengths
        span, total = (int(ends.max() - ends.min()), int(lengths[1:].sum())) if len(ends) > 1 else (0, 0)
        if span and total > _MOST_OVERLAP * span:
            times = f"{total / span:,.1f} times as long together as the time in which they were written"
            return [f"its {period}s take {times}: is the unit of their times right?"]
    return []


def _find_work(ranks: Sequence[pa.Table]) -> StepWork:
    """What all steps have in common: the one batch size, and the median of rate times time."""
    sizes = {size for rows in ranks for size in rows.column("batch_size").drop_null().unique().to_pylist()}
    (samples, tokens) = (
        _find_median([_multiply_rate(rows, name) for rows in ranks])
        for name in ("samples_per_second", "tokens_per_second")
    )
    return StepWork(sizes.pop() if len(sizes) == 1 else None, samples, tokens)


def _multiply_rate(rows: pa.Table, name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    rates = np.asarray(rows.column(name).to_numpy(zero_copy_only=False), dtype=np.float64)
    seconds = read_numbers(rows, "duration_ns") / read_numbers(rows, "stands_for_count") / _SECOND_NS
    return rates * seconds


def _find_median(values: Sequence[np.ndarray[Any, np.dtype[np.float64]]]) -> float | None:
    """The median of all numbers above zero."""
    known = np.concatenate(values)
    known = known[known > 0]
    return float(np.median(known)) if len(known) else None


def _equals(rows: pa.Table, name: str, value: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Where a column of text has this value."""
    found = pc.equal(rows.column(name), value).fill_null(False)
    return np.asarray(found.to_numpy(), dtype=bool)


def _count_traced(ranks: Iterable[_Log], traced: tuple[int, int] | None) -> tuple[int, bool]:
    """How many logged periods overlap the trace, and whether it is known when each of them was."""
    if traced is None:
        return 0, False
    begin, end = traced
    overlapping, is_placed = 0, True
    for one in ranks:
        placed = one.timed.filter(one.timed.column("ts_ns").is_valid())
        at, length = read_numbers(placed, "ts_ns"), read_numbers(placed, "duration_ns")
        overlapping += int(((at < end) & (at > begin - length)).sum())
        is_placed = is_placed and placed.num_rows == one.timed.num_rows
    return overlapping, is_placed
