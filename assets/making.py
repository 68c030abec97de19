"""A tier of many runs at once: what is fresh stays, small runs side by side, and one that fails stops alone."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assets import bronze, gold, silver
from bronze import runs as landed
from bronze import trace_events
from lake.attestation_keys import NO_KEYS, AttestationKeys
from lake.errors import EvidenceRejected, LakeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from assets.workplace import Workplace
    from lake.engines import Engine
    from lake.landing_zone import LandingZone
    from lake.snapshot import Written
    from lake.store import Lake
    from lake.tables import Table

TIERS: dict[str, tuple[Table, ...]] = {"bronze": bronze.TABLES, "silver": silver.TABLES, "gold": gold.RUN_TABLES}


@dataclass(frozen=True)
class Made:
    """One tier of one run: its partitions as they are now, or the reason why they could not be made."""

    run_id: str
    tier: str
    written: tuple[Written, ...] = ()
    seconds: float = 0.0
    is_fresh: bool = False
    fault: LakeError | None = None


def make(
    workplace: Workplace, tier: str, run_ids: Sequence[str], engines: Callable[[], Engine], *, full: bool = False
) -> list[Made]:
    """Make a tier of some runs; a fresh one is only looked at unless `full`. In the order of the ids."""
    found = set() if full else _fresh(workplace, tier, run_ids)
    stale = [run_id for run_id in run_ids if run_id not in found]
    large = _large(workplace, tier, stale)
    made = {run_id: _made(workplace, tier, run_id, engines) for run_id in stale if run_id in large}
    small = [run_id for run_id in stale if run_id not in large]
    if small:
        with ThreadPoolExecutor(workplace.limits.workers, thread_name_prefix=tier) as pool:
            made |= zip(small, pool.map(lambda run_id: _made(workplace, tier, run_id, engines), small), strict=True)
    if found:
        snapshots = [workplace.lake.snapshot(table) for table in TIERS[tier]]
        for run_id in found:
            partitions = tuple(snapshot.partition(run_id) for snapshot in snapshots)
            made[run_id] = Made(run_id, tier, partitions, is_fresh=True)
    for run_id in found:
        workplace.onlooker.made(made[run_id])
    return [made[run_id] for run_id in run_ids]


def up_to_date(lake: Lake, zone: LandingZone, run_ids: Iterable[str], keys: AttestationKeys = NO_KEYS) -> set[str]:
    """Those runs whose tables are all made from what lies in the landing zone now."""
    return gold.fresh(lake, silver.fresh(lake, bronze.fresh(lake, zone, run_ids, keys)))


def _fresh(workplace: Workplace, tier: str, run_ids: Sequence[str]) -> set[str]:
    if tier == "silver":
        return silver.fresh(workplace.lake, run_ids)
    if tier == "gold":
        return gold.fresh(workplace.lake, run_ids)
    # A run that is gone from the landing zone, or whose manifest is broken, says so when it is made.
    complete, _ = workplace.zone.run_ids()
    landed = [run_id for run_id in run_ids if run_id in complete]
    return bronze.fresh(workplace.lake, workplace.zone, landed, workplace.keys)


def _large(workplace: Workplace, tier: str, run_ids: Sequence[str]) -> set[str]:
    """Those that fill memory and cores by themselves: two of them at once would only need twice the memory."""
    if len(run_ids) < 2:
        return set()
    if tier == "bronze":
        complete, _ = workplace.zone.run_ids()
        most = workplace.limits.bytes_in_flight // workplace.limits.workers
        sizes = {
            run_id: sum(file.size_bytes or 0 for file in workplace.zone.files(run_id))
            for run_id in run_ids
            if run_id in complete
        }
    else:
        most = silver.CHUNK_EVENTS
        snapshot = workplace.lake.snapshot(trace_events.TABLE)
        sizes = {run_id: snapshot.partition(run_id).rows for run_id in run_ids}
    return {run_id for run_id, size in sizes.items() if size > most}


def _made(workplace: Workplace, tier: str, run_id: str, engines: Callable[[], Engine]) -> Made:
    began = time.perf_counter()
    try:
        written = tuple(_written(workplace, tier, run_id, engines))
        made = Made(run_id, tier, written, time.perf_counter() - began)
    except LakeError as error:
        made = Made(run_id, tier, seconds=time.perf_counter() - began, fault=error)
    workplace.onlooker.made(made)
    return made


def _written(workplace: Workplace, tier: str, run_id: str, engines: Callable[[], Engine]) -> list[Written]:
    if tier == "bronze":
        with workplace.onlooker.files(run_id, workplace.zone.files(run_id)) as progress:
            return bronze.materialise(
                workplace.lake,
                workplace.zone,
                run_id,
                workplace.limits,
                progress,
                workplace.keys,
                engines().executors,
            )
    if workplace.lake.snapshot(landed.TABLE).mark(run_id) is None:
        raise EvidenceRejected(f"run {run_id} has not landed in the lake", "make its bronze tables first")
    if tier == "silver":
        return silver.materialise(workplace.lake, run_id, engines())
    if workplace.lake.snapshot(silver.TABLES[-1]).mark(run_id) is None:
        raise EvidenceRejected(f"run {run_id} has no silver tables", "make its silver tables first")
    return gold.materialise(workplace.lake, run_id, engines())
