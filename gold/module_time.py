"""One row per module of a rank: how long it ran itself, less the modules that it called, and what it launched."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import narwhals as nw
import numpy as np
import pyarrow as pa

from gold.call_nesting import CUDA_CALLS, equals, find_calls, find_enclosing, find_parents, measure_own, number_rows
from gold.step_series import read_numbers
from lake.frames import compute_once, join_reasons, keep_first, select_declared
from lake.frames import number_rows as number_in_order
from lake.tables import RUN_ID, Table, int32, int64, text
from silver.patterns import MODULES, PATTERNS
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from lake.frames import Frame, Moment

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)
OWN, NONE = "own", "none"

TABLE = Table(
    tier="gold",
    name="module_time",
    grain="One row per rank and module of PyTorch, and one per rank for CUDA calls outside of them.",
    key=("rank", "module"),
    inputs=("silver.spans", "silver.steps"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        text(
            "module",
            "As the profiler names it where its class is torch's own, such as Linear_0; else own_1, own_2 and so on, "
            "in the order of their first calls; none: outside of all modules.",
        ),
        text(
            "module_class", "Class of torch's own; own: a person's or another library's; none: outside of all modules."
        ),
        text(
            "source_sha256",
            "The trace that shows its first call, by the digest of its bytes as they landed.",
            nullable=True,
        ),
        int64(
            "ordinal",
            "Place in that trace of its first call: the sealed `label` of that row of silver.spans has an own one's "
            "name.",
            nullable=True,
            minimum=0,
        ),
        int64("calls_count", "How often it was called.", minimum=0),
        int64("total_ns", "Durations of all calls, summed, on the host and under the profiler.", minimum=0),
        int64("self_ns", "What of that its thread did not spend in modules that began within it.", minimum=0),
        int64("cuda_ns", "CUDA calls of which it is the innermost module around: part of self_ns.", minimum=0),
        int64("launched_count", "GPU work that was launched by these.", minimum=0),
        int64("launched_ns", "Durations of that; what ran side by side counts each for itself.", minimum=0),
        text("evidence", "Whether modules were observed.", one_of=EVIDENCE),
        text("reason", "What could not be seen, as a sentence.", nullable=True),
    ),
)
_INT = nw.Int64
_KEYS = ("rank", "pattern", "_named")
_FIRST = ("ts_ns", "source_sha256", "ordinal")
_SUMS = ("calls_count", "total_ns", "self_ns", "cuda_ns", "launched_count", "launched_ns")
SCHEMA = pa.schema(
    [
        *(("rank", pa.int32()), ("pattern", pa.string()), ("_named", pa.string())),
        *(("ts_ns", pa.int64()), ("source_sha256", pa.string()), ("ordinal", pa.int64())),
        *((name, pa.int64()) for name in _SUMS),
    ]
)


def find_ranks(spans: Frame) -> Frame:
    """The ranks that recorded modules: of most runs there are none, and their calls are not to be held."""
    return spans.filter(PATTERNS.has_pattern("pattern", *MODULES)).select("rank").unique()


def select_calls(spans: Frame, low_ns: Moment, high_ns: Moment) -> Frame:
    """Modules and CUDA calls that reach into a chunk of time."""
    start, end = nw.col("ts_ns"), nw.col("ts_ns") + nw.col("duration_ns")
    is_module = PATTERNS.has_pattern("pattern", *MODULES)
    calls = spans.filter(
        is_module | nw.col("category").is_in(CUDA_CALLS), start < high_ns, (start >= low_ns) | (end > low_ns)
    )
    empty = nw.lit("")
    return calls.select(
        *("rank", "category", "ordinal", "source_sha256", "ts_ns", "duration_ns"),
        nw.col("thread_id").fill_null(""),
        nw.col("correlation_id").fill_null(-1),
        pattern=nw.when(is_module).then(nw.col("pattern")).otherwise(empty),
        _named=nw.when(is_module).then(nw.coalesce(nw.col("name"), nw.col("label"))).otherwise(empty).fill_null(""),
    )


def drop_labels(rows: Rows) -> Rows:
    """Spans without their sealed names but for modules: those of all Python frames would fill memory for nothing."""
    is_own = pa.compute.equal(rows.column("pattern"), MODULES[1])
    labels = pa.compute.if_else(is_own, rows.column("label"), pa.scalar(None, rows.schema.field("label").type))
    return rows.set_column(rows.schema.get_field_index("label"), rows.schema.field("label"), labels)


def sum_modules(calls: pa.Table, work: pa.Table, low_ns: int, high_ns: int) -> pa.Table:
    """What modules took themselves within a chunk of time, and what was called and launched within and outside them."""
    starts, lengths = read_numbers(calls, "ts_ns"), read_numbers(calls, "duration_ns")
    ends, ordinals = starts + lengths, read_numbers(calls, "ordinal")
    is_module = ~equals(calls, "pattern", "")
    threads = number_rows(calls, ("rank", "thread_id"))
    parents = find_parents(threads, starts, ends, ordinals)
    # A call is of the innermost module around it; outside of all, it stands for itself, which has no name.
    modules = find_enclosing(parents, is_module)
    held = np.where(modules >= 0, modules, np.arange(len(starts)))
    is_begun = (is_module & (starts >= low_ns)).astype(np.int64)
    sums = {name: np.zeros(len(starts), np.int64) for name in _SUMS}
    sums["calls_count"], sums["total_ns"] = is_begun, is_begun * lengths
    alone = [values[is_module] for values in (threads, starts, ends, ordinals)]
    sums["self_ns"][is_module] = measure_own(find_parents(*alone), alone[1], alone[2], low_ns, high_ns)
    # What outlasts the module around it is not within that.
    called = measure_own(parents, starts, np.minimum(ends, ends[held]), low_ns, high_ns)
    np.add.at(sums["cuda_ns"], held[~is_module], called[~is_module])
    launching = find_calls(calls, work, ~is_module)
    is_known = launching >= 0
    np.add.at(sums["launched_count"], held[launching[is_known]], 1)
    np.add.at(sums["launched_ns"], held[launching[is_known]], read_numbers(work, "duration_ns")[is_known])
    return _sum_groups(calls, sums)


def _sum_groups(calls: pa.Table, sums: dict[str, np.ndarray]) -> pa.Table:
    """The sums of each module and of what lies outside, with the first call of each."""
    sources = calls.column("source_sha256").combine_chunks().dictionary_encode()
    _, ranked = np.unique(np.array(sources.dictionary.to_pylist(), dtype=str), return_inverse=True)
    order = np.lexsort(
        (read_numbers(calls, "ordinal"), ranked[sources.indices.to_numpy()], read_numbers(calls, "ts_ns"))
    )
    # The first of equal numbers is that of the first call.
    _, firsts, groups = np.unique(number_rows(calls, _KEYS)[order], return_index=True, return_inverse=True)
    found = {name: np.zeros(len(firsts), np.int64) for name in _SUMS}
    for name, values in sums.items():
        np.add.at(found[name], groups, values[order])
    named = calls.select([*_KEYS, *_FIRST]).take(pa.array(order[firsts]))
    return pa.table({**{name: named.column(name) for name in (*_KEYS, *_FIRST)}, **found}).cast(SCHEMA)


def measure(sums: Frame, ranks: Frame) -> Frame:
    """Add up the chunks of time; classes of torch's own have their names, all others a number and their sealed one."""
    sums = compute_once(sums)
    found = sums.group_by(*_KEYS).agg(nw.col(name).sum().cast(_INT) for name in _SUMS)
    first = keep_first(sums.select(*_KEYS, *_FIRST), _KEYS, _FIRST)
    found = number_in_order(found.join(first, on=list(_KEYS), how="inner"), "_number", ["rank", "pattern"], _FIRST)
    is_torch, is_own = (nw.col("pattern") == pattern for pattern in MODULES)
    plain = nw.col("_named").str.replace_all("^nn[.]Module: ", "")
    numbered = nw.concat_str(nw.lit(f"{OWN}_"), nw.col("_number").cast(nw.String))
    none = nw.lit(NONE)
    found = found.with_columns(
        module=nw.when(is_torch).then(plain).otherwise(nw.when(is_own).then(numbered).otherwise(none)),
        module_class=nw.when(is_torch)
        .then(plain.str.replace_all("_[0-9]+\\z", ""))
        .otherwise(nw.when(is_own).then(nw.lit(OWN)).otherwise(none)),
        _is_module=is_torch | is_own,
    )
    found = ranks.select("run_id", "rank").unique().join(found, on="rank", how="left")
    is_seen = ~nw.col("module").is_null()
    is_module = nw.col("_is_module").fill_null(False)
    return select_declared(
        found.with_columns(
            nw.col(*_SUMS).fill_null(0),
            nw.col("module", "module_class").fill_null(NONE),
            source_sha256=nw.when(is_module).then(nw.col("source_sha256")),
            ordinal=nw.when(is_module).then(nw.col("ordinal")),
            evidence=nw.when(is_seen).then(nw.lit("measured")).otherwise(nw.lit("unobservable")),
            reason=join_reasons((~is_seen, "no modules were recorded: the profiler was not asked for stacks")),
        ),
        TABLE,
    )
