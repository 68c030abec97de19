"""One row per operator or CUDA call of a rank: how long it ran itself, less what it called, and what it launched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw
import numpy as np
import pyarrow as pa

from gold.call_nesting import CUDA_CALLS, equals, find_calls, find_enclosing, find_parents, measure_own, number_rows
from gold.step_series import read_numbers
from lake.frames import join_reasons, select_declared
from lake.tables import RUN_ID, Table, int32, int64, text
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from lake.frames import Frame, Moment

OPERATOR, NONE = "cpu_op", "none"
CATEGORIES = (OPERATOR, *CUDA_CALLS)

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


def select_calls(spans: Frame, low_ns: Moment, high_ns: Moment) -> Frame:
    """Operators and calls that reach into a chunk of time."""
    start, end = nw.col("ts_ns"), nw.col("ts_ns") + nw.col("duration_ns")
    calls = spans.filter(nw.col("category").is_in(CATEGORIES), start < high_ns, (start >= low_ns) | (end > low_ns))
    return calls.select(
        *("rank", "category", "ordinal", "ts_ns", "duration_ns"),
        nw.col("name", "thread_id").fill_null(""),
        nw.col("correlation_id").fill_null(-1),
    )


def sum_calls(calls: pa.Table, work: pa.Table, low_ns: int, high_ns: int) -> pa.Table:
    """What operators and calls took themselves within a chunk of time, and what was launched below them.

    Calls of one thread lie within or beside each other: the innermost is the last that began.
    """
    starts, lengths = read_numbers(calls, "ts_ns"), read_numbers(calls, "duration_ns")
    ends, threads = starts + lengths, number_rows(calls, ("rank", "thread_id"))
    is_operator = equals(calls, "category", OPERATOR)
    parents = find_parents(threads, starts, ends, read_numbers(calls, "ordinal"))
    operators = find_enclosing(parents, is_operator)
    is_begun = (starts >= low_ns).astype(np.int64)
    launching = find_calls(calls, work, ~is_operator)
    held = np.where(operators[launching] >= 0, operators[launching], launching)
    sums = {
        "calls_count": is_begun,
        "total_ns": is_begun * lengths,
        "self_ns": measure_own(parents, starts, ends, low_ns, high_ns),
    }
    sums |= {name: np.zeros(len(starts), np.int64) for name in _SUMS[3:]}
    is_known = launching >= 0
    np.add.at(sums["launched_count"], held[is_known], 1)
    np.add.at(sums["launched_ns"], held[is_known], read_numbers(work, "duration_ns")[is_known])
    _, firsts, groups = np.unique(number_rows(calls, _KEYS), return_index=True, return_inverse=True)
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
