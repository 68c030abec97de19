from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.silver_rows import all_reduce, copy, event, kernel, note, run, source

if TYPE_CHECKING:
    from tests.support.silver_rows import Silver

COUNT = ("source_sha256", "rank", "effect", "rule", "events_count")


@pytest.mark.given(
    event("aten::mm", "cpu_op", 1000, 10),
    event("aten::mm", "cpu_op", 1000, 10),
    event("aten::mm", "cpu_op", 1000, 10),
    event("aten::mm", "cpu_op", 2000, 10),
    event("arrow", "ac2g", 1000, None, phase="s"),
    event("process_name", None, 0, None, phase="M"),
    event("bad", "cpu_op", 1000, -1),
    event("aten::mm", "cpu_op", 1000, 10, rank=1),
)
def test_what_landed_is_kept_merged_or_rejected_by_source(found: Silver) -> None:
    assert found.rows("rule_counts", *COUNT, "sentence") == [
        ("source-0", 0, "kept", "operator", 2, "Kept as host by the pattern operator."),
        (
            *("source-0", 0, "merged", "duplicate", 2),
            "An event with the name, place, time, ids and size of another of its source is the same.",
        ),
        (
            *("source-0", 0, "merged", "flow_arrow", 1),
            "A flow arrow is carried by the correlation of the two spans that it joins.",
        ),
        (
            *("source-0", 0, "merged", "metadata", 1),
            "A metadata event names a process or a thread and is no interval.",
        ),
        (
            *("source-0", 0, "rejected", "negative_duration", 1),
            "A negative duration is a clock fault; CUDA events have them under CC (R2).",
        ),
        ("source-1", 1, "kept", "operator", 1, "Kept as host by the pattern operator."),
    ]


@pytest.mark.given(
    run(cc_mode="on"),
    event("aten::mm", "cpu_op", 1000, 10),
    kernel("gemm", 1000, 10, rank=1),
    kernel("bad", 1000, -10, rank=2),
    source(rank=3, source_sha256="nothing in it"),
    source(rank=None, source_sha256="refused", outcome="rejected", reason="x"),
)
def test_a_source_without_gpu_rows_is_flagged_where_cc_is_on(found: Silver) -> None:
    flagged = [row for row in found.rows("rule_counts", *COUNT) if row[3] == "no_gpu_rows"]
    assert flagged == [
        ("nothing in it", 3, "flagged", "no_gpu_rows", 1),
        ("source-0", 0, "flagged", "no_gpu_rows", 1),
        ("source-2", 2, "flagged", "no_gpu_rows", 1),
    ]


@pytest.mark.given(run(cc_mode="off"), event("aten::mm", "cpu_op", 1000, 10))
def test_a_source_without_gpu_rows_is_nothing_special_where_cc_is_off(found: Silver) -> None:
    assert found.rows("rule_counts", "effect", "rule") == [("kept", "operator")]


@pytest.mark.given(
    run(cc_mode="devtools"),
    event("aten::mm", "cpu_op", 1000, 10),
    event("bad", "cpu_op", 1000, -10),
    source(rank=1, source_sha256="nothing in it"),
    source(rank=0, source_sha256="source-0"),
)
def test_all_that_devtools_recorded_is_flagged(found: Silver) -> None:
    flagged = [row for row in found.rows("rule_counts", *COUNT) if row[2] == "flagged"]
    assert flagged == [("source-0", 0, "flagged", "devtools", 2)]


@pytest.mark.given(
    event("aten::mm", "cpu_op", 1000, 10, source_sha256="a"),
    event("aten::mm", "cpu_op", 1000, 10, source_sha256="a"),
    event("aten::mm", "cpu_op", 1000, 10, source_sha256="b"),
)
def test_the_same_event_in_two_sources_is_two(found: Silver) -> None:
    assert found.rows("rule_counts", "source_sha256", "effect", "rule", "events_count") == [
        ("a", "kept", "operator", 1),
        ("a", "merged", "duplicate", 1),
        ("b", "kept", "operator", 1),
    ]


@pytest.mark.given(
    source(file_name="a.json", source_sha256="source-0"),
    source(file_name="b.json", source_sha256="source-0", outcome="merged", reason="copy", events_count=0),
    event("aten::mm", "cpu_op", 1000, 10),
)
def test_a_copy_of_a_file_counts_nothing_twice(found: Silver) -> None:
    assert found.rows("rule_counts", *COUNT) == [("source-0", 0, "kept", "operator", 1)]
    assert len(found.rows("spans", "ordinal")) == 1


@pytest.mark.given(note("mine", 1000, 10), all_reduce(1000, 10), copy("Memcpy HtoD (Pinned -> Device)", 1000, 10))
def test_what_is_kept_is_counted_by_the_pattern_that_knew_it(found: Silver) -> None:
    kept = [row for row in found.rows("rule_counts", "effect", "rule", "events_count", "sentence") if row[0] == "kept"]
    assert kept == [
        ("kept", "memcpy", 1, "Kept as copy by the pattern memcpy."),
        ("kept", "nccl_kernel", 1, "Kept as collective by the pattern nccl_kernel."),
        ("kept", "own_annotation", 1, "Kept as annotation by the pattern own_annotation."),
    ]
