from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.silver_rows import event

if TYPE_CHECKING:
    from tests.support.silver_rows import Row, Silver

# category, name: what a reader of traces would say that it is.
ON_GPU = {
    ("kernel", "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"): ("collective", "nccl_kernel"),
    ("kernel", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"): (
        "collective",
        "nccl_kernel",
    ),
    ("kernel", "ncclSymkDevKernel_AllGather_LL"): ("collective", "nccl_kernel"),
    ("Kernel", "ncclKernel_Broadcast_RING_LL_Sum_int8_t"): ("collective", "nccl_kernel"),
    ("kernel", "void rcclGenericKernel<1, false>(ncclDevComm*)"): ("collective", "rccl_kernel"),
    ("kernel", "oneapi::ccl::allreduce_small<float>"): ("collective", "oneccl_kernel"),
    ("kernel", "ccl_reduce_kernel"): ("collective", "oneccl_kernel"),
    ("kernel", "void nvshmemi_alltoall<int>"): ("collective", "nvshmem_kernel"),
    ("kernel", "void deep_ep::internode::dispatch<false>"): ("collective", "deepep_kernel"),
    ("kernel", "void deepep::combine<8>"): ("collective", "deepep_kernel"),
    ("kernel", "void vllm::cross_device_reduce_1stage<half, 2>"): ("collective", "custom_all_reduce_kernel"),
    ("kernel", "twoShotAllReduceKernel"): ("collective", "custom_all_reduce_kernel"),
    ("kernel", "multimem_all_reduce_kernel<4>"): ("collective", "custom_all_reduce_kernel"),
    ("kernel", "aes_256_gcm_encrypt"): ("crypto", "aes_kernel"),
    ("kernel", "void ghash_update"): ("crypto", "aes_kernel"),
    ("kernel", "void at::native::reduce_kernel<512, 1>"): ("compute", "unknown_on_gpu"),
    ("kernel", "sm90_xmma_gemm_bf16bf16_tn"): ("compute", "unknown_on_gpu"),
    ("kernel", "void my_nccl_like(float*)"): ("compute", "unknown_on_gpu"),
    ("kernel", "Memcpy DtoD (Device -> Device)"): ("copy", "memcpy_as_kernel"),
    ("kernel", "Memset (Device)"): ("memset", "memset_as_kernel"),
    ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)"): ("copy", "memcpy"),
    ("Memcpy", "Memcpy DtoH (Device -> Pageable)"): ("copy", "memcpy"),
    ("gpu_memcpy", "ncclDevKernel_AllReduce"): ("copy", "memcpy"),
    ("gpu_memset", "Memset (Device)"): ("memset", "memset"),
    ("Memset", "Memset (Unknown)"): ("memset", "memset"),
    ("kernel", "CUDA graph 5"): ("compute", "graph_trace"),
    ("kernel", ""): ("compute", "unknown_on_gpu"),
    ("kernel", "a kernel\nof two lines"): ("compute", "unknown_on_gpu"),
}
CALLS = {
    ("cuda_runtime", "cudaLaunchKernel"): ("launch", "launch_call"),
    ("Runtime", "cudaLaunchKernelExC"): ("launch", "launch_call"),
    ("cuda_driver", "cuLaunchKernelEx"): ("launch", "launch_call"),
    ("driver", "cuLaunchKernel"): ("launch", "launch_call"),
    ("hip_runtime", "hipExtModuleLaunchKernel"): ("launch", "launch_call"),
    ("cuda_runtime", "cudaLaunchCooperativeKernel"): ("launch", "launch_call"),
    ("cuda_runtime", "cudaGraphLaunch"): ("launch", "launch_call"),
    ("cuda_runtime", "cudaMemcpyAsync"): ("launch", "copy_call"),
    ("cuda_driver", "cuMemcpyHtoDAsync_v2"): ("launch", "copy_call"),
    ("hip_runtime", "hipMemcpyWithStream"): ("blocking_copy", "blocking_copy_call"),
    ("cuda_runtime", "cudaMemsetAsync"): ("launch", "copy_call"),
    ("cuda_runtime", "cudaMemcpy"): ("blocking_copy", "blocking_copy_call"),
    ("cuda_runtime", "cudaStreamSynchronize"): ("sync", "sync_call"),
    ("cuda_driver", "cuCtxSynchronize"): ("sync", "sync_call"),
    ("hip_runtime", "hipDeviceSynchronize"): ("sync", "sync_call"),
    ("cuda_runtime", "cudaProfilerStart"): ("host", "profiler_start_call"),
    ("cuda_driver", "cuProfilerStop"): ("host", "profiler_stop_call"),
    ("cuda_runtime", "cudaEventQuery"): ("host", "other_call"),
    ("cuda_runtime", "cudaStreamWaitEvent"): ("host", "other_call"),
    ("cuda_runtime", "my cudaLaunchKernel"): ("host", "other_call"),
}
NOTES = {
    ("user_annotation", "tee::encrypt#3"): ("crypto", "hook_seal"),
    ("user_annotation", "tee::seal"): ("crypto", "hook_seal"),
    ("user_annotation", "tee::decrypt"): ("crypto", "hook_open"),
    ("user_annotation", "tee::open"): ("crypto", "hook_open"),
    ("user_annotation", "tee::sendrecv#1"): ("transport", "hook_transport"),
    ("user_annotation", "tee::send#4096"): ("transport", "hook_sized_transport"),
    ("user_annotation", "tee::send#"): ("transport", "hook_transport"),
    ("user_annotation", "tee::copy_out#4096"): ("transport", "hook_copy"),
    ("user_annotation", "tee::copy_in#4096"): ("transport", "hook_copy"),
    ("user_annotation", "tee::relay#4096"): ("transport", "hook_relay"),
    ("user_annotation", "tee::relay"): ("annotation", "hook_other"),
    ("user_annotation", "tee::recv#1"): ("transport", "hook_receive"),
    ("user_annotation", "tee::wait_for_room"): ("wait", "hook_wait"),
    ("user_annotation", "tee::keep"): ("transport", "hook_keep"),
    ("user_annotation", "tee::all_reduce#4096"): ("annotation", "hook_collective"),
    ("user_annotation", "tee::all_reduce#4096\n"): ("annotation", "hook_other"),
    ("user_annotation", "tee::all_reduce#99999999999999"): ("annotation", "hook_other"),
    ("user_annotation", "tee::all_reduce"): ("annotation", "hook_other"),
    ("user_annotation", "gloo:all_reduce"): ("transport", "gloo_call"),
    ("user_annotation", "nccl:all_reduce"): ("annotation", "nccl_annotation"),
    ("user_annotation", "xccl:broadcast"): ("annotation", "nccl_annotation"),
    ("user_annotation", "ProfilerStep#12"): ("annotation", "profiler_step"),
    ("user_annotation", "Optimizer.step#AdamW.step"): ("annotation", "optimizer_step"),
    ("user_annotation", "iteration"): ("annotation", "step_annotation"),
    ("user_annotation", "train_step #12"): ("annotation", "step_annotation"),
    ("user_annotation", "Optimizer.zero_grad#AdamW.zero_grad"): ("annotation", "library_annotation"),
    ("user_annotation", "DistributedDataParallel.forward"): ("annotation", "library_annotation"),
    ("gpu_user_annotation", "nccl:all_reduce"): ("annotation", "library_annotation_on_gpu"),
    ("gpu_user_annotation", "ProfilerStep#12"): ("annotation", "library_annotation_on_gpu"),
    ("python_function", "nn.Module: Linear_0"): ("host", "torch_module"),
    ("python_function", "nn.Module: DistributedDataParallel_12"): ("host", "torch_module"),
    ("cpu_op", "aten::mm"): ("host", "operator"),
    ("Operator", "aten::mm"): ("host", "operator"),
    ("cpu_op", "nccl:all_reduce"): ("host", "operator"),
    ("os_runtime", "pthread_cond_timedwait"): ("annotation", "os_wait"),
    ("os_runtime", "ioctl"): ("host", "os_call"),
    ("page_fault", "GPU"): ("annotation", "page_fault"),
    ("gpu_metric", "SMs Active"): ("annotation", "gpu_metric"),
    ("overhead", "Activity Buffer Request"): ("host", "profiler_overhead"),
    ("Trace", "PyTorch Profiler (0)"): ("annotation", "profiler_record"),
    ("cuda_sync", "Stream Synchronize"): ("annotation", "profiler_record"),
}
OWN = {
    ("user_annotation", "secret project: epoch 3"): ("annotation", "own_annotation"),
    ("user_annotation", "ProfilerStep#"): ("annotation", "own_annotation"),
    ("user_annotation", "step of mine"): ("annotation", "own_annotation"),
    ("user_annotation", "ProfilerStep#5 of mine"): ("annotation", "own_annotation"),
    ("user_annotation", "ProfilerStep#5\n"): ("annotation", "own_annotation"),
    ("user_annotation", "ProfilerStep#1234567890"): ("annotation", "own_annotation"),
    ("gpu_user_annotation", "secret project: epoch 3"): ("annotation", "own_annotation"),
    ("python_function", "/home/ada/train.py(12): forward"): ("host", "python_line"),
    ("python_function", "models/torch/net.py(12): forward"): ("host", "python_line"),
    ("python_function", "torch/cuda/__init__.py(1152): synchronize"): ("host", "python_library"),
    ("python_function", "/opt/venv/lib/python3.12/site-packages/mine/x.py(3): f"): ("host", "python_library"),
    ("python_function", "contextlib.py(78): inner"): ("host", "python_library"),
    ("python_function", "<built-in method to of Tensor object at 0x7f94c7118b40>"): ("host", "python_frame"),
    ("python_function", "nn.Module: SecretRouter_0"): ("host", "own_module"),
    ("python_function", "nn.Module: Linear_ofAda_0"): ("host", "own_module"),
    ("python_function", "nn.Module: Linear_0 of Ada"): ("host", "own_module"),
    ("python_function", "nn.Module: Linear"): ("host", "own_module"),
    ("python_function", "nn.Module: linear_0\n"): ("host", "own_module"),
    ("python_function", "nn.Module: Linear_0\n"): ("host", "own_module"),
    ("a category of the future", "Ünïcode\n🙂"): ("host", "unknown_on_host"),
    ("", "aten::mm"): ("host", "unknown_on_host"),
}


