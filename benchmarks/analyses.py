"""`python -m benchmarks.analyses DIR`: the tables that answer a peer's questions against the peer, value by value."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from assets.build import bronze, gold, silver
from benchmarks.peers import PEERS
from benchmarks.summary import land_files
from gold import copy_bandwidth, idle_breakdown, kernel_sequences, queue_length
from lake.engines import engine
from lake.landing_zone import LandingZone
from lake.store import Lake
from pipelines.settings import settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    Value = tuple[str, float, float, float]

# The peer rounds idle times to hundredths of a microsecond, and adds up microseconds as floating point.
_ROUNDED_NS = 5.0
_ADDED_NS = 1.0
_TABLES = (idle_breakdown.TABLE, queue_length.TABLE, copy_bandwidth.TABLE, kernel_sequences.TABLE)
# How the peer names kinds of copies.
_COPIES = {
    "Memcpy DtoD": "on_gpu",
    "Memcpy DtoH": "gpu_to_host",
    "Memcpy HtoD": "host_to_gpu",
    "Memset": "memset",
}


def main(folder: str) -> None:
    """Each trace by itself, in the peer and in a lake of its own; every value that differs is printed."""
    compared = differing = 0
    traces = sorted(Path(folder).rglob("*.json.gz"))
    with tempfile.TemporaryDirectory(prefix="analyses-") as home:
        places = settings(f"{home}/lake", f"{home}/landing")
        lake, zone = Lake(places.lake, places.keyring), LandingZone(places.landing)
        for place, path in enumerate(traces):
            run_id = f"trace-{place}"
            land_files(path.parent, places.landing.directory / run_id, [path.name])
            bronze.materialise(lake, zone, run_id, places.limits)
            silver.materialise(lake, run_id, engine("polars"))
            gold.materialise(lake, run_id, engine("polars"), _TABLES)
            for name, theirs, ours, slack in _pair_values(_ask_peer(path), lake, run_id):
                compared += 1
                if abs(theirs - ours) > slack:
                    differing += 1
                    print(f"{path.name} {name}: theirs {theirs:.0f}, ours {ours:.0f}")
    print(f"{len(traces)} ranks, {compared} values, {compared - differing} equal, {differing} differ")
    raise SystemExit(differing > 0)


def _ask_peer(path: Path) -> dict[str, Any]:
    program = Path(__file__).with_name("peer_analyses.py")
    done = subprocess.run([PEERS[0].python(), program, path], capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _pair_values(answer: dict[str, Any], lake: Lake, run_id: str) -> Iterator[Value]:
    idle = {row["stream"]: row for row in lake.scan(idle_breakdown.TABLE, [run_id]).collect().to_dicts()}
    for stream, part, idle_us in answer["idle_us"]:
        yield f"stream {stream} {part}_ns", idle_us * 1e3, idle[stream][f"{part}_ns"], _ROUNDED_NS
    queues = {row["stream"]: row for row in lake.scan(queue_length.TABLE, [run_id]).collect().to_dicts()}
    for stream, peak, queued_us in answer["queues"]:
        yield f"stream {stream} peak_length", peak, queues[stream]["peak_length"], 0
        yield f"stream {stream} queued_ns", queued_us * 1e3, queues[stream]["queued_ns"], _ADDED_NS
    wholes = lake.scan(copy_bandwidth.TABLE, [run_id]).filter(period="trace").collect().to_dicts()
    copied = {row["copy_kind"]: row for row in wholes}
    for kind, count, moved, slack in answer["copies"]:
        yield f"{kind} copies_count", count, copied[_COPIES[kind]]["copies_count"], 0
        yield f"{kind} payload_bytes", moved, copied[_COPIES[kind]]["payload_bytes"], slack
    counts = {tuple(names): count for *names, count in answer["sequences"]}
    for row in lake.scan(kernel_sequences.TABLE, [run_id]).filter(pl.col("place_number") > 0).collect().to_dicts():
        names = tuple(row[name] for name in kernel_sequences.NAMES)
        yield f"sequence {row['place_number']}", counts.get(names, 0), row["sequences_count"], 0


if __name__ == "__main__":
    main(*sys.argv[1:])
