from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.silver_rows import all_reduce, call, event, in_turn, kernel, note, run

if TYPE_CHECKING:
    from tests.support.silver_rows import Row, Silver

WHAT = ("ordinal", "library", "collective", "mention")
UNSEEN = "no GPU rows: the call was seen, not the transfer"
UNSIZED = "the trace does not give its size"


def _call(collective: str, ts_ns: int, **fields: Any) -> Row:
    """The host's record of a collective, with its arguments."""
    known = {"dtype": "Float", "in_elements_count": 1000, "group_size": 2}
    return event("record_param_comms", "cpu_op", ts_ns, 5, collective_name=collective, **{**known, **fields})


@pytest.mark.given(
    note("nccl:all_reduce", 1000, 50),
    _call("allreduce", 1010),
    call("cudaLaunchKernel", 1020, 5, correlation_id=1),
    event("nccl:all_reduce", "gpu_user_annotation", 1100, 40),
    all_reduce(1100, 40, correlation_id=1),
)
def test_a_collective_that_is_mentioned_four_times_is_one(found: Silver) -> None:
    assert found.rows("collectives", *WHAT, "ts_ns", "duration_ns", "buffer_bytes", "evidence", "reason") == [
        (4, "nccl", "all_reduce", "kernel", 1100, 40, 4000, "measured", None)
    ]


@pytest.mark.given(
    all_reduce(1000, 40),
    _call("wait", 1010),
    kernel("ncclDevKernel_Generic", 1100, 40, collective_name="wait", group_size=2),
    note("nccl:coalesced", 1200, 40),
    _call("wait", 1000, rank=1),
    _call("init", 1010, rank=1),
    _call("allreduce", 1020, rank=1),
)
def test_a_wait_is_no_collective(found: Silver) -> None:
    assert found.rows("collectives", "rank", "collective", "ordinal") == [
        (0, "all_reduce", 0),
        (0, "other", 2),
        (1, "all_reduce", 2),
    ]


def _make_collective(collective: str, **fields: Any) -> Row:
    return kernel(f"ncclDevKernel_{collective}", 1000, 10, collective_name=collective, **{"group_size": 4, **fields})


@pytest.mark.given(
    *in_turn(
        _make_collective("allreduce", dtype="Float", in_elements_count=100, out_elements_count=100),
        _make_collective("allreduce", dtype="BFloat16", in_elements_count=100, out_elements_count=100),
        _make_collective("_allgather_base", dtype="Half", in_elements_count=100, out_elements_count=400),
        _make_collective("_reduce_scatter_base", dtype="Double", in_elements_count=400, out_elements_count=100),
        _make_collective("all_gather", dtype="Float8_e4m3fn", in_elements_count=100),
        _make_collective("broadcast", dtype="Long", out_elements_count=100),
        _make_collective("alltoall_base", dtype="ComplexDouble", in_elements_count=100),
        _make_collective("allreduce", dtype="Quaternion", in_elements_count=100),
        _make_collective("allreduce", in_elements_count=100),
        _make_collective("allreduce", dtype="Float"),
        _make_collective("barrier", dtype="Byte"),
    ),
)
def test_the_buffer_is_the_whole_of_what_is_reduced_or_gathered(found: Silver) -> None:
    assert found.rows("collectives", "ordinal", "collective", "buffer_bytes", "reason") == [
        (0, "all_reduce", 400, None),
        (1, "all_reduce", 200, None),
        (2, "all_gather", 800, None),
        (3, "reduce_scatter", 3200, None),
        (4, "all_gather", 100, None),
        (5, "broadcast", 800, None),
        (6, "all_to_all", 1600, None),
        (7, "all_reduce", None, UNSIZED),
        (8, "all_reduce", None, UNSIZED),
        (9, "all_reduce", None, UNSIZED),
        (10, "barrier", None, None),
    ]


@pytest.mark.given(
    run(world_size=16, found_world_size=8),
    *in_turn(
        _make_collective("allreduce", dtype="Byte", in_elements_count=1 << 40, group_size=1 << 17),
        _make_collective("allreduce", dtype="Byte", in_elements_count=(1 << 40) + 1, group_size=(1 << 17) + 1),
        _make_collective("allreduce", dtype="Byte", in_elements_count=(1 << 63) - 1, group_size=(1 << 63) - 1),
        _make_collective("allreduce", dtype="Byte", in_elements_count=-1, group_size=-1),
        _make_collective("allreduce", dtype="Byte", in_elements_count=0, group_size=0),
        _make_collective("allreduce", dtype="Byte", in_elements_count=5, group_size=None),
    ),
)
def test_sizes_that_cannot_be_are_taken_for_none(found: Silver) -> None:
    assert found.rows("collectives", "ordinal", "buffer_bytes", "group_size") == [
        (0, 1 << 40, 1 << 17),
        (1, None, None),
        (2, None, None),
        (3, None, None),
        (4, 0, None),
        (5, 5, 8),
    ]


@pytest.mark.given(
    run(world_size=16), _make_collective("allreduce", dtype="Byte", in_elements_count=5, group_size=None)
)
def test_the_group_is_the_claimed_job_where_no_trace_tells_its_size(found: Silver) -> None:
    assert found.only("collectives", "group_size") == (16,)


# -- hooks and gloo ----------------------------------------------------------------------------------------


