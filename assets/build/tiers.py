"""A tier of many runs at once: what is up to date stays, small runs are built side by side, one fails alone."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from assets.build import bronze, chunking, gold, silver
from assets.build.catalogue import list_required
from assets.build.freshness import Look, find_up_to_date
from bronze import runs as landed
from bronze import trace_events
from lake.errors import EvidenceRejected, LakeError, explain, is_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from assets.build.context import BuildContext
    from lake.engines import Engine
    from lake.landing_zone import LandingZone
    from lake.snapshot import Written
    from lake.tables import Table

Tables: TypeAlias = "Mapping[str, Sequence[Table]]"
TIERS: Tables = {"bronze": bronze.TABLES, "silver": silver.TABLES, "gold": gold.RUN_TABLES}


@dataclass(frozen=True)
class TierResult:
    """One tier of one run: its partitions as they are now, or the reason why they could not be made."""

    run_id: str
    tier: str
    written: tuple[Written, ...] = ()
    seconds: float = 0.0
    is_fresh: bool = False
    fault: LakeError | None = None


def select_tables(names: Iterable[str]) -> Tables:
    """What to make of each tier so that these tables can be: bronze whole, since a file is read once for all."""
    wanted = set(names)
    by_tier: dict[str, Sequence[Table]] = {}
    for tier, tables in TIERS.items():
        mine = list_required(table.full_name for table in tables if table.full_name in wanted)
        if mine:
            by_tier[tier] = tables if tier == "bronze" else [table for table in tables if table.full_name in mine]
    return by_tier


def list_left_out(tables: Tables) -> frozenset[Table]:
    """The tables that are not made though others of their tier are."""
    return frozenset(table for tier, some in tables.items() for table in TIERS[tier] if table not in some)


def build_tier(
    build_context: BuildContext,
    tier: str,
    run_ids: Sequence[str],
    engines: Callable[[], Engine],
    *,
    full: bool = False,
    tables: Tables = TIERS,
) -> list[TierResult]:
    """Build a tier of some runs, in the order of the ids; what is up to date is only looked at unless `full`."""
    if full:
        build_context = replace(build_context, lake=build_context.lake.rewriting())
    # A run that is gone from the landing zone, or whose manifest is broken, says so when it is made.
    complete = build_context.zone.run_ids()[0] if tier == "bronze" and not full else run_ids
    look = Look(build_context.lake, build_context.zone, build_context.keys)
    found = set() if full else find_up_to_date(look, tables[tier], set(run_ids).intersection(complete))
    stale = [run_id for run_id in run_ids if run_id not in found]
    large = _find_large(build_context, tier, stale)
    making = partial(_build_run, build_context, tier, tables[tier], engines)
    made = {run_id: making(run_id) for run_id in stale if run_id in large}
    small = [run_id for run_id in stale if run_id not in large]
    if small:
        with ThreadPoolExecutor(build_context.limits.workers, thread_name_prefix=tier) as pool:
            made |= zip(small, pool.map(making, small), strict=True)
    if found:
        snapshots = [build_context.lake.snapshot(table) for table in tables[tier]]
        for run_id in found:
            partitions = tuple(snapshot.partition(run_id) for snapshot in snapshots)
            made[run_id] = TierResult(run_id, tier, partitions, is_fresh=True)
    for run_id in found:
        build_context.listener.on_built(made[run_id])
    return [made[run_id] for run_id in run_ids]


def _find_large(build_context: BuildContext, tier: str, run_ids: Sequence[str]) -> set[str]:
    """Those that fill memory and cores by themselves: two of them at once would only need twice the memory."""
    if len(run_ids) < 2:
        return set()
    if tier == "bronze":
        complete, _ = build_context.zone.run_ids()
        most = build_context.limits.bytes_in_flight // build_context.limits.workers
        sizes = {run_id: _size(build_context.zone, run_id) for run_id in run_ids if run_id in complete}
    else:
        most = chunking.CHUNK_EVENTS
        snapshot = build_context.lake.snapshot(trace_events.TABLE)
        sizes = {run_id: snapshot.partition(run_id).rows for run_id in run_ids}
    return {run_id for run_id, size in sizes.items() if size > most}


def _size(zone: LandingZone, run_id: str) -> int:
    try:
        return sum(file.size_bytes or 0 for file in zone.files(run_id))
    except LakeError:  # a directory that cannot be listed says so when it is read
        return 0


def _build_run(
    build_context: BuildContext, tier: str, tables: Sequence[Table], engines: Callable[[], Engine], run_id: str
) -> TierResult:
    began = time.perf_counter()
    try:
        written = tuple(_write_tier(build_context, tier, tables, engines, run_id))
        made = TierResult(run_id, tier, written, time.perf_counter() - began)
    except BaseException as error:  # whatever it is, it is the fault of this run and no reason to stop its neighbours
        if is_stop(error):
            raise
        made = TierResult(run_id, tier, seconds=time.perf_counter() - began, fault=explain(error, run_id))
    build_context.listener.on_built(made)
    return made


def _write_tier(
    build_context: BuildContext, tier: str, tables: Sequence[Table], engines: Callable[[], Engine], run_id: str
) -> list[Written]:
    if tier == "bronze":
        with build_context.listener.track_files(run_id, build_context.zone.files(run_id)) as progress:
            return bronze.materialise(
                build_context.lake,
                build_context.zone,
                run_id,
                build_context.limits,
                progress,
                build_context.keys,
                engines().executors,
            )
    if build_context.lake.snapshot(landed.TABLE).mark(run_id) is None:
        raise EvidenceRejected(f"run {run_id} has not landed in the lake", "make its bronze tables first")
    if tier == "silver":
        return silver.materialise(build_context.lake, run_id, engines(), tables)
    lacking = Look(build_context.lake).list_lacking(tables, run_id)
    if lacking:
        raise EvidenceRejected(f"run {run_id} has no {', '.join(lacking)}", "make its silver tables first")
    return gold.materialise(build_context.lake, run_id, engines(), tables)
