"""`python -m benchmarks.tier TIER LAKE LANDING`: one tier of the one run that lies there, in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

from assets import bronze, gold, silver
from bronze.limits import Limits
from lake.engines import engine
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.places import Place
from lake.store import Lake


def main(tier: str, lake_path: str, landing_path: str, chosen: str = "polars") -> None:
    """Make the tier's tables from what the tier before it left."""
    keyring = KeyringFile(Path(lake_path).with_name("keyring.json"), is_made_on_first_use=True)
    lake, zone = Lake(Place.of(lake_path), keyring), LandingZone(Place.of(landing_path))
    (run_id,), _ = zone.run_ids()
    if tier == "bronze":
        bronze.materialise(lake, zone, run_id, Limits())
    elif tier == "silver":
        silver.materialise(lake, run_id, engine(chosen))
    else:
        gold.materialise(lake, run_id, engine(chosen))


if __name__ == "__main__":
    main(*sys.argv[1:])
