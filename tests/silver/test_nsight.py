from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.silver_rows import kernel, nsys, run, source

if TYPE_CHECKING:
    from tests.support.silver_rows import Row, Silver

API, GPU, LAUNCHES = "cuda_api_trace", "cuda_gpu_trace", "cuda_kern_exec_trace"
CC = run(regime="hopper_spt_cc", cc_mode="on")


def make_call(name: str, start_ns: int, duration_ns: int, tie: int | None = None) -> Row:
    return nsys(API, name, start_ns, duration_ns, correlation_id=tie, thread_id="9")


def make_gpu_work(name: str, start_ns: int | None, duration_ns: int, tie: int | None = None, **fields: Any) -> Row:
    return nsys(GPU, name, start_ns, duration_ns, correlation_id=tie, stream_id=7, device_id=0, **fields)


def make_copy(start_ns: int, tie: int, what: str, memories: tuple[str, str], **fields: Any) -> Row:
    known = {"source_memory": memories[0], "target_memory": memories[1]}
    return make_gpu_work(f"[CUDA memcpy {what}]", start_ns, 5, tie, **known, **fields)


@pytest.mark.given(
    make_call("cudaLaunchKernel_v7000", 0, 40, 1),
    make_gpu_work("gemm", 30, 500, 1),
    make_gpu_work("[CUDA memset]", 600, 3),
)
def test_reports_of_one_recording_meet_though_they_lie_in_two_files(found: Silver) -> None:
    columns = ("name", "kind", "is_gpu", "ts_ns", "duration_ns", "launch_ts_ns", "launch_duration_ns", "is_orphan")
    assert sorted(found.rows("spans", *columns)) == [
        ("Memset (Device)", "memset", True, 601, 3, None, None, True),
        ("cudaLaunchKernel", "launch", False, 1, 40, None, None, False),
        ("gemm", "compute", True, 31, 500, 1, 40, False),
    ]
    assert found.only("steps", "step_source", "ts_ns", "duration_ns", "evidence") == ("inferred", 1, 603, "modelled")
    flagged = found.tables["rule_counts"].filter(effect="flagged", rule="session_clock")
    assert flagged["events_count"].to_list() == [1, 2]


@pytest.mark.given(
    CC,
    *(make_call("cudaMemcpy", at, 9, at) for at in (10, 30, 50, 70)),
    make_copy(12, 10, "Device-to-Device", ("Managed", "Device"), payload_bytes=400_000, is_payload_rounded=True),
    make_copy(32, 30, "Device-to-Device", ("Device", "Managed"), payload_bytes=0, is_payload_rounded=True),
    make_copy(52, 50, "Host-to-Device", ("Pageable", "Device")),
    make_copy(72, 70, "Device-to-Device", ("Device", "Device")),
)
def test_under_cc_a_pinned_copy_gets_its_direction_back_and_keeps_its_label(found: Silver) -> None:
    columns = ("reported_direction", "direction", "memory", "is_relabelled", "payload_bytes")
    copies = found.tables["spans"].filter(kind="copy").sort("ts_ns").select(columns).rows()
    assert copies == [
        ("on_gpu", "host_to_gpu", "pinned", True, 400_000),
        ("on_gpu", "gpu_to_host", "pinned", True, None),
        ("host_to_gpu", "host_to_gpu", "pageable", False, None),
        ("on_gpu", "on_gpu", None, False, None),
    ]
    assert found.rows("crossings", "boundary", "path", "sealed_by") == [
        ("host_to_gpu", "pinned", "bounce_buffer"),
        ("gpu_to_host", "pinned", "bounce_buffer"),
        ("host_to_gpu", "pageable", "bounce_buffer"),
    ]
    assert found.only("runs", "agreement", "gpu_evidence") == ("agrees", "measured")


@pytest.mark.given(
    run(regime="cc_off", cc_mode="off"),
    make_copy(1, 1, "Host-to-Device", ("Pinned", "Device")),
    make_copy(9, 2, "Device-to-Device", ("Managed", "Device")),
)
def test_without_cc_labels_are_believed(found: Silver) -> None:
    assert found.rows("spans", "direction", "memory", "is_relabelled") == [
        ("host_to_gpu", "pinned", False),
        ("on_gpu", "managed", False),
    ]


@pytest.mark.given(CC, make_call("cudaLaunchKernel", 5, 40, 1), make_call("cudaDeviceSynchronize", 50, 400))
def test_calls_without_gpu_rows_under_cc_are_unobservable_and_not_idle(found: Silver) -> None:
    assert found.only("runs", "gpu_evidence") == ("unobservable",)
    assert found.tables["rule_counts"].filter(rule="no_gpu_rows")["events_count"].to_list() == [1]


