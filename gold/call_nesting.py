"""Which call lies within which on its thread, and which call launched GPU work: what operators and modules share."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import narwhals as nw
import numpy as np
import pyarrow as pa

from gold.step_series import read_numbers

if TYPE_CHECKING:
    import numpy.typing as npt

    from lake.frames import Frame, Moment

    Numbers = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

CUDA_CALLS = ("cuda_runtime", "cuda_driver")


def select_launched(spans: Frame, low_ns: Moment, high_ns: Moment) -> Frame:
    """GPU work that was launched in a chunk of time."""
    launched = nw.col("launch_ts_ns")
    work = spans.filter(nw.col("is_gpu"), launched >= low_ns, launched < high_ns)
    return work.select("rank", "duration_ns", nw.col("correlation_id").fill_null(-1), ts_ns=launched)


def find_parents(threads: Numbers, starts: Numbers, ends: Numbers, ordinals: Numbers) -> Numbers:
    """For each call the innermost one that it began within on its thread, -1 for none: the last that is one less deep.

    How deep it lies is how many began before it on its thread, less how many of these had ended. What lasts no time
    holds nothing, and may be held.
    """
    parents = np.full(len(starts), -1, np.int64)
    order = np.lexsort((ordinals, -ends, starts, threads))
    is_lasting = ends[order] > starts[order]
    before: Numbers = np.cumsum(is_lasting) - is_lasting
    depths = np.zeros(len(order), np.int64)
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(threads[order])) + 1, [len(order)]])
    for low, high in pairwise(bounds):
        rows, lasting = order[low:high], is_lasting[low:high]
        ended = np.searchsorted(np.sort(ends[rows[lasting]]), starts[rows], "right")
        depths[low:high] = before[low:high] - before[low : low + 1] - ended
    holding, deep = order[is_lasting], depths[is_lasting]
    by_depth = np.argsort(deep, kind="stable")
    keys = deep[by_depth] * len(holding) + by_depth
    above = np.searchsorted(keys, (depths - 1) * len(holding) + before) - 1
    is_held = depths > 0
    parents[order[is_held]] = holding[by_depth[above[is_held]]]
    return parents


def measure_own(parents: Numbers, starts: Numbers, ends: Numbers, low_ns: int, high_ns: int) -> Numbers:
    """What each call took within a chunk of time, less what began within it."""
    own: Numbers = np.maximum(np.minimum(ends, high_ns) - np.maximum(starts, low_ns), 0)
    has_parent = parents >= 0
    # What outlasts the call around it is not within that.
    shared = np.minimum(ends[has_parent], ends[parents[has_parent]])
    shared = np.minimum(shared, high_ns) - np.maximum(starts[has_parent], low_ns)
    np.subtract.at(own, parents[has_parent], np.maximum(shared, 0))
    np.maximum(own, 0, out=own)
    return own


def find_enclosing(parents: Numbers, is_asked: Flags) -> Numbers:
    """The innermost call of those asked for around each call, itself where it is one; -1 for none."""
    found = np.where(is_asked, np.arange(len(parents)), parents)
    is_open = (found >= 0) & ~is_asked[found]
    while is_open.any():
        found[is_open] = parents[found[is_open]]
        is_open = (found >= 0) & ~is_asked[found]
    return found


def find_calls(calls: pa.Table, work: pa.Table, is_launch: Flags) -> Numbers:
    """The call that launched each piece of work, by start, correlation and rank; -1 where it is not there."""
    names = ("rank", "correlation_id", "ts_ns")
    rows = np.flatnonzero(is_launch)
    known, asked = ([read_numbers(table, name) for name in names] for table in (calls, work))
    rows = rows[np.lexsort([values[rows] for values in known])]
    found = np.full(work.num_rows, -1, np.int64)
    begins = known[-1][rows]
    place = np.searchsorted(begins, asked[-1])
    is_open = place < len(rows)
    # Few calls begin at one moment: one after the other is asked.
    while is_open.any():
        at, of = rows[place[is_open]], np.flatnonzero(is_open)
        is_it = np.logical_and.reduce([mine[at] == theirs[of] for mine, theirs in zip(known, asked, strict=True)])
        found[of[is_it]] = at[is_it]
        place[of] += 1
        is_open[of] = ~is_it & (known[-1][at] == asked[-1][of]) & (place[of] < len(rows))
    return found


def number_rows(table: pa.Table, names: tuple[str, ...]) -> Numbers:
    """A number for each combination of values."""
    found = np.zeros(table.num_rows, np.int64)
    for name in names:
        codes = table.column(name).combine_chunks().dictionary_encode()
        found = found * len(codes.dictionary) + codes.indices.to_numpy()
    return found


def equals(table: pa.Table, name: str, value: str) -> Flags:
    """Which rows have a value."""
    return np.asarray(pa.compute.equal(table.column(name), value).to_numpy(), dtype=bool)
