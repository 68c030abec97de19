"""Runs in a peer's environment, never in ours: what HolisticTraceAnalysis says of one trace, as JSON."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

if TYPE_CHECKING:
    from hta.trace_analysis import TraceAnalysis

# Otherwise it rounds the ends of every event outwards to whole microseconds.
os.environ["HTA_DISABLE_NS_ROUNDING"] = "1"
_NOTHING = pd.DataFrame({"ts": [], "name": [], "memory_bw_gbps": []})


def main(trace: str) -> None:
    """Load, and print per stream idle time and queues, per kind of copy its bandwidth, and sequences of its kernels."""
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
    copies = []
    # A trace that has whole microseconds rounded the end of each copy, but not the rate beside it.
    rounded_us = 1 if (analysis.t.get_trace(0)["dur"] % 1 == 0).all() else 0.001
    for kind, series in (analysis.get_memory_bw_time_series(ranks=[0]) or {}).get(0, _NOTHING).groupby("name"):
        ts, rates = series["ts"].to_list(), series["memory_bw_gbps"].to_list()
        # Gigabytes per second for a microsecond are a thousand bytes.
        moved = sum(rate * (until - at) * 1e3 for at, until, rate in zip(ts, ts[1:], rates, strict=False))
        copies.append([kind, len(ts) // 2, moved, sum(rates) * 1e3 * rounded_us])
    print(
        json.dumps(
            {
                "copies": copies,
                "sequences": _count_sequences(analysis),
                "idle_us": [
                    [str(row["stream"]), row["idle_category"], float(row["idle_time"])] for _, row in idle.iterrows()
                ],
                "queues": queues,
            }
        )
    )


def _count_sequences(analysis: TraceAnalysis) -> list[list[object]]:
    """How often three pieces of work followed each other on a stream, by the peer's own table of the trace."""
    table = analysis.t.get_trace(0)
    names = analysis.t.symbol_table.get_sym_table()
    counts: Counter[tuple[str, ...]] = Counter()
    for _, work in table[table["stream"] >= 0].groupby("stream"):
        line = [names[name] for name in work.sort_values(["ts", "index"])["name"]]
        counts.update(zip(line, line[1:], line[2:], strict=False))
    return [[*sequence, count] for sequence, count in counts.items()]


if __name__ == "__main__":
    main(sys.argv[1])
