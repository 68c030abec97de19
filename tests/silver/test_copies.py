"""Copies under CC, where the driver hides what they are (R1), and the calls that wait for them (R5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.silver_rows import call, copy, event, kernel, run

if TYPE_CHECKING:
    from tests.support.silver_rows import Row, Silver

DIRECTION = ("direction", "reported_direction", "memory", "is_relabelled")
UP = "Memcpy DtoD (Managed -> Device)"
DOWN = "Memcpy DtoD (Device -> Managed)"
BOTH = "Memcpy DtoD (Managed -> Managed)"


@pytest.mark.given(
    *(
        copy(name, 1000 + place, 10)
        for place, name in enumerate(
            [
                "Memcpy HtoD (Pinned -> Device)",
                "Memcpy HtoD (Pageable -> Device)",
                "Memcpy DtoH (Device -> Pinned)",
                "Memcpy DtoH (Device -> Pageable)",
                "Memcpy DtoD (Device -> Device)",
                "Memcpy PtoP (Device -> Device)",
                "Memcpy HtoH (Pageable -> Pageable)",
                UP,
                "CopyHostToDevice",
            ]
        )
    ),
    kernel("Memcpy HtoD (Pinned -> Device)", 2000, 10),
    kernel("my HtoD kernel", 2001, 10),
    event("Memcpy HtoD (Pinned -> Device)", "cpu_op", 2002, 10),
)
def test_where_a_copy_went_and_by_which_memory_is_read_from_its_name(found: Silver) -> None:
    assert found.rows("spans", *DIRECTION) == [
        ("host_to_gpu", "host_to_gpu", "pinned", False),
        ("host_to_gpu", "host_to_gpu", "pageable", False),
        ("gpu_to_host", "gpu_to_host", "pinned", False),
        ("gpu_to_host", "gpu_to_host", "pageable", False),
        ("on_gpu", "on_gpu", None, False),
        ("gpu_to_gpu", "gpu_to_gpu", None, False),
        ("on_host", "on_host", "pageable", False),
        ("on_gpu", "on_gpu", "managed", False),
        (None, None, None, False),
        ("host_to_gpu", "host_to_gpu", "pinned", False),
        (None, None, None, False),
        (None, None, None, False),
    ]


HIDDEN: list[Row] = [
    copy(UP, 1000, 10),
    copy(DOWN, 1001, 10),
    # Both sides say Managed: only the driver's call knows.
    event("cuMemcpyHtoDAsync_v2", "cuda_driver", 900, 10, correlation_id=1),
    copy(BOTH, 1002, 10, correlation_id=1),
    event("cuMemcpyDtoHAsync_v2", "cuda_driver", 901, 10, correlation_id=2),
    copy(BOTH, 1003, 10, correlation_id=2),
    # A runtime call does not say; a driver call that says Device-to-Device is believed.
    call("cudaMemcpyAsync", 902, 10, correlation_id=3),
    copy(BOTH, 1004, 10, correlation_id=3),
    event("cuMemcpyDtoDAsync_v2", "cuda_driver", 903, 10, correlation_id=4),
    copy(UP, 1004, 10, correlation_id=4),
    copy("Memcpy DtoD (Device -> Device)", 1005, 10),
    copy("Memcpy HtoD (Pageable -> Device)", 1006, 10),
    copy("Memcpy HtoD (Managed -> Device)", 1007, 10),
]
TAKEN_BACK = [
    ("host_to_gpu", "on_gpu", "pinned", True),
    ("gpu_to_host", "on_gpu", "pinned", True),
    ("host_to_gpu", "on_gpu", "pinned", True),
    ("gpu_to_host", "on_gpu", "pinned", True),
    (None, "on_gpu", "managed", False),
    ("on_gpu", "on_gpu", "managed", False),
    ("on_gpu", "on_gpu", None, False),
    ("host_to_gpu", "host_to_gpu", "pageable", False),
    ("host_to_gpu", "host_to_gpu", "managed", False),
]
AS_REPORTED = [
    *[("on_gpu", "on_gpu", "managed", False)] * 6,
    ("on_gpu", "on_gpu", None, False),
    ("host_to_gpu", "host_to_gpu", "pageable", False),
    ("host_to_gpu", "host_to_gpu", "managed", False),
]


def _copies(found: Silver) -> list[tuple[object, ...]]:
    return [row[1:] for row in found.rows("spans", "is_gpu", *DIRECTION) if row[0]]


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(claim, id=name, marks=pytest.mark.given(run(**claim), *HIDDEN))
        for name, claim in {
            "mode on": {"cc_mode": "on"},
            "mode devtools": {"cc_mode": "devtools"},
            "mode on and a regime without bounce buffers": {"cc_mode": "on", "regime": "tee_io_tdisp"},
            "regime hopper_spt_cc": {"regime": "hopper_spt_cc"},
            "regime hopper_ppcie": {"regime": "hopper_ppcie"},
            "regime blackwell_mpt_nvle": {"regime": "blackwell_mpt_nvle"},
        }.items()
    ],
)
def test_under_cc_a_copy_gets_back_what_managed_hides_and_keeps_what_was_reported(
    found: Silver, claim: dict[str, str]
) -> None:
    assert _copies(found) == TAKEN_BACK
    flagged = dict(found.rows("rule_counts", "rule", "events_count"))
    assert (flagged["relabelled_copy"], flagged["hidden_copy"]) == (4, 1)


@pytest.mark.parametrize(
    "claim",
    [
        pytest.param(claim, id=name, marks=pytest.mark.given(run(**claim), *HIDDEN))
        for name, claim in {
            "nothing claimed": {},
            "regime cc_off": {"regime": "cc_off"},
            "mode off": {"cc_mode": "off"},
            "mode off under a regime that bounces": {"cc_mode": "off", "regime": "hopper_spt_cc"},
            "regime without bounce buffers": {"regime": "tee_io_tdisp"},
            "regime sealed in software": {"regime": "sw_per_hop_aesgcm"},
        }.items()
    ],
)
def test_without_cc_a_copy_is_what_it_says(found: Silver, claim: dict[str, str]) -> None:
    assert _copies(found) == AS_REPORTED


QUEUEING: list[Row] = [
    call("cudaMemcpyAsync", 1000, 10),
    event("cuMemcpyHtoDAsync_v2", "cuda_driver", 1001, 10),
    call("cudaMemcpy", 1002, 10),
    call("cudaLaunchKernel", 1003, 10),
    copy("Memcpy HtoD (Pinned -> Device)", 1004, 10),
]


@pytest.mark.given(run(cc_mode="on"), *QUEUEING)
def test_under_cc_an_asynchronous_copy_call_holds_queued_work(found: Silver) -> None:
    assert found.rows("spans", "has_queued_work") == [(True,), (True,), (False,), (False,), (False,)]
    assert ("queued_work", 2) in found.rows("rule_counts", "rule", "events_count")


@pytest.mark.given(run(cc_mode="off"), *QUEUEING)
def test_without_cc_a_copy_call_holds_no_queued_work(found: Silver) -> None:
    assert found.rows("spans", "has_queued_work") == [(False,)] * 5


# -- calls that wait for their copy -----------------------------------------------------------------------

PAGEABLE_DOWN, PINNED_UP = "Memcpy DtoH (Device -> Pageable)", "Memcpy HtoD (Pinned -> Device)"
PAGEABLE_UP = "Memcpy HtoD (Pageable -> Device)"


def _make_copy(name: str, copied: str | None, at: int, call_ns: int, copy_at: int, copy_ns: int) -> list[Row]:
    """A call and the copy that it started."""
    started = [copy(copied, copy_at, copy_ns, correlation_id=at)] if copied else []
    return [call(name, at, call_ns, correlation_id=at), *started]


@pytest.mark.given(
    *_make_copy("cudaMemcpyAsync", PAGEABLE_DOWN, 1000, 100, 1090, 5),
    *_make_copy("cudaMemcpyAsync", PAGEABLE_DOWN, 2000, 95, 2090, 5),
    *_make_copy("cudaMemcpyAsync", PINNED_UP, 3000, 94, 3090, 5),
    # The host stages pageable memory: half of the copy or less is the tail of a call that returned.
    *_make_copy("cudaMemcpyAsync", PAGEABLE_UP, 4000, 60, 4010, 90),
    *_make_copy("cudaMemcpyAsync", PAGEABLE_UP, 5000, 55, 5010, 90),
    *_make_copy("cudaMemcpyAsync", "Memcpy DtoD (Device -> Device)", 6000, 100, 6010, 5),
    *_make_copy("cudaMemcpy", PAGEABLE_UP, 7000, 10, 7090, 5),
    *_make_copy("cudaMemcpy", None, 8000, 10, 0, 0),
    *_make_copy("cudaMemcpyAsync", None, 9000, 10, 0, 0),
    *_make_copy("cudaLaunchKernel", None, 9500, 10, 0, 0),
)
def test_a_call_blocks_where_it_lasted_until_its_copy_was_done_whatever_its_name(found: Silver) -> None:
    rows = found.rows("spans", "ts_ns", "category", "kind")
    assert [(ts_ns, kind) for ts_ns, category, kind in rows if category == "cuda_runtime"] == [
        (1000, "blocking_copy"),
        (2000, "blocking_copy"),
        (3000, "launch"),
        (4000, "blocking_copy"),
        (5000, "launch"),
        (6000, "launch"),
        (7000, "launch"),
        (8000, "blocking_copy"),
        (9000, "launch"),
        (9500, "launch"),
    ]


@pytest.mark.given(
    run(cc_mode="on", regime="hopper_spt_cc"),
    *_make_copy("cudaMemcpyAsync", None, 1000, 10, 0, 0),
    *_make_copy("cudaMemsetAsync", None, 2000, 10, 0, 0),
    *_make_copy("cudaMemcpyAsync", DOWN, 3000, 10, 3090, 5),
)
def test_under_cc_a_copy_whose_end_nobody_saw_is_taken_to_block(found: Silver) -> None:
    rows = found.rows("spans", "ts_ns", "category", "kind")
    assert [(ts_ns, kind) for ts_ns, category, kind in rows if category == "cuda_runtime"] == [
        (1000, "blocking_copy"),
        (2000, "launch"),
        (3000, "launch"),
    ]
