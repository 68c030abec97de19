"""Runs in a peer's environment, never in ours: loads one trace and asks the questions that we answer too."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(trace: str) -> None:
    """Load, temporal breakdown, communication overlap, kernel breakdown; print what they say and the peak."""
    from hta.trace_analysis import TraceAnalysis

    path = Path(trace)
    # By default the last step is left out; everybody else counts it.
    analysis = TraceAnalysis(trace_files={0: path.name}, trace_dir=str(path.parent), include_last_profiler_step=True)
    (times,) = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
    analysis.get_comm_comp_overlap(visualize=False)
    _, kernels = analysis.get_gpu_kernel_breakdown(visualize=False, num_kernels=10**6)
    status = Path("/proc/self/status").read_text("utf-8").splitlines()
    peak = 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    answers = {
        "total_us": float(times["kernel_time(us)"]),
        "idle_us": float(times["idle_time(us)"]),
        "compute_us": float(times["compute_time(us)"]),
        "kernels_us": float(kernels["sum (us)"].sum()),
    }
    print(json.dumps({"peak_bytes": peak, **answers}))


if __name__ == "__main__":
    main(sys.argv[1])
