from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any

import narwhals as nw
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import kernel_breakdown
from gold.percentiles import PERCENTILES, find_percentiles
from lake.frames import divide_down
from tests.support.gold_rows import measure_rows

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

# A total of which floating point keeps too few digits: its quotient rounds up to 2^50.
BEYOND_FLOATS = (1 << 50, 1000, -1)
durations = st.lists(st.integers(0, 50) | st.integers(0, 1 << 53), min_size=1, max_size=60)


def work(name: str | None, duration_ns: int, **fields: Any) -> dict[str, Any]:
    return {"is_gpu": True, "kind": "compute", "name": name, "duration_ns": duration_ns, **fields}


def nearest_rank(values: list[int], percent: int) -> int:
    """The textbook's definition."""
    return sorted(values)[ceil(percent * len(values) / 100) - 1]


def test_a_kernel_is_counted_and_summed_over_ranks(engine: Bench) -> None:
    found = measure_rows(
        engine, kernel_breakdown, spans=[work("gemm", 10), work("gemm", 31, rank=1), work("relu", 41, rank=1)]
    )
    assert found.select("name", "kernels_count", "ranks_count", "total_ns", "mean_ns", "share_fraction").rows() == [
        ("gemm", 2, 2, 41, 20, 0.5),
        ("relu", 1, 1, 41, 41, 0.5),
    ]


def test_percentiles_are_durations_that_occurred(engine: Bench) -> None:
    found = measure_rows(engine, kernel_breakdown, spans=[work("gemm", 7 * place) for place in range(1, 101)])
    assert found.select("p50_ns", "p95_ns", "p99_ns").rows() == [(350, 665, 693)]


def test_the_same_name_of_two_kinds_is_two_rows(engine: Bench) -> None:
    found = measure_rows(engine, kernel_breakdown, spans=[work("x", 1), work("x", 2, kind="copy")])
    assert found.select("kind", "name", "total_ns").rows() == [("compute", "x", 1), ("copy", "x", 2)]


def test_what_ran_on_the_host_is_left_out(engine: Bench) -> None:
    rows = [work("gemm", 10), work("aten::mm", 90, is_gpu=False, kind="host")]
    assert measure_rows(engine, kernel_breakdown, spans=rows).select("name", "share_fraction").rows() == [("gemm", 1.0)]


def test_work_without_a_name_has_an_empty_one(engine: Bench) -> None:
    assert measure_rows(engine, kernel_breakdown, spans=[work(None, 10)]).select("name").rows() == [("",)]


def test_a_run_whose_gpu_was_not_seen_has_no_rows(engine: Bench) -> None:
    assert measure_rows(engine, kernel_breakdown, spans=[work("aten::mm", 90, is_gpu=False)]).rows() == []


def test_no_time_at_all_has_no_shares(engine: Bench) -> None:
    found = measure_rows(engine, kernel_breakdown, spans=[work("gemm", 0)])
    assert found.select("total_ns", "share_fraction", "evidence", "reason").rows() == [
        (0, None, "measured", "all GPU work of the run lasted no time at all")
    ]


def test_shares_are_of_the_run_that_the_work_is_in(engine: Bench) -> None:
    found = measure_rows(engine, kernel_breakdown, spans=[work("gemm", 10), work("gemm", 30, run_id="run-2")])
    assert found.select("run_id", "share_fraction").rows() == [("run-1", 1.0), ("run-2", 1.0)]


@given(st.lists(durations, min_size=1, max_size=20))
@settings(max_examples=5)
def test_percentiles_are_the_nearest_ranks_of_each_group(engine: Bench, groups: list[list[int]]) -> None:
    rows = [{"group": place, "value_ns": value} for place, values in enumerate(groups) for value in values]
    frame = find_percentiles(engine.wrap(pa.Table.from_pylist(rows)), ["group"], "value_ns", "x_")
    found = {row.pop("group"): row for row in engine.rows(frame).to_pylist()}
    assert found == {
        place: {f"x_p{percent}_ns": nearest_rank(values, percent) for percent in PERCENTILES}
        for place, values in enumerate(groups)
    }


def test_nulls_are_no_values(engine: Bench) -> None:
    rows = pa.table({"group": pa.array([0, 0, 0, 1]), "value_ns": pa.array([None, 4, None, None], pa.int64())})
    found = engine.rows(find_percentiles(engine.wrap(rows), ["group"], "value_ns")).to_pylist()
    assert found == [{"group": 0, "p50_ns": 4, "p95_ns": 4, "p99_ns": 4}]


@given(st.lists(st.tuples(st.integers(0, 1 << 53), st.integers(1, 1000), st.integers(-1, 1)), min_size=1, max_size=50))
@settings(max_examples=5)
def test_a_floored_mean_is_exact_beyond_what_floats_hold(engine: Bench, parts: list[tuple[int, int, int]]) -> None:
    pairs = [(max(mean * count + beside, 0), count) for mean, count, beside in [*parts, BEYOND_FLOATS]]
    rows = pa.table({"total": [total for total, _ in pairs], "count": [count for _, count in pairs]})
    frame = engine.wrap(rows).select("total", "count", mean=divide_down(nw.col("total"), nw.col("count")))
    found = engine.rows(frame).to_pylist()
    assert {(row["total"], row["count"], row["mean"]) for row in found} == {(t, c, t // c) for t, c in pairs}
