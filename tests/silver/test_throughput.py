from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bronze import runs as claimed
from bronze import source_files, training_log
from lake.engines import engine
from silver.throughput import TABLE, conform
from tests.support.campaigns import pick_engines
from tests.support.silver_rows import RUN, make_log_record, rows_of, run, run_plan, sort_rows, source

if TYPE_CHECKING:
    from tests.support.silver_rows import Row, Silver

S = 1_000_000_000


def epoch(number: int | None, rate: float | None = None, at_s: int | None = None, **fields: Any) -> Row:
    """A record of a per-epoch table."""
    at = None if at_s is None else at_s * S
    return make_log_record(epoch_number=number, samples_per_second=rate, ts_ns=at, **fields)


def mark(key: str, at_s: int, **fields: Any) -> Row:
    """A line of an mllog."""
    return make_log_record(record="mllog", record_key=key, ts_ns=at_s * S, namespace="", **fields)


@pytest.mark.given(epoch(1, 50.0, 100, batch_size=64, loss_number=2.5), epoch(2, 100.0, 103), epoch(3, 90.0, 105))
def test_a_record_is_an_epoch_and_its_time_is_the_difference_to_the_one_before(found: Silver) -> None:
    columns = ("period", "period_number", "samples_per_second", "duration_ns", "duration_source", "ts_ns", "evidence")
    assert found.rows("throughput", *columns) == [
        ("epoch", 1, 50.0, None, None, None, "measured"),
        ("epoch", 2, 100.0, 3 * S, "difference", 100 * S, "measured"),
        ("epoch", 3, 90.0, 2 * S, "difference", 103 * S, "measured"),
    ]
    assert found.rows("throughput", "batch_size", "loss_number", "rank", "end_ns")[0] == (64, 2.5, 0, 100 * S)
    assert found.only("runs", "found_periods_count", "gpu_evidence") == (3, "unobservable")


def make_steps(*seconds: float | None, **fields: Any) -> list[Row]:
    """Steps whose log calls a number time."""
    return [
        make_log_record(step_number=at, clock_ns=None if one is None else int(one * S), ordinal=at, **fields)
        for at, one in enumerate(seconds, start=1)
    ]


READ = {
    "since the start": ((10, 20, 31), (None, 10, 11), "difference"),
    "since long ago": ((5000, *(5001 + at for at in range(8))), (None, *[1] * 8), "difference"),
    "begun anew": ((1, 2, 3, 4, 1, 2), (None, 1, 1, 1, None, 1), "difference"),
    "in whole seconds": ((0, 0, 1, 1, 2, 2), (None, 0, 1, 0, 1, 0), "difference"),
    "up and down": ((0.25, 0.5, 0.25, 0.375), (0.25, 0.5, 0.25, 0.375), "inferred"),
    "of epochs, a slow one first": ((300, 120, 121, 120, 120), (300, 120, 121, 120, 120), "inferred"),
    "all of one length": ((120, 120, 120), (120, 120, 120), "inferred"),
    "two that fall": ((11, 10), (11, 10), "inferred"),
    "one is missing": ((0.5, 0.25, None, 0.5), (0.5, 0.25, None, 0.5), "inferred"),
    "two that rise a little": ((10, 11), (None, None), None),
    "one": ((7,), (None,), None),
}


@pytest.mark.parametrize(
    ("lengths", "source"),
    [
        pytest.param(lengths, source, id=case, marks=pytest.mark.given(*make_steps(*seconds)))
        for case, (seconds, lengths, source) in READ.items()
    ],
)
def test_a_time_is_a_clock_where_it_runs_forward_and_a_length_where_it_goes_up_and_down(
    found: Silver, lengths: tuple[float | None, ...], source: str | None
) -> None:
    rows = found.rows("throughput", "duration_ns", "duration_source", "ts_ns", "end_ns")
    assert "measured" not in {evidence for (evidence,) in found.rows("throughput", "evidence")}
    assert [one for one, *_ in rows] == [None if one is None else int(one * S) for one in lengths]
    assert {one for _, one, *_ in rows} - {None} == ({source} if source else set())
    assert {at for *_, begin, end in rows for at in (begin, end)} == {None}


