"""Which first steps or epochs are warm-up: one rule for whatever was timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw

if TYPE_CHECKING:
    from lake.frames import Frame


def flag_warmup(rows: Frame, runs: Frame, key: str, place: str, pace: str, of: str, is_step: nw.Expr) -> Frame:
    """Flag what the manifest calls warm-up, else a first one that took over one and a half times the others' median.

    `pace` is a column that is larger where something took longer. The manifest counts steps, so it speaks of nothing
    else.
    """
    later = rows.filter(nw.col(place) > 0)
    later = later.group_by(key).agg(_median=nw.col(pace).median(), _later=nw.len())
    rows = rows.join(later, on=key, how="left")
    rows = rows.join(runs.select("run_id", "warmup_steps_count"), on="run_id", how="left")
    is_told = ~nw.col("warmup_steps_count").is_null() & is_step
    is_claimed = is_told & (nw.col(place) < nw.col("warmup_steps_count"))
    is_first = (nw.col(place) == 0) & (nw.col("_later") >= 2)
    is_long = is_first & (nw.col(pace) > nw.col("_median") * 1.5)
    reason = (
        nw.when(is_claimed)
        .then(nw.lit("the manifest counts it as warm-up"))
        .otherwise(
            nw.when(~is_told & is_long).then(
                nw.lit(f"it is the first of its {of} and longer than one and a half times the median of the others")
            )
        )
    )
    return rows.with_columns(warmup_reason=reason).with_columns(is_warmup=~nw.col("warmup_reason").is_null())
