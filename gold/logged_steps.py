"""The steps of a job as its training log times them: the finest period that covers most of the logged time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import narwhals as nw

from gold.step_series import Series, describe_warmup, join_ranks, read_flags, read_numbers, split

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

    from lake.frames import Frame

_FINEST = ("step", "block", "epoch")
_READ = (
    *("run_id", "rank", "source_sha256", "ordinal", "period", "period_number", "numbered_by", "ts_ns"),
    *("duration_ns", "duration_source", "is_warmup", "warmup_reason"),
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
    # When each of them began, where the log says it.
    begins: list[int | None]

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
    said = [*joined.caveats, *describe_warmup((one.rows for one in ranks), period)]
    if is_elapsed:
        said.append("only times of writing are known: whatever else was done in between is part of it")
    overlapping, is_placed = _count_traced(ranks, traced)
    if overlapping:
        count = sum(len(one.begins) for one in ranks)
        said.append(f"the profiler recorded during {overlapping} of {count} {period}s of the log")
    return replace(
        joined,
        period=period,
        ranks_count=len(ranks),
        warmup_count=warmups,
        timed_by="log_elapsed" if is_elapsed else "log_duration",
        evidence="modelled" if is_elapsed else "measured",
        is_bare=is_placed and not overlapping,
        caveats=tuple(said),
    )


def _read_one(rank: int, period: str, rows: pa.Table) -> _Log:
    """The periods that have a time, warm-up aside; one timed by its writing stands for all since the one before."""
    numbers = read_numbers(rows, "period_number").tolist()
    sources, durations = rows.column("duration_source").to_pylist(), rows.column("duration_ns").to_pylist()
    is_own = [said == "number" for said in rows.column("numbered_by").to_pylist()]
    is_warmup = read_flags(rows, "is_warmup").tolist()
    kept = [place for place, value in enumerate(durations) if value is not None and not is_warmup[place]]
    weights = [
        max(numbers[place] - numbers[place - 1], 1) if place and is_own[place] and sources[place] == "difference" else 1
        for place in kept
    ]
    begins = rows.column("ts_ns").to_pylist()
    series = Series(
        values=[durations[place] for place in kept],
        weights=weights,
        has_collective=[False] * len(kept),
        starts_part=[place == 0 for place in range(len(kept))],
        numbers=[numbers[place] for place in kept],
        period=period,
        timed_by="log_elapsed" if any(sources[place] == "difference" for place in kept) else "log_duration",
    )
    return _Log(rank, rows, series, [begins[place] for place in kept])


def _count_traced(ranks: Iterable[_Log], traced: tuple[int, int] | None) -> tuple[int, bool]:
    """How many logged periods overlap the trace, and whether it is known when each of them was."""
    if traced is None:
        return 0, False
    begin, end = traced
    times = [(at, value) for one in ranks for at, value in zip(one.begins, one.series.values, strict=True)]
    overlapping = sum(at is not None and at < end and at + value > begin for at, value in times)
    return overlapping, all(at is not None for at, _ in times)
