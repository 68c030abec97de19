"""Where a rank waited for a peer: the time of a collective or a receive beyond the shortest over its ranks."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, compute_once, number_rows
from silver.patterns import PATTERNS
from silver.span_context import find_containing
from silver.spans import TABLE as SPANS

COLUMNS = ("run_id", "rank", "source_sha256", "ordinal", "wait_ns", "is_inner")
# Two ranks' sends are two transfers: no rank's time says how long another's takes.
_BETWEEN_TWO = ("send", "recv", "send_recv")
_INT = nw.Int64


def find_waits(spans: Frame, collectives: Frame) -> Frame:
    """One row per span that may hold waiting: the shortest over ranks is its transfer, what comes before is `wait_ns`.

    `wait_ns` is null where the collective has no match on another rank: then nobody knows how much of it was waiting.
    `is_inner` marks calls of a library inside a hook that recorded its own sends and receives: they are those again.
    Durations are compared, never starts, so clocks need not agree.
    """
    timed = collectives.filter(~nw.col("duration_ns").is_null()).with_columns(_is_hook=nw.col("mention") == "hook")
    whole = timed.filter(~nw.col("_is_hook")).with_columns(_of=nw.lit(1).cast(_INT), _nth=nw.lit(1).cast(_INT))
    inside = compute_once(_within_hooks(spans, timed.filter(nw.col("_is_hook"))))
    columns = [*COLUMNS[:4], "duration_ns", "match_id", "collective", "group_size", "ranks_count", "_of", "_nth"]
    received = inside.filter(nw.col("_is_receive") == 1).select(columns)
    found = _compare(nw.concat([whole.select(columns), received]))
    inner = inside.filter(nw.col("_is_receive") == 0, nw.col("_exchanges") > 0)
    inner = inner.with_columns(wait_ns=nw.lit(0).cast(_INT), is_inner=nw.lit(True))
    return nw.concat([found.with_columns(is_inner=nw.lit(False)).select(COLUMNS), inner.select(COLUMNS)])


def _compare(rows: Frame) -> Frame:
    """Hold each span against the same one of its peers; one that is alone by right waits for nobody."""
    same = ["run_id", "match_id", "_of", "_nth"]
    rows = rows.with_columns(
        _shortest_ns=nw.col("duration_ns").min().over(*same),
        _peers=nw.col("duration_ns").count().over(*same),
    )
    is_matched = (nw.col("ranks_count") > 1) & (nw.col("_peers") == nw.col("ranks_count"))
    is_matched &= ~nw.col("collective").is_in(_BETWEEN_TWO)
    is_alone = (nw.col("group_size") == 1).fill_null(False)
    waited = nw.when(is_matched).then(nw.col("duration_ns") - nw.col("_shortest_ns"))
    return rows.with_columns(wait_ns=nw.when(is_alone).then(nw.lit(0).cast(_INT)).otherwise(waited))


def _within_hooks(spans: Frame, hooks: Frame) -> Frame:
    """What hooks hold on their own thread: receives, numbered within their hook, and calls of a library."""
    thread = nw.col("thread_id").fill_null("")
    keys, order = ["run_id", "rank", "source_sha256", "_thread"], ["ts_ns", "ordinal"]
    named = spans.filter(PATTERNS.has_pattern("pattern", "hook_collective")).select(*SPANS.key, _thread=thread)
    hooks = hooks.join(named, on=list(SPANS.key), how="inner")
    known = ("match_id", "collective", "group_size", "ranks_count")
    hooks = compute_once(number_rows(hooks, "_hook", keys, order))
    # A hop of older hooks sends and receives in one.
    is_receive = PATTERNS.has_pattern("pattern", "hook_receive") | (
        PATTERNS.has_pattern("pattern", "hook_transport")
        & nw.col("name").str.starts_with("tee::sendrecv").fill_null(False)
    )
    parts = spans.filter(is_receive | PATTERNS.has_pattern("pattern", "gloo_call"))
    one, zero = nw.lit(1).cast(_INT), nw.lit(0).cast(_INT)
    parts = parts.select(
        *COLUMNS[:4],
        "ts_ns",
        "duration_ns",
        _thread=thread,
        _is_receive=nw.when(is_receive).then(one).otherwise(zero),
    )
    inside = find_containing(parts, hooks.select(*keys, "ts_ns", "duration_ns", "_hook", *known), keys, "_hook", *known)
    inside = inside.filter(~nw.col("match_id").is_null())
    inside = number_rows(inside, "_nth", [*keys, "_hook", "_is_receive"], order)
    exchanges = nw.col("_is_receive").sum().over(*keys, "_hook").cast(_INT)
    return inside.with_columns(_exchanges=exchanges).with_columns(_of=nw.col("_exchanges"))
