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
    """Load, and print per stream: idle time by part in microseconds, the longest queue, and its lengths over time."""
    from hta.trace_analysis import TraceAnalysis

    logging.disable(logging.CRITICAL)
    path = Path(trace)
    analysis = TraceAnalysis(trace_files={0: path.name}, trace_dir=str(path.parent), include_last_profiler_step=True)
    idle, _ = analysis.get_idle_time_breakdown(ranks=[0], visualize=False)
    queues = []
    for stream, series in analysis.get_queue_length_time_series(ranks=[0])[0].groupby("stream"):
        ts, lengths = series["ts"].to_list(), series["queue_length"].to_list()
        # A change at the moment of another lasts no time.
        lasting = [(length, until - at) for at, until, length in zip(ts, ts[1:], lengths, strict=False) if until > at]
        queues.append([str(stream), max(length for length, _ in lasting), sum(one * us for one, us in lasting)])
    print(
        json.dumps(
            {
                "idle_us": [
                    [str(row["stream"]), row["idle_category"], float(row["idle_time"])] for _, row in idle.iterrows()
                ],
                "queues": queues,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1])