@pytest.mark.given(*make_steps(10, 11, loss_number=2.0))
def test_a_time_that_may_be_either_is_not_guessed(found: Silver) -> None:
    said = "its time may be a clock's or how long it took: call the column timestamp or duration"
    assert found.rows("throughput", "evidence", "reason") == [("unobservable", said)] * 2


@pytest.mark.given(
    *(make_log_record(step_number=number, ts_ns=at * S) for number, at in ((0, 0), (10, 5), (20, 10), (25, 13)))
)
def test_a_record_timed_by_its_writing_stands_for_all_steps_since_the_one_before(found: Silver) -> None:
    assert found.rows("throughput", "duration_ns", "stands_for_count") == [
        (None, 1),
        (5 * S, 10),
        (5 * S, 10),
        (3 * S, 5),
    ]


@pytest.mark.given(
    *(make_log_record(step_number=number, ts_ns=at * S) for number, at in ((0, 0), (1, 9), (2, 10), (12, 20), (22, 30)))
)
def test_a_slow_first_step_is_warm_up_beside_records_that_stand_for_many(found: Silver) -> None:
    assert found.rows("throughput", "period_number", "is_warmup") == [
        (0, False),
        (1, True),
        (2, False),
        (12, False),
        (22, False),
    ]


@pytest.mark.given(*(make_log_record(step_number=number, duration_ns=S) for number in (10, 20)))
def test_a_record_that_says_how_long_a_step_took_stands_for_that_one(found: Silver) -> None:
    assert found.rows("throughput", "stands_for_count") == [(1,), (1,)]


@pytest.mark.given(*(make_log_record(step_number=number, ts_ns=at * S) for number, at in ((10, 1), (10, 2), (30, 3))))
def test_numbers_that_repeat_do_not_tell_how_many_a_record_stands_for(found: Silver) -> None:
    assert found.rows("throughput", "stands_for_count") == [(1,)] * 3


def line(number: int, kind: str, **fields: Any) -> Row:
    """A line that a trainer prints on a step."""
    return make_log_record(record="line", record_key=kind, step_number=number, **fields)


@pytest.mark.given(
    *(
        row
        for at in range(1, 5)
        for row in (
            *([line(at, "deepspeed", samples_per_second=8.0)] if at % 2 == 0 else []),
            line(at, "megatron", duration_ns=at * S, batch_size=16),
        )
    )
)
def test_of_two_kinds_of_lines_the_steps_are_told_by_the_one_that_speaks_most_often(found: Silver) -> None:
    columns = ("record", "period", "period_number", "numbered_by", "duration_ns", "samples_per_second", "evidence")
    assert found.rows("throughput", *columns) == [
        ("line", "step", at, "number", at * S, None, "measured") for at in range(1, 5)
    ]


@pytest.mark.given(
    *(row for at in (1, 2) for row in (line(at, "deepspeed", samples_per_second=8.0), line(at, "megatron")))
)
def test_of_two_kinds_that_speak_equally_often_the_first_tells_the_steps(found: Silver) -> None:
    assert found.rows("throughput", "period_number", "samples_per_second") == [(1, 8.0), (2, 8.0)]


def scalar(number: int, at_s: float, tag: str = "train/loss", **fields: Any) -> Row:
    """A number of TensorBoard or MLflow."""
    return make_log_record(record="scalar", record_key=tag, step_number=number, ts_ns=int(at_s * S), **fields)


@pytest.mark.given(
    *(
        row
        for number, at_s in ((10, 100), (20, 105), (30, 110), (40, 114))
        for row in (
            scalar(number, at_s, loss_number=8.0 / number),
            scalar(number, at_s + 0.5, "train/rate", samples_per_second=number * 2.0),
            scalar(number, at_s + 0.6, "train/lr"),
        )
    ),
    scalar(40, 115, "train/whole_run_rate", samples_per_second=1.0),
    scalar(1, 120, "eval/loss", loss_number=77.0),
)
def test_the_scalars_of_a_step_are_one_period_timed_by_the_tag_that_has_most(found: Silver) -> None:
    columns = ("record", "period_number", "duration_ns", "duration_source", "samples_per_second", "loss_number")
    assert found.rows("throughput", *columns) == [
        ("scalar", 10, None, None, 20.0, 0.8),
        ("scalar", 20, 5 * S, "difference", 40.0, 0.4),
        ("scalar", 30, 5 * S, "difference", 60.0, 8.0 / 30),
        ("scalar", 40, 4 * S, "difference", 80.0, 0.2),
    ]


