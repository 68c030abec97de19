"""Runs in an environment that has TraceLens, never in ours: loads one trace and asks for its GPU timeline."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(trace: str) -> None:
    """Load, build the tree, GPU timeline, as its own documentation does it; print what it says and the peak."""
    from TraceLens import TreePerfAnalyzer

    timeline = TreePerfAnalyzer.from_file(trace).get_df_gpu_timeline()
    times_ms = dict(zip(timeline["type"], timeline["time ms"], strict=True))
    status = Path("/proc/self/status").read_text("utf-8").splitlines()
    peak = 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM:"))
    answers = {"total_us": 1000 * float(times_ms["total_time"]), "idle_us": 1000 * float(times_ms["idle_time"])}
    print(json.dumps({"peak_bytes": peak, **answers}))


if __name__ == "__main__":
    main(sys.argv[1])
