"""Which first steps or epochs are warm-up: one rule for whatever was timed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import narwhals as nw

from lake.frames import to_flag

if TYPE_CHECKING:
    from lake.frames import Frame

# So many times the median of the steps behind them, and steps at the start are clearly slower.
SLOW = 1.5
# Slow steps that recur in more than one of so many are part of training (checkpoints, accumulation), no warm-up.
RARE = 20
CLAIMED = "the manifest counts it as warm-up"
FEWER = "though the manifest counts fewer steps"
NOT_SLOW = f"{CLAIMED}, though it is not clearly slower than the steps behind it"


def flag_warmup(rows: Frame, runs: Frame, key: str, place: str, pace: str, of: str, is_step: nw.Expr) -> Frame:
    """Flag what the manifest calls warm-up, and behind that the first steps that are clearly slower than the rest.

    `pace` is a column that is larger where something took longer. The manifest counts steps, so it speaks of nothing
    else.
    """
    rows = rows.join(runs.select("run_id", "warmup_steps_count"), on="run_id", how="left")
    none = nw.lit(0).cast(nw.Int64)
    rows = rows.with_columns(_claimed=nw.when(is_step).then(nw.col("warmup_steps_count").fill_null(0)).otherwise(none))
    rows = rows.with_columns(_timed=nw.when(nw.col(place) >= nw.col("_claimed")).then(nw.col(pace)))
    later = rows.filter(nw.col(place) > nw.col("_claimed"))
    rows = rows.join(later.group_by(key).agg(_median=nw.col("_timed").median()), on=key, how="left")
    rows = _join_rest(rows, key, place)
    # Where slow steps recur, only what is clearly slower than those is no part of training.
    does_recur = (nw.col("_slow") * RARE >= nw.col("_rest")).fill_null(False)
    usual = nw.when(does_recur).then(nw.col("_largest").cast(nw.Float64)).otherwise(nw.col("_median"))
    rows = rows.with_columns(_is_long=(nw.col("_timed") > usual * SLOW).fill_null(False))
    rows = _count_usual(rows, key, place, nw.col("_is_long"))
    leads = (nw.col("_is_long") & (nw.col("_usual") == 0)).fill_null(False)
    rows = rows.with_columns(_leads=to_flag(leads)).with_columns(_leading=nw.col("_leads").sum().over(key))
    # A few steps cannot say what is usual.
    is_enough = (nw.col("_rest") >= 2) & (nw.col("_rest") >= nw.col("_leading"))
    reason = (
        nw.when(nw.col(place) < nw.col("_claimed"))
        .then(nw.when(_is_idle_claim(pace)).then(nw.lit(NOT_SLOW)).otherwise(nw.lit(CLAIMED)))
        .otherwise(
            nw.when((nw.col("_leads") == 1) & is_enough.fill_null(False)).then(
                nw.when(nw.col("_claimed") > 0)
                .then(nw.lit(f"it is clearly slower than the rest of its {of}, {FEWER}"))
                .otherwise(nw.lit(f"it is at the start of its {of} and clearly slower than the rest"))
            )
        )
    )
    return rows.with_columns(warmup_reason=reason).with_columns(is_warmup=~nw.col("warmup_reason").is_null())


def _join_rest(rows: Frame, key: str, place: str) -> Frame:
    """What lies behind the slow steps at the start: how many, how many of them are slow too, and the longest."""
    rows = rows.with_columns(_is_slow=(nw.col("_timed") > nw.col("_median") * SLOW).fill_null(False))
    rows = _count_usual(rows, key, place, nw.col("_is_slow"))
    rest = rows.filter(nw.col("_usual") > 0, ~nw.col("_timed").is_null())
    rest = rest.group_by(key).agg(
        _rest=nw.len(), _slow=to_flag(nw.col("_is_slow")).sum(), _largest=nw.col("_timed").max()
    )
    return rows.join(rest, on=key, how="left")


def _count_usual(rows: Frame, key: str, place: str, is_slow: nw.Expr) -> Frame:
    """Add `_usual`: how many steps up to each one are timed and not slow."""
    rows = rows.with_columns(_one=to_flag(~nw.col("_timed").is_null() & ~is_slow))
    return rows.with_columns(_usual=nw.col("_one").cum_sum().over(key, order_by=place)).drop("_one")


def _is_idle_claim(pace: str) -> nw.Expr:
    """Whether a step that the manifest counts as warm-up takes no longer than those that it does not count."""
    return (nw.col(pace) <= nw.col("_median") * SLOW).fill_null(False)
