from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.silver_rows import event, note, run

if TYPE_CHECKING:
    from tests.support.silver_rows import Row, Silver

PLACE = ("step_number", "step_ordinal", "ts_ns", "duration_ns")


@pytest.mark.given(
    note("ProfilerStep#8", 1100, 80), note("ProfilerStep#7", 1000, 90), note("Optimizer.step#SGD.step", 1050, 10)
)
def test_steps_of_the_profiler_keep_their_numbers(found: Silver) -> None:
    assert found.rows("steps", *PLACE, "step_source", "evidence", "source_sha256") == [
        (7, 0, 1000, 90, "profiler_step", "measured", "source-0"),
        (8, 1, 1100, 80, "profiler_step", "measured", "source-0"),
    ]


@pytest.mark.given(note("ProfilerStep#3", 1000, 90), note("ProfilerStep#4", 1100, 80), note("ProfilerStep#3", 1200, 70))
def test_steps_are_numbered_by_place_where_the_profiler_repeats_a_number(found: Silver) -> None:
    assert found.rows("steps", *PLACE) == [(0, 0, 1000, 90), (1, 1, 1100, 80), (2, 2, 1200, 70)]


@pytest.mark.given(
    note("ProfilerStep#3", 1000, 90),
    note("ProfilerStep#3", 1000, 90),
    event("ProfilerStep#3", "gpu_user_annotation", 1000, 90),
    note("ProfilerStep#4 and more", 1100, 90),
)
def test_a_step_is_one_however_often_it_is_marked(found: Silver) -> None:
    assert found.rows("steps", *PLACE) == [(3, 0, 1000, 90)]


@pytest.mark.given(
    event("first", "cpu_op", 900, 10),
    note("Optimizer.step#Adam.step", 1000, 20),
    note("Optimizer.step#Adam.step", 1100, 30),
    event("last", "cpu_op", 1500, 10),
)
def test_an_optimizer_step_ends_a_step_that_began_where_the_last_one_ended(found: Silver) -> None:
    assert found.rows("steps", *PLACE, "step_source", "evidence") == [
        (0, 0, 900, 120, "optimizer_step", "modelled"),
        (1, 1, 1020, 110, "optimizer_step", "modelled"),
    ]


@pytest.mark.given(
    note("Optimizer.step#Critic.step", 1000, 10),
    note("Optimizer.step#Actor.step", 1100, 10),
    note("Optimizer.step#Critic.step", 1200, 10),
    note("Optimizer.step#Critic.step", 1300, 10),
    note("Optimizer.step#Actor.step", 1400, 10),
)
def test_of_several_optimizers_the_one_that_steps_most_often_counts(found: Silver) -> None:
    assert found.rows("steps", *PLACE) == [(0, 0, 1000, 10), (1, 1, 1010, 200), (2, 2, 1210, 100)]


@pytest.mark.given(
    note("Optimizer.step#B.step", 1000, 10),
    note("Optimizer.step#A.step", 1100, 10),
)
def test_of_optimizers_that_step_equally_often_the_first_by_name_counts(found: Silver) -> None:
    assert found.rows("steps", *PLACE) == [(0, 0, 1000, 110)]


@pytest.mark.given(event("aten::mm", "cpu_op", 1000, 10), event("gemm", "kernel", 900, 400))
def test_all_that_was_recorded_is_one_step_where_nothing_marks_one(found: Silver) -> None:
    assert found.rows("steps", *PLACE, "step_source", "evidence", "source_sha256") == [
        (0, 0, 900, 400, "inferred", "modelled", None)
    ]


@pytest.mark.given(
    note("ProfilerStep#5", 1000, 90),
    note("Optimizer.step#A.step", 1000, 90, rank=1),
    event("aten::mm", "cpu_op", 1000, 90, rank=2),
)
def test_each_rank_has_the_best_marks_of_its_own(found: Silver) -> None:
    assert found.rows("steps", "rank", "step_number", "step_source") == [
        (0, 5, "profiler_step"),
        (1, 0, "optimizer_step"),
        (2, 0, "inferred"),
    ]


@pytest.mark.given(event("bad", "cpu_op", 1000, -5), note("ProfilerStep#1", 0, 10))
def test_a_rank_without_intervals_has_no_step(found: Silver) -> None:
    assert found.rows("steps", *PLACE) == []


# -- warm-up -----------------------------------------------------------------------------------------------

SLOWER = "it is at the start of its rank and clearly slower than the rest"
SLOWER_STILL = "it is clearly slower than the rest of its rank, though the manifest counts fewer steps"


