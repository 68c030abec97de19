from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gold import exposure, step_work, work_changes
from lake.engines import engine as lake_engine
from silver import spans, steps
from tests.support.silver_rows import rows_of

if TYPE_CHECKING:
    Rows = list[dict[str, Any]]


def work(name: str, total_ns: int, count: float = 1.0, **fields: Any) -> dict[str, Any]:
    return {"kind": "compute", "name": name, "detail": "", "step_count": count, "step_total_ns": total_ns, **fields}


def repeat(name: str, *totals: int) -> list[Rows]:
    return [[work(name, total)] for total in totals]


def change_of(candidates: list[Rows], baselines: list[Rows]) -> dict[str, str]:
    return {row["name"]: row["change"] for row in work_changes.measure(candidates, baselines)}


def test_work_that_only_one_side_does_is_new_or_gone_even_with_one_run_per_side() -> None:
    found = work_changes.measure([[work("fused", 70)]], [[work("mul", 40), work("add", 50)]])
    assert [(row["name"], row["change"], row["overhead_ns"]) for row in found] == [
        ("fused", "new", 70),
        ("add", "gone", -50),
        ("mul", "gone", -40),
    ]


def test_a_kernel_is_slower_only_where_three_runs_per_side_show_it() -> None:
    slow, fast = (1200, 1210, 1190), (1000, 1004, 998)
    assert change_of(repeat("gemm", *slow), repeat("gemm", *fast)) == {"gemm": "slower"}
    assert change_of(repeat("gemm", *fast), repeat("gemm", *slow)) == {"gemm": "faster"}
    (row,) = work_changes.measure(repeat("gemm", *slow[:2]), repeat("gemm", *fast[:2]))
    assert row["change"] == "inconclusive"
    assert "a conclusion needs 3 runs per side" in row["reason"]


def test_a_copy_of_a_recording_is_no_repeat() -> None:
    (row,) = work_changes.measure(repeat("gemm", 1200, 1200, 1200), repeat("gemm", 1000, 1004, 998))
    assert (row["runs_count"], row["change"]) == (1, "inconclusive")


def test_of_a_hundred_kernels_that_did_not_change_hardly_one_is_called_changed() -> None:
    draw = np.random.default_rng(25)
    called = 0
    for _ in range(40):
        sides = [
            [[work(f"k{place}", int(1e6 * draw.lognormal(0, 0.05))) for place in range(100)] for _ in range(3)]
            for _ in range(2)
        ]
        called += any(change in {"slower", "faster"} for change in change_of(*sides).values())
    assert called <= 4, "a pair with a false discovery is one in twenty"


def test_work_that_takes_no_time_has_no_ratio_and_a_reason() -> None:
    (row,) = work_changes.measure(repeat("mark", 0), repeat("mark", 10))
    assert (row["change"], row["slowdown_ratio"]) == ("inconclusive", None)
    assert row["reason"] == "work that takes no time has no ratio"


@pytest.mark.parametrize("name", ["polars", "duckdb"])
def test_kernels_are_counted_per_rank_and_step_by_the_step_that_launched_them(name: str) -> None:
    engine = lake_engine(name)

    def span(place: int, **fields: Any) -> dict[str, Any]:
        known = {"run_id": "r", "rank": 0, "ordinal": place, "is_gpu": True, "kind": "compute", "name": "gemm"}
        return {**known, "duration_ns": 100, "step_number": 9, **fields}

    rows = [
        span(0, launch_step_number=1),
        span(1, launch_step_number=2, duration_ns=301),
        span(2, launch_step_number=0),  # warm-up
        span(3, step_number=None),
        span(4, launch_step_number=1, kind="copy", name="Memcpy"),
        span(5, launch_step_number=1, is_gpu=False),
    ]
    stepped = [{"run_id": "r", "rank": 0, "step_number": number, "is_warmup": number == 0} for number in range(3)]
    frames = engine.wrap(rows_of(spans.TABLE, rows)), engine.wrap(rows_of(steps.TABLE, stepped))
    assert engine.rows(step_work.measure_kernels(*frames)).to_pylist() == [
        {"kind": "compute", "name": "gemm", "detail": "", "step_count": 1.0, "step_total_ns": 200}
    ]


def test_collectives_tell_what_compute_did_not_hide() -> None:
    def one(number: int, **fields: Any) -> dict[str, Any]:
        known = {"rank": 0, "step_number": 1, "is_warmup": False, "path": "hook", "collective": "all_reduce"}
        times = {"start_ns": 0, "end_ns": 100, "hidden_ns": 30, "buffer_bytes": 8, "collective_number": number}
        return {**dict.fromkeys(exposure.TABLE.column_names), **known, **times, **fields}

    (found,) = step_work.sum_collectives([one(1), one(2), one(1, step_number=2), one(1, step_number=0, is_warmup=True)])
    assert (found["step_count"], found["step_total_ns"], found["step_exposed_ns"], found["step_bytes"]) == (
        *(1.5, 150, 105),
        12,
    )
    (blind,) = step_work.sum_collectives([one(1, hidden_ns=None)])
    assert blind["step_exposed_ns"] is None


def test_set_up_is_no_work_of_a_step() -> None:
    known = {"name": "cudaMalloc", "direction": "none", "memory": "none", "size_class": "none", "step_total_ns": 5}
    rows = [{**known, "operation": operation} for operation in ("call", "first_call")]
    assert [row["kind"] for row in step_work.list_operations(rows)] == ["call"]
