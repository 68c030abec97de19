"""A tier of many runs at once: what is fresh stays, small runs side by side, and one that fails stops alone."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from assets import bronze, gold, silver
from assets.lineage import needed
from bronze import runs as landed
from bronze import trace_events
from lake.errors import EvidenceRejected, LakeError, explain, is_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from assets.workplace import Workplace
    from lake.engines import Engine
    from lake.landing_zone import LandingZone
    from lake.snapshot import Written
    from lake.tables import Table

Tables: TypeAlias = "Mapping[str, Sequence[Table]]"
TIERS: Tables = {"bronze": bronze.TABLES, "silver": silver.TABLES, "gold": gold.RUN_TABLES}


@dataclass(frozen=True)
class Made:
    """One tier of one run: its partitions as they are now, or the reason why they could not be made."""

    run_id: str
    tier: str
    written: tuple[Written, ...] = ()
    seconds: float = 0.0
    is_fresh: bool = False
    fault: LakeError | None = None


def part(names: Iterable[str]) -> Tables:
    """What to make of each tier so that these tables can be: bronze whole, since a file is read once for all."""
    wanted = set(names)
    by_tier: dict[str, Sequence[Table]] = {}
    for tier, tables in TIERS.items():
        mine = needed(table.full_name for table in tables if table.full_name in wanted)
        if mine:
            by_tier[tier] = tables if tier == "bronze" else [table for table in tables if table.full_name in mine]
    return by_tier


def left_out(tables: Tables) -> frozenset[Table]:
    """The tables that are not made though others of their tier are."""
    return frozenset(table for tier, some in tables.items() for table in TIERS[tier] if table not in some)


def make(
    workplace: Workplace,
    tier: str,
    run_ids: Sequence[str],
    engines: Callable[[], Engine],
    *,
    full: bool = False,
    tables: Tables = TIERS,
) -> list[Made]:
    """Make a tier of some runs; a fresh one is only looked at unless `full`. In the order of the ids."""
    if full:
        workplace = replace(workplace, lake=workplace.lake.rewriting())
    found = set() if full else _fresh(workplace, tier, run_ids, tables[tier])
    stale = [run_id for run_id in run_ids if run_id not in found]
    large = _large(workplace, tier, stale)
    making = partial(_made, workplace, tier, tables[tier], engines)
    made = {run_id: making(run_id) for run_id in stale if run_id in large}
    small = [run_id for run_id in stale if run_id not in large]
    if small:
        with ThreadPoolExecutor(workplace.limits.workers, thread_name_prefix=tier) as pool:
            made |= zip(small, pool.map(making, small), strict=True)
    if found:
        snapshots = [workplace.lake.snapshot(table) for table in tables[tier]]
        for run_id in found:
            partitions = tuple(snapshot.partition(run_id) for snapshot in snapshots)
            made[run_id] = Made(run_id, tier, partitions, is_fresh=True)
    for run_id in found:
        workplace.onlooker.made(made[run_id])
    return [made[run_id] for run_id in run_ids]


def _fresh(workplace: Workplace, tier: str, run_ids: Sequence[str], tables: Sequence[Table]) -> set[str]:
    if tier == "silver":
        return silver.fresh(workplace.lake, run_ids, tables)
    if tier == "gold":
        return gold.fresh(workplace.lake, run_ids, tables)
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
        sizes = {run_id: _size(workplace.zone, run_id) for run_id in run_ids if run_id in complete}
    else:
        most = silver.CHUNK_EVENTS
        snapshot = workplace.lake.snapshot(trace_events.TABLE)
        sizes = {run_id: snapshot.partition(run_id).rows for run_id in run_ids}
    return {run_id for run_id, size in sizes.items() if size > most}


def _size(zone: LandingZone, run_id: str) -> int:
    try:
        return sum(file.size_bytes or 0 for file in zone.files(run_id))
    except LakeError:  # a directory that cannot be listed says so when it is read
        return 0


def _made(workplace: Workplace, tier: str, tables: Sequence[Table], engines: Callable[[], Engine], run_id: str) -> Made:
    began = time.perf_counter()
    try:
        written = tuple(_written(workplace, tier, tables, engines, run_id))
        made = Made(run_id, tier, written, time.perf_counter() - began)
    except BaseException as error:  # whatever it is, it is the fault of this run and no reason to stop its neighbours
        if is_stop(error):
            raise
        made = Made(run_id, tier, seconds=time.perf_counter() - began, fault=explain(error, run_id))
    workplace.onlooker.made(made)
    return made


def _written(
    workplace: Workplace, tier: str, tables: Sequence[Table], engines: Callable[[], Engine], run_id: str
) -> list[Written]:
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
        return silver.materialise(workplace.lake, run_id, engines(), tables)
    lacking = gold.origins(workplace.lake, tables).lacking(run_id)
    if lacking:
        raise EvidenceRejected(f"run {run_id} has no {', '.join(lacking)}", "make its silver tables first")
    return gold.materialise(workplace.lake, run_id, engines(), tables)
