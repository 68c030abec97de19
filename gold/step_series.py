"""The steps of a job as one series, from its trace or its training log: which clock times them, and whose they are."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gold.step_cycles import mean_step

if TYPE_CHECKING:
    import pyarrow as pa

    Rows = list[dict[str, Any]]

TIMINGS = ("host_step", "gpu_completion", "log_duration", "log_elapsed")
RANK_RULES = ("one_rank", "median_rank", "slowest_rank")
# Where the GPU ends further behind the host than this part of the window, the host's steps are not the job's.
MOST_LAG_FRACTION = 0.05
# Ranks whose mean steps differ by more are not tied, whatever collectives they share.
MOST_SPREAD_FRACTION = 0.05
# The finest period first.
_FINEST = ("step", "block", "epoch")


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
    caveats: tuple[str, ...] = ()
    reason: str | None = None

    def median(self) -> int:
        """The median step, rounded down."""
        return median_of([value // weight for value, weight in zip(self.values, self.weights, strict=True)])


def median_of(values: list[int]) -> int:
    """The median of whole numbers, rounded down; exact however large they are."""
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) // 2


# -- trace ------------------------------------------------------------------------------------------------------------


def read_trace(observed: pa.Table) -> Series | None:
    """The job's steps as the trace shows them; none from steps whose bounds nobody marked."""
    rows = observed.to_pylist()
    if not rows:
        return None
    ranks = _by_rank(rows, "step_ordinal")
    warmups = sum(row["is_warmup"] for row in rows)
    known = Series(ranks_count=len(ranks), warmup_count=warmups)
    if any(row["step_source"] == "inferred" for row in rows):
        said = "no annotation marks its steps, and the whole recording is no step"
        return replace(known, evidence="unobservable", reason=said)
    found = [_time_rank(of_rank) for of_rank in ranks.values()]
    lags = [one.lag_ns for one in found if one.lag_ns is not None]
    fractions = [one.lag_fraction for one in found if one.lag_fraction is not None]
    known = replace(known, lag_ns=max(lags, default=None), lag_fraction=max(fractions, default=None))
    for one in found:
        if one.reason is not None:
            return replace(known, reason=one.reason, caveats=one.caveats)
    is_tied = all(any(row["collectives_count"] for row in of_rank) for of_rank in ranks.values())
    joined = join_ranks([one for one in found if one.values], is_tied=is_tied)
    timings = {one.timed_by for one in found}
    is_optimizer = any(row["step_source"] == "optimizer_step" for row in rows)
    said = tuple(dict.fromkeys(caveat for one in found for caveat in one.caveats))
    return replace(
        joined,
        ranks_count=known.ranks_count,
        warmup_count=warmups,
        lag_ns=known.lag_ns,
        lag_fraction=known.lag_fraction,
        timed_by="gpu_completion" if "gpu_completion" in timings else "host_step",
        evidence="modelled" if is_optimizer or any(one.evidence == "modelled" for one in found) else "measured",
        caveats=(*joined.caveats, *said),
    )


def _time_rank(rows: Rows) -> Series:
    """The steps of one rank: the host's, or where the GPU falls behind, from completion to completion."""
    steps = [row for row in rows if not row["is_warmup"]]
    if not steps:
        return Series(reason=None)
    window = sum(row["duration_ns"] for row in steps)
    if not steps[0]["gpu_rows_count"]:
        return _time_blind(steps)
    ends = [row["gpu_end_ns"] for row in rows]
    if any(end is not None for end in ends):
        lag = max(
            (row["gpu_end_ns"] - row["ts_ns"] - row["duration_ns"] for row in steps if row["gpu_end_ns"] is not None),
            default=0,
        )
    else:
        lag = steps[0]["gpu_last_ns"] - steps[-1]["ts_ns"] - steps[-1]["duration_ns"]
    lag = max(lag, 0)
    fraction = lag / window if window else None
    host = replace(_take_host_steps(steps), lag_ns=lag, lag_fraction=fraction)
    if fraction is None or fraction <= MOST_LAG_FRACTION:
        return host
    by_gpu = _take_completions(rows)
    told = f"the GPU ends up to {fraction:.0%} of the recorded time behind the host".replace("%", " %")
    if not by_gpu.values:
        said = f"{told}, and no two steps in a row have GPU work whose launch is known"
        return replace(host, reason=said)
    caveat = f"{told}, so steps are timed from completion to completion of their GPU work"
    return replace(by_gpu, lag_ns=lag, lag_fraction=fraction, caveats=(caveat,))


