"""What a hook recorded of its messages: hops, seals and openings within a collective, and whether they can be true."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, compute_once, divide_down, to_flag
from silver.patterns import PATTERNS
from silver.policy import POLICY
from silver.span_context import assign_hooks

SIZED_HOPS = ("hook_sized_transport", "hook_relay")
SEAL_SUMS = ("_sealed", "_relayed", "_swift", "_unsized_seals", "_unsized_ns", "seal_ns", "open_ns")
_HOP_SUMS = ("_hops", "_sized_hops", "_hop_bytes", *SEAL_SUMS)
_SIZED_SEAL = "#[0-9]{1,13}\\z"
_KEYS = ["rank", "source_sha256", "ordinal"]
_INT = nw.Int64


def count_hops(spans: Frame, claims: Frame) -> Frame:
    """What a hook's collective holds: its hops, and the seal and open spans nested in it, on the same thread."""
    one, zero = nw.lit(1).cast(_INT), nw.lit(0).cast(_INT)
    hops = ("hook_transport", *SIZED_HOPS)
    hook = PATTERNS.has_pattern("pattern", "hook_collective", "hook_seal", "hook_open", *hops)
    spans = spans.filter(hook).join(claims.select("run_id", "_chains"), on="run_id", how="left")
    spans = compute_once(assign_hooks(spans))
    hooks = spans.filter(nw.col("_is_hook"))
    inside = spans.filter(~nw.col("_is_hook"), ~nw.col("_hook").is_null())

    def only(value: nw.Expr, *patterns: str) -> nw.Expr:
        return nw.when(PATTERNS.has_pattern("pattern", *patterns)).then(value).otherwise(zero)

    is_sized_by_name = PATTERNS.has_pattern("pattern", *SIZED_HOPS)
    # A seal that says its size is held against what a processor can do by itself.
    is_seal, is_sized = PATTERNS.has_pattern("pattern", "hook_seal"), nw.col("name").str.contains(_SIZED_SEAL)
    sealed_bytes = nw.when(is_seal & is_sized).then(nw.col("name").str.replace_all("^[^#]*#", "")).cast(_INT)
    most = nw.col("_chains") * POLICY.most_seal_bytes_per_ns
    is_swift = (divide_down(sealed_bytes.fill_null(0) + most - 1, most) > nw.col("duration_ns")) & is_seal & is_sized
    is_unsized = is_seal & ~is_sized
    stated = nw.when(is_sized_by_name).then(nw.col("name").str.replace_all("^[^#]*#", "")).cast(_INT)
    inside = inside.with_columns(
        _hops=only(one, *hops),
        _sized_hops=only(one, *SIZED_HOPS),
        _hop_bytes=stated.fill_null(0),
        # What is relayed as it came was sealed by the rank that it came from first.
        _sealed=only(one, "hook_seal", "hook_relay"),
        _relayed=only(one, "hook_relay"),
        _swift=to_flag(is_swift),
        _unsized_seals=to_flag(is_unsized),
        _unsized_ns=nw.when(is_unsized).then(nw.col("duration_ns")).otherwise(zero),
        seal_ns=only(nw.col("duration_ns"), "hook_seal"),
        open_ns=only(nw.col("duration_ns"), "hook_open"),
    )
    sums = inside.group_by("rank", "source_sha256", "_thread", "_hook").agg(
        *(nw.col(name).sum().cast(_INT) for name in _HOP_SUMS)
    )
    return hooks.join(sums, on=["rank", "source_sha256", "_thread", "_hook"], how="left").select(
        *_KEYS, nw.col(*_HOP_SUMS).fill_null(0)
    )


def doubt_seals(found: Frame) -> Frame:
    """Take seals that no processor could have done for no seals: a span's name proves nothing.

    One that says its size is held against the limit by itself, those that do not by the mean message of their crossing.
    """
    seals, zero = nw.col("_unsized_seals").fill_null(0), nw.lit(0).cast(_INT)
    one = zero + 1
    most = nw.col("_chains") * POLICY.most_seal_bytes_per_ns
    # Columns of their own: DuckDB and Spark write one division within another out to hundreds of kilobytes.
    found = found.with_columns(
        _message_bytes=divide_down(
            nw.col("payload_bytes").fill_null(0), nw.max_horizontal(nw.col("message_count"), one)
        ),
        _mean_seal_ns=divide_down(nw.col("_unsized_ns").fill_null(0), nw.max_horizontal(seals, one)),
    )
    is_too_fast = divide_down(nw.col("_message_bytes"), most) > nw.col("_mean_seal_ns")
    belied = nw.when((seals > 0) & is_too_fast).then(seals).otherwise(zero)
    found = found.with_columns(_contradicted=nw.col("_swift").fill_null(0) + belied)
    return found.with_columns(_sealed=nw.col("_sealed") - nw.col("_contradicted"))
