from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import narwhals as nw
import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import time_breakdown
from gold.time_breakdown import KINDS, PARTS
from lake.engines import engine as lake_engine
from silver import spans, steps
from tests.support.silver_rows import RUN, rows_of

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

END = 1 << 62
GPU = ("compute", "collective", "copy", "memset")


def span(kind: str, ts_ns: int, end_ns: int, rank: int = 0, **fields: Any) -> dict[str, Any]:
    fields = {"is_gpu": kind in GPU, "pattern": "operator", "is_orphan": False, **fields}
    return {"run_id": RUN, "rank": rank, "kind": kind, "ts_ns": ts_ns, "duration_ns": end_ns - ts_ns, **fields}


def step(number: int, ts_ns: int, end_ns: int, rank: int = 0, ordinal: int | None = None) -> dict[str, Any]:
    where = {"run_id": RUN, "rank": rank, "ts_ns": ts_ns, "duration_ns": end_ns - ts_ns}
    return {**where, "step_number": number, "step_ordinal": number if ordinal is None else ordinal}


def broken_down(
    bench: Bench, spanned: list[dict[str, Any]], stepped: list[dict[str, Any]], cuts: tuple[int, ...] = ()
) -> pl.DataFrame:
    """The table, made slice by slice where there are cuts."""
    numbered = [{"source_sha256": "s", "ordinal": place, **row} for place, row in enumerate(spanned)]
    rows, marks = bench.wrap(rows_of(spans.TABLE, numbered)), bench.wrap(rows_of(steps.TABLE, stepped))
    bounds = [0, *sorted(set(cuts)), END]
    charges = pl.concat(
        [
            pl.DataFrame(bench.rows(time_breakdown.charge_parts(rows, marks, low, high)))
            for low, high in itertools.pairwise(bounds)
        ]
    )
    seen = rows.filter(nw.col("is_gpu"))
    found = time_breakdown.measure(bench.wrap(charges.to_arrow()), marks, seen)
    return pl.DataFrame(bench.rows(found)).sort("rank", "step_number")


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
    found = broken_down(engine, running, [step(0, 100, 300)])
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
    found = broken_down(engine, [span("compute", 50, 150)], [step(0, 0, 100), step(1, 100, 180), step(2, 500, 510)])
    assert [parts(found, row) for row in range(3)] == [
        {"compute": 50, "idle": 50},
        {"compute": 50, "idle": 30},
        {"idle": 10},
    ]


def test_ranks_do_not_see_each_other(engine: Bench) -> None:
    running = [span("compute", 0, 60), span("compute", 40, 90, rank=1)]
    found = broken_down(engine, running, [step(0, 1, 100), step(0, 1, 100, rank=1)])
    assert [parts(found, row) for row in range(2)] == [{"compute": 59, "idle": 40}, {"compute": 50, "idle": 49}]


def test_python_frames_around_everything_are_no_work(engine: Bench) -> None:
    running = [span("host", 0, 100, pattern="python_frame"), span("compute", 10, 20)]
    assert parts(broken_down(engine, running, [step(0, 1, 101)])) == {"compute": 10, "idle": 90}


def test_a_gpu_that_was_not_observed_is_unattributed_and_not_idle(engine: Bench) -> None:
    found = broken_down(engine, [span("launch", 10, 30)], [step(0, 1, 101)])
    assert parts(found) == {"launch": 20, "unattributed": 80}
    assert found["compute_ns"].to_list() == found["idle_ns"].to_list() == found["orphan_ns"].to_list() == [None]
    assert found["evidence"].to_list() == ["unobservable"]
    assert found["reason"][0] is not None


def test_orphan_time_is_told_beside_the_parts(engine: Bench) -> None:
    running = [span("compute", 10, 30, is_orphan=True), span("compute", 20, 60)]
    found = broken_down(engine, running, [step(0, 1, 101)])
    assert parts(found) == {"compute": 50, "idle": 50}
    assert found["orphan_ns"].to_list() == [20]


# -- law 5, against a plain count of moments --------------------------------------------------------------------------

WORK = st.lists(st.tuples(st.sampled_from((*KINDS, "annotation")), st.integers(1, 60), st.integers(0, 25)), max_size=25)
STEPS = st.lists(st.tuples(st.integers(1, 60), st.integers(0, 40)), min_size=1, max_size=4)
POLARS, DUCKDB = lake_engine("polars"), lake_engine("duckdb")


def moments(spanned: list[tuple[str, int, int]], start: int, end: int) -> dict[str, int]:
    """Charge every nanosecond by hand."""
    charged = dict.fromkeys(PARTS, 0)
    for moment in range(start, end):
        running = {kind for kind, at, length in spanned if at <= moment < at + length}
        charged[next((kind for kind in KINDS if kind in running), "idle")] += 1
    return {part: length for part, length in charged.items() if length}


# Many cases at once, each on a rank of its own: a plan costs more than its rows.
CASES = st.lists(st.tuples(WORK, STEPS), min_size=1, max_size=12)


def laid_out(cases: list[tuple[Any, Any]], *, is_seen: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
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
    found = broken_down(POLARS, *laid_out(cases, is_seen=True), tuple(cuts))
    sums = found.select(pl.sum_horizontal(f"{part}_ns" for part in PARTS)).to_series()
    assert sums.to_list() == found["duration_ns"].to_list()
    expected = [moments(work, at, at + length) for work, stepping in cases for at, length in sorted(stepping)]
    assert [parts(found, row) for row in range(found.height)] == expected


@given(CASES)
@settings(max_examples=15)
def test_engines_agree_on_whatever_runs(cases: list[tuple[Any, Any]]) -> None:
    spanned, stepped = laid_out(cases, is_seen=False)
    assert broken_down(POLARS, spanned, stepped).equals(broken_down(DUCKDB, spanned[::-1], stepped[::-1]))
