from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import time_breakdown
from gold.time_breakdown import KINDS, PARTS
from gold.waiting import find_waits
from lake.engines import engine as lake_engine
from lake.frames import cut_plan
from tests.support.campaigns import pick_size
from tests.support.gold_rows import measure_rows
from tests.support.silver_rows import RUN

if TYPE_CHECKING:
    from lake.frames import Frame
    from tests.support.silver_rows import Bench

END = 1 << 62
GPU = ("compute", "collective", "copy", "memset")


def span(kind: str, ts_ns: int, end_ns: int, rank: int = 0, **fields: Any) -> dict[str, Any]:
    fields = {"is_gpu": kind in GPU, "pattern": "operator", "is_orphan": False, **fields}
    return {"run_id": RUN, "rank": rank, "kind": kind, "ts_ns": ts_ns, "duration_ns": end_ns - ts_ns, **fields}


def step(number: int, ts_ns: int, end_ns: int, rank: int = 0, ordinal: int | None = None) -> dict[str, Any]:
    where = {"run_id": RUN, "rank": rank, "ts_ns": ts_ns, "duration_ns": end_ns - ts_ns}
    return {**where, "step_number": number, "step_ordinal": number if ordinal is None else ordinal}


def break_down(
    bench: Bench,
    spanned: list[dict[str, Any]],
    stepped: list[dict[str, Any]],
    cuts: tuple[int, ...] = (),
    joined: list[dict[str, Any]] | None = None,
) -> pl.DataFrame:
    """The table, made slice by slice where there are cuts; `joined` are the collectives among the spans."""
    numbered = [{"source_sha256": "s", "ordinal": place, **row} for place, row in enumerate(spanned)]
    return measure_rows(
        bench, Sliced(cuts) if cuts else WHOLE, spans=numbered, steps=stepped, collectives=joined or []
    ).sort("rank", "step_number")


class Sliced:
    """The parts of steps as they are made: charged slice of time by slice, then summed."""

    TABLE = time_breakdown.TABLE
    is_of_one_run = True

    def __init__(self, cuts: tuple[int, ...]) -> None:
        self._bounds = [0, *sorted(set(cuts)), END]
        self.measure_by = self._measure

    def _measure(self, bench: Bench, spans: Frame, steps: Frame, collectives: Frame) -> Frame:
        waits, rows = cut_plan(find_waits(spans, collectives)), bench.rows(steps)
        charges = [
            time_breakdown.charge_parts(bench.rows(time_breakdown.select_work(spans, waits)), rows, low, high)
            for low, high in itertools.pairwise(self._bounds)
        ]
        charged = bench.wrap(pa.concat_tables(charges))
        return time_breakdown.measure(charged, steps, spans.filter(nw.col("is_gpu")))


# One object for all tests that cut nothing: Spark plans once for it.
WHOLE = Sliced(())


def parts(frame: pl.DataFrame, row: int = 0) -> dict[str, int]:
    """The parts that took time."""
    return {part: frame[f"{part}_ns"][row] for part in PARTS if frame[f"{part}_ns"][row]}


def test_a_moment_belongs_to_the_first_in_the_priority(engine: Bench) -> None:
    running = [
        span("host", 100, 200),
        span("launch", 110, 120),
        span("sync", 130, 140),
        span("transport", 130, 150),
        span("crypto", 145, 160),
        span("memset", 150, 152),
        span("copy", 151, 155),
        span("collective", 155, 170),
        span("compute", 165, 180),
        span("annotation", 100, 300),
    ]
    found = break_down(engine, running, [step(0, 100, 300)])
    assert parts(found) == {
        "host": 10 + 10 + 20,
        "launch": 10,
        "transport": 15,
        "crypto": 5,
        "memset": 1,
        "copy": 4,
        "collective": 10,
        "compute": 15,
        "idle": 100,
    }
    assert found["crypto_whole_ns"][0] == 15
    assert found["collective_whole_ns"][0] == 15


def test_work_is_clipped_to_the_step_and_shared_between_two(engine: Bench) -> None:
    found = break_down(engine, [span("compute", 50, 150)], [step(0, 0, 100), step(1, 100, 180), step(2, 500, 510)])
    assert [parts(found, row) for row in range(3)] == [
        {"compute": 50, "idle": 50},
        {"compute": 50, "idle": 30},
        {"idle": 10},
    ]


