"""The steps of a job as its trace shows them: the host's, or from completion to completion of their GPU work."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import narwhals as nw
import numpy as np

from gold.step_series import Series, describe_warmup, join_ranks, read_flags, read_numbers, split
from lake.frames import to_flag

if TYPE_CHECKING:
    import pyarrow as pa

    from gold.step_series import Numbers
    from lake.frames import Frame

    Flags = np.ndarray[Any, np.dtype[np.bool_]]

# Where the GPU ends further behind the host than this part of the recorded time, the host's steps are not the job's.
MOST_LAG_FRACTION = 0.05
# Beyond this they are less exact than completions, if there are enough of those that one step more or less is little.
LITTLE_LAG_FRACTION = 0.01
ENOUGH_COMPLETIONS = 8
# Time between steps that is worth a word.
TELLING_GAP_FRACTION = 0.05
_UNMARKED = "no annotation marks its steps, and the whole recording is no step"
_OF_STEP = ("run_id", "rank", "step_number")
_OF_RANK = ("run_id", "rank")


def observe_steps(steps: Frame, spans: Frame, collectives: Frame) -> Frame:
    """One row per rank and step: its time on the host, when its GPU work ended, whether the host waited for that."""
    gpu = spans.filter(nw.col("is_gpu")).with_columns(_end_ns=nw.col("ts_ns") + nw.col("duration_ns"))
    launched = gpu.filter(~nw.col("launch_step_number").is_null())
    launched = launched.group_by("run_id", "rank", "launch_step_number").agg(gpu_end_ns=nw.col("_end_ns").max())
    host = spans.filter(~nw.col("is_gpu"), ~nw.col("step_number").is_null(), nw.col("kind").is_in(["sync", "launch"]))
    host = host.with_columns(_sync=to_flag(nw.col("kind") == "sync"), _launch=to_flag(nw.col("kind") == "launch"))
    host = host.group_by(*_OF_STEP).agg(syncs_count=nw.col("_sync").sum(), launches_count=nw.col("_launch").sum())
    tied = collectives.filter(~nw.col("step_number").is_null()).group_by(*_OF_STEP).agg(collectives_count=nw.len())
    seen = gpu.group_by(*_OF_RANK).agg(gpu_rows_count=nw.len(), gpu_last_ns=nw.col("_end_ns").max())
    found = steps.join(launched.rename({"launch_step_number": "step_number"}), on=list(_OF_STEP), how="left")
    found = found.join(host, on=list(_OF_STEP), how="left").join(tied, on=list(_OF_STEP), how="left")
    found = found.join(seen, on=list(_OF_RANK), how="left")
    counts = ("syncs_count", "launches_count", "collectives_count", "gpu_rows_count")
    return found.select(
        *_OF_STEP,
        *("step_ordinal", "step_source", "ts_ns", "duration_ns", "is_warmup", "warmup_reason"),
        *("gpu_end_ns", "gpu_last_ns"),
        *(nw.col(name).fill_null(0).cast(nw.Int64) for name in counts),
    )


def is_tied(observed: pa.Table) -> bool:
    """Whether every recorded rank takes part in collectives during its steps."""
    most = observed.group_by("rank").aggregate([("collectives_count", "max")])
    return bool(most.num_rows) and bool(read_numbers(most, "collectives_count_max").all())


def read_trace(observed: pa.Table, world_size: int | None) -> Series | None:
    """The job's steps; none from steps that nobody marked, or of ranks that cannot be timed and that nothing ties."""
    if not observed.num_rows:
        return None
    ranks = [rows for _, rows in split(observed, ["rank"], "step_ordinal")]
    found = [_time_rank(rows) for rows in ranks]
    timed = [one for one in found if one.values and one.reason is None]
    refused = [one for one in found if one.reason is not None]
    has_ties = is_tied(observed)
    lags = [one.lag_ns for one in found if one.lag_ns is not None]
    fractions = [one.lag_fraction for one in found if one.lag_fraction is not None]
    known = Series(
        ranks_count=len(timed),
        warmup_count=int(read_flags(observed, "is_warmup").sum()),
        lag_ns=max(lags, default=None),
        lag_fraction=max(fractions, default=None),
    )
    if refused and not (has_ties and timed):
        reasons = dict.fromkeys(one.reason for one in refused if one.reason is not None)
        return replace(known, evidence="unobservable", reason="; ".join(reasons))
    joined = join_ranks(timed, is_tied=has_ties)
    is_by_gpu = any(one.timed_by == "gpu_completion" for one in timed)
    said = [*joined.caveats, *dict.fromkeys(caveat for one in timed for caveat in one.caveats)]
    if refused:
        said.append(f"{len(refused)} of {len(found)} ranks cannot be timed; collectives tie them to the others")
    if world_size is not None and len(timed) < world_size and not has_ties:
        said.append(f"{len(timed)} of {world_size} ranks are known, and nothing shows that the others are not slower")
    return replace(
        joined,
        ranks_count=known.ranks_count,
        warmup_count=known.warmup_count,
        lag_ns=known.lag_ns,
        lag_fraction=known.lag_fraction,
        timed_by=("gpu_completion" if is_by_gpu else "host_step") if timed else None,
        evidence="modelled" if any(one.evidence == "modelled" for one in timed) else "measured",
        caveats=(*said, *describe_warmup(ranks, "step")),
    )