@pytest.mark.given(
    run(found_world_size=2),
    note("tee::all_reduce#4096", 1000, 100),
    note("gloo:send", 1010, 10),
    _call("send", 1005),
    note("gloo:all_reduce", 1050, 10, thread_id="2"),
    note("gloo:broadcast", 1100, 10),
    note("gloo:barrier", 999, 1),
)
def test_calls_inside_a_hook_are_the_hook(found: Silver) -> None:
    assert found.rows("collectives", *WHAT, "duration_ns", "buffer_bytes", "group_size", "evidence") == [
        (0, "hook", "all_reduce", "hook", 100, 4096, 2, "measured"),
        (3, "gloo", "all_reduce", "annotation", 10, None, 2, "measured"),
        (4, "gloo", "broadcast", "annotation", 10, None, 2, "measured"),
        (5, "gloo", "barrier", "annotation", 1, None, 2, "measured"),
    ]


@pytest.mark.given(
    note("tee::all_reduce#64", 1000, 100, thread_id="7"),
    all_reduce(1010, 10, thread_id="7"),
    note("gloo:all_reduce", 1010, 10, thread_id="7"),
)
def test_a_stream_with_the_number_of_a_thread_is_not_inside_its_hook(found: Silver) -> None:
    assert found.rows("collectives", "ordinal", "mention") == [(0, "hook"), (1, "kernel")]


@pytest.mark.given(
    note("tee::all_gather#0", 1000, 10),
    note("tee::reduce_scatter#9999999999999", 1100, 10),
    note("tee::all_reduce#99999999999999", 1200, 10),
    note("tee::something_else#12", 1300, 10),
)
def test_the_bytes_of_a_hook_are_in_its_name(found: Silver) -> None:
    assert found.rows("collectives", "ordinal", "collective", "buffer_bytes") == [
        (0, "all_gather", 0),
        (1, "reduce_scatter", 9_999_999_999_999),
    ]


@pytest.mark.given(
    note("gloo:all_reduce", 1000, 10),
    _call("allreduce", 1000),
    note("nccl:all_reduce", 1000, 10),
    event("gloo:all_reduce", "gpu_user_annotation", 1000, 10),
)
def test_a_rank_of_gloo_shows_its_collectives_by_gloo(found: Silver) -> None:
    assert found.rows("collectives", *WHAT) == [(0, "gloo", "all_reduce", "annotation")]


# -- ranks whose GPU was not seen --------------------------------------------------------------------------


@pytest.mark.given(
    run(cc_mode="on"),
    _call("allreduce", 1000),
    note("nccl:all_reduce", 1000, 50),
    _call("_allgather_base", 1100, dtype=None),
    _call("wait", 1200),
)
def test_a_rank_without_gpu_rows_shows_its_collectives_by_their_calls_and_times_none(found: Silver) -> None:
    assert found.rows("collectives", *WHAT, "duration_ns", "buffer_bytes", "evidence", "reason") == [
        (0, "nccl", "all_reduce", "host_call", None, 4000, "unobservable", UNSEEN),
        (2, "nccl", "all_gather", "host_call", None, None, "unobservable", f"{UNSEEN}; {UNSIZED}"),
    ]


@pytest.mark.given(note("nccl:all_reduce", 1000, 50), note("xccl:broadcast", 1100, 50))
def test_annotations_speak_where_there_is_nothing_else(found: Silver) -> None:
    assert found.rows("collectives", *WHAT, "duration_ns", "evidence") == [
        (0, "nccl", "all_reduce", "annotation", None, "unobservable"),
        (1, "oneccl", "broadcast", "annotation", None, "unobservable"),
    ]


@pytest.mark.given(all_reduce(1000, 40), _call("allreduce", 1000, rank=1))
def test_what_one_rank_shows_says_nothing_of_another(found: Silver) -> None:
    assert found.rows("collectives", "rank", "mention") == [(0, "kernel"), (1, "host_call")]


@pytest.mark.given(
    note("ProfilerStep#1", 1000, 100),
    note("ProfilerStep#2", 1100, 100),
    call("cudaLaunchKernel", 1050, 5, correlation_id=1),
    all_reduce(1150, 10, correlation_id=1),
    all_reduce(1160, 10),
    all_reduce(1260, 10),
)
def test_a_collective_is_of_the_step_that_launched_it(found: Silver) -> None:
    assert found.rows("collectives", "ordinal", "step_number") == [(3, 1), (4, 2), (5, None)]


@pytest.mark.given(
    kernel("void deep_ep::internode::dispatch<false>", 1000, 10),
    kernel("void vllm::cross_device_reduce_1stage<half, 2>", 1010, 10),
    kernel("void rcclGenericKernel<1, false>", 1020, 10),
    kernel("ncclDevKernel_SendRecv", 1030, 10),
    kernel("oneapi::ccl::reduce_scatter", 1040, 10),
)
def test_a_kernel_without_arguments_is_told_by_its_name(found: Silver) -> None:
    assert found.rows("collectives", *WHAT) == [
        (0, "nvshmem", "all_to_all", "kernel"),
        (1, "other", "all_reduce", "kernel"),
        (2, "rccl", "other", "kernel"),
        (3, "nccl", "send_recv", "kernel"),
        (4, "oneccl", "reduce_scatter", "kernel"),
    ]