def test_ranks_do_not_see_each_other(engine: Bench) -> None:
    running = [span("compute", 0, 60), span("compute", 40, 90, rank=1)]
    found = break_down(engine, running, [step(0, 1, 100), step(0, 1, 100, rank=1)])
    assert [parts(found, row) for row in range(2)] == [{"compute": 59, "idle": 40}, {"compute": 50, "idle": 49}]


def test_python_frames_around_everything_are_no_work(engine: Bench) -> None:
    running = [span("host", 0, 100, pattern="python_frame"), span("compute", 10, 20)]
    assert parts(break_down(engine, running, [step(0, 1, 101)])) == {"compute": 10, "idle": 90}


def test_a_gpu_that_was_not_observed_is_unattributed_and_not_idle(engine: Bench) -> None:
    found = break_down(engine, [span("launch", 10, 30)], [step(0, 1, 101)])
    assert parts(found) == {"launch": 20, "unattributed": 80}
    assert found["compute_ns"].to_list() == found["idle_ns"].to_list() == found["orphan_ns"].to_list() == [None]
    assert found["evidence"].to_list() == ["unobservable"]
    assert found["reason"][0] is not None


def test_orphan_time_is_told_beside_the_parts(engine: Bench) -> None:
    running = [span("compute", 10, 30, is_orphan=True), span("compute", 20, 60)]
    found = break_down(engine, running, [step(0, 1, 101)])
    assert parts(found) == {"compute": 50, "idle": 50}
    assert found["orphan_ns"].to_list() == [20]


def test_what_is_no_work_is_in_no_part_and_told_where_it_is_an_orphan(engine: Bench) -> None:
    running = [span("annotation", 10, 40, is_gpu=True, is_orphan=True), span("compute", 50, 60)]
    found = break_down(engine, running, [step(0, 1, 101)])
    assert parts(found) == {"compute": 10, "idle": 90}
    assert found["orphan_ns"].to_list() == [30]


# -- waiting for a peer ----------------------------------------------------------------------------------------------

HOOK = {"pattern": "hook_collective", "is_gpu": False}
RECEIVE = {"pattern": "hook_receive", "name": "tee::recv#8", "is_gpu": False}
UNTOLD = "no other rank's record matches some collectives, so waiting in them is not told from transfer"


def make_collective(ordinal: int, rank: int, duration_ns: int, match_id: str = "a", **fields: Any) -> dict[str, Any]:
    """A rank's part in a collective of two ranks: the row of silver.collectives for the span at this place."""
    known = {"mention": "kernel", "collective": "all_reduce", "library": "nccl", "ranks_count": 2, "group_size": 2}
    where = {"run_id": RUN, "rank": rank, "source_sha256": "s", "ordinal": ordinal, "duration_ns": duration_ns}
    return {**known, **where, "match_id": match_id, "ts_ns": 10, **fields}


def test_a_kernel_beyond_the_shortest_over_ranks_waits_before_it_transfers(engine: Bench) -> None:
    running = [span("collective", 10, 60), span("copy", 20, 25), span("collective", 500, 520, rank=1)]
    shared = [make_collective(0, 0, 50), make_collective(2, 1, 20)]
    found = break_down(engine, running, [step(0, 1, 101), step(0, 491, 591, rank=1)], joined=shared)
    assert [parts(found, row) for row in range(2)] == [
        {"wait": 25, "copy": 5, "collective": 20, "idle": 50},
        {"collective": 20, "idle": 80},
    ]
    assert found.select("wait_whole_ns", "collective_whole_ns", "unmatched_ns", "reason").rows() == [
        (30, 20, 0, None),
        (0, 20, 0, None),
    ]


def test_a_kernel_that_no_other_rank_recorded_stays_a_transfer_and_that_is_said(engine: Bench) -> None:
    alone = [make_collective(0, 0, 50, ranks_count=1)]
    found = break_down(engine, [span("collective", 10, 60)], [step(0, 1, 101)], joined=alone)
    assert parts(found) == {"collective": 50, "idle": 50}
    assert found.select("unmatched_ns", "reason").rows() == [(50, UNTOLD)]


