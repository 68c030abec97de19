from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold import stragglers
from tests.support.gold_rows import measure_rows

if TYPE_CHECKING:
    import polars as pl

    from tests.support.silver_rows import Bench

UNKNOWN = None


def part(rank: int, aligned_ts_ns: int | None, duration_ns: int | None, **fields: Any) -> dict[str, Any]:
    """A rank's part in a collective of two."""
    known = {"match_id": "a", "library": "nccl", "collective": "all_reduce", "ranks_count": 2, "buffer_bytes": 4000}
    times = {"ts_ns": 1, "aligned_ts_ns": aligned_ts_ns, "duration_ns": duration_ns, "ordinal": rank}
    return {"rank": rank, **known, **times, **fields}


def find_stragglers(engine: Bench, *parts: dict[str, Any], doubts: tuple[int | None, ...] = (0, 3, 5)) -> pl.DataFrame:
    clocks = [{"rank": rank, "uncertainty_ns": doubt} for rank, doubt in enumerate(doubts)]
    return measure_rows(engine, stragglers, collectives=list(parts), clock_offsets=clocks)


def test_the_last_to_arrive_is_late_and_the_others_wait(engine: Bench) -> None:
    answer = find_stragglers(engine, part(0, 100, 70), part(1, 140, 30, step_number=3, group_size=2))
    assert answer.drop("run_id", "is_skew_certain").rows() == [
        ("a", "nccl", "all_reduce", 3, 2, 2, 4000, 30, 40, 40, 3, 1, "measured", None)
    ]


UNDECIDED = "which rank came last is undecided: their clocks are not known well enough"


def test_of_several_late_ranks_none_is_named(engine: Bench) -> None:
    parts = [part(0, 100, 9, ranks_count=3), part(2, 140, 9, ranks_count=3), part(1, 140, 9, ranks_count=3)]
    assert find_stragglers(engine, *parts).select("late_rank", "total_wait_ns", "reason").rows() == [
        (None, 0, UNDECIDED)
    ]


def test_a_late_rank_is_named_only_where_the_clocks_decide_it(engine: Bench) -> None:
    # Rank 1 came between 137 and 143, rank 2 between at - 5 and at + 5: it is later from 149 on.
    def late(at: int) -> list[tuple[int | None, str | None]]:
        parts = [part(0, 100, 9, ranks_count=3), part(1, 140, 9, ranks_count=3), part(2, at, 9, ranks_count=3)]
        return find_stragglers(engine, *parts).select("late_rank", "reason").rows()

    assert late(148) == [(None, UNDECIDED)]
    assert late(149) == [(2, None)]
    assert late(132) == [(None, UNDECIDED)]
    assert late(131) == [(1, None)]


def test_a_skew_is_wrong_by_no_more_than_its_two_worst_clocks(engine: Bench) -> None:
    parts = [part(rank, 100 + rank, 9, ranks_count=3) for rank in range(3)]
    assert find_stragglers(engine, *parts).select("skew_ns", "skew_uncertainty_ns").rows() == [(2, 8)]


def test_a_skew_within_its_uncertainty_is_not_certain(engine: Bench) -> None:
    assert find_stragglers(engine, part(0, 100, 9), part(1, 103, 9)).select("is_skew_certain").rows() == [(False,)]
    assert find_stragglers(engine, part(0, 100, 9), part(1, 104, 9)).select("is_skew_certain").rows() == [(True,)]


def test_an_unknown_clock_leaves_the_waiting_and_takes_the_skew(engine: Bench) -> None:
    answer = find_stragglers(engine, part(0, 100, 70), part(1, UNKNOWN, 30), doubts=(0, None))
    assert answer.select("transfer_ns", "total_wait_ns", "evidence").rows() == [(30, 40, "measured")]
    assert answer.select("skew_ns", "skew_uncertainty_ns", "is_skew_certain", "late_rank").rows() == [(None,) * 4]
    assert answer["reason"].to_list() == [
        "the clock offset of some rank is not known, so its arrival cannot be compared"
    ]


def test_a_call_that_was_not_timed_leaves_the_skew_and_takes_the_waiting(engine: Bench) -> None:
    answer = find_stragglers(engine, part(0, 100, 70), part(1, 140, None))
    assert answer.select("transfer_ns", "total_wait_ns", "skew_ns", "evidence", "reason").rows() == [
        (None, None, 40, "unobservable", "on some rank only the call was seen, not the transfer")
    ]


def test_a_size_that_is_not_known_is_said_to_be_so_except_of_a_barrier(engine: Bench) -> None:
    unsized = {"buffer_bytes": None}
    parts = [part(rank, 100, 9, **unsized) for rank in range(2)]
    barriers = [part(rank, 100, 9, **unsized, match_id="b", collective="barrier", ordinal=7) for rank in range(2)]
    assert find_stragglers(engine, *parts, *barriers).select("match_id", "reason").rows() == [
        ("a", f"{UNDECIDED}; the trace does not give its size"),
        ("b", UNDECIDED),
    ]


def test_what_one_rank_alone_recorded_has_no_straggler(engine: Bench) -> None:
    assert find_stragglers(engine, part(0, 100, 9, ranks_count=1)).rows() == []


def test_runs_are_told_apart(engine: Bench) -> None:
    parts = [part(0, 100, 9), part(1, 110, 9), part(0, 500, 9, run_id="run-2"), part(1, 500, 9, run_id="run-2")]
    clocks = [{"run_id": run, "rank": rank, "uncertainty_ns": 0} for run in ("run-1", "run-2") for rank in range(2)]
    answer = measure_rows(engine, stragglers, collectives=parts, clock_offsets=clocks)
    assert answer.select("run_id", "skew_ns").rows() == [("run-1", 10), ("run-2", 0)]
