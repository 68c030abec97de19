"""`python -m benchmarks.tier TIER… --lake LAKE --landing LANDING`: tiers of a run; prints its peak in bytes."""

from __future__ import annotations

import argparse
import json
import time
from importlib import import_module
from typing import TYPE_CHECKING

from benchmarks import TIERS
from benchmarks.measuring import count_moved_bytes, peak_bytes
from lake.engines import engine
from lake.landing_zone import LandingZone
from lake.store import Lake
from pipelines.settings import settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake.tables import Table


def main() -> None:
    """Make the tiers' tables, and print the most memory that this took, and the answers that peers give too."""
    options = argparse.ArgumentParser(prog="python -m benchmarks.tier", description=__doc__)
    options.add_argument("tiers", nargs="+", choices=TIERS)
    options.add_argument("--lake", required=True)
    options.add_argument("--landing", required=True)
    options.add_argument("--run", help="which run; the first one in the landing zone if none is named")
    options.add_argument("--engine", default="polars")
    options.add_argument("--to", action="append", default=[], help="only this table and what it needs; all if none")
    chosen = options.parse_args()
    tiers, places = chosen.tiers, settings(chosen.lake, chosen.landing)
    lake, zone = Lake(places.lake, places.keyring), LandingZone(places.landing)
    run_ids, _ = zone.run_ids()
    run_id = chosen.run or run_ids[0]
    runner = engine(chosen.engine, places.spark)
    # Only what these tiers need, as a command that makes no others would.
    making = {tier: import_module(f"assets.build.{tier}") for tier in tiers}
    parts = _parts(chosen.to) if chosen.to else {}
    before, began = count_moved_bytes(), time.process_time()
    if "bronze" in tiers:
        making["bronze"].materialise(lake, zone, run_id, places.limits, executors=runner.executors)
    if "silver" in tiers:
        making["silver"].materialise(lake, run_id, runner, *parts.get("silver", ()))
    if "gold" in tiers:
        making["gold"].materialise(lake, run_id, runner, *parts.get("gold", ()))
    moved = {name: value - before[name] for name, value in count_moved_bytes().items()}
    cpu_s = time.process_time() - began
    answers = {}
    if "gold" in tiers:
        from gold import kernel_breakdown, trace_summary

        (first, *_) = lake.scan(trace_summary.TABLE, [run_id]).sort("rank").collect().to_dicts()
        kernels = lake.scan(kernel_breakdown.TABLE, [run_id]).collect()
        answers = {
            "total_us": first["total_ns"] / 1e3,
            "idle_us": first["idle_ns"] / 1e3,
            "compute_us": first["hta_compute_ns"] / 1e3,
            "kernels_us": float(kernels["total_ns"].sum()) / 1e3,
            "gpu_events": first["gpu_events"],
        }
    print(json.dumps({"peak_bytes": peak_bytes(), "cpu_s": cpu_s, **moved, **answers}))


def _parts(names: list[str]) -> dict[str, list[Sequence[Table]]]:
    """The tables of each tier that these need, as `teetotal run --to` finds them."""
    from assets.build.catalogue import list_required
    from assets.build.tiers import select_tables

    return {tier: [tables] for tier, tables in select_tables(list_required(names)).items()}


if __name__ == "__main__":
    main()