def _time_rank(rows: pa.Table) -> Series:
    """The steps of one rank: the host's, or where the GPU falls behind, from completion to completion."""
    sources = set(rows.column("step_source").unique().to_pylist())
    if "inferred" in sources:
        return Series(reason=_UNMARKED)
    is_kept = ~read_flags(rows, "is_warmup")
    if not is_kept.any():
        return Series()
    host = _take_host_steps(rows.filter(is_kept))
    if "optimizer_step" in sources:
        host = replace(host, evidence="modelled")
    if not read_numbers(rows, "gpu_rows_count")[0]:
        return _time_blind(rows.filter(is_kept), host)
    lag, window = _find_lag(rows.filter(is_kept)), sum(host.values)
    fraction = lag / window if window else None
    host = replace(host, lag_ns=lag, lag_fraction=fraction)
    if fraction is None or fraction <= LITTLE_LAG_FRACTION:
        return host
    behind = f"the GPU ends up to {fraction:.1%} of the recorded time behind the host".replace("%", " %")
    by_gpu = _take_completions(rows, is_kept)
    if fraction <= MOST_LAG_FRACTION and len(by_gpu.values) < ENOUGH_COMPLETIONS:
        return replace(host, caveats=(*host.caveats, f"{behind}, whose steps are taken"))
    if not by_gpu.values:
        return replace(host, reason=f"{behind}, and no two steps in a row have GPU work whose launch is known")
    return replace(
        host,
        values=by_gpu.values,
        weights=by_gpu.weights,
        has_collective=by_gpu.has_collective,
        starts_part=by_gpu.starts_part,
        numbers=by_gpu.numbers,
        timed_by="gpu_completion",
        caveats=(f"{behind}, so steps are timed from completion to completion of their GPU work",),
    )


def _time_blind(steps: pa.Table, host: Series) -> Series:
    """Steps without GPU rows: the host's own where it launched nothing, or waited for the GPU in each."""
    if not read_numbers(steps, "launches_count").any():
        return host
    if read_numbers(steps, "syncs_count").all():
        caveat = "no GPU rows were recorded; the host waited for the GPU in every step, so its steps are taken"
        return replace(host, evidence="modelled", caveats=(*host.caveats, caveat))
    return replace(host, reason="no GPU rows were recorded and the host does not wait for the GPU in every step")


def _find_lag(steps: pa.Table) -> int:
    """The longest time from the end of a step on the host to the end of the GPU work that it launched.

    Where no launch is known, all GPU work may be that of the last step.
    """
    is_known = ~np.asarray(steps.column("gpu_end_ns").is_null().to_numpy(), dtype=bool)
    known = steps.filter(is_known) if is_known.any() else steps
    done = read_numbers(known, "gpu_end_ns" if is_known.any() else "gpu_last_ns")
    ends = read_numbers(known, "ts_ns") + read_numbers(known, "duration_ns")
    return max(0, int((done - ends if is_known.any() else done - ends.max()).max()))


def _take_host_steps(steps: pa.Table) -> Series:
    durations = read_numbers(steps, "duration_ns").tolist()
    is_first, between = _find_breaks(steps)
    total = sum(durations)
    caveats = []
    if total and between / total > TELLING_GAP_FRACTION:
        caveats.append(f"time between steps, {between / total:.1%} of theirs, is in none".replace("%", " %"))
    return Series(
        values=durations,
        weights=[1] * len(durations),
        has_collective=(read_numbers(steps, "collectives_count") > 0).tolist(),
        starts_part=is_first.tolist(),
        numbers=read_numbers(steps, "step_number").tolist(),
        timed_by="host_step",
        caveats=tuple(caveats),
    )


def _take_completions(rows: pa.Table, is_kept: Flags) -> Series:
    """From the end of all GPU work launched up to one step to the end of that launched up to the next.

    A warm-up step is no step of the series, but the first one behind it is timed from its completion.
    """
    ends = rows.column("gpu_end_ns").to_pylist()
    while ends and ends[-1] is None:
        ends.pop()
    is_first, was_kept = _find_breaks(rows)[0].tolist(), is_kept.tolist()
    values: list[int] = []
    kept: list[int] = []
    starts: list[bool] = []
    reached: int | None = None
    for place, end in enumerate(ends):
        before = None if is_first[place] else reached
        reached = end if before is None else max(before, before if end is None else end)
        if before is not None and reached is not None and was_kept[place]:
            starts.append(not kept or kept[-1] != place - 1)
            values.append(reached - before)
            kept.append(place)
    return Series(
        values=values,
        weights=[1] * len(kept),
        has_collective=(read_numbers(rows, "collectives_count") > 0)[kept].tolist(),
        starts_part=starts,
        numbers=read_numbers(rows, "step_number")[kept].tolist(),
    )


def _find_breaks(steps: pa.Table) -> tuple[Flags, int]:
    """Which steps do not follow the one before, by number or by time; and the time between those that do."""
    durations, begins = read_numbers(steps, "duration_ns"), read_numbers(steps, "ts_ns")
    gaps: Numbers = begins[1:] - (begins[:-1] + durations[:-1])
    usual = np.sort(durations)[len(durations) // 2]
    is_first = np.ones(len(durations), dtype=bool)
    is_first[1:] = (np.diff(read_numbers(steps, "step_number")) != 1) | (gaps > usual // 2)
    return is_first, sum(gaps[~is_first[1:] & (gaps > 0)].tolist())
