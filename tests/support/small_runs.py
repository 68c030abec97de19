"""The smallest recordings that make a pair: three steps of one kernel each."""

from __future__ import annotations

import json

OFF = 'regime = "cc_off"\nmodel = "m"\n'
TEE = 'regime = "hopper_ppcie"\nmodel = "m"\n'


def trace(step_us: int, ranks: int = 2) -> bytes:
    """Three steps of one kernel each, recorded by rank 0 of a job."""
    events = []
    for number in range(3):
        at = 1000 + number * step_us
        events += [
            {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": at, "dur": step_us},
            {"ph": "X", "cat": "kernel", "name": "gemm", "ts": at + 1, "dur": step_us - 5, "tid": 7},
        ]
    answer = {"distributedInfo": {"rank": 0, "world_size": ranks}, "baseTimeNanoseconds": 10**18}
    return json.dumps({**answer, "traceEvents": events}).encode()
