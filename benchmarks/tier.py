"""`python -m benchmarks.tier TIER LAKE LANDING`: one tier of the one run that lies there; prints its peak in bytes."""

from __future__ import annotations

import sys
from pathlib import Path

from assets import bronze, gold, silver
from lake.engines import engine
from lake.landing_zone import LandingZone
from lake.store import Lake
from pipelines.settings import settings


def main(tier: str, lake_path: str, landing_path: str, chosen: str = "polars") -> None:
    """Make the tier's tables from what the tier before it left, and print the most memory that this took."""
    places = settings(lake_path, landing_path)
    lake, zone = Lake(places.lake, places.keyring), LandingZone(places.landing)
    (run_id,), _ = zone.run_ids()
    runner = engine(chosen, places.spark)
    if tier == "bronze":
        bronze.materialise(lake, zone, run_id, places.limits, executors=runner.executors)
    elif tier == "silver":
        silver.materialise(lake, run_id, runner)
    else:
        gold.materialise(lake, run_id, runner)
    print(_peak_bytes())


def _peak_bytes() -> int:
    """The peak of this process alone: what the parent held when it started us is counted by getrusage, not here."""
    told = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in told if line.startswith("VmHWM:"))


if __name__ == "__main__":
    main(*sys.argv[1:])
