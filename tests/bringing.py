"""Runs brought from landing to gold, without the orchestrator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from assets import gold
from assets.making import TIERS, make
from assets.workplace import Workplace
from bronze.limits import Limits
from lake.engines import engine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assets.making import Tables
    from lake.cluster import Cluster
    from lake.landing_zone import LandingZone
    from lake.store import Lake


def bring(
    lake: Lake,
    zone: LandingZone,
    run_ids: Sequence[str],
    name: str = "polars",
    cluster: Cluster | None = None,
    tables: Tables = TIERS,
) -> None:
    """All tiers of some runs, or a part of them, and all that compares them."""
    for tier in tables:
        made = make(Workplace(lake, zone, Limits()), tier, run_ids, partial(engine, name, cluster), tables=tables)
        assert [one.fault for one in made if one.fault] == []
    gold.relate(lake)
