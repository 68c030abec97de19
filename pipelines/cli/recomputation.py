"""`teetotal verify --recompute`: the tables made again from the landing zone into a lake aside, digest for digest."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from assets.build import comparisons, forecasts, gold
from assets.build.catalogue import TABLES
from assets.build.context import BuildContext
from assets.build.tiers import TIERS, build_tier
from bronze import runs, span_patterns
from lake.attestation_keys import load_keys
from lake.datafiles import Damage
from lake.engines import engine
from lake.locations import Location
from lake.side_files import read_beside
from lake.store import Lake
from lake.tables import Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lake.landing_zone import LandingZone
    from pipelines.settings import Settings

_PARTITION = "the partition"


def recompute_tables(
    chosen: Settings, lake: Lake, zone: LandingZone, run_ids: Sequence[str], tell: Callable[[str], None]
) -> list[Damage]:
    """Make some runs again, or all, with what they are compared with, and name each partition that comes out otherwise.

    What is measured across runs is compared where all runs of the lake are made again.
    """
    complete, _ = zone.run_ids()
    held = lake.snapshot(runs.TABLE).run_ids
    wanted = list(run_ids) or held
    gone = sorted(set(wanted) - set(complete))
    if gone:
        tell(f"not recomputed, because they are not in {zone.place}: {', '.join(gone)}")
    needed = sorted(_list_needed(lake, wanted).intersection(complete)) if run_ids else sorted(set(held) - set(gone))
    with tempfile.TemporaryDirectory(prefix="teetotal-") as aside:
        scratch = Lake(
            Location.of(Path(aside) / "lake"), chosen.keyring, seals_bronze=lake.has_sealed_source(runs.TABLE)
        )
        site = read_beside(lake.place, span_patterns.FILE_NAME, span_patterns.MOST_BYTES)
        if site is not None:
            (Path(aside) / span_patterns.FILE_NAME).write_bytes(site)
        context = BuildContext(scratch, zone, chosen.limits, keys=load_keys(chosen.attestation_keys))
        for tier in TIERS:
            for made in build_tier(context, tier, needed, partial(engine, "polars")):
                if made.fault is not None:
                    return [Damage(tier, made.run_id, _PARTITION, f"could not be made again: {made.fault}")]
        gold.flag_replays(scratch)
        comparisons.make_pairs(scratch, margin=chosen.margin)
        is_whole = not run_ids and not gone
        if is_whole:
            comparisons.build_families(scratch)
            comparisons.build_published(scratch)
            forecasts.build_forecasts(scratch)
        found = list(_compare(lake, scratch, set(wanted) - set(gone), is_whole=is_whole))
    tell(f"{len(needed):,} runs made again from their files, {len(found):,} partitions came out otherwise")
    return found


def _list_needed(lake: Lake, wanted: Sequence[str]) -> set[str]:
    """These runs, and those that they are compared with."""
    found = set(wanted)
    for one in comparisons.stale_pairs(lake, full=wanted, only=wanted):
        found.update(one.partners, *one.noise)
    return found


def _compare(lake: Lake, scratch: Lake, run_ids: set[str], *, is_whole: bool) -> Iterator[Damage]:
    for table in TABLES.values():
        if not is_whole and table.scope not in {Scope.RUN, Scope.PAIR}:
            continue
        here, there = lake.snapshot(table), scratch.snapshot(table)
        of_runs = table.scope in {Scope.RUN, Scope.PAIR}
        for partition in sorted(run_ids if of_runs else {*here.run_ids, *there.run_ids}):
            found, expected = here.content_sha256(partition), there.content_sha256(partition)
            # What was never asked for (`run --to`) is not missing.
            if found != expected and here.mark(partition) is not None:
                why = f"comes out otherwise when it is made again: expected rows {expected[:16]}…, found {found[:16]}…"
                yield Damage(table.full_name, partition, _PARTITION, why)
