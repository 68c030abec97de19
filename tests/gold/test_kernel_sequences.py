from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import kernel_sequences
from gold.kernel_sequences import MOST, NAMES
from lake.engines import engine as lake_engine
from silver import spans, steps
from tests.support.silver_rows import RUN, rows_of

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

END = 1 << 62
POLARS = lake_engine("polars")
# start, duration, name, stream
Work = tuple[int, int, str | None, int | None]


def list_sequences(bench: Bench, *work: Work, cuts: tuple[int, ...] = (), **fields: Any) -> list[dict[str, Any]]:
    """The rows of one rank's work, in order of place."""
    rows = [
        {"run_id": RUN, "rank": 0, "source_sha256": "s", "ordinal": place, "is_gpu": True, "device_id": 0}
        | {"ts_ns": at, "duration_ns": length, "name": name, "stream_id": stream, **fields}
        for place, (at, length, name, stream) in enumerate(work)
    ]
    spanned = bench.wrap(rows_of(spans.TABLE, rows))
    known = bench.wrap(rows_of(steps.TABLE, [{"run_id": RUN, "rank": 0}]))
    counted = pl.concat(
        [
            pl.DataFrame(bench.rows(kernel_sequences.count_sequences(spanned, low, high)))
            for low, high in pairwise([0, *sorted(set(cuts)), END])
        ]
    )
    found = bench.rows(kernel_sequences.measure(bench.wrap(counted.to_arrow()), known)).to_pylist()
    return sorted(found, key=lambda row: row["place_number"])


def test_the_most_frequent_come_first_with_the_time_of_their_work(engine: Bench) -> None:
    names = "abcabcab"
    found = list_sequences(engine, *((10 * place, place, name, 7) for place, name in enumerate(names, 1)))
    assert [("".join(row[name] for name in NAMES), row["sequences_count"], row["total_ns"]) for row in found] == [
        ("cab", 2, 3 + 4 + 5 + 6 + 7 + 8),
        ("bca", 2, 2 + 3 + 4 + 5 + 6 + 7),
        ("abc", 2, 1 + 2 + 3 + 4 + 5 + 6),
    ]
    assert [row["place_number"] for row in found] == [1, 2, 3]
    assert [row["share_fraction"] for row in found] == [2 / 6] * 3


def test_streams_have_sequences_of_their_own() -> None:
    (row,) = list_sequences(POLARS, (1, 1, "a", 7), (2, 1, "x", 9), (3, 1, "b", 7), (4, 1, "x", 9), (5, 1, None, 7))
    assert [row[name] for name in NAMES] == ["a", "b", ""]
    assert (row["sequences_count"], row["total_ns"], row["evidence"], row["reason"]) == (1, 3, "measured", None)


def test_where_no_stream_has_three_there_is_a_reason() -> None:
    for found in (
        list_sequences(POLARS, (1, 1, "a", 7), (2, 1, "b", 7)),
        list_sequences(POLARS, *((at, 1, "a", 7) for at in (1, 2, 3)), is_gpu=False),
        list_sequences(POLARS, *((at, 1, "a", None) for at in (1, 2, 3))),
    ):
        (row,) = found
        assert (row["place_number"], row["sequences_count"], row["evidence"]) == (0, 0, "unobservable")
        assert row["reason"] == "no stream of a GPU was recorded with three pieces of work"


WORK = st.lists(
    st.tuples(st.integers(1, 60), st.integers(0, 9), st.sampled_from("abc"), st.sampled_from([7, 20])),
    max_size=30,
    unique_by=lambda one: (one[0], one[3]),
)


@given(WORK, st.lists(st.integers(2, 60), max_size=6))
@settings(max_examples=30)
def test_counts_equal_a_walk_along_each_stream_however_time_is_chunked(work: list[Work], cuts: list[int]) -> None:
    counts: Counter[tuple[str | None, ...]] = Counter()
    times: Counter[tuple[str | None, ...]] = Counter()
    for stream in (7, 20):
        line = sorted(one for one in work if one[3] == stream)
        for three in zip(line, line[1:], line[2:], strict=False):
            names = tuple(one[2] for one in three)
            counts[names] += 1
            times[names] += sum(one[1] for one in three)
    expected = sorted(((-count, -times[names], names) for names, count in counts.items()))[:MOST]
    found = list_sequences(POLARS, *work, cuts=tuple(cuts))
    listed = [(-row["sequences_count"], -row["total_ns"], tuple(row[n] for n in NAMES)) for row in found if counts]
    assert listed == expected