def _events(names: dict[tuple[str, str], tuple[str, str]]) -> list[Row]:
    # A stream on every second row: it makes nothing a GPU row.
    return [
        event(name, category, 1000 + place, 1, stream_id=7 if place % 2 else None)
        for place, (category, name) in enumerate(names)
    ]


@pytest.mark.given(*_events(ON_GPU))
def test_what_ran_on_a_gpu_is_told_by_its_name(found: Silver) -> None:
    assert found.rows("spans", "name", "kind", "pattern", "is_gpu", "label") == [
        (name, *what, True, None) for (_, name), what in ON_GPU.items()
    ]


@pytest.mark.given(*_events(CALLS))
def test_calls_launch_synchronise_copy_or_do_something_else(found: Silver) -> None:
    assert found.rows("spans", "name", "kind", "pattern", "is_gpu", "label") == [
        (name, *what, False, None) for (_, name), what in CALLS.items()
    ]


@pytest.mark.given(*_events(NOTES))
def test_names_that_a_library_gave_stay_names(found: Silver) -> None:
    assert found.rows("spans", "name", "kind", "pattern", "is_gpu", "label") == [
        (name, *what, False, None) for (_, name), what in NOTES.items()
    ]


@pytest.mark.given(*_events(OWN))
def test_names_that_a_person_chose_become_labels(found: Silver) -> None:
    assert found.rows("spans", "label", "kind", "pattern", "is_gpu", "name") == [
        (name, *what, False, None) for (_, name), what in OWN.items()
    ]


