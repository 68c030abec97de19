from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lake.engines import PolarsEngine
from silver import spans
from silver.interval_cover import add_covered_time
from tests.support.campaigns import pick_size
from tests.support.silver_rows import RUN, rows_of

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

Interval = tuple[int, int, int]


def _rows(intervals: list[Interval], source: str) -> list[dict[str, Any]]:
    return [
        {"run_id": RUN, "rank": rank, "source_sha256": source, "ordinal": place, "ts_ns": ts, "duration_ns": length}
        for place, (rank, ts, length) in enumerate(intervals)
    ]


def _measure_cover(bench: Bench, rows: list[Interval], cover: list[Interval]) -> list[int]:
    """How much of each row is covered, by the function under test."""
    frame = add_covered_time(
        bench.wrap(rows_of(spans.TABLE, _rows(rows, "a"))), bench.wrap(rows_of(spans.TABLE, _rows(cover, "b")))
    )
    found = bench.rows(frame.select("ordinal", "covered_ns")).to_pylist()
    return [row["covered_ns"] for row in sorted(found, key=lambda row: row["ordinal"])]


def _by_counting(rows: list[Interval], cover: list[Interval]) -> list[int]:
    """The same nanosecond by nanosecond."""
    busy = {(rank, moment) for rank, ts, length in cover for moment in range(ts, ts + length)}
    return [sum((rank, moment) in busy for moment in range(ts, ts + length)) for rank, ts, length in rows]


_INTERVALS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40), st.integers(0, 20)), max_size=12)


@settings(max_examples=pick_size(100, 1000))
@given(rows=_INTERVALS, cover=_INTERVALS)
def test_coverage_is_what_counting_every_nanosecond_gives(rows: list[Interval], cover: list[Interval]) -> None:
    assert _measure_cover(PolarsEngine(), rows, cover) == _by_counting(rows, cover)


CASES: dict[str, tuple[Interval, list[Interval], int]] = {
    "nothing": ((0, 100, 50), [], 0),
    "all of it": ((0, 100, 50), [(0, 0, 500)], 50),
    "exactly": ((0, 100, 50), [(0, 100, 50)], 50),
    "touching": ((0, 100, 50), [(0, 50, 50), (0, 150, 50)], 0),
    "both ends": ((0, 100, 50), [(0, 90, 20), (0, 140, 20)], 20),
    "overlapping each other": ((0, 100, 50), [(0, 110, 20), (0, 120, 20), (0, 125, 5)], 30),
    "twice the same": ((0, 100, 50), [(0, 110, 20), (0, 110, 20)], 20),
    "one within another that began long ago": ((0, 100, 50), [(0, 1, 110), (0, 50, 10)], 11),
    "no length": ((0, 100, 0), [(0, 50, 100)], 0),
    "covered by no length": ((0, 100, 50), [(0, 120, 0)], 0),
    "at the end of time": ((0, (1 << 62) - 100, 50), [(0, (1 << 62) - 90, 1 << 53)], 40),
}


def test_what_covers_an_interval_is_counted_once(engine: Bench) -> None:
    # Every case on a rank of its own: what runs on other ranks covers nothing.
    rows = [(rank, ts, length) for rank, ((_, ts, length), _, _) in enumerate(CASES.values())]
    cover = [(rank, ts, length) for rank, (_, cover, _) in enumerate(CASES.values()) for _, ts, length in cover]
    assert dict(zip(CASES, _measure_cover(engine, rows, cover), strict=True)) == {
        case: answer for case, (_, _, answer) in CASES.items()
    }