@pytest.mark.given(scalar(1, 10), scalar(2, 12), scalar(1, 30), scalar(2, 33))
def test_scalars_of_a_run_that_began_anew_are_numbered_by_their_place(found: Silver) -> None:
    columns = ("period_number", "numbered_by", "duration_ns", "evidence")
    assert found.rows("throughput", *columns) == [
        (0, "place", None, "unobservable"),
        (1, "place", 2 * S, "modelled"),
        (2, "place", 18 * S, "modelled"),
        (3, "place", 3 * S, "modelled"),
    ]


@pytest.mark.given(epoch(1, 50.0), epoch(2, 100.0), epoch(3, 90.0))
def test_a_first_epoch_far_slower_than_the_others_is_warm_up(found: Silver) -> None:
    assert found.rows("throughput", "is_warmup", "warmup_reason") == [
        (True, "it is at the start of its log and clearly slower than the rest"),
        (False, None),
        (False, None),
    ]


@pytest.mark.given(epoch(1, 80.0), epoch(2, 100.0), epoch(3, 90.0), run(warmup_steps_count=2))
def test_the_manifest_counts_steps_so_it_does_not_speak_of_epochs(found: Silver) -> None:
    assert found.rows("throughput", "is_warmup") == [(False,), (False,), (False,)]


@pytest.mark.given(
    *(make_log_record(step_number=number, duration_ns=7 * S) for number in (10, 11, 12)), run(warmup_steps_count=2)
)
def test_steps_that_the_manifest_calls_warm_up_are(found: Silver) -> None:
    columns = ("period", "period_number", "numbered_by", "duration_source", "is_warmup")
    assert found.rows("throughput", *columns) == [
        ("step", 10, "number", "stated", True),
        ("step", 11, "number", "stated", True),
        ("step", 12, "number", "stated", False),
    ]


