"""How much of an interval others cover, without an interval join: what is covered up to a moment is a running sum."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, add_latest_end

# Rows that are equal in these change nothing for each other, in whichever order they come.
_ORDER = ["_at_ns", "_is_point", "_end_ns"]


def add_covered_time(rows: Frame, cover: Frame) -> Frame:
    """Add `covered_ns` to rows: how long at least one interval of `cover` on the same rank was running meanwhile."""
    keys = ["rank", "source_sha256", "ordinal"]
    zero = nw.lit(0).cast(nw.Int64)
    start, end = nw.col("ts_ns"), nw.col("ts_ns") + nw.col("duration_ns")
    points = [
        rows.select(*keys, _at_ns=at, _end_ns=zero, _is_point=nw.lit(1), _sign=nw.lit(sign).cast(nw.Int64))
        for at, sign in ((start, -1), (end, 1))
    ]
    # What covers need not be told apart, and is by far the most: it goes without a name.
    nameless = {"source_sha256": nw.lit(None).cast(nw.String), "ordinal": nw.lit(None).cast(nw.Int64)}
    cover = cover.select("rank", **nameless, _at_ns=start, _end_ns=end, _is_point=nw.lit(0), _sign=zero)
    both = nw.concat([cover, *points])
    both = add_latest_end(both, ["rank"], _ORDER)
    begun = nw.max_horizontal(nw.col("_at_ns"), nw.col("_before_ns"))
    new = nw.max_horizontal(nw.col("_end_ns") - begun, zero)
    both = both.with_columns(_new_ns=nw.when(nw.col("_is_point") == 0).then(new).otherwise(zero))
    both = both.with_columns(_total_ns=nw.col("_new_ns").cum_sum().over("rank", order_by=_ORDER).cast(nw.Int64))
    unspent = nw.max_horizontal(nw.col("_latest_ns") - nw.col("_at_ns"), zero)
    sums = (
        both.filter(nw.col("_is_point") == 1)
        .with_columns(_signed_ns=(nw.col("_total_ns") - unspent) * nw.col("_sign"))
        .group_by(*keys)
        .agg(covered_ns=nw.col("_signed_ns").sum())
        .with_columns(nw.col("covered_ns").cast(nw.Int64))
    )
    return rows.join(sums, on=keys, how="left")
