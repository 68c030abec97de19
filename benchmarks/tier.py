"""`python -m benchmarks.tier TIER… LAKE LANDING`: tiers of the one run that lies there; prints its peak in bytes."""

from __future__ import annotations

import json
import os
import sys

from assets import bronze, gold, silver
from benchmarks.measuring import moved_bytes, peak_bytes
from gold import kernel_breakdown, trace_summary
from lake.engines import engine
from lake.landing_zone import LandingZone
from lake.store import Lake
from pipelines.settings import settings


def main(*words: str) -> None:
    """Make the tiers' tables, and print the most memory that this took, and the answers that peers give too."""
    *tiers, lake_path, landing_path = words
    places = settings(lake_path, landing_path)
    lake, zone = Lake(places.lake, places.keyring), LandingZone(places.landing)
    run_ids, _ = zone.run_ids()
    run_id = os.environ.get("BENCHMARK_RUN") or run_ids[0]
    runner = engine(os.environ.get("BENCHMARK_ENGINE", "polars"), places.spark)
    before = moved_bytes()
    if "bronze" in tiers:
        bronze.materialise(lake, zone, run_id, places.limits, executors=runner.executors)
    if "silver" in tiers:
        silver.materialise(lake, run_id, runner)
    if "gold" in tiers:
        gold.materialise(lake, run_id, runner)
    moved = {name: value - before[name] for name, value in moved_bytes().items()}
    answers = {}
    if "gold" in tiers:
        (first, *_) = lake.scan(trace_summary.TABLE, [run_id]).sort("rank").collect().to_dicts()
        kernels = lake.scan(kernel_breakdown.TABLE, [run_id]).collect()
        answers = {
            "total_us": first["total_ns"] / 1e3,
            "idle_us": first["idle_ns"] / 1e3,
            "compute_us": first["hta_compute_ns"] / 1e3,
            "kernels_us": float(kernels["total_ns"].sum()) / 1e3,
            "gpu_events": first["gpu_events"],
        }
    print(json.dumps({"peak_bytes": peak_bytes(), **moved, **answers}))


if __name__ == "__main__":
    main(*sys.argv[1:])