def test_sends_of_two_ranks_are_no_measure_of_each_other(engine: Bench) -> None:
    running = [span("collective", 10, 60), span("collective", 10, 20, rank=1)]
    sent = [make_collective(0, 0, 50, collective="send"), make_collective(1, 1, 10, collective="send")]
    found = break_down(engine, running, [step(0, 1, 101), step(0, 1, 101, rank=1)], joined=sent)
    assert found.select("wait_ns", "collective_ns", "unmatched_ns").rows() == [(0, 50, 50), (0, 10, 10)]


def test_who_is_alone_in_its_group_waits_for_nobody(engine: Bench) -> None:
    alone = [make_collective(0, 0, 50, ranks_count=1, group_size=1)]
    found = break_down(engine, [span("collective", 10, 60)], [step(0, 1, 101)], joined=alone)
    assert found.select("wait_ns", "collective_ns", "reason").rows() == [(0, 50, None)]


def make_ring(rank: int, ts_ns: int, receives: list[int], **fields: Any) -> list[dict[str, Any]]:
    """A hook's all-reduce with receives of these lengths, one after the other, on one thread."""
    thread = {"thread_id": "7", **fields}
    ends = list(itertools.accumulate(receives, initial=ts_ns))
    hops = [span("transport", low, high, rank, **RECEIVE, **thread) for low, high in itertools.pairwise(ends)]
    return [span("annotation", ts_ns, ends[-1], rank, **HOOK, **thread), *hops]


def test_each_receive_of_a_ring_is_held_against_the_same_one_of_its_peers(engine: Bench) -> None:
    seen = [span("compute", 1, 2), span("compute", 1, 2, rank=1)]
    running = [*make_ring(0, 10, [30, 5]), *make_ring(1, 10, [10, 25]), *seen]
    hooks = [make_collective(0, 0, 35, mention="hook"), make_collective(3, 1, 35, mention="hook")]
    found = break_down(engine, running, [step(0, 2, 102), step(0, 2, 102, rank=1)], joined=hooks)
    assert [parts(found, row) for row in range(2)] == [
        {"wait": 20, "transport": 10 + 5, "idle": 65},
        {"wait": 20, "transport": 10 + 5, "idle": 65},
    ]


def test_rings_of_unequal_hops_and_receives_on_other_threads_are_not_matched(engine: Bench) -> None:
    running = [
        *make_ring(0, 10, [30, 5]),
        *make_ring(1, 10, [10]),
        span("transport", 50, 60, 1, **RECEIVE, thread_id="8"),
    ]
    hooks = [make_collective(0, 0, 35, mention="hook"), make_collective(3, 1, 10, mention="hook")]
    found = break_down(engine, running, [step(0, 2, 102), step(0, 2, 102, rank=1)], joined=hooks)
    assert found.select("wait_ns", "transport_ns", "unmatched_ns").rows() == [(0, 35, 35), (0, 20, 10)]
    assert UNTOLD in found["reason"][0]


def test_a_library_inside_a_hop_does_not_hide_its_waiting(engine: Bench) -> None:
    exchange = {**RECEIVE, "pattern": "hook_transport", "name": "tee::sendrecv", "thread_id": "7"}
    gloo = {"pattern": "gloo_call", "name": "gloo:recv", "thread_id": "7"}
    running = [
        row
        for rank, end in ((0, 60), (1, 30))
        for row in (
            span("annotation", 10, end, rank, **HOOK, thread_id="7"),
            span("transport", 10, end, rank, **exchange),
            span("transport", 11, end, rank, **gloo),
        )
    ]
    hooks = [make_collective(0, 0, 50, mention="hook"), make_collective(3, 1, 20, mention="hook")]
    found = break_down(engine, running, [step(0, 2, 102), step(0, 2, 102, rank=1)], joined=hooks)
    assert found.select("wait_ns", "transport_ns").rows() == [(30, 20), (0, 20)]


def test_a_wait_that_the_host_recorded_is_a_wait(engine: Bench) -> None:
    found = break_down(engine, [span("wait", 10, 30), span("launch", 20, 40)], [step(0, 1, 101)])
    assert parts(found) == {"wait": 20, "launch": 10, "unattributed": 70}


# -- law 5, against a plain count of moments --------------------------------------------------------------------------

WORK = st.lists(st.tuples(st.sampled_from((*KINDS, "annotation")), st.integers(1, 60), st.integers(0, 25)), max_size=25)
STEPS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 40)), min_size=1, max_size=4)
POLARS, DUCKDB = lake_engine("polars"), lake_engine("duckdb")


