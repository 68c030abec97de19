from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gold.covered_time import CoveredTime

INTERVALS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=20)


@given(INTERVALS, st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)), max_size=6))
def test_what_is_covered_between_two_moments_is_a_count_of_moments(
    intervals: list[tuple[int, int]], asked: list[tuple[int, int]]
) -> None:
    starts, lengths = (np.array([one[place] for one in intervals], np.int64) for place in (0, 1))
    covered = CoveredTime.of(starts, starts + lengths)
    lows, highs = (np.array([pick(one) for one in asked], np.int64) for pick in (min, max))
    running = {moment for start, length in intervals for moment in range(start, start + length)}
    expected = [len(running.intersection(range(min(one), max(one)))) for one in asked]
    assert covered.sum_between(lows, highs).tolist() == expected
    assert (covered.starts[1:] > covered.ends[:-1]).all()
