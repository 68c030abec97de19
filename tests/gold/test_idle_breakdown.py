from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import idle_breakdown
from gold.idle_breakdown import CONSECUTIVE_NS
from lake.engines import engine as lake_engine
from silver import spans, steps
from tests.support.silver_rows import RUN, rows_of

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

END = 1 << 62
POLARS = lake_engine("polars")
PARTS = ("idle_ns", "host_wait_ns", "kernel_wait_ns", "other_ns")
# start, duration, launch, stream
Work = tuple[int, int, int | None, int | None]


def split_idle(
    bench: Bench, *ranks: list[Work], cuts: tuple[int, ...] = (), **fields: Any
) -> dict[tuple[int, str], dict[str, Any]]:
    """The rows of some ranks' work, by rank and stream."""
    rows = [
        {
            "run_id": RUN,
            "rank": rank,
            "source_sha256": "s",
            "ordinal": place,
            "is_gpu": True,
            "device_id": 0,
            "ts_ns": at,
            "duration_ns": length,
            "launch_ts_ns": launch,
            "stream_id": stream,
            **fields,
        }
        for rank, work in enumerate(ranks)
        for place, (at, length, launch, stream) in enumerate(work)
    ]
    spanned = bench.wrap(rows_of(spans.TABLE, rows))
    known = bench.wrap(rows_of(steps.TABLE, [{"run_id": RUN, "rank": rank} for rank, _ in enumerate(ranks)]))
    gaps = pl.concat(
        [
            pl.DataFrame(bench.rows(idle_breakdown.find_gaps(spanned, low, high)))
            for low, high in pairwise([0, *sorted(set(cuts)), END])
        ]
    )
    found = bench.rows(idle_breakdown.measure(bench.wrap(gaps.to_arrow()), known)).to_pylist()
    return {(row["rank"], row["stream"]): row for row in found}


def test_a_gap_that_began_before_the_launch_is_the_hosts() -> None:
    row = split_idle(POLARS, [(10, 10, 5, 7), (120, 10, 21, 7)])[0, "7"]
    assert [row[name] for name in PARTS] == [100, 100, 0, 0]
    assert (row["total_ns"], row["busy_ns"], row["host_wait_count"], row["longest_ns"]) == (120, 20, 1, 100)


def test_a_launch_at_the_very_end_of_the_work_before_was_in_time() -> None:
    row = split_idle(POLARS, [(10, 10, 5, 7), (120, 10, 20, 7)])[0, "7"]
    assert [row[name] for name in PARTS] == [100, 0, 100, 0]


def test_a_gap_of_the_delay_itself_is_no_kernel_wait() -> None:
    short, long = (
        split_idle(POLARS, [(10, 10, 5, 7), (20 + gap, 1, 6, 7)])[0, "7"]
        for gap in (CONSECUTIVE_NS - 1, CONSECUTIVE_NS)
    )
    assert (short["kernel_wait_ns"], short["other_ns"]) == (CONSECUTIVE_NS - 1, 0)
    assert (long["kernel_wait_ns"], long["other_ns"], long["other_count"]) == (0, CONSECUTIVE_NS, 1)


def test_the_gpu_is_idle_while_none_of_its_streams_works() -> None:
    found = split_idle(POLARS, [(10, 10, 5, 7), (15, 20, 6, 9), (60, 5, 50, 7)])
    assert {key: row["idle_ns"] for key, row in found.items()} == {(0, "7"): 40, (0, "9"): 0, (0, "all"): 25}
    assert found[0, "all"]["host_wait_ns"] == 25


def test_work_without_a_launch_waited_for_nobody_and_is_counted() -> None:
    row = split_idle(POLARS, [(10, 10, 5, 7), (40_120, 10, None, 7)])[0, "7"]
    assert (row["host_wait_ns"], row["other_ns"], row["orphans_count"]) == (0, 40_100, 1)
    assert row["reason"] == "some work has no recorded launch: a gap before it may have been waiting for the host"


def test_work_on_no_stream_is_of_the_gpu_alone() -> None:
    assert set(split_idle(POLARS, [(10, 10, 5, None)])) == {(0, "all")}


def test_a_rank_without_gpu_rows_has_no_number_and_a_reason(engine: Bench) -> None:
    (row,) = split_idle(engine, [(10, 10, 5, 7)], is_gpu=False).values()
    assert (row["stream"], row["work_count"], row["idle_ns"], row["evidence"]) == ("all", 0, None, "unobservable")
    assert row["reason"] == "no GPU rows were recorded, so nothing of the GPU can be told"


def test_gpus_of_one_rank_stand_apart(engine: Bench) -> None:
    rows = [
        {"run_id": RUN, "source_sha256": "s", "ordinal": place, "is_gpu": True, "stream_id": 7, "device_id": place % 2}
        | {"ts_ns": 10 + 10 * place, "duration_ns": 10, "launch_ts_ns": 5}
        for place in range(4)
    ]
    spanned = engine.wrap(rows_of(spans.TABLE, rows))
    known = engine.wrap(rows_of(steps.TABLE, [{"run_id": RUN, "rank": 0}]))
    found = engine.rows(idle_breakdown.measure(idle_breakdown.find_gaps(spanned, 0, END), known)).to_pylist()
    assert sorted((row["device_id"], row["stream"], row["idle_ns"]) for row in found) == [
        (0, "7", 10),
        (0, "all", 10),
        (1, "7", 10),
        (1, "all", 10),
    ]


def count_idle(work: list[Work], scale: int) -> dict[str, int]:
    """Each moment by itself, which lasts `scale` nanoseconds: an idle one is of the next work to start."""
    taken = {moment for at, length, _, _ in work for moment in range(at, at + length)}
    first, last = min(at for at, *_ in work), max(at + length for at, length, *_ in work)
    found = dict.fromkeys(("host_wait_ns", "kernel_wait_ns", "other_ns"), 0)
    for moment in set(range(first, last)) - taken:
        since = max(at + length for at, length, *_ in work if at <= moment)
        until = min(at for at, *_ in work if at > moment)
        _, launch = min((at + length, launch or 0) for at, length, launch, _ in work if at == until)
        part = "kernel_wait_ns" if (until - since) * scale < CONSECUTIVE_NS else "other_ns"
        found["host_wait_ns" if launch > since else part] += scale
    return found


WORK = st.lists(
    st.tuples(st.integers(1, 90), st.integers(0, 12), st.none() | st.integers(1, 90), st.sampled_from([7, 20])),
    min_size=1,
    max_size=25,
)


@given(WORK, st.lists(st.integers(2, 110), max_size=4), st.sampled_from([1, 1000]))
@settings(max_examples=60)
def test_idle_time_equals_a_count_of_moments_however_time_is_sliced(
    work: list[Work], cuts: list[int], scale: int
) -> None:
    # With moments of a microsecond, gaps lie on both sides of the delay.
    scaled = [(at * scale, length * scale, launch and launch * scale, stream) for at, length, launch, stream in work]
    found = split_idle(POLARS, scaled, cuts=tuple(cut * scale for cut in cuts))
    for stream in (7, 20, None):
        own = [one for one in work if stream in {None, one[3]}]
        if own:
            row = found[0, "all" if stream is None else str(stream)]
            expected = count_idle(own, scale)
            assert {name: row[name] for name in expected} == expected
            assert row["busy_ns"] + row["idle_ns"] == row["total_ns"]