# A kernel that waits is the last of what the GPU does.
ORDER = (*GPU, "kernel_wait", *(kind for kind in KINDS if kind not in GPU))


def moments(spanned: list[tuple[str, int, int]], start: int, end: int) -> dict[str, int]:
    """Charge every nanosecond by hand."""
    charged = dict.fromkeys(PARTS, 0)
    for moment in range(start, end):
        running = {kind for kind, at, length in spanned if at <= moment < at + length}
        kind = next((kind for kind in ORDER if kind in running), "idle")
        charged["wait" if kind == "kernel_wait" else kind] += 1
    return {part: length for part, length in charged.items() if length}


# Many cases at once, each on a rank of its own: a plan costs more than its rows.
CASES = st.lists(st.tuples(WORK, STEPS), min_size=1, max_size=12)


def lay_out(cases: list[tuple[Any, Any]], *, is_seen: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    seen = [("compute", 1, 0)] if is_seen else []  # so that the GPU counts as observed
    spanned = [
        span(kind, at, at + length, rank) for rank, (work, _) in enumerate(cases) for kind, at, length in (*work, *seen)
    ]
    stepped = [
        step(place, at, at + length, rank)
        for rank, (_, stepping) in enumerate(cases)
        for place, (at, length) in enumerate(sorted(stepping))
    ]
    return spanned, stepped


@given(CASES, st.lists(st.integers(2, 80), max_size=3))
@settings(max_examples=20)
def test_parts_sum_to_the_step_whatever_runs_and_however_time_is_sliced(
    cases: list[tuple[Any, Any]], cuts: list[int]
) -> None:
    found = break_down(POLARS, *lay_out(cases, is_seen=True), tuple(cuts))
    sums = found.select(pl.sum_horizontal(f"{part}_ns" for part in PARTS)).to_series()
    assert sums.to_list() == found["duration_ns"].to_list()
    expected = [moments(work, at, at + length) for work, stepping in cases for at, length in sorted(stepping)]
    assert [parts(found, row) for row in range(found.height)] == expected


@given(CASES)
@settings(max_examples=pick_size(6, 60))
def test_engines_agree_on_whatever_runs(cases: list[tuple[Any, Any]]) -> None:
    spanned, stepped = lay_out(cases, is_seen=False)
    assert break_down(POLARS, spanned, stepped).equals(break_down(DUCKDB, spanned[::-1], stepped[::-1]))


# A collective of two ranks: kernels or calls of the host, when each rank entered, and how long each was in it.
SHARED = st.lists(
    st.tuples(
        st.sampled_from(("collective", "transport")),
        st.tuples(st.integers(1, 60), st.integers(1, 60)),
        st.tuples(st.integers(0, 25), st.integers(0, 25)),
        st.booleans(),
    ),
    max_size=6,
)


@given(st.tuples(WORK, WORK), SHARED, st.lists(st.integers(2, 80), max_size=2))
@settings(max_examples=25)
def test_with_waiting_the_parts_still_sum_and_are_those_of_a_count_of_moments(
    work: tuple[Any, Any], shared: list[Any], cuts: list[int]
) -> None:
    spanned = [span("compute", 1, 1, rank) for rank in range(2)]
    known, rows = [[*work[0]], [*work[1]]], []
    for place, (kind, starts, lengths, is_matched) in enumerate(shared):
        for rank in range(2):
            fields = {
                "ranks_count": 2 if is_matched else 1,
                "mention": "kernel" if kind == "collective" else "annotation",
            }
            rows.append(make_collective(len(spanned), rank, lengths[rank], f"{place}/{is_matched or rank}", **fields))
            spanned.append(span(kind, starts[rank], starts[rank] + lengths[rank], rank))
            wait = lengths[rank] - min(lengths) if is_matched else 0
            name = "kernel_wait" if kind == "collective" else "wait"
            known[rank] += [(name, starts[rank], wait), (kind, starts[rank] + wait, lengths[rank] - wait)]
    spanned += [span(kind, at, at + length, rank) for rank in range(2) for kind, at, length in work[rank]]
    found = break_down(POLARS, spanned, [step(0, 5, 55), step(0, 5, 55, rank=1)], tuple(cuts), rows)
    for rank in range(2):
        expected = moments(known[rank], 5, 55)
        assert parts(found, rank) == expected
        assert sum(expected.values()) == 50
