from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from report.perfetto import Lanes, cut_exposed, merge_kernels

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=30)


def order(intervals: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(intervals, key=lambda one: (one[0], -one[1]))


def list_covered_moments(intervals: list[tuple[int, int]]) -> set[int]:
    """The moments in which one of them runs."""
    return {moment for at, duration in intervals for moment in range(at, at + duration)}


def merge(intervals: list[tuple[int, int]]) -> tuple[Any, Any]:
    times = np.array(order(intervals), dtype=np.int64).reshape(-1, 2)
    return merge_kernels(times[:, 0], times[:, 1])


@given(INTERVALS)
def test_slices_of_one_lane_lie_apart_or_within_each_other(intervals: list[tuple[int, int]]) -> None:
    lanes, placed = Lanes(), dict[int, list[tuple[int, int]]]()
    for at, duration in order(intervals):
        placed.setdefault(lanes.place(at, duration), []).append((at, at + duration))
    for slices in placed.values():
        for place, (at, end) in enumerate(slices):
            for before, stop in slices[:place]:
                assert at >= stop or end <= stop, f"{(before, stop)} and {(at, end)} cross"


def test_slices_that_nest_need_one_lane_and_slices_that_cross_need_two() -> None:
    lanes = Lanes()
    assert [lanes.place(*one) for one in ((0, 10), (0, 4), (4, 6), (10, 5))] == [0, 0, 0, 0]
    assert Lanes().place(0, 0) == 0
    crossing = Lanes()
    assert [crossing.place(*one) for one in ((0, 10), (5, 10), (12, 1))] == [0, 1, 0]


@given(INTERVALS)
def test_merged_kernels_cover_the_same_time_and_lie_apart(intervals: list[tuple[int, int]]) -> None:
    begins, ends = merge(intervals)
    united = list(zip(begins.tolist(), (ends - begins).tolist(), strict=True))
    assert list_covered_moments(united) == list_covered_moments(intervals)
    assert all(stop < begin for stop, begin in zip(ends[:-1].tolist(), begins[1:].tolist(), strict=True))


@given(INTERVALS, st.integers(0, 60), st.integers(1, 30))
def test_exposed_parts_are_the_time_that_no_kernel_hides(intervals: list[tuple[int, int]], at: int, lasts: int) -> None:
    moments = set(range(at, at + lasts)) - list_covered_moments(intervals)
    row = {"at_ns": at, "duration_ns": lasts, "exposed_ns": len(moments), "boundary": "b", "collective": None}
    found = cut_exposed([{**row, "step_number": 1}], *merge(intervals))
    assert list_covered_moments([(one.ts_ns, one.duration_ns or 0) for one in found]) == moments
    assert sum(one.duration_ns or 0 for one in found) == len(moments)
