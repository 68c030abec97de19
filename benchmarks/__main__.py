"""`python -m benchmarks [PART…]`: ours beside peers and the limit, how it grows and how it starts."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import TIERS
from benchmarks.growth import with_events, with_exports, with_files, with_lake
from benchmarks.inputs import land_trace, read_trace, trace
from benchmarks.limits import beside_the_limit
from benchmarks.live import time_cycles
from benchmarks.measuring import CACHE, Cost, format_spread, machine, median, table, tiers
from benchmarks.peers import compare_peers
from benchmarks.requests import count_requests
from benchmarks.starting import time_starts

if TYPE_CHECKING:
    from benchmarks.inputs import Trace

PARTS = ("tiers", "peers", "limits", "events", "exports", "files", "lake", "live", "start", "store")
_MILLION = 1_000_000


def main() -> None:
    """Measure what was asked for, and print a Markdown table for each part as it is done."""
    options = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    options.add_argument(
        "parts", nargs="*", help=f"some of {', '.join(PARTS)}; tiers, peers, limits and start by default"
    )
    options.add_argument("--millions", type=int, nargs="+", default=[1, 5], help="sizes in millions of events")
    options.add_argument(
        "--ranks", type=int, nargs="+", default=[1, 8, 64], help="for `files` and `live`: ranks of a run"
    )
    options.add_argument("--runs", type=int, nargs="+", default=[10, 100, 1000], help="for `lake`: runs already there")
    options.add_argument("--cycles", type=int, default=3, help="for `live`: cycles of the profiler")
    options.add_argument("--count", type=int, help="for `live`: cycles that count while the run is open, the last ones")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--engine", default="polars", help="for `tiers`: what computes silver and gold")
    options.add_argument("--trace", type=Path, nargs="*", default=[], help="for `tiers`: time these files instead")
    options.add_argument(
        "--tracelens",
        type=Path,
        metavar="PYTHON",
        help="for `peers`: a Python that has TraceLens, which is not on PyPI",
    )
    chosen = options.parse_args()
    unknown = set(chosen.parts) - set(PARTS)
    if unknown:
        options.error(f"expected some of {', '.join(PARTS)}, found {', '.join(sorted(unknown))}")
    events = [millions * _MILLION for millions in chosen.millions]
    measures = {
        "tiers": lambda: _tiers(
            [read_trace(path) for path in chosen.trace] or [trace(size) for size in events],
            chosen.repeats,
            chosen.engine,
        ),
        "peers": lambda: compare_peers(events[0], chosen.repeats, chosen.tracelens),
        "limits": lambda: beside_the_limit(events[0], chosen.repeats),
        "events": lambda: with_events(events),
        "exports": lambda: with_exports(events),
        "files": lambda: with_files(chosen.ranks),
        "lake": lambda: with_lake(chosen.runs),
        "live": lambda: time_cycles(chosen.ranks, chosen.cycles, chosen.count),
        "start": lambda: time_starts(chosen.repeats),
        "store": count_requests,
    }
    print(f"{machine()}; python -m benchmarks {' '.join(sys.argv[1:])}".rstrip())
    for part in chosen.parts or ("tiers", "peers", "limits", "start"):
        print(f"\n{measures[part]()}", flush=True)


def _tiers(traces: list[Trace], repeats: int, engine: str) -> str:
    """Bring each trace into an empty lake, tier by tier, each tier a process of its own."""
    runs: dict[tuple[Path, str], list[Cost]] = {(each.path, tier): [] for each in traces for tier in TIERS}
    for _ in range(repeats):
        for each in traces:  # interleaved, so that a noisy minute hits all alike
            with tempfile.TemporaryDirectory(prefix="bench-", dir=CACHE if CACHE.exists() else None) as folder:
                land_trace(Path(folder), each.path)
                for tier in TIERS:
                    runs[each.path, tier].append(tiers(folder, tier, engine=engine))
    rows = []
    for each in traces:
        first = median([cost.wall_s for cost in runs[each.path, TIERS[0]]])
        for tier in TIERS:
            costs = runs[each.path, tier]
            rates = [each.plain_bytes / 1e6 / cost.cpu_s for cost in costs]
            wall = median([cost.wall_s for cost in costs])
            cpu = f"{median([cost.cpu_s for cost in costs]):.1f}"
            peak = f"{max(cost.peak_mb for cost in costs):,.0f}"
            rows.append([each.name, tier, f"{wall:.1f}", cpu, format_spread(rates, 0), peak, f"{wall / first:.2f}"])
    names = ("trace", "tier", "wall s", "CPU s", "MB of JSON per CPU-second", "peak MB", "wall of bronze's")
    return "\n".join(["Tiers, from gzip to Delta:", "", table(names, rows)])


if __name__ == "__main__":
    main()
