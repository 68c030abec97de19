from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from assets.build import gold
from gold import overhead_breakdown, time_breakdown
from gold.time_breakdown import PARTS
from silver import clock_offsets, nonce_budgets, rule_counts, steps
from tests.support.tables_as_text import TableSnapshot, as_text

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from lake.store import Lake
    from lake.tables import Table

# Every answer, and the small tables of silver that say what was decided on the way.
TABLES = {
    table.full_name: table
    for table in (*gold.TABLES, clock_offsets.TABLE, nonce_budgets.TABLE, rule_counts.TABLE, steps.TABLE)
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES.keys())
def test_the_answers_are_what_they_were(recorded_lake: Lake, table: Table, snapshot: SnapshotAssertion) -> None:
    text = as_text(table, recorded_lake.scan(table).collect())
    assert snapshot(extension_class=TableSnapshot) == text


def test_a_column_that_vanishes_or_a_value_that_moves_is_seen_in_the_text(recorded_lake: Lake) -> None:
    table = steps.TABLE
    rows = recorded_lake.scan(table).collect()
    moved = rows.with_columns(duration_ns=pl.col("duration_ns") + (pl.int_range(pl.len()) == 0))
    assert as_text(table, moved) != as_text(table, rows)
    with pytest.raises(pl.exceptions.ColumnNotFoundError):
        as_text(table, rows.drop("duration_ns"))


def test_on_every_recording_the_parts_sum_to_the_step(recorded_lake: Lake) -> None:
    rows = recorded_lake.scan(time_breakdown.TABLE).collect()
    assert rows.height == recorded_lake.scan(steps.TABLE).collect().height > 0
    parts = rows.select(pl.sum_horizontal(f"{part}_ns" for part in PARTS)).to_series()
    assert parts.to_list() == rows["duration_ns"].to_list()


def test_on_every_pair_the_parts_sum_to_the_overhead_of_the_mean_steps(recorded_lake: Lake) -> None:
    rows = recorded_lake.scan(time_breakdown.TABLE).collect().to_dicts()
    times: dict[str, dict[tuple[int, int], int]] = {}
    for row in rows:
        times.setdefault(row["run_id"], {})[row["rank"], row["step_number"]] = row["duration_ns"]
    overheads = (
        recorded_lake.scan(overhead_breakdown.TABLE)
        .group_by("run_id", "baseline_run_id")
        .agg(pl.col("overhead_ns").sum())
    )
    found = overheads.sort("run_id").collect().to_dicts()
    assert [row["run_id"] for row in found] == [
        "bert-base-sealed-w2",
        "gpt2-sealed-w4",
        "resnet50-native-w2",
        "resnet50-sealed-w2",
        "resnet50-sealed-w4",
        "resnet50-sealed-w4-pipelined",
    ]
    for row in found:
        ours, theirs = times[row["run_id"]], times[row["baseline_run_id"]]
        # One of two ranks of a run without repeats is bundled: what is compared is what both sides recorded.
        both = sorted(ours.keys() & theirs.keys())
        means = [sum(side[cell] for cell in both) // len(both) for side in (ours, theirs)]
        assert row["overhead_ns"] == means[0] - means[1]
