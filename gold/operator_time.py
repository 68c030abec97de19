"""One row per operator or CUDA call of a rank: how long it ran itself, less what it called, and what it launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw
import numpy as np
import pyarrow as pa

from gold.step_series import read_numbers
from lake.frames import join_reasons, select_declared
from lake.tables import RUN_ID, Table, int32, int64, text
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    import numpy.typing as npt

    from lake.frames import Frame

    Numbers = npt.NDArray[np.int64]

OPERATOR, NONE = "cpu_op", "none"
CATEGORIES = (OPERATOR, "cuda_runtime", "cuda_driver")

TABLE = Table(
    tier="gold",
    name="operator_time",
    grain="One row per rank and name of an operator or CUDA call; one of no name for a rank that recorded none.",
    key=("rank", "category", "name"),
    inputs=("silver.spans", "silver.steps"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        text("category", "Operator or CUDA call, as the profiler names it.", one_of=(*CATEGORIES, NONE)),
        text("name", "Its name."),
        int64("calls_count", "How often it was called.", minimum=0),
        int64("total_ns", "Durations of all, summed; one within another of its name counts for both.", minimum=0),
        int64(
            "self_ns", "What of that its thread did not spend in operators and calls that began within it.", minimum=0
        ),
        int64(
            "launched_count",
            "GPU work whose launch it is the innermost operator around; of a call without one, its own.",
            minimum=0,
        ),
        int64("launched_ns", "Durations of these; what ran side by side counts each for itself.", minimum=0),
        text("evidence", "Whether operators or calls were observed.", one_of=EVIDENCE),
        text("reason", "What could not be seen, as a sentence.", nullable=True),
    ),
)
_INT = nw.Int64
_KEYS = ("rank", "category", "name")
_SUMS = ("calls_count", "total_ns", "self_ns", "launched_count", "launched_ns")


def select_calls(spans: Frame, low_ns: int, high_ns: int) -> Frame:
    """Operators and calls that reach into a chunk of time."""
    start, end = nw.col("ts_ns"), nw.col("ts_ns") + nw.col("duration_ns")
    calls = spans.filter(nw.col("category").is_in(CATEGORIES), start < high_ns, (start >= low_ns) | (end > low_ns))
    return calls.select(
        *("rank", "category", "ordinal", "ts_ns", "duration_ns"),
        nw.col("name", "thread_id").fill_null(""),
        nw.col("correlation_id").fill_null(-1),
    )


def select_launched(spans: Frame, low_ns: int, high_ns: int) -> Frame:
    """GPU work that was launched in a chunk of time."""
    launched = nw.col("launch_ts_ns")
    work = spans.filter(nw.col("is_gpu"), launched >= low_ns, launched < high_ns)
    return work.select("rank", "duration_ns", nw.col("correlation_id").fill_null(-1), ts_ns=launched)


def sum_calls(calls: pa.Table, work: pa.Table, low_ns: int, high_ns: int) -> pa.Table:
    """What operators and calls took themselves within a chunk of time, and what was launched below them.

    Calls of one thread lie within or beside each other: the innermost is the last that began.
    """
    starts, lengths = read_numbers(calls, "ts_ns"), read_numbers(calls, "duration_ns")
    ends, threads = starts + lengths, _number_rows(calls, ("rank", "thread_id"))
    is_operator = _equals(calls, "category", OPERATOR)
    parents = _find_parents(threads, starts, ends, read_numbers(calls, "ordinal"))
    operators = _find_operators(parents, is_operator)
    within = np.maximum(np.minimum(ends, high_ns) - np.maximum(starts, low_ns), 0)
    own = within.copy()
    has_parent = parents >= 0
    # What outlasts the call around it is not within that.
    shared = np.minimum(ends[has_parent], ends[parents[has_parent]])
    shared = np.minimum(shared, high_ns) - np.maximum(starts[has_parent], low_ns)
    np.subtract.at(own, parents[has_parent], np.maximum(shared, 0))
    is_begun = (starts >= low_ns).astype(np.int64)
    launching = _find_calls(calls, work)
    held = np.where(operators[launching] >= 0, operators[launching], launching)
    sums = {"calls_count": is_begun, "total_ns": is_begun * lengths, "self_ns": np.maximum(own, 0)}
    sums |= {name: np.zeros(len(starts), np.int64) for name in _SUMS[3:]}
    is_known = launching >= 0
    np.add.at(sums["launched_count"], held[is_known], 1)
    np.add.at(sums["launched_ns"], held[is_known], read_numbers(work, "duration_ns")[is_known])
    _, firsts, groups = np.unique(_number_rows(calls, _KEYS), return_index=True, return_inverse=True)
    found = {name: np.zeros(len(firsts), np.int64) for name in _SUMS}
    for name, values in sums.items():
        np.add.at(found[name], groups, values)
    named = calls.select(list(_KEYS)).take(pa.array(firsts))
    return pa.table({**{name: named.column(name) for name in _KEYS}, **found})


def measure(sums: Frame, ranks: Frame) -> Frame:
    """Add up the chunks of time; a rank whose profiler recorded no host has a row that says so."""
    found = sums.group_by(*_KEYS).agg(nw.col(name).sum().cast(_INT) for name in _SUMS)
    found = ranks.select("run_id", "rank").unique().join(found, on="rank", how="left")
    is_seen = ~nw.col("category").is_null()
    return select_declared(
        found.with_columns(
            nw.col(*_SUMS).fill_null(0),
            name=nw.col("name").fill_null(""),
            category=nw.col("category").fill_null(NONE),
            evidence=nw.when(is_seen).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
            reason=join_reasons((~is_seen, "neither operators nor CUDA calls were recorded")),
        ),
        TABLE,
    )


def _find_parents(threads: Numbers, starts: Numbers, ends: Numbers, ordinals: Numbers) -> Numbers:
    """For each call the innermost one that it began within on its thread, -1 for none: the last that is one less deep.

    How deep it lies is how many began before it on its thread, less how many of these had ended. What lasts no time
    holds nothing.
    """
    parents = np.full(len(starts), -1, np.int64)
    order = np.lexsort((ordinals, -ends, starts, threads))
    order = order[ends[order] > starts[order]]
    bounds = np.flatnonzero(np.diff(threads[order])) + 1
    depths = np.concatenate(
        [
            np.arange(len(rows)) - np.searchsorted(np.sort(ends[rows]), starts[rows], "right")
            for rows in np.split(order, bounds)
        ]
    )
    places = np.arange(len(order))
    by_depth = np.argsort(depths, kind="stable")
    keys = depths[by_depth] * len(order) + by_depth
    above = np.searchsorted(keys, (depths - 1) * len(order) + places) - 1
    is_held = depths > 0
    parents[order[is_held]] = order[by_depth[above[is_held]]]
    return parents


def _find_operators(parents: Numbers, is_operator: npt.NDArray[np.bool_]) -> Numbers:
    """The innermost operator around each call, itself where it is one; -1 for none."""
    found = np.where(is_operator, np.arange(len(parents)), parents)
    is_open = (found >= 0) & ~is_operator[found]
    while is_open.any():
        found[is_open] = parents[found[is_open]]
        is_open = (found >= 0) & ~is_operator[found]
    return found


def _find_calls(calls: pa.Table, work: pa.Table) -> Numbers:
    """The call that launched each piece of work, by start, correlation and rank; -1 where it is not there."""
    names = ("rank", "correlation_id", "ts_ns")
    rows = np.flatnonzero(~_equals(calls, "category", OPERATOR))
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


def _number_rows(table: pa.Table, names: tuple[str, ...]) -> Numbers:
    """A number for each combination of values."""
    found = np.zeros(table.num_rows, np.int64)
    for name in names:
        codes = table.column(name).combine_chunks().dictionary_encode()
        found = found * len(codes.dictionary) + codes.indices.to_numpy()
    return found


def _equals(table: pa.Table, name: str, value: str) -> npt.NDArray[np.bool_]:
    return np.asarray(pa.compute.equal(table.column(name), value).to_numpy(), dtype=bool)