@pytest.mark.given(
    # 151 is longer than one and a half times 100, the median of 80 and 120; 150 on the other rank is not.
    *(note(f"ProfilerStep#{number}", 1000 * number, length) for number, length in ((1, 151), (2, 80), (3, 120))),
    *(
        note(f"ProfilerStep#{number}", 1000 * number, length, rank=1)
        for number, length in ((1, 150), (2, 80), (3, 120))
    ),
    *(note(f"ProfilerStep#{number}", 1000 * number, length, rank=2) for number, length in ((1, 80), (2, 900), (3, 80))),
    *(note(f"ProfilerStep#{number}", 1000 * number, length, rank=3) for number, length in ((1, 900), (2, 80))),
)
def test_a_first_step_far_longer_than_at_least_two_others_is_warm_up(found: Silver) -> None:
    flagged = [row for row in found.rows("steps", "rank", "step_number", "is_warmup", "warmup_reason") if row[2]]
    assert flagged == [(0, 1, True, SLOWER)]


def in_a_row(*lengths: int, rank: int = 0) -> list[Row]:
    """Steps of a rank, each begun a thousand nanoseconds after the one before."""
    return [
        note(f"ProfilerStep#{place}", 1000 * (place + 1), length, rank=rank) for place, length in enumerate(lengths)
    ]


def warmups(found: Silver, rank: int = 0) -> list[str | None]:
    return [reason for at, reason in found.rows("steps", "rank", "warmup_reason") if at == rank]


@pytest.mark.given(run(warmup_steps_count=1), *in_a_row(900, 80, 80))
def test_warm_up_is_what_the_manifest_says(found: Silver) -> None:
    assert found.rows("steps", "is_warmup", "warmup_reason") == [
        (True, "the manifest counts it as warm-up"),
        (False, None),
        (False, None),
    ]
    assert ("flagged", "warmup_step", 1) in found.rows("rule_counts", "effect", "rule", "events_count")


@pytest.mark.given(run(warmup_steps_count=2), *in_a_row(900, 80, 80, 80))
def test_a_manifest_that_counts_more_warm_up_than_is_seen_is_kept_and_said(found: Silver) -> None:
    said = "the manifest counts it as warm-up"
    unseen = f"{said}, though it is not clearly slower than the steps behind it"
    assert warmups(found) == [said, unseen, None, None]


@pytest.mark.given(run(warmup_steps_count=99), *in_a_row(900, 80, 80))
def test_a_manifest_that_leaves_no_step_is_kept(found: Silver) -> None:
    assert warmups(found) == ["the manifest counts it as warm-up"] * 3


@pytest.mark.given(run(warmup_steps_count=1), *in_a_row(900, 800, 200, 80, 80, 80, 80))
def test_slow_steps_behind_those_that_the_manifest_counts_are_warm_up_too(found: Silver) -> None:
    assert warmups(found) == ["the manifest counts it as warm-up", SLOWER_STILL, SLOWER_STILL, *[None] * 4]


@pytest.mark.given(run(warmup_steps_count=0), *in_a_row(900, 80, 80), *in_a_row(100, 80, 80, rank=1))
def test_a_manifest_that_counts_no_warm_up_is_believed_only_where_none_is_seen(found: Silver) -> None:
    assert warmups(found) == [SLOWER, None, None]
    assert warmups(found, rank=1) == [None, None, None]


@pytest.mark.given(
    *in_a_row(300, 80, 80, 80, 300, 80, 80, 80, 300, 80, 80, 80),
    *in_a_row(900, 80, 80, 80, 300, 80, 80, 80, 300, 80, 80, 80, rank=1),
    *in_a_row(300, 80, 300, 80, 300, 80, rank=2),
)
def test_slow_steps_that_recur_are_part_of_training_and_only_a_slower_start_is_warm_up(found: Silver) -> None:
    assert warmups(found) == [None] * 12
    assert warmups(found, rank=1) == [SLOWER, *[None] * 11]
    assert warmups(found, rank=2) == [None] * 6


@pytest.mark.given(*in_a_row(900, 80, *[80] * 15, 700, *[80] * 15))
def test_a_single_hiccup_later_on_does_not_hide_warm_up(found: Silver) -> None:
    assert warmups(found) == [SLOWER, *[None] * 32]


@pytest.mark.given(*in_a_row(900, 900, 900, 80, 80), *in_a_row(900, 900, 80, 80, 80, rank=1), *in_a_row(9, 900, rank=2))
def test_most_steps_are_never_warm_up_by_their_times_alone(found: Silver) -> None:
    assert warmups(found) == [None] * 5
    assert warmups(found, rank=1) == [SLOWER, SLOWER, None, None, None]
    assert warmups(found, rank=2) == [None, None]