def _time_blind(steps: Rows) -> Series:
    """Steps without GPU rows: the host's own where it launched nothing, or waited for the GPU in each."""
    host = _take_host_steps(steps)
    if not any(row["launches_count"] for row in steps):
        return host
    if all(row["syncs_count"] for row in steps):
        caveat = "no GPU rows were recorded; the host waited for the GPU in every step, so its steps are taken"
        return replace(host, evidence="modelled", caveats=(caveat,))
    return replace(host, reason="no GPU rows were recorded and the host does not wait for the GPU in every step")


def _take_host_steps(steps: Rows) -> Series:
    return Series(
        values=[row["duration_ns"] for row in steps],
        weights=[1] * len(steps),
        has_collective=[row["collectives_count"] > 0 for row in steps],
        starts_part=_find_breaks(steps),
        numbers=[row["step_number"] for row in steps],
        timed_by="host_step",
    )


def _take_completions(rows: Rows) -> Series:
    """From the end of all GPU work launched up to one step to the end of that up to the next."""
    while rows and rows[-1]["gpu_end_ns"] is None:
        rows = rows[:-1]
    values, kept, starts = [], [], []
    reached: int | None = None
    was_kept = False
    for row, is_start in zip(rows, _find_breaks(rows), strict=True):
        end = row["gpu_end_ns"]
        before = None if is_start else reached
        now = end if before is None else max(before, end if end is not None else before)
        if before is not None and now is not None and not row["is_warmup"]:
            values.append(now - before)
            kept.append(row)
            starts.append(not was_kept)
            was_kept = True
        else:
            was_kept = False
        reached = now
    return Series(
        values=values,
        weights=[1] * len(kept),
        has_collective=[row["collectives_count"] > 0 for row in kept],
        starts_part=starts,
        numbers=[row["step_number"] for row in kept],
        timed_by="gpu_completion",
    )


def _find_breaks(rows: Rows) -> list[bool]:
    """Whether a step does not follow the one before it: a number is missing, or more than half a step of time."""
    usual = median_of([row["duration_ns"] for row in rows]) if rows else 0
    found, last = [], None
    for row in rows:
        is_next = last is not None and row["step_number"] == last["step_number"] + 1
        gap = 0 if last is None else row["ts_ns"] - last["ts_ns"] - last["duration_ns"]
        found.append(not is_next or 2 * gap > usual)
        last = row
    return found


# -- log --------------------------------------------------------------------------------------------------------------


def read_log(log: pa.Table, observed: pa.Table) -> Series | None:
    """The job's steps as its training log times them: the finest period that covers most of the logged time."""
    rows = log.to_pylist()
    if not rows:
        return None
    by_period = {period: _longest_logs([row for row in rows if row["period"] == period]) for period in _FINEST}
    covered = {
        period: sum(row["duration_ns"] for of_rank in ranks.values() for row in of_rank if not row["is_warmup"])
        for period, ranks in by_period.items()
    }
    most = max(covered.values())
    if not most:
        period = next(period for period in _FINEST if any(row["period"] == period for row in rows))
        warmups = sum(row["is_warmup"] for row in rows if row["period"] == period)
        said = "the log gives no time outside warm-up"
        return Series(period=period, warmup_count=warmups, evidence="unobservable", reason=said)
    period = next(period for period in _FINEST if 2 * covered[period] >= most)
    ranks = by_period[period]
    seen = observed.to_pylist()
    traced_ranks = _by_rank(seen, "step_ordinal").values()
    is_tied = bool(seen) and all(any(row["collectives_count"] for row in of_rank) for of_rank in traced_ranks)
    found = [_read_rank_log(of_rank) for of_rank in ranks.values()]
    joined = join_ranks([one for one in found if one.values], is_tied=is_tied)
    is_elapsed = any(one.timed_by == "log_elapsed" for one in found)
    caveats = [*joined.caveats]
    if is_elapsed:
        caveats.append("only times of writing are known: whatever else was done in between is part of it")
    steps = [row for of_rank in ranks.values() for row in of_rank if not row["is_warmup"]]
    overlapping, is_placed = _count_traced(steps, seen)
    if overlapping:
        caveats.append(f"the profiler recorded during {overlapping} of its {len(steps)} {period}s")
    return replace(
        joined,
        period=period,
        ranks_count=len(ranks),
        warmup_count=sum(row["is_warmup"] for of_rank in ranks.values() for row in of_rank),
        timed_by="log_elapsed" if is_elapsed else "log_duration",
        evidence="modelled" if is_elapsed else "measured",
        is_bare=is_placed and not overlapping,
        caveats=tuple(caveats),
    )


