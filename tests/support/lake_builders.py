"""Builds some tables of runs, without the orchestrator; `python -m` does so in a process that may be killed."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from assets.build.catalogue import list_required
from assets.build.context import BuildContext
from assets.build.tiers import build_tier, select_tables
from bronze.limits import Limits
from lake.engines import PolarsEngine
from lake.landing_zone import LandingZone
from pipelines.cli.session import open_signed_lake
from pipelines.settings import settings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assets.build.tiers import Tables
    from lake.store import Lake
    from pipelines.settings import Settings

# All of bronze, and what is asked of the lake afterwards: a table more is the same requests once more.
ASKED_FOR = ("gold.step_times", "gold.step_overhead", "gold.time_breakdown", "silver.memory_events")
SMALL = select_tables(list_required(ASKED_FOR))


def build_tables(chosen: Settings, run_ids: Iterable[str], tables: Tables) -> Lake:
    """Build tables tier by tier; a run that fails is an error."""
    lake = open_signed_lake(chosen)
    context = BuildContext(lake, LandingZone(chosen.landing), Limits())
    for tier in tables:
        made = build_tier(context, tier, list(run_ids), PolarsEngine, tables=tables)
        for fault in (one.fault for one in made if one.fault is not None):
            raise fault
    return lake


if __name__ == "__main__":
    build_tables(settings(sys.argv[1], sys.argv[2], environment=os.environ), sys.argv[3:], SMALL)