@pytest.mark.given(*in_a_row(0, 0, 0), *in_a_row(80, 0, 0, 0, rank=1))
def test_steps_of_no_length_are_no_warm_up(found: Silver) -> None:
    assert warmups(found) == [None] * 3
    assert warmups(found, rank=1) == [SLOWER, None, None, None]


# -- where the recording ended -----------------------------------------------------------------------------

EMPTY = "nothing ran in it: the recording ended where it began"


def launch(start: int, rank: int = 0) -> Row:
    return event("cudaLaunchKernel", "cuda_runtime", start, 2, rank=rank)


@pytest.mark.given(
    *in_a_row(80, 80, 5),
    *(launch(start) for start in (1010, 2010)),
    event("cudaDeviceSynchronize", "cuda_runtime", 3001, 2),
    event("aten::empty", "cpu_op", 3001, 2),
    *in_a_row(80, 5, rank=1),
    *(event("aten::mm", "cpu_op", start, 2, rank=1) for start in (1010, 1020)),
    *in_a_row(80, 80, 5, rank=2),
    launch(1010, rank=2),
    *in_a_row(5, rank=3),
    event("cudaDeviceSynchronize", "cuda_runtime", 1001, 2, rank=3),
    *in_a_row(80, 80, 5, rank=4),
    event("aten::mm", "cpu_op", 2010, 2, rank=4),
    event("cudaDeviceSynchronize", "cuda_runtime", 3001, 2, rank=4),
)
def test_a_last_step_in_which_nothing_ran_is_left_out_of_pairs(found: Silver) -> None:
    assert warmups(found) == [None, None, EMPTY]
    assert warmups(found, rank=1) == [None, EMPTY]
    assert warmups(found, rank=2) == [None, None, EMPTY]
    assert warmups(found, rank=3) == [EMPTY], "all that was recorded is the profiler's own wait"
    assert warmups(found, rank=4) == [None, None, EMPTY]
    flagged = [left_out for _, left_out in found.rows("steps", "rank", "is_warmup")]
    assert flagged == [False, False, True, False, True, False, False, True, True, False, False, True]
    counted = found.rows("rule_counts", "effect", "rule", "events_count")
    assert [row for row in counted if row[1] == "warmup_step"] == [("flagged", "warmup_step", 1)] * 5


@pytest.mark.given(
    *in_a_row(80, 80, 80),
    *(launch(start) for start in (1010, 3000)),
    *in_a_row(80, rank=1),
    launch(900, rank=1),
    *in_a_row(80, 80, rank=2),
    event("gemm", "kernel", 1010, 10, rank=2),
    note("train_step 1", 1000, 80, rank=3),
    note("train_step 2", 2000, 80, rank=3),
    launch(1010, rank=3),
    *in_a_row(80, rank=4),
    event("gemm", "kernel", 1010, 10, rank=4),
)
def test_any_other_step_counts_whatever_ran_in_it(found: Silver) -> None:
    assert [warmups(found, rank) for rank in range(5)] == [[None] * 3, [None], [None] * 2, [None] * 2, [None]]


@pytest.mark.given(*in_a_row(100, 80, 60, 4), *(launch(1000 * place) for place in (1, 2, 3)))
def test_a_last_step_in_which_nothing_ran_makes_no_other_one_slow(found: Silver) -> None:
    assert warmups(found) == [None, None, None, EMPTY]


# -- spans in steps ----------------------------------------------------------------------------------------


@pytest.mark.given(
    note("ProfilerStep#4", 1000, 100),
    note("ProfilerStep#5", 1200, 100),
    event("before", "cpu_op", 999, 500),
    event("at the start", "cpu_op", 1000, 1),
    event("at the last moment", "cpu_op", 1099, 500),
    event("at the end", "cpu_op", 1100, 1),
    event("between", "cpu_op", 1150, 100),
    event("in the next", "cpu_op", 1200, 1),
    event("behind", "cpu_op", 1300, 1),
    event("of another rank", "cpu_op", 1050, 1, rank=1),
)
def test_a_span_is_of_the_step_in_which_it_starts(found: Silver) -> None:
    assert found.rows("spans", "name", "step_number") == [
        ("ProfilerStep#4", 4),
        ("ProfilerStep#5", 5),
        ("before", None),
        ("at the start", 4),
        ("at the last moment", 4),
        ("at the end", None),
        ("between", None),
        ("in the next", 5),
        ("behind", None),
        ("of another rank", 0),
    ]


@pytest.mark.given(
    note("Optimizer.step#A.step", 1000, 100), note("Optimizer.step#A.step", 1200, 100), event("x", "cpu_op", 1100, 1)
)
def test_where_one_step_ends_the_next_begins(found: Silver) -> None:
    assert found.by("spans", "ordinal", "step_number")[2] == (1,)
