from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gold.step_overhead import TABLE, measure
from tests.support.baselines import PAIR, cell, steady, steps

if TYPE_CHECKING:
    import pyarrow as pa

RUN = {"model": "m", "world_size": 2, "found_world_size": None}


def compared(tee: pa.Table, baseline: pa.Table, *repeats: pa.Table) -> dict[str, Any]:
    rows = measure(PAIR, RUN, tee, baseline, repeats)
    assert rows.schema == TABLE.arrow_schema
    return dict(rows.to_pylist()[0])


def test_the_ratio_is_of_medians_and_both_ways_to_say_it_are_told() -> None:
    row = compared(steady("tee", 120, 130, 122, 124, 121), steady("plain", 100, 100, 101, 99, 100))
    assert (row["step_ns"], row["baseline_step_ns"], row["overhead_ns"]) == (122, 100, 22)
    assert row["slowdown_ratio"] == pytest.approx(1.22)
    assert row["time_increase_fraction"] == pytest.approx(0.22)
    assert row["throughput_loss_fraction"] == pytest.approx(1 - 1 / 1.22)
    assert row["slowdown_low_ratio"] <= row["slowdown_ratio"] <= row["slowdown_high_ratio"]
    assert row["verdict_class"] == "slower"
    assert row["verdict"].startswith("1.22x slower, 95 % 1.2")
    assert (row["steps_count"], row["ranks_count"], row["matched_by"]) == (5, 1, "number")


def test_an_interval_that_holds_one_shows_no_difference() -> None:
    row = compared(steady("tee", 100, 90, 112, 95, 104), steady("plain", 101, 99, 98, 103, 97))
    assert row["verdict_class"] == "within_noise"
    assert row["verdict"].startswith("no difference shown: ")


def test_a_difference_below_the_noise_floor_is_noise_however_narrow_its_interval() -> None:
    baseline, repeat = steady("plain", 100, 100, 100), steady("again", 105, 105, 105)
    row = compared(steady("tee", 103, 103, 103), baseline, repeat)
    assert row["noise_floor_fraction"] == pytest.approx(0.05)
    assert row["verdict_class"] == "within_noise"
    assert "within the noise floor of 5.0 %" in row["verdict"]
    assert compared(steady("tee", 120, 120, 120), baseline, repeat)["verdict"] == (
        "1.20x slower, 95 % 1.20 to 1.20, above the noise floor of 5.0 %, from only 3 steps"
    )


def test_a_run_may_be_faster() -> None:
    row = compared(steady("tee", 50, 51, 50), steady("plain", 100, 100, 101))
    assert row["verdict_class"] == "faster"
    assert row["verdict"].startswith("2.00x faster")
    assert (row["dominant_part"], row["dominant_fraction"]) == (None, None)


def test_one_step_has_no_interval_and_no_conclusion() -> None:
    row = compared(steady("tee", 200), steady("plain", 100))
    assert row["slowdown_ratio"] == 2.0
    assert (row["slowdown_low_ratio"], row["detectable_fraction"]) == (None, None)
    assert row["verdict_class"] == "inconclusive"
    assert "one step has no interval" in row["reason"]


def test_warm_up_is_left_out_on_both_sides() -> None:
    tee = steps("tee", cell(0, compute=900, is_warmup=True), cell(1, compute=200), cell(2, compute=200))
    baseline = steps("plain", cell(0, compute=100), cell(1, compute=100), cell(2, compute=990, is_warmup=True))
    row = compared(tee, baseline)
    assert (row["steps_count"], row["slowdown_ratio"]) == (1, 2.0)


def test_recordings_that_begin_elsewhere_are_matched_by_place() -> None:
    tee = steps("tee", cell(10, compute=200), cell(11, compute=220))
    baseline = steps("plain", cell(4, compute=100), cell(5, compute=110), cell(6, compute=1))
    row = compared(tee, baseline)
    assert (row["matched_by"], row["steps_count"], row["slowdown_ratio"]) == ("place", 2, 2.0)


def test_a_step_is_as_long_as_the_median_of_its_ranks() -> None:
    tee = steps("tee", *(cell(0, rank, compute=length) for rank, length in enumerate((100, 300, 200))))
    baseline = steps("plain", *(cell(0, rank, compute=100) for rank in range(3)))
    row = compared(tee, baseline)
    assert (row["step_ns"], row["ranks_count"]) == (200, 3)


@pytest.mark.parametrize(
    ("tee", "baseline", "reason"),
    [
        (steps("tee"), steady("plain", 1), "the run has no step outside warm-up"),
        (steady("tee", 1), steps("plain"), "its baseline has no step outside warm-up"),
        (steps("tee", cell(0, 1, compute=1)), steady("plain", 1), "the two were not recorded on the same ranks"),
    ],
)
def test_where_nothing_can_be_compared_there_is_no_number_and_a_reason(
    tee: pa.Table, baseline: pa.Table, reason: str
) -> None:
    row = compared(tee, baseline)
    assert (row["slowdown_ratio"], row["verdict_class"], row["reason"]) == (None, "inconclusive", reason)


def test_the_part_that_grew_most_is_named() -> None:
    tee = steps("tee", cell(0, compute=90, crypto=100, transport=50))
    row = compared(tee, steps("plain", cell(0, compute=100, transport=30)))
    assert (row["dominant_part"], row["dominant_fraction"]) == ("crypto", pytest.approx(100 / 110))


@given(st.lists(st.integers(1, 10**12), min_size=2, max_size=30), st.integers(1, 100))
def test_a_run_against_itself_scaled_is_exactly_that_much_slower(durations: list[int], factor: int) -> None:
    row = compared(steady("tee", *(length * factor for length in durations)), steady("plain", *durations))
    assert row["slowdown_ratio"] == pytest.approx(factor)
    assert row["slowdown_low_ratio"] == pytest.approx(factor)
    assert row["slowdown_high_ratio"] == pytest.approx(factor)


def test_the_interval_is_the_same_every_time() -> None:
    tee, baseline = steady("tee", 120, 150, 110, 140), steady("plain", 100, 90, 110, 101)
    assert compared(tee, baseline) == compared(tee, baseline)
