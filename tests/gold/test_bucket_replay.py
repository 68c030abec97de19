from __future__ import annotations

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from gold.bucket_replay import (
    ANY_SCALE,
    MIB,
    PROFILER_SCALES,
    Bucket,
    TracedStep,
    find_root,
    fit_scale,
    predict,
    read_steps,
    rebucket,
    replay,
    replay_alone,
    seal_ring,
)
from tests.support.forecast_pairs import MS, make_rows, make_step

# Idle time before a bucket, its reduction, its size: some follow at once, some do not.
parts = st.tuples(
    st.sampled_from([0, 0.1, 0.3]) | st.floats(0.4, 40), st.floats(0.2, 30), st.floats(0.1, 24.9) | st.floats(51, 200)
)
buckets = st.lists(parts, min_size=1, max_size=8).map(lambda some: [(some[0][0] + 1, *some[0][1:]), *some[1:]])
steps = st.builds(
    lambda some, tail_ms, group_size: make_step(*some, tail_ms=tail_ms, group_size=group_size),
    buckets,
    st.floats(0, 20),
    st.integers(2, 8),
)
scales = st.floats(0.25, 2.9)
costs = st.floats(0, 5)


@given(steps)
def test_a_step_to_which_nothing_is_added_is_itself(step: TracedStep) -> None:
    assert replay(step) == step.step_ns


