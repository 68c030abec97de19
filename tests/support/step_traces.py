"""Kineto traces of jobs whose true step is known: a host that launches, a GPU that works in order, and who waits."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

BASE_NS = 10**18
_LAUNCH_US = 5


@dataclass(frozen=True)
class Step:
    """A step of a loop: what the host does, what the GPU does, and whether one waits for the other."""

    host_us: int
    gpu_us: int
    has_collective: bool = False
    does_wait: bool = False


@dataclass(frozen=True)
class Recorder:
    """What a profiler sees of such a loop."""

    has_annotations: bool = True
    has_correlations: bool = True
    has_gpu_rows: bool = True

    def record(self, steps: list[Step], rank: int = 0, world_size: int = 1, first: int = 0) -> bytes:
        """The trace of one rank."""
        events: list[dict[str, Any]] = []
        now = gpu_free = 1000
        for place, step in enumerate(steps):
            begin = now
            call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "tid": 1, "dur": _LAUNCH_US}
            events.append({**call, "ts": begin + 1, **self._linked(place)})
            start = max(begin + 1 + _LAUNCH_US, gpu_free)
            gpu_free = start + step.gpu_us
            name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL" if step.has_collective else "gemm"
            if self.has_gpu_rows:
                work = {"ph": "X", "cat": "kernel", "name": name, "tid": 7, "ts": start, "dur": step.gpu_us}
                events.append({**work, **self._linked(place)})
            now = begin + step.host_us
            if step.does_wait:
                waited = {"ph": "X", "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "tid": 1}
                events.append({**waited, "ts": begin + 10, "dur": max(now, gpu_free) - begin - 10})
                now = max(now, gpu_free)
            if self.has_annotations:
                mark = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{first + place}", "tid": 1}
                events.append({**mark, "ts": begin, "dur": now - begin})
        answer = {"distributedInfo": {"rank": rank, "world_size": world_size}, "baseTimeNanoseconds": BASE_NS}
        return json.dumps({**answer, "traceEvents": events}).encode()

    def _linked(self, place: int) -> dict[str, Any]:
        return {"args": {"correlation": place + 1}} if self.has_correlations else {}
