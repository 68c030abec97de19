from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.silver_rows import call, event, kernel, note

if TYPE_CHECKING:
    from tests.support.silver_rows import Silver

LAUNCH = ("ordinal", "launch_ts_ns", "launch_duration_ns", "is_orphan", "is_before_launch")


@pytest.mark.given(
    call("cudaLaunchKernel", 1000, 7, correlation_id=1),
    kernel("launched", 1100, 10, correlation_id=1),
    kernel("without a call", 1100, 10, correlation_id=2),
    kernel("without an id", 1100, 10),
    kernel("of another rank", 1100, 10, correlation_id=1, rank=1),
    kernel("of another source", 1100, 10, correlation_id=1, source_sha256="another"),
)
def test_gpu_work_without_a_recorded_launch_is_an_orphan(found: Silver) -> None:
    assert found.rows("spans", "source_sha256", *LAUNCH) == [
        ("another", 0, None, None, True, False),
        ("source-0", 0, None, None, False, False),
        ("source-0", 1, 1000, 7, False, False),
        ("source-0", 2, None, None, True, False),
        ("source-0", 3, None, None, True, False),
        ("source-1", 0, None, None, True, False),
    ]


@pytest.mark.given(
    call("cudaLaunchKernel", 1000, 7, correlation_id=1),
    kernel("earlier", 999, 10, correlation_id=1),
    kernel("at once", 1000, 10, correlation_id=1),
)
def test_gpu_work_that_starts_before_its_launch_keeps_its_time_and_is_flagged(found: Silver) -> None:
    assert found.rows("spans", "ts_ns", *LAUNCH) == [
        (1000, 0, None, None, False, False),
        (999, 1, 1000, 7, False, True),
        (1000, 2, 1000, 7, False, False),
    ]


@pytest.mark.given(
    call("cudaLaunchKernel", 1050, 5, correlation_id=1),
    event("cuLaunchKernel", "cuda_driver", 1000, 7, correlation_id=1),
    call("cudaStreamIsCapturing", 1000, 9, correlation_id=1),
    event("aten::mm", "cpu_op", 900, 500, correlation_id=1),
    kernel("gemm", 1100, 10, correlation_id=1),
)
def test_the_earliest_call_of_a_correlation_is_the_launch_and_the_first_of_those(found: Silver) -> None:
    assert found.by("spans", "name", "launch_ts_ns", "launch_duration_ns")["gemm"] == (1000, 7)


@pytest.mark.given(
    call("cudaGraphLaunch", 1000, 7, correlation_id=1),
    kernel("a", 1100, 10, correlation_id=1),
    kernel("b", 1110, 10, correlation_id=1),
    event("c", "gpu_memcpy", 1120, 10, correlation_id=1),
)
def test_one_call_may_launch_much(found: Silver) -> None:
    assert found.rows("spans", "launch_ts_ns", "is_orphan") == [
        (None, False),
        (1000, False),
        (1000, False),
        (1000, False),
    ]


@pytest.mark.given(
    note("ProfilerStep#1", 1000, 100),
    note("ProfilerStep#2", 1100, 100),
    call("cudaLaunchKernel", 1090, 5, correlation_id=1),
    kernel("late", 1150, 10, correlation_id=1),
    kernel("after all", 1250, 10, correlation_id=1),
    kernel("orphan", 1150, 10),
)
def test_the_step_of_the_launch_stands_beside_the_step_of_the_work(found: Silver) -> None:
    assert found.rows("spans", "step_number", "launch_step_number")[3:] == [(2, 1), (None, 1), (2, None)]