@given(steps, scales, costs, costs)
def test_what_costs_more_takes_no_less(step: TracedStep, scale: float, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert replay(step, scale, seal_ring(low)) <= replay(step, scale, seal_ring(high))


@given(steps, scales)
def test_a_step_that_reduces_nothing_takes_no_longer(step: TracedStep, scale: float) -> None:
    assert replay_alone(step, scale) <= replay(step, scale) + 1


@given(steps, st.floats(0, 10))
def test_no_more_is_added_to_a_step_than_to_its_buckets(step: TracedStep, cost_ms: float) -> None:
    added = replay(step, 1.0, lambda _: cost_ms * MS) - replay(step)
    assert cost_ms * MS - 1 <= added <= len(step.buckets) * cost_ms * MS + 1


def test_what_is_added_is_hidden_while_compute_is_later() -> None:
    step = make_step((20, 5, 10), (30, 5, 10), (30, 5, 10))
    first = step.buckets[0]
    assert replay(step, 1.0, lambda bucket: 30.0 * MS if bucket == first else 0.0) == step.step_ns
    assert replay(step, 1.0, lambda bucket: 62.0 * MS if bucket == first else 0.0) == step.step_ns + 2 * MS


def test_what_is_added_shows_in_full_where_buckets_queue() -> None:
    step = make_step((20, 5, 10), (0, 5, 10), (0.3, 5, 10))
    assert [bucket.gap_ns for bucket in step.buckets] == [None, 0, 0.3 * MS]
    assert replay(step, 1.0, lambda _: 7.0 * MS) == step.step_ns + 21 * MS


def test_compute_is_scaled_and_reductions_are_not() -> None:
    assert replay(make_step((20, 5, 10), (0.1, 5, 10), tail_ms=4), 2.0) == (40 + 5 + 0.1 + 5 + 8) * MS


@given(steps, scales)
def test_the_scale_of_a_replay_is_found_again(step: TracedStep, scale: float) -> None:
    assert fit_scale(step, replay(step, scale)) == pytest.approx(scale, rel=1e-6)


def test_no_scale_is_beyond_what_was_recorded() -> None:
    step = make_step((20, 5, 10))
    assert (fit_scale(step, 1.0), fit_scale(step, 1e12)) == (0.2, 3.0)


@given(st.lists(steps, min_size=1, max_size=3), st.floats(1, 500))
def test_a_prediction_that_adds_nothing_is_the_step(some: list[TracedStep], step_ms: float) -> None:
    assert predict(some, step_ms * MS, lambda _: 0.0) == pytest.approx(step_ms * MS)


def test_a_prediction_adds_the_mean_over_the_traced_steps() -> None:
    queued, hidden = make_step((20, 5, 10), (0, 5, 10)), make_step((20, 5, 10), (60, 5, 10))
    assert predict([queued, hidden], 35 * MS, lambda _: 2.0 * MS) == pytest.approx((35 + (4 + 2) / 2) * MS)


def test_sealing_costs_its_bytes_less_the_copies_that_it_replaces() -> None:
    bucket = Bucket(0, 5 * MS, None, 1000, 4000, 4)
    assert bucket.sealed_bytes == 6000
    assert seal_ring(0.5)(bucket) == 2000


# -- reading rows -----------------------------------------------------------------------------------------------------


def test_steps_are_those_of_the_first_rank_but_for_warmup_and_unsized_ones() -> None:
    some = [(20.0, 5.0, 10.0), (0.1, 5.0, 10.0)]
    rows = [
        *make_rows(some, step_number=1, is_warmup=True),
        *reversed(make_rows(some, step_number=2)),
        *make_rows(some, step_number=3, buffer_bytes=None),
        *make_rows(some, step_number=4, group_size=1),
        *make_rows([(99, 5, 10)], step_number=2, rank=1),
        *make_rows([(99, 5, 10)], step_number=5, path="nccl"),
    ]
    assert read_steps(rows) == (make_step(*some),)


def test_a_run_without_usable_rows_has_no_steps() -> None:
    assert read_steps(make_rows([(20, 5, 10)], is_warmup=True)) == ()


# -- other buckets ----------------------------------------------------------------------------------------------------


@given(steps, st.sampled_from([1, 5, 25, 100]))
def test_other_buckets_hold_the_same_bytes_and_copies(step: TracedStep, cap_mib: float) -> None:
    other = rebucket(step, cap_mib, 25)
    size, copied = (sum(getattr(one, name) for one in step.buckets) for name in ("buffer_bytes", "host_copy_ns"))
    assert sum(one.buffer_bytes for one in other.buckets) == pytest.approx(size, abs=len(other.buckets))
    assert sum(one.host_copy_ns for one in other.buckets) == pytest.approx(copied)


@given(steps, st.sampled_from([1, 5, 25, 100]))
def test_other_buckets_take_the_same_time_but_for_what_each_takes_by_itself(step: TracedStep, cap_mib: float) -> None:
    other = rebucket(step, cap_mib, 25)
    by_itself = min(*(one.service_ns for one in step.buckets), 150_000)
    more = by_itself * (len(other.buckets) - len(step.buckets))
    service, before = (sum(one.service_ns for one in some.buckets) for some in (other, step))
    assert service == pytest.approx(before + more)


@given(steps, st.sampled_from([1, 5, 25, 100]))
def test_other_buckets_are_ready_in_order_and_not_after_the_last(step: TracedStep, cap_mib: float) -> None:
    ready = [one.ready_ns for one in rebucket(step, cap_mib, 25).buckets]
    assert ready == sorted(ready)
    assert ready[-1] == pytest.approx(step.buckets[-1].ready_ns)


def test_a_smaller_cap_makes_more_buckets_that_are_ready_earlier() -> None:
    step = make_step((30, 1, 1), (30, 10, 25), (30, 10, 25))
    found = rebucket(step, 5, 25)
    assert [bucket.buffer_bytes // MIB for bucket in found.buckets] == [1, *[5] * 10]
    # The second bucket's data came evenly between 30 and 61 ms.
    assert [bucket.ready_ns / MS for bucket in found.buckets[:3]] == pytest.approx([30, 30 + 31 / 5, 30 + 2 * 31 / 5])


def test_a_larger_cap_makes_fewer_buckets_after_a_small_first_one() -> None:
    step = make_step((30, 1, 1), *[(5.0, 5.0, 25.0)] * 5)
    found = rebucket(step, 100, 25)
    assert [bucket.buffer_bytes // MIB for bucket in found.buckets] == [1, 100, 25]


def test_a_layer_that_cannot_be_split_stays_whole() -> None:
    step = make_step((30, 1, 1), (5, 40, 90), (5, 4, 10))
    assert [bucket.buffer_bytes // MIB for bucket in rebucket(step, 5, 25).buckets] == [1, 90, 5, 5]


def test_data_of_buckets_that_queued_came_evenly_before_the_next_known_time() -> None:
    step = make_step((30, 10, 10), (0, 10, 10), (0, 10, 10), (30, 5, 10))
    assert [bucket.ready_ns / MS for bucket in rebucket(step, 10, 10).buckets] == pytest.approx([30, 50, 70, 90])


# -- where a replay comes true ----------------------------------------------------------------------------------------

_lines = st.lists(st.tuples(st.floats(1, 1e9), st.floats(-1e9, 1e9)), min_size=1, max_size=12)


@given(_lines, st.floats(0.01, 0.99), st.sampled_from([PROFILER_SCALES, ANY_SCALE, (0.3, 0.31)]))
def test_a_root_is_found_wherever_a_time_bends(
    lines: list[tuple[float, float]], place: float, ends: tuple[float, float]
) -> None:
    asked: list[float] = []

    def time(scale: float) -> float:
        return max(slope * scale + offset for slope, offset in lines)

    wanted = time(ends[0]) + place * (time(ends[1]) - time(ends[0]))

    def miss(scale: float) -> float:
        asked.append(scale)
        return time(scale) - wanted

    found = find_root(miss, *ends)
    assert ends[0] <= found <= ends[1]
    assert time(found) == pytest.approx(wanted, rel=1e-12, abs=1e-5)
    assert found == pytest.approx(scipy.optimize.brentq(miss, *ends), rel=1e-6, abs=1e-9)
    assert len(asked) < 150


def test_a_line_takes_one_trial() -> None:
    asked: list[float] = []

    def miss(scale: float) -> float:
        asked.append(scale)
        return 40.0 * scale - 30.0

    assert find_root(miss, 0.2, 3.0) == pytest.approx(0.75)
    assert len(asked) == 3, "both ends and one between them"
