"""Runs in a peer's environment, never in ours: what HolisticTraceAnalysis says of one trace, as JSON."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

# Otherwise it rounds the ends of every event outwards to whole microseconds.
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"


def main(trace: str) -> None:
    """Load, and print idle time per stream and part, in microseconds."""
    from hta.trace_analysis import TraceAnalysis

    logging.disable(logging.CRITICAL)
    path = Path(trace)
    analysis = TraceAnalysis(trace_files={0: path.name}, trace_dir=str(path.parent), include_last_profiler_step=True)
    idle, _ = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    print(
        json.dumps(
            {
                "idle_us": [
                    [str(row["stream"]), row["idle_category"], float(row["idle_time"])] for _, row in idle.iterrows()
                ]
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
