"""One row per key that sealed in software: how much of what AES-GCM allows it was spent, and when it would run out."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, divide_down, select_declared
from lake.tables import RUN_ID, Table, boolean, float64, int32, int64, text
from silver.policy import POLICY
from silver.steps import EVIDENCE

TABLE = Table(
    tier="silver",
    name="nonce_budgets",
    grain="One row per run, rank and key.",
    key=("rank", "key_scope"),
    inputs=("silver.crossings",),
    columns=(
        RUN_ID,
        int32("rank", "Rank that seals with the key.", minimum=0),
        text("key_scope", "What one key serves."),
        int64("sealed_message_count", "Messages sealed under it in this recording.", minimum=0),
        int64("limit_count", "Messages that AES-GCM allows one key.", minimum=1),
        float64("used_fraction", "Share of the limit that is spent.", minimum=0),
        int64("steps_count", "Steps in which it sealed.", minimum=0),
        int64(
            "limit_step_number",
            "Step at which a run that keeps this pace from step 0 passes the limit; null without steps.",
            nullable=True,
            minimum=0,
        ),
        boolean("is_near_limit", "Whether half of the limit is spent, or is within a million steps at this pace."),
        text("evidence", "Where the count comes from; the step is always modelled.", one_of=EVIDENCE),
    ),
)
_NEAR_STEPS = 1_000_000


def conform(crossings: Frame) -> Frame:
    """Count messages per key, and carry the pace of the recording on to the limit."""
    limit = POLICY.messages_per_key
    sealed = crossings.filter(~nw.col("key_scope").is_null())
    per_step = sealed.group_by("run_id", "rank", "key_scope", "step_number").agg(
        _messages=nw.col("sealed_message_count").sum().cast(nw.Int64)
    )
    is_stepped = ~nw.col("step_number").is_null()
    per_step = per_step.with_columns(
        _stepped=nw.when(is_stepped).then(nw.col("_messages")).otherwise(nw.lit(0).cast(nw.Int64)),
        _step=nw.when(is_stepped).then(nw.lit(1).cast(nw.Int64)).otherwise(nw.lit(0).cast(nw.Int64)),
    )
    keys = per_step.group_by("run_id", "rank", "key_scope").agg(
        sealed_message_count=nw.col("_messages").sum().cast(nw.Int64),
        steps_count=nw.col("_step").sum().cast(nw.Int64),
        _stepped=nw.col("_stepped").sum().cast(nw.Int64),
    )
    pace = nw.when(nw.col("_stepped") > 0).then(nw.col("_stepped"))
    keys = keys.with_columns(
        limit_count=nw.lit(limit).cast(nw.Int64),
        used_fraction=nw.col("sealed_message_count") / float(limit),
        limit_step_number=nw.when(nw.col("_stepped") > 0).then(
            divide_down(nw.col("steps_count") * nw.lit(limit).cast(nw.Int64), pace.fill_null(1))
        ),
        evidence=nw.lit("measured"),
    )
    is_soon = (nw.col("limit_step_number") < _NEAR_STEPS).fill_null(False)
    return select_declared(keys.with_columns(is_near_limit=(nw.col("used_fraction") >= 0.5) | is_soon), TABLE)
