"""Where an interval lies: its kind by its name, the step in which it ran, the call that launched it."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, numbered, reached_before
from silver.patterns import PATTERNS

_CALLS = ("cuda_runtime", "cuda_driver")


def named(spans: Frame) -> Frame:
    """Decide pattern and kind once per distinct name, since a trace repeats few names very often."""
    spans = spans.with_columns(nw.col("category", "name").fill_null(""))
    names = spans.select("category", "name").unique().with_columns(_category=PATTERNS.category("category"))
    names = names.with_columns(pattern=PATTERNS.pattern("_category", "name"), is_gpu=PATTERNS.is_gpu("_category"))
    names = names.with_columns(kind=PATTERNS.kind("pattern"))
    placed = spans.join(names, on=["category", "name"], how="inner")
    return placed.drop("category").rename({"_category": "category"})


def held(parts: Frame, wholes: Frame, keys: list[str], index: str) -> Frame:
    """Give each part the index of the whole that holds its start: the last that had begun, if it had not ended.

    Wholes are numbered by `index` in the order of their starts within `keys`.
    """
    wholes = wholes.select(*keys, "ts_ns", index, _end_ns=nw.col("ts_ns") + nw.col("duration_ns"))
    both = nw.concat(
        [parts.with_columns(_is_part=nw.lit(1)), wholes.drop("_end_ns").with_columns(_is_part=nw.lit(0))],
        how="diagonal",
    )
    both = both.with_columns(nw.col(index).fill_null(-1))
    both = both.with_columns(nw.col(index).cum_max().over(*keys, order_by=["ts_ns", "_is_part"]))
    placed = both.filter(nw.col("_is_part") == 1).drop("_is_part")
    placed = placed.join(wholes.drop("ts_ns"), on=[*keys, index], how="left")
    is_within = nw.col("ts_ns") < nw.col("_end_ns")
    return placed.with_columns(nw.when(is_within).then(nw.col(index)).alias(index)).drop("_end_ns")


def in_steps(spans: Frame, steps: Frame) -> Frame:
    """Give each span the number of the step in which it started."""
    placed = held(spans, steps, ["rank"], "step_ordinal")
    numbers = steps.select("rank", "step_ordinal", "step_number")
    return placed.join(numbers, on=["rank", "step_ordinal"], how="left").drop("step_ordinal")


def hooked(spans: Frame) -> Frame:
    """Give each span the collector's hook that its thread was in (`_hook`), and say which spans are such hooks.

    A hook within another is part of the outer one.
    """
    keys, order = ["rank", "source_sha256", "_thread"], ["ts_ns", "ordinal"]
    spans = spans.with_columns(_thread=nw.col("thread_id").fill_null(""))
    hooks = spans.filter(PATTERNS.has_pattern("pattern", "hook_collective"))
    hooks = reached_before(hooks.with_columns(_end_ns=nw.col("ts_ns") + nw.col("duration_ns")), keys, order)
    outer = numbered(hooks.filter(nw.col("ts_ns") >= nw.col("_before_ns")), "_hook", keys, order)
    placed = held(spans, outer.select(*keys, "ts_ns", "duration_ns", "_hook"), keys, "_hook")
    names = outer.select("source_sha256", "ordinal", _is_hook=nw.lit(True))
    placed = placed.join(names, on=["source_sha256", "ordinal"], how="left")
    return placed.with_columns(_is_hook=nw.col("_is_hook").fill_null(False))


def launched(spans: Frame) -> Frame:
    """Give GPU work the API call of its correlation: the earliest one, where a recording has several."""
    keys = ["rank", "_recording", "correlation_id"]
    calls = (
        spans.filter(nw.col("category").is_in(_CALLS), ~nw.col("correlation_id").is_null())
        .select(
            *keys,
            "ordinal",
            launch_ts_ns=nw.col("ts_ns"),
            launch_duration_ns=nw.col("duration_ns"),
            launch_step_number=nw.col("step_number"),
            _launch_name=nw.col("name"),
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
