from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import queue_timeline
from lake.engines import engine as lake_engine
from silver import spans, steps
from tests.support.silver_rows import RUN, rows_of

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

END = 1 << 62
POLARS = lake_engine("polars")
# launch, start, GPU
Work = tuple[int | None, int, int | None]


def follow_queues(bench: Bench, *work: Work, cuts: tuple[int, ...] = (), is_gpu: bool = True) -> list[dict[str, Any]]:
    """The rows of one rank's work, added up over chunks of time."""
    rows = [
        {
            "run_id": RUN,
            "rank": 0,
            "source_sha256": "s",
            "ordinal": place,
            "is_gpu": is_gpu,
            "device_id": device,
            "ts_ns": at,
            "duration_ns": 5,
            "launch_ts_ns": launch,
        }
        for place, (launch, at, device) in enumerate(work)
    ]
    spanned = bench.wrap(rows_of(spans.TABLE, rows))
    known = bench.wrap(rows_of(steps.TABLE, [{"run_id": RUN, "rank": 0}]))
    times = bench.rows(queue_timeline.find_queue_times(spanned))
    sums = pl.concat(
        [
            pl.DataFrame(bench.rows(queue_timeline.sum_waits(spanned, bench.wrap(times), low, high)))
            for low, high in pairwise([0, *sorted(set(cuts)), END])
        ]
    )
    found = bench.rows(queue_timeline.measure(bench.wrap(sums.to_arrow()), bench.wrap(times), known)).to_pylist()
    return sorted(found, key=lambda row: (row["device_id"], row["period_number"]))


def test_work_waits_in_the_slices_between_its_launch_and_its_start() -> None:
    first, second, third, last = follow_queues(POLARS, (1000, 1100, 0), (1005, 1250, 0))
    # 250 ns in slices of 3; a row reaches to the next slice with a launch or a start.
    assert (first["period_number"], first["ts_ns"], first["duration_ns"]) == (1, 1000, 3)
    assert (first["launched_count"], first["waiting_count"], first["queued_ns"], first["mean_length"]) == (1, 1, 3, 1.0)
    assert (second["period_number"], second["duration_ns"], second["launched_count"]) == (2, 96, 1)
    assert second["queued_ns"] == 96 + 94
    assert (second["mean_length"], second["waiting_count"]) == (190 / 96, 2)
    assert (third["ts_ns"], third["duration_ns"], third["queued_ns"], third["waiting_count"]) == (1099, 150, 151, 1)
    assert (last["ts_ns"], last["duration_ns"], last["queued_ns"], last["waiting_count"]) == (1249, 3, 1, 0)
    assert {row["evidence"] for row in (first, second, third, last)} == {"measured"}


def test_gpus_queue_apart_and_work_that_began_before_its_launch_never_waited(engine: Bench) -> None:
    found = follow_queues(engine, (1000, 1100, 0), (1000, 1200, None), (1000, 1300, 3), (1400, 1350, 3), (None, 9, 3))
    sums: dict[int, list[int]] = {}
    for row in found:
        of = sums.setdefault(row["device_id"], [0, 0])
        of[0], of[1] = of[0] + row["launched_count"], of[1] + row["queued_ns"]
    assert sums == {0: [2, 300], 3: [1, 300]}


def test_where_nothing_was_seen_to_wait_there_is_a_reason(engine: Bench) -> None:
    (row,) = follow_queues(engine, (None, 15, 0), (None, 25, 0))
    assert (row["period_number"], row["launched_count"], row["queued_ns"], row["mean_length"]) == (0, 0, None, None)
    assert (row["evidence"], row["reason"]) == (
        "unobservable",
        "no work has a recorded launch before its start, so none was seen to queue",
    )


def test_calls_of_the_host_do_not_queue() -> None:
    (row,) = follow_queues(POLARS, (10, 15, 0), is_gpu=False)
    assert row["evidence"] == "unobservable"


_WAITS = st.lists(
    st.tuples(st.integers(1, 900), st.integers(0, 500), st.sampled_from([0, 1])).map(
        lambda one: (one[0], one[0] + one[1], one[2])
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=60, deadline=None)
@given(_WAITS, st.lists(st.integers(1, 1500), max_size=3))
def test_every_nanosecond_of_a_queue_is_counted_whatever_the_chunks(work: list[Work], cuts: list[int]) -> None:
    found = follow_queues(POLARS, *work, cuts=tuple(cuts))
    waits = [(launch, start, device) for launch, start, device in work if launch is not None]
    begin = min(launch for launch, _, _ in waits)
    width = (max(start for _, start, _ in waits) - begin) // 100 + 1
    for row in found:
        mine = [(launch, start) for launch, start, device in waits if device == row["device_id"]]
        moments = range(row["ts_ns"], row["ts_ns"] + row["duration_ns"])
        assert (row["ts_ns"] - begin) % width == 0
        assert row["queued_ns"] == sum(launch <= moment < start for moment in moments for launch, start in mine)
        assert row["launched_count"] == sum(launch in moments for launch, _ in mine)
        assert row["started_count"] == sum(start in moments for _, start in mine)
        assert row["waiting_count"] == sum(launch < moments.stop <= start for launch, start in mine)
    assert sum(row["queued_ns"] for row in found) == sum(start - launch for launch, start, _ in waits)
