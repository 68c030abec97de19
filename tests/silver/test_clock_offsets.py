from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from silver import clock_offsets, nsys_ranks
from tests.support.silver_rows import Bronze, all_reduce, copy, event, kernel, note, run, run_plan, sort_rows, source

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench, Row, Silver

NOTHING_SHARED = "no synchronising collective is shared with the reference rank"
CONTRADICTION = "the shared collectives contradict each other: one clock drifts, or they are not the same"


def _make_collective(rank: int, ts_ns: int, end_ns: int, number: int, **fields: Any) -> Row:
    """A rank's part in the all-reduce of that number of one communicator."""
    known = {"communicator_id": "c", "collective_sequence": number}
    return all_reduce(ts_ns, end_ns - ts_ns, rank=rank, **{**known, **fields})


def _broadcast(rank: int, ts_ns: int) -> Row:
    known = {"communicator_id": "b", "collective_sequence": 1, "collective_name": "broadcast"}
    return kernel("ncclDevKernel_Broadcast", ts_ns, 10, rank=rank, **known)


RANKS: list[Row] = [
    # The reference: the lowest rank that has a trace.
    _make_collective(3, 1000, 1100, 1),
    _make_collective(3, 2000, 2050, 2),
    _broadcast(3, 3000),
    note("gloo:all_reduce", 5000, 100, rank=3),
    note("tee::all_reduce#64", 6000, 100, rank=3),
    # Bounds 400 to 620 by the first, 460 to 530 by the second.
    _make_collective(4, 1500, 1620, 1),
    _make_collective(4, 2510, 2530, 2),
    # The same, a nanosecond wider.
    _make_collective(5, 1500, 1620, 1),
    _make_collective(5, 2510, 2531, 2),
    # Bounds -700 to -480: a clock that is behind.
    _make_collective(6, 400, 520, 1),
    # Bounds -100 to 10, then 950 to 1010.
    _make_collective(7, 1000, 1010, 1),
    _make_collective(7, 3000, 3010, 2),
    # Bounds -90 to 10.
    _make_collective(8, 1010, 1010, 1),
    _make_collective(9, 1000, 1010, 9),
    _broadcast(10, 3000),
    note("gloo:all_reduce", 5200, 100, rank=11),
    note("gloo:all_reduce", 5200, 100, rank=12),
    note("gloo:all_reduce", 5400, 100, rank=12),
    note("tee::all_reduce#64", 6010, 100, rank=13),
    _make_collective(14, 1000, 900, 1),
    event("aten::mm", "cpu_op", 1000, 10, rank=15),
    source(rank=16, source_sha256="empty"),
    source(rank=1, source_sha256="refused", outcome="rejected", reason="x"),
    source(rank=None, source_sha256="no rank", outcome="rejected", reason="x"),
]


@pytest.fixture(scope="module")
def offsets(engine: Bench) -> pl.DataFrame:
    """The offsets of all ranks above, which are one run."""
    bronze = Bronze.of(*RANKS)
    placed = engine.wrap(nsys_ranks.TABLE.arrow_schema.empty_table())
    frame = clock_offsets.conform(engine.wrap(bronze.events), engine.wrap(bronze.sources), placed)
    return sort_rows(clock_offsets.TABLE, run_plan(engine, frame, clock_offsets.TABLE))


def _of(offsets: pl.DataFrame, rank: int) -> tuple[Any, ...]:
    columns = ("offset_ns", "uncertainty_ns", "collectives_count", "evidence", "reason")
    (row,) = offsets.filter(pl.col("rank") == rank).select(columns).rows()
    return row


def test_every_rank_with_a_trace_is_compared_with_the_lowest(offsets: pl.DataFrame) -> None:
    assert offsets["rank"].to_list() == list(range(3, 17))
    assert set(offsets["reference_rank"]) == {3}


def test_the_reference_is_off_by_nothing(offsets: pl.DataFrame) -> None:
    assert _of(offsets, 3) == (0, 0, 0, "measured", None)


def test_an_offset_is_the_middle_of_what_causality_allows(offsets: pl.DataFrame) -> None:
    assert _of(offsets, 4) == (495, 35, 2, "measured", None)


def test_an_uncertainty_is_never_rounded_down(offsets: pl.DataFrame) -> None:
    assert _of(offsets, 5) == (495, 36, 2, "measured", None)


def test_a_clock_may_be_behind(offsets: pl.DataFrame) -> None:
    assert _of(offsets, 6) == (-590, 110, 1, "measured", None)


def test_bounds_that_leave_nothing_are_no_offset(offsets: pl.DataFrame) -> None:
    assert _of(offsets, 7) == (None, None, 2, "unobservable", CONTRADICTION)


def test_a_collective_without_a_length_bounds_too(offsets: pl.DataFrame) -> None:
    assert _of(offsets, 8) == (-40, 50, 1, "measured", None)


@pytest.mark.parametrize(
    ("rank", "why"),
    {
        9: "another number of the same communicator",
        10: "a broadcast, which its root may leave before others enter",
        12: "two of a kind of which the reference has one",
        14: "a negative duration",
        15: "no collective at all",
        16: "no event at all",
    }.items(),
)
def test_who_shares_nothing_that_synchronises_has_no_offset(offsets: pl.DataFrame, rank: int, why: str) -> None:
    assert _of(offsets, rank) == (None, None, 0, "unobservable", NOTHING_SHARED), why


def test_annotations_of_libraries_without_kernels_bound_too(offsets: pl.DataFrame) -> None:
    assert _of(offsets, 11) == (200, 100, 1, "measured", None)
    assert _of(offsets, 13) == (10, 100, 1, "measured", None)


@pytest.mark.given(event("aten::mm", "cpu_op", 1000, 10, rank=5))
def test_a_single_rank_is_its_own_reference(found: Silver) -> None:
    assert found.only("clock_offsets", "rank", "reference_rank", "offset_ns", "uncertainty_ns", "evidence") == (
        *(5, 5, 0, 0),
        "measured",
    )
    assert found.only("spans", "ts_ns", "aligned_ts_ns") == (1000, 1000)


@pytest.mark.given(
    run(),
    _make_collective(0, 1000, 1100, 1, communicator_id="only here"),
    _make_collective(1, 1500, 1600, 1, communicator_id="only here"),
    note("ProfilerStep#1", 1400, 400, rank=1),
    copy("Memcpy HtoD (Pinned -> Device)", 1700, 10, rank=1),
    copy("Memcpy HtoD (Pinned -> Device)", 1700, 10, rank=2),
)
def test_aligned_time_is_the_clock_of_the_reference_where_the_offset_is_known(found: Silver) -> None:
    assert found.rows("spans", "rank", "ts_ns", "aligned_ts_ns") == [
        (0, 1000, 1000),
        (1, 1500, 1000),
        (1, 1400, 900),
        (1, 1700, 1200),
        (2, 1700, None),
    ]
    assert found.rows("steps", "rank", "aligned_ts_ns") == [(0, 1000), (1, 900), (2, None)]
    assert found.rows("collectives", "rank", "aligned_ts_ns", "ranks_count", "matched_by") == [
        (0, 1000, 2, "communicator"),
        (1, 1000, 2, "communicator"),
    ]
    assert found.rows("crossings", "rank", "aligned_ts_ns") == [(0, 1000), (1, 1000), (1, 1200), (2, None)]