@pytest.mark.given(CC, make_call("cudaLaunchKernel", 5, 40, 1), make_gpu_work("gemm", 50, 400, 1))
def test_a_report_of_calls_is_not_blind_where_its_sibling_sees(found: Silver) -> None:
    assert found.tables["rule_counts"].filter(rule="no_gpu_rows").height == 0


@pytest.mark.given(
    nsys(LAUNCHES, "foo", 100, 20, api_name="cudaLaunchKernel", api_start_ns=10, api_duration_ns=40, thread_id="9"),
    nsys(LAUNCHES, "foo", 200, 20, api_name="cudaLaunchKernel", api_start_ns=150, api_duration_ns=5, thread_id="9"),
)
def test_a_launch_with_its_kernel_is_two_events(found: Silver) -> None:
    columns = ("ordinal", "name", "ts_ns", "duration_ns", "launch_duration_ns")
    assert found.rows("spans", *columns) == [
        (0, "cudaLaunchKernel", 11, 40, None),
        (1, "cudaLaunchKernel", 151, 5, None),
        (2, "foo", 101, 20, 40),
        (3, "foo", 201, 20, 5),
    ]
    effects = {
        (effect, rule): count for effect, rule, count in found.rows("rule_counts", "effect", "rule", "events_count")
    }
    assert effects["split", "launch_and_kernel"] == 2
    assert sum(count for (effect, _), count in effects.items() if effect == "kept") == 4


@pytest.mark.given(
    make_call("cudaLaunchKernel", 10, 40, 1),
    make_gpu_work("foo", 100, 20, 1),
    nsys(LAUNCHES, "foo", 100, 20, api_name="cudaLaunchKernel", api_start_ns=10, api_duration_ns=40),
)
def test_a_launch_that_other_reports_tell_is_not_counted_twice(found: Silver) -> None:
    assert found.tables["spans"].height == 2
    assert found.tables["rule_counts"].filter(effect="merged").select("rule", "events_count").rows() == [
        ("seen_elsewhere", 1)
    ]


@pytest.mark.given(kernel("gemm", 1_000_000, 10), make_gpu_work("gemm", 5, 10))
def test_a_rank_that_has_a_trace_is_timed_by_it_alone(found: Silver) -> None:
    assert found.rows("spans", "ts_ns") == [(1_000_000,)]
    assert found.tables["rule_counts"].filter(effect="merged").select("rule", "events_count").rows() == [
        ("second_profile", 1)
    ]


EXPORTED: tuple[tuple[str, str | None, dict[str, Any]], ...] = (
    ("RUNTIME", "cudaMemcpyAsync_v3020", {"correlation_id": 4}),
    ("MEMCPY", None, {"correlation_id": 4, "copy_kind": "Host-to-Device", "source_memory": "Pinned"}),
    ("MEMCPY", None, {"copy_kind": "17", "source_memory": "2"}),
    ("KERNEL", "gemm", {}),
)


@pytest.mark.given(
    source(source_sha256="db", format="nsys_sqlite", file_name="r.sqlite", rank=1, rows_count=6),
    *(
        nsys(f"CUPTI_ACTIVITY_KIND_{kind}", name, 5, 10, ts_ns=1_000 + at, source_sha256="db", **fields)
        for at, (kind, name, fields) in enumerate(EXPORTED)
    ),
    nsys("NVTX_EVENTS", "my phase", 5, 10, ts_ns=1_010, source_sha256="db"),
    nsys("NVTX_EVENTS", "my mark", 5, None, ts_ns=1_011, source_sha256="db"),
)
def test_an_export_with_a_clock_is_in_utc_and_numbers_without_a_name_are_no_direction(found: Silver) -> None:
    columns = ("name", "ts_ns", "kind", "direction", "memory", "launch_ts_ns")
    assert found.rows("spans", *columns) == [
        ("cudaMemcpyAsync", 1_000, "launch", None, None, None),
        ("Memcpy HtoD (Pinned -> Unknown)", 1_001, "copy", "host_to_gpu", "pinned", 1_000),
        ("Memcpy Unknown (2 -> Unknown)", 1_002, "copy", None, None, None),
        ("gemm", 1_003, "compute", None, None, None),
        (None, 1_010, "annotation", None, None, None),
    ]
    assert found.tables["rule_counts"].filter(effect="merged").select("rule", "events_count").rows() == [("mark", 1)]
    assert found.tables["rule_counts"].filter(rule="session_clock").height == 0


@pytest.mark.given(
    make_gpu_work("gemm", 5, -1),
    make_gpu_work("gemm", None, 4),
    make_gpu_work("gemm", 1 << 62, 4),
    make_gpu_work("gemm", -9, 4),
)
def test_rows_that_are_no_intervals_are_rejected_with_their_place(found: Silver) -> None:
    assert found.rows("rejects", "ordinal", "rule") == [
        (0, "negative_duration"),
        (1, "no_time"),
        (2, "no_time"),
        (3, "zero_timestamp"),
    ]
