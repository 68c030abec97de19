"""Where an interval lies: its kind by its name, the step in which it ran, the call that launched it."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, add_latest_end, compute_once, number_rows
from silver.patterns import PATTERNS
from silver.site_patterns import NO_SITE, SitedPatterns

_CALLS = ("cuda_runtime", "cuda_driver")


def classify_names(spans: Frame, site: SitedPatterns = NO_SITE, **also: nw.Expr) -> Frame:
    """Decide pattern and kind, and what else follows from a name, once per distinct name: a trace repeats few often."""
    spans = compute_once(spans.with_columns(nw.col("category", "name").fill_null("")))
    names = spans.select("category", "name").unique().with_columns(_category=PATTERNS.category("category"), **also)
    names = names.with_columns(pattern=site.pattern("_category", "name"), is_gpu=PATTERNS.is_gpu("_category"))
    names = names.with_columns(kind=PATTERNS.kind("pattern"))
    # Every name is among them, so both joins would do: this one keeps the spans as they lie.
    placed = spans.join(names, on=["category", "name"], how="left")
    return placed.drop("category").rename({"_category": "category"})


def find_containing(parts: Frame, wholes: Frame, keys: list[str], index: str, *brought: str) -> Frame:
    """Give each part the index of the whole that holds its start: the last that had begun, if it had not ended.

    Wholes are numbered by `index` in the order of their starts within `keys`; `brought` are further columns of theirs.
    """
    wholes = wholes.select(*keys, "ts_ns", index, *brought, _end_ns=nw.col("ts_ns") + nw.col("duration_ns"))
    both = nw.concat(
        [parts.with_columns(_is_part=nw.lit(1)), wholes.select(*keys, "ts_ns", index, _is_part=nw.lit(0))],
        how="diagonal",
    )
    # One number to sort by: a whole before the parts that start with it. No start is beyond 2^62.
    both = both.with_columns(nw.col(index).fill_null(-1), _place=nw.col("ts_ns") * 2 + nw.col("_is_part"))
    both = both.with_columns(nw.col(index).cum_max().over(*keys, order_by="_place"))
    placed = both.filter(nw.col("_is_part") == 1).drop("_is_part", "_place")
    placed = placed.join(wholes.drop("ts_ns"), on=[*keys, index], how="left")
    is_within = nw.col("ts_ns") < nw.col("_end_ns")
    columns = (nw.when(is_within).then(nw.col(name)).alias(name) for name in (index, *brought))
    return placed.with_columns(*columns).drop("_end_ns")


def assign_steps(spans: Frame, steps: Frame) -> Frame:
    """Give each span the number of the step in which it started."""
    return find_containing(spans, steps, ["rank"], "step_ordinal", "step_number").drop("step_ordinal")


def assign_hooks(spans: Frame) -> Frame:
    """Give each span the collector's hook that its thread was in (`_hook`), and say which spans are such hooks.

    A hook within another is part of the outer one.
    """
    keys, order = ["rank", "source_sha256", "_thread"], ["ts_ns", "ordinal"]
    spans = compute_once(spans.with_columns(_thread=nw.col("thread_id").fill_null("")))
    hooks = spans.filter(PATTERNS.has_pattern("pattern", "hook_collective"))
    hooks = add_latest_end(hooks.with_columns(_end_ns=nw.col("ts_ns") + nw.col("duration_ns")), keys, order)
    outer = compute_once(number_rows(hooks.filter(nw.col("ts_ns") >= nw.col("_before_ns")), "_hook", keys, order))
    placed = find_containing(spans, outer.select(*keys, "ts_ns", "duration_ns", "_hook"), keys, "_hook")
    names = outer.select("source_sha256", "ordinal", _is_hook=nw.lit(True))
    placed = placed.join(names, on=["source_sha256", "ordinal"], how="left")
    return placed.with_columns(_is_hook=nw.col("_is_hook").fill_null(False))


def assign_launches(spans: Frame, **columns: str) -> Frame:
    """Give GPU work the API call of its correlation: the earliest one, where a recording has several.

    `columns` are further columns of the call, under names of their own.
    """
    spans = compute_once(spans)
    keys = ["rank", "_recording", "correlation_id"]
    calls = (
        spans.filter(nw.col("category").is_in(_CALLS), ~nw.col("correlation_id").is_null())
        .select(
            *keys,
            "ordinal",
            launch_ts_ns=nw.col("ts_ns"),
            launch_duration_ns=nw.col("duration_ns"),
            launch_step_number=nw.col("step_number"),
            **{name: nw.col(column) for name, column in columns.items()},
        )
        .unique(keys, keep="first", order_by=["launch_ts_ns", "ordinal"])
        .drop("ordinal")
        .rename({"correlation_id": "_launch_id"})
    )
    asking = spans.with_columns(_launch_id=nw.when(nw.col("is_gpu")).then(nw.col("correlation_id")))
    found = asking.join(calls, on=["rank", "_recording", "_launch_id"], how="left").drop("_launch_id")
    has_launch = ~nw.col("launch_ts_ns").is_null()
    return found.with_columns(
        is_orphan=nw.col("is_gpu") & ~has_launch,
        is_before_launch=(has_launch & (nw.col("launch_ts_ns") > nw.col("ts_ns"))).fill_null(False),
    )
