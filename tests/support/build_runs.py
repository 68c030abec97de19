"""Runs brought from landing to gold, and recorded as checked, without the orchestrator."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from assets.build import comparisons, forecasts, gold, histories
from assets.build.context import BuildContext
from assets.build.freshness import Look
from assets.build.tiers import TIERS, build_tier
from assets.checks import outcomes
from bronze.limits import Limits
from gold.margin import MARGIN
from lake.attestation_keys import NO_KEYS
from lake.engines import engine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from assets.build.tiers import Tables
    from lake.attestation_keys import AttestationKeys
    from lake.cluster import Cluster
    from lake.landing_zone import LandingZone
    from lake.snapshot import Written
    from lake.store import Lake
    from lake.tables import Table


def build_runs(
    lake: Lake,
    zone: LandingZone,
    run_ids: Sequence[str],
    name: str = "polars",
    cluster: Cluster | None = None,
    tables: Tables = TIERS,
    keys: AttestationKeys = NO_KEYS,
) -> None:
    """All tiers of some runs, or a part of them, and all that compares them."""
    for tier in tables:
        made = build_tier(
            BuildContext(lake, zone, Limits(), keys=keys), tier, run_ids, partial(engine, name, cluster), tables=tables
        )
        assert [one.fault for one in made if one.fault] == []
    build_comparisons(lake)


def make_own_tables(lake: Lake, zone: LandingZone, run_ids: Sequence[str], keys: AttestationKeys = NO_KEYS) -> None:
    """All tables that a run alone decides, as a launch that is killed before the pairs leaves them."""
    for tier in TIERS:
        made = build_tier(BuildContext(lake, zone, Limits(), keys=keys), tier, run_ids, partial(engine, "polars"))
        assert [one.fault for one in made if one.fault] == []


def build_comparisons(lake: Lake, margin: float = MARGIN) -> list[Written]:
    """Bring pairs, families and forecasts up to date: only those are read whose own runs have changed."""
    return [
        *gold.flag_replays(lake),
        *build_pairs(lake, margin),
        *comparisons.build_families(lake),
        comparisons.build_published(lake),
        *forecasts.build_forecasts(lake),
        *histories.build_histories(lake),
    ]


def build_pairs(lake: Lake, margin: float = MARGIN) -> list[Written]:
    """Bring every pair up to date; one that cannot be made is an error here."""
    written, faults = comparisons.make_pairs(lake, margin=margin)
    for fault in faults.values():
        raise fault
    return written


RUN_TABLES = (*(table for some in TIERS.values() for table in some), *gold.PAIR_TABLES)


def record_passed(lake: Lake, run_ids: Iterable[str], tables: Iterable[Table] = RUN_TABLES) -> None:
    """Record that all checks of these tables passed, without holding them: that takes seconds."""
    look, checks = Look(lake), outcomes.asset_checks(tables)
    for run_id in run_ids:
        ended = [outcomes.make_passed(check, outcomes.fingerprint(look, check, run_id)) for check in checks]
        outcomes.record_outcomes(lake, run_id, ended)
