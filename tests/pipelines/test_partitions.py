"""Ranges of neighbours: every run that is wanted is in one, none that is not, and no two could be one."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pipelines.partitions import find_ranges, make_range_tags

ORDERS = st.lists(st.sampled_from("abcdefgh"), unique=True)


def test_neighbours_go_together() -> None:
    assert find_ranges({"a", "b", "d"}, ["a", "b", "c", "d"]) == [["a", "b"], ["d"]]
    assert make_range_tags(["a"])["partition"] == "a"
    assert make_range_tags(["a", "b"]) == {
        "partition": "a to b (2)",
        "dagster/asset_partition_range_start": "a",
        "dagster/asset_partition_range_end": "b",
    }


@given(ORDERS, st.sets(st.sampled_from("abcdefgh")))
def test_stretches_are_exactly_the_wanted_runs_in_as_few_launches_as_can_be(order: list[str], wanted: set[str]) -> None:
    found = find_ranges(wanted, order)
    assert [run_id for neighbours in found for run_id in neighbours] == [run_id for run_id in order if run_id in wanted]
    for neighbours in found:
        first = order.index(neighbours[0])
        assert order[first : first + len(neighbours)] == neighbours
    for before, after in pairwise(found):
        assert order.index(after[0]) > order.index(before[-1]) + 1