def _longest_logs(rows: Rows) -> dict[int, Rows]:
    """The rows with a time of each rank's longest log: two logs of a rank may tell the same."""
    logs: dict[tuple[int, str], Rows] = {}
    for row in sorted(rows, key=lambda row: (row["source_sha256"], row["ordinal"])):
        previous = logs.setdefault((row["rank"], row["source_sha256"]), [])
        previous.append(row)
    longest: dict[int, Rows] = {}
    for (rank, _), whole in sorted(logs.items()):
        timed = [
            {**row, "_steps": _count_steps(before, row)}
            for before, row in zip([None, *whole], whole, strict=False)
            if row["duration_ns"] is not None
        ]
        longest[rank] = max(longest.get(rank, []), timed, key=len)
    return {rank: timed for rank, timed in longest.items() if timed}


def _count_steps(before: dict[str, Any] | None, row: dict[str, Any]) -> int:
    """How many steps a record stands for: those since the one before, where its time is the time since that."""
    if before is None or row["duration_source"] != "difference" or row["numbered_by"] != "number":
        return 1
    return max(int(row["period_number"] - before["period_number"]), 1)


def _read_rank_log(rows: Rows) -> Series:
    steps = [row for row in rows if not row["is_warmup"]]
    is_elapsed = any(row["duration_source"] == "difference" for row in steps)
    return Series(
        values=[row["duration_ns"] for row in steps],
        weights=[row["_steps"] for row in steps],
        has_collective=[False] * len(steps),
        starts_part=[place == 0 for place in range(len(steps))],
        numbers=[row["period_number"] for row in steps],
        timed_by="log_elapsed" if is_elapsed else "log_duration",
    )


def _count_traced(steps: Rows, seen: Rows) -> tuple[int, bool]:
    """How many logged periods overlap the trace, and whether their times are known."""
    if not seen:
        return 0, False
    begin = min(row["ts_ns"] for row in seen)
    end = max(row["ts_ns"] + row["duration_ns"] for row in seen)
    placed = [row for row in steps if row["ts_ns"] is not None]
    overlapping = sum(row["ts_ns"] < end and row["ts_ns"] + row["duration_ns"] > begin for row in placed)
    return overlapping, len(placed) == len(steps)


# -- ranks ------------------------------------------------------------------------------------------------------------


def _by_rank(rows: Rows, order: str) -> dict[int, Rows]:
    ranks: dict[int, Rows] = {}
    for row in sorted(rows, key=lambda row: (row["rank"], row[order])):
        ranks.setdefault(row["rank"], []).append(row)
    return ranks


def join_ranks(ranks: list[Series], *, is_tied: bool) -> Series:
    """The step of the job: the median over ranks where collectives tie them, else the slowest rank's."""
    if not ranks:
        return Series()
    if len(ranks) == 1:
        return replace(ranks[0], rank_rule="one_rank", caveats=())
    means = [mean_step(one) for one in ranks]
    slowest = ranks[means.index(max(means))]
    if is_tied and max(means) <= min(means) * (1 + MOST_SPREAD_FRACTION):
        middle = _take_medians(ranks)
        if middle.values:
            return replace(middle, rank_rule="median_rank", caveats=())
    spread = max(means) / min(means) - 1 if min(means) else None
    said = [] if spread is None else [f"mean steps of ranks differ by {spread:.1%}".replace("%", " %")]
    if spread is not None and spread <= MOST_SPREAD_FRACTION:
        said = []
    return replace(slowest, rank_rule="slowest_rank", caveats=tuple(f"{one}: the slowest is the job's" for one in said))


def _take_medians(ranks: list[Series]) -> Series:
    """Per step that all ranks have, the median over them."""
    tables = [dict(zip(one.numbers, range(len(one.numbers)), strict=True)) for one in ranks]
    shared = sorted(set(tables[0]).intersection(*tables[1:]))
    cells = [[(one, table[number]) for one, table in zip(ranks, tables, strict=True)] for number in shared]
    starts, last = [], None
    for number, row in zip(shared, cells, strict=True):
        starts.append(number - 1 != last or any(one.starts_part[place] for one, place in row))
        last = number
    return Series(
        values=[median_of([one.values[place] for one, place in row]) for row in cells],
        weights=[max(one.weights[place] for one, place in row) for row in cells],
        has_collective=[any(one.has_collective[place] for one, place in row) for row in cells],
        starts_part=starts,
        numbers=shared,
        timed_by=ranks[0].timed_by,
    )
