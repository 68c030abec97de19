"""What is concluded of the bundled recordings: sealing slows down, and null pairs are not called different."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import polars as pl
import pytest

from gold import step_overhead, step_times
from gold.inference import RunValue, compare_runs

if TYPE_CHECKING:
    from lake.store import Lake

CALLED_DIFFERENT = {"slower", "faster"}


def verdict_of(recorded_lake: Lake, run_id: str) -> tuple[str, int, int]:
    row = recorded_lake.scan(step_overhead.TABLE, [run_id]).collect().row(0, named=True)
    return row["verdict_class"], row["runs_count"], row["baseline_runs_count"]


@pytest.mark.parametrize(
    "run_id",
    [
        "bert-base-sealed-w2",
        "gpt2-sealed-w4",
        "resnet50-sealed-w2",
        "resnet50-sealed-w4",
        "resnet50-sealed-w4-pipelined",
    ],
)
def test_runs_that_seal_every_hop_are_slower_by_three_runs_per_side(recorded_lake: Lake, run_id: str) -> None:
    assert verdict_of(recorded_lake, run_id) == ("slower", 3, 3)


def test_one_rank_that_has_nothing_to_seal_is_not_called_different(recorded_lake: Lake) -> None:
    verdict, *runs = verdict_of(recorded_lake, "resnet50-sealed-w1")
    assert verdict not in CALLED_DIFFERENT
    assert runs == [3, 3]


def test_a_declared_pair_of_one_run_concludes_nothing_and_is_no_overhead_of_a_tee(recorded_lake: Lake) -> None:
    row = recorded_lake.scan(step_overhead.TABLE, ["resnet50-native-w2"]).collect().row(0, named=True)
    assert (row["regime"], row["baseline_regime"]) == ("cc_off", "cc_off")
    assert (row["verdict_class"], row["runs_count"], row["baseline_runs_count"]) == ("inconclusive", 1, 3)


def test_a_run_against_its_own_repeats_is_not_called_different(recorded_lake: Lake) -> None:
    rows = recorded_lake.scan(step_times.TABLE).filter(
        pl.col("run_id").str.starts_with("resnet50-null-plain-w2"), pl.col("source") == "log"
    )
    values = rows.sort("run_id").collect()["step_ns"].to_list()
    assert len(values) == 6
    # All ten ways to part six repeats into three and three, each of which is a null pair.
    for chosen in combinations(range(1, 6), 2):
        sides = [[RunValue(values[n]) for n in range(6) if (n in {0, *chosen}) == one] for one in (True, False)]
        found = compare_runs(*sides)
        assert found is not None
        assert found.verdict_class == "no_difference", chosen