def step(number: int, phase: str, **fields: Any) -> Row:
    """A step as the collector writes it down: one a second, each of half a second."""
    return make_log_record(step_number=number, phase=phase, began_ns=number * S, duration_ns=S // 2, **fields)


@pytest.mark.given(
    *(step(at, phase) for at, phase in enumerate(("Warmup", "bare", "bare", "settling", "recorded"))),
    run(warmup_steps_count=0),
)
def test_only_steps_at_their_own_pace_count_where_the_log_says_which_are(found: Silver) -> None:
    assert found.rows("throughput", "duration_source") == [("stated",)] * 5
    assert found.rows("throughput", "period_number", "ts_ns", "end_ns", "warmup_reason") == [
        (0, 0, S // 2, "its log calls it Warmup"),
        (1, S, S + S // 2, None),
        (2, 2 * S, 2 * S + S // 2, None),
        (3, 3 * S, 3 * S + S // 2, "its log calls it settling"),
        (4, 4 * S, 4 * S + S // 2, "the profiler was on, and the log times other steps without it"),
    ]


@pytest.mark.given(step(0, "warmup"), step(1, "recorded"), step(2, "recorded"), run(warmup_steps_count=0))
def test_steps_under_a_profiler_count_where_there_are_no_others(found: Silver) -> None:
    assert found.rows("throughput", "is_warmup") == [(True,), (False,), (False,)]


@pytest.mark.given(epoch(1, 9.0), epoch(2, 9.0), epoch(2, 9.0), epoch(None, 9.0))
def test_numbers_that_repeat_or_are_missing_give_way_to_places(found: Silver) -> None:
    assert found.rows("throughput", "period_number", "numbered_by", "epoch_number") == [
        (0, "place", 1),
        (1, "place", 2),
        (2, "place", 2),
        (3, "place", None),
    ]


@pytest.mark.given(epoch(1, float("nan")), epoch(2, 0.0), epoch(3, -1.0), epoch(4, float("inf")), epoch(5, 1.0))
def test_what_is_no_rate_is_no_number(found: Silver) -> None:
    said = "the source gives neither its rate nor its time"
    nothing = (None, "unobservable", said)
    assert found.rows("throughput", "samples_per_second", "evidence", "reason") == [
        *[nothing] * 4,
        (1.0, "measured", None),
    ]


@pytest.mark.given(epoch(1, None, 100), epoch(2, None, 90), epoch(3, None, 95))
def test_a_clock_that_runs_backwards_tells_no_time(found: Silver) -> None:
    assert found.rows("throughput", "duration_ns", "evidence", "reason") == [
        (None, "unobservable", "the source gives neither its rate nor its time"),
        (None, "unobservable", "its clock runs backwards"),
        (5 * S, "modelled", None),
    ]


@pytest.mark.given(
    mark("run_start", 0),
    mark("epoch_start", 1, epoch_number=1),
    mark("epoch_stop", 5, epoch_number=1),
    mark("epoch_start", 6, epoch_number=2),
    mark("eval_start", 7, epoch_number=2),
    mark("epoch_stop", 9, epoch_number=3),
)
def test_an_interval_is_a_start_with_its_end_and_either_alone_says_so(found: Silver) -> None:
    columns = ("period_number", "ts_ns", "end_ns", "duration_ns", "duration_source", "evidence", "reason")
    assert found.rows("throughput", *columns) == [
        (1, S, 5 * S, 4 * S, "interval", "measured", None),
        (2, 6 * S, None, None, None, "unobservable", "its end was not recorded"),
        (3, None, 9 * S, None, None, "unobservable", "its start was not recorded"),
    ]


@pytest.mark.given(
    mark("block_start", 1, epoch_number=1),
    mark("throughput", 2, epoch_number=1, samples_per_second=90.0),
    mark("tracked_stats", 3, step_number=100, samples_per_second=95.0),
    mark("tracked_stats", 4, step_number=200, samples_per_second=float("nan")),
    mark("block_stop", 5, epoch_number=1),
    mark("epoch_start", 6, epoch_number=2),
    mark("throughput", 7, epoch_number=2, samples_per_second=80.0),
    mark("throughput", 8, epoch_number=2, samples_per_second=81.0),
    mark("epoch_stop", 9, epoch_number=2),
)
def test_blocks_are_periods_and_rates_are_those_of_the_epoch_or_step_that_they_name(found: Silver) -> None:
    columns = ("period", "period_number", "samples_per_second", "duration_ns", "evidence")
    assert found.rows("throughput", *columns) == [
        ("block", 1, None, 4 * S, "measured"),
        ("epoch", 1, 90.0, None, "measured"),
        ("step", 100, 95.0, None, "measured"),
        ("step", 200, None, None, "unobservable"),
        ("epoch", 2, 81.0, 3 * S, "measured"),
    ]


@pytest.mark.given(*(mark(f"epoch_{what}", at) for at, what in ((1, "start"), (3, "stop"), (4, "start"), (9, "stop"))))
def test_intervals_without_numbers_are_paired_in_turn(found: Silver) -> None:
    assert found.rows("throughput", "period_number", "numbered_by", "duration_ns") == [
        (0, "place", 2 * S),
        (1, "place", 5 * S),
    ]


@pytest.mark.given(
    make_log_record(epoch_number=1, step_number=1, tokens_per_second=8.0),
    make_log_record(epoch_number=1, step_number=2),
    epoch(1, 5.0),
)
def test_a_table_may_hold_steps_and_epochs(found: Silver) -> None:
    assert found.rows("throughput", "period", "period_number") == [("step", 1), ("step", 2), ("epoch", 1)]


@pytest.mark.parametrize("name", pick_engines())
def test_a_log_whose_name_says_no_rank_is_that_of_rank_0(name: str) -> None:
    bench = engine(name)
    frames = (
        (training_log.TABLE, make_log_record(epoch_number=1, source_sha256="log", ordinal=0).fields),
        (source_files.TABLE, source(source_sha256="log", file_name="log.csv", rank=None).fields),
        (claimed.TABLE, run().fields),
    )
    rows = run_plan(bench, conform(*(bench.wrap(rows_of(table, [row])) for table, row in frames)), TABLE)
    assert sort_rows(TABLE, rows).select("run_id", "rank").rows() == [(RUN, 0)]