@pytest.mark.given(
    event("a", "Kernel", 1000, 1),
    event("b", "Memcpy", 1001, 1),
    event("c", "MEMSET", 1002, 1),
    event("d", "Operator", 1003, 1),
    event("e", "Runtime", 1004, 1),
    event("f", "hip_driver", 1005, 1),
    event("g", "xpu_runtime", 1006, 1),
    event("h", "Trace", 1007, 1),
    event("i", "Something New", 1008, 1),
    event("j", None, 1009, 1),
)
def test_categories_are_spelled_as_today(found: Silver) -> None:
    assert found.rows("spans", "category") == [
        ("kernel",),
        ("gpu_memcpy",),
        ("gpu_memset",),
        ("cpu_op",),
        ("cuda_runtime",),
        ("cuda_driver",),
        ("cuda_runtime",),
        ("trace",),
        ("other",),
        ("",),
    ]


@pytest.mark.given(
    event("cudaLaunchKernel", "cuda_runtime", 1000, 1, stream_id=7, device_id=0),
    event("some kernel", "kernel", 1001, 1),
    event("nccl:all_reduce", "gpu_user_annotation", 1002, 1, stream_id=7),
)
def test_a_stream_makes_no_row_a_gpu_row(found: Silver) -> None:
    assert found.rows("spans", "is_gpu", "is_orphan") == [(False, False), (True, True), (False, False)]


@pytest.mark.given(event("some kernel", "kernel", 1000, 1), event("gemm", "kernel", 1001, 1), event("x", "y", 1002, 1))
def test_gpu_work_that_no_pattern_knows_is_counted(found: Silver) -> None:
    assert found.rows("rule_counts", "effect", "rule", "events_count") == [
        ("flagged", "orphan", 2),
        ("flagged", "unknown_on_gpu", 2),
        ("kept", "unknown_on_gpu", 2),
        ("kept", "unknown_on_host", 1),
    ]
