"""One step of a run from the lake as intervals per rank, ranks on one clock; only that step is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl

from gold import step_timeline, time_breakdown
from gold.waiting import find_waits
from silver import collectives, spans, steps

if TYPE_CHECKING:
    from lake.store import Lake

_ALIGNED = pl.coalesce("aligned_ts_ns", "ts_ns")


def read_timeline(lake: Lake, run_id: str) -> list[dict[str, Any]]:
    """The intervals of the run's median step; none where it has no steps, or no spans in it."""
    stepped = lake.scan(steps.TABLE, [run_id]).with_columns(
        is_aligned=pl.col("aligned_ts_ns").is_not_null(), ts_ns=_ALIGNED
    )
    rows = stepped.select(*step_timeline.STEP_COLUMNS).collect().to_dicts()
    number = step_timeline.choose_step(rows)
    chosen = [row for row in rows if row["step_number"] == number]
    if not chosen:
        return []
    begin, end = min(row["ts_ns"] for row in chosen), max(row["ts_ns"] + row["duration_ns"] for row in chosen)
    worked = lake.scan(spans.TABLE, [run_id]).with_columns(ts_ns=_ALIGNED)
    worked = worked.filter(pl.col("ts_ns") < end, pl.col("ts_ns") + pl.col("duration_ns") > begin)
    spanned = nw.from_native(worked.collect().lazy())
    waits = find_waits(spanned, nw.from_native(lake.scan(collectives.TABLE, [run_id])))
    segments: pl.LazyFrame = time_breakdown.cut_parts(spanned, waits, begin, end).to_native()
    return step_timeline.merge_to_pixels(chosen, segments.collect().to_dicts())
