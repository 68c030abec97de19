from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gold import time_breakdown
from gold.comparison import Sides
from gold.step_overhead import TABLE, measure
from tests.support.baselines import PAIR, cell, steps
from tests.support.timed_runs import MS, make_step_times, short

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.support.timed_runs import Rows, make_step_times

RUN = {"model": "m", "world_size": 2, "found_world_size": None}
NOTHING = time_breakdown.TABLE.arrow_schema.empty_table()


def compare(
    ours: Sequence[Rows],
    theirs: Sequence[Rows],
    others: Sequence[Sequence[Rows]] = (),
    cells: Any = (NOTHING, NOTHING),
    margin: float = 0.02,
) -> dict[str, Any]:
    rows = measure(PAIR, RUN, Sides(ours, theirs, others), cells, margin)
    assert rows.schema == TABLE.arrow_schema
    return dict(rows.to_pylist()[0])


def side(*step_ms: float, source: str = "log") -> list[Rows]:
    return [make_step_times(each, source) for each in step_ms]


def test_three_runs_per_side_conclude_and_both_ways_to_say_it_are_told() -> None:
    row = compare(side(120, 121, 122), side(100, 101, 99))
    assert (row["step_ns"] // MS, row["baseline_step_ns"] // MS) == (120, 99)
    assert row["overhead_ns"] == row["step_ns"] - row["baseline_step_ns"]
    assert row["slowdown_ratio"] == pytest.approx(1.21, abs=0.001)
    assert row["time_increase_fraction"] == pytest.approx(row["slowdown_ratio"] - 1)
    assert row["throughput_loss_fraction"] == pytest.approx(1 - 1 / row["slowdown_ratio"])
    assert (row["verdict_class"], row["interval_over"], row["evidence"]) == ("slower", "runs", "measured")
    assert (row["runs_count"], row["baseline_runs_count"], row["steps_count"]) == (3, 3, 150)
    assert row["verdict"].startswith("1.21x slower, 95 % 1.18 to 1.24, over 3 and 3 runs")
    assert (row["more_runs_count"], row["reason"]) == (0, None)


def test_a_faster_run_is_told_with_its_interval_the_same_way_round() -> None:
    row = compare(side(81, 80, 82), side(100, 101, 99))
    assert row["verdict_class"] == "faster"
    assert row["verdict"] == (
        "1.23x faster, 95 % 1.20 to 1.27 (0.81x the baseline, 95 % 0.79 to 0.83), over 3 and 3 runs"
    )


def test_one_run_per_side_is_no_conclusion_however_far_apart() -> None:
    row = compare([make_step_times(300)], [make_step_times(100)])
    assert (row["verdict_class"], row["p_value"], row["interval_over"]) == ("inconclusive", None, "within_run")
    assert row["verdict"] == (
        "nothing can be concluded from one run per side: 3.00x, within-run scatter only 2.96 to 3.04; at least 2 more "
        "runs per side are needed (repeat_of), and how many would settle it is unknown without repeats"
    )
    assert row["reason"] == "a conclusion needs 3 runs per side, and there are 1 and 1"


def test_too_few_steps_have_no_interval_and_it_is_told() -> None:
    row = compare([short(120)], [short(100)])
    assert (row["slowdown_ratio"], row["slowdown_low_ratio"], row["interval_over"]) == (pytest.approx(1.2), None, None)
    assert "1.20x, no interval; " in row["verdict"]
    assert row["reason"].startswith("fewer than 8 steps have no interval; ")


def test_no_difference_is_told_with_its_margin_and_else_it_is_not_shown() -> None:
    row = compare(side(100, 100.2, 100.1), side(100.1, 100, 100.3))
    assert row["verdict_class"] == "no_difference"
    assert row["verdict"].startswith("no difference beyond 2 %: 1.000x, 95 % 0.99")
    row = compare(side(100, 105, 95), side(101, 96, 104))
    assert row["verdict_class"] == "not_shown"
    said = "a difference beyond 2 % is neither shown nor ruled out: 1.00x, 95 % 0.90 to 1.11, "
    assert row["verdict"].startswith(said)
    assert compare(side(100, 100.2, 100.1), side(100.1, 100, 100.3), margin=0.001)["verdict_class"] == "not_shown"


def test_noise_of_other_repeats_gives_one_run_an_interval_and_never_a_conclusion() -> None:
    lake = [side(50, 50.5, 49.5), side(200, 202, 198), side(10, 10.1, 9.9)]
    row = compare([make_step_times(300)], [make_step_times(100)], lake)
    assert (row["verdict_class"], row["interval_over"], row["evidence"]) == ("inconclusive", "modelled", "modelled")
    assert "3.00x, 95 % by the noise of other runs (modelled) 2.90 to 3.11; " in row["verdict"]
    assert "at the noise of 1 % that 9 runs show, 2 more runs per side would settle it" in row["verdict"]


def test_two_runs_per_side_conclude_by_the_noise_of_other_repeats_and_say_so() -> None:
    lake = [side(50, 50.5, 49.5), side(200, 202, 198), side(10, 10.1, 9.9)]
    row = compare(side(120, 121), side(100, 101), lake)
    assert (row["verdict_class"], row["evidence"]) == ("slower", "modelled")
    assert row["verdict"].endswith("over 2 and 2 runs; modelled: the noise of other runs stands in for missing repeats")
    assert compare(side(120, 121), side(100, 101))["verdict_class"] == "inconclusive"


def test_copies_of_one_recording_are_no_repeats() -> None:
    row = compare(side(120, 120, 120), side(100, 101, 99))
    assert (row["verdict_class"], row["runs_count"]) == ("inconclusive", 1)
    assert "recordings that are equal to the last digit are copies and count once" in row["reason"]


def test_the_log_leads_and_the_trace_stands_beside_it() -> None:
    ours, theirs = (
        [make_step_times(120) + make_step_times(130, "trace")],
        [make_step_times(100) + make_step_times(109, "trace")],
    )
    row = compare(ours, theirs)
    assert (row["source"], row["slowdown_ratio"]) == ("log", pytest.approx(1.2))
    assert (row["other_source"], row["other_slowdown_ratio"]) == ("trace", pytest.approx(130 / 109))
    assert row["disagreement"] is None


def test_the_trace_leads_where_only_it_has_enough_runs() -> None:
    ours = [make_step_times(120) + make_step_times(130, "trace"), *side(131, 129, source="trace")]
    theirs = [make_step_times(100) + make_step_times(109, "trace"), *side(110, 108, source="trace")]
    row = compare(ours, theirs)
    assert (row["source"], row["other_source"], row["verdict_class"]) == ("trace", "log", "slower")


def test_measured_steps_of_a_trace_lead_over_times_of_writing() -> None:
    ours = [make_step_times(120, evidence="modelled") + make_step_times(130, "trace")]
    assert compare(ours, [make_step_times(100) + make_step_times(109, "trace")])["source"] == "trace"


def test_sources_that_disagree_beyond_their_intervals_are_the_headline() -> None:
    row = compare([make_step_times(118) + short(138, "trace")], [make_step_times(100) + short(100, "trace")])
    assert row["disagreement"] == "the sources disagree: 1.18x by the log, 1.38x by the trace"
    assert row["verdict"].startswith("the sources disagree: 1.18x by the log, 1.38x by the trace; by the log: nothing")
    nobody = compare([short(118) + short(138, "trace")], [short(100) + short(100, "trace")])
    assert nobody["disagreement"] is None, "nothing says how far either may be off"


def test_sources_that_conclude_the_opposite_conclude_nothing() -> None:
    ours = [make_step_times(log) + make_step_times(trace, "trace") for log, trace in ((120, 80), (121, 81), (119, 79))]
    theirs = [
        make_step_times(log) + make_step_times(trace, "trace") for log, trace in ((100, 100), (101, 99), (99, 101))
    ]
    row = compare(ours, theirs)
    assert row["verdict_class"] == "inconclusive"
    assert row["verdict"].startswith("the sources disagree: 1.20x by the log, 0.80x by the trace; ")


def test_what_is_computed_from_something_modelled_is_modelled() -> None:
    ours = [make_step_times(each, evidence="modelled") for each in (120, 121, 122)]
    assert compare(ours, side(100, 101, 99))["evidence"] == "modelled"


def test_inferred_steps_give_no_ratio() -> None:
    inferred = make_step_times(
        7, "trace", step_ns=None, evidence="unobservable", reason="no annotation marks its steps"
    )
    row = compare([inferred], [make_step_times(100, "trace")])
    assert (row["slowdown_ratio"], row["verdict_class"], row["evidence"]) == (None, "inconclusive", "unobservable")
    assert row["verdict"] == "no answer: the run has no timed step: no annotation marks its steps"


def test_a_median_that_hides_what_some_steps_pay_is_told() -> None:
    row = compare([make_step_times(143, median_step_ns=100 * MS)], [make_step_times(100)])
    assert row["median_slowdown_ratio"] == pytest.approx(1.0)
    assert row["caveat"] == "by median steps it is 1.00x: some steps cost far more than most do"


def test_steps_and_epochs_are_not_compared() -> None:
    row = compare([make_step_times(100)], [make_step_times(9000, period="epoch")])
    assert (row["slowdown_ratio"], row["reason"]) == (
        None,
        "the two are not timed by the same source in the same periods",
    )


def test_the_part_that_grew_most_is_named() -> None:
    tee = steps("tee", cell(0, compute=90, crypto=100, transport=50))
    row = compare(
        [make_step_times(240)], [make_step_times(130)], cells=(tee, steps("plain", cell(0, compute=100, transport=30)))
    )
    assert (row["dominant_part"], row["dominant_fraction"]) == ("crypto", pytest.approx(100 / 110))


def test_the_verdict_of_a_run_that_is_open_says_first_how_far_it_has_come() -> None:
    open_run = {**RUN, "so_far": "so far, 3 cycles"}
    sides = Sides(side(120, 121, 122), side(100, 101, 99))
    (row,) = measure(PAIR, open_run, sides, (NOTHING, NOTHING)).to_pylist()
    assert row["verdict"].startswith("so far, 3 cycles: 1.21x slower, 95 % 1.18 to 1.24, over 3 and 3 runs")
    assert row["verdict_class"] == "slower"
    (row,) = measure(PAIR, open_run, Sides([], []), (NOTHING, NOTHING)).to_pylist()
    assert row["verdict"].startswith("so far, 3 cycles: no answer: ")
    (row,) = measure(PAIR, {**RUN, "so_far": None}, sides, (NOTHING, NOTHING)).to_pylist()
    assert row["verdict"].startswith("1.21x slower")
