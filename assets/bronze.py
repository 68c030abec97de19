"""The bronze tables of one run, made from its landing directory."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from assets.landing_tasks import land_on
from bronze import land, runs, source_files
from lake.attestation_keys import NO_KEYS
from lake.errors import SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bronze.limits import Limits
    from bronze.read_file import Progress
    from lake.attestation_keys import AttestationKeys
    from lake.executors import Executors
    from lake.landing_zone import LandingZone
    from lake.snapshot import Written
    from lake.store import Lake

TABLES = land.TABLES


def seen(zone: LandingZone, run_id: str, keys: AttestationKeys = NO_KEYS) -> str:
    """The mark of a run's landing directory as it is now."""
    listing = [(entry.name, entry.problem or entry.etag) for entry in zone.files(run_id)]
    return land.seen(zone.manifest_etag(run_id), listing, keys)


def fresh(lake: Lake, zone: LandingZone, run_ids: Iterable[str], keys: AttestationKeys = NO_KEYS) -> set[str]:
    """Those runs that all bronze tables hold exactly as they lie in the landing zone; one look a table for all."""
    snapshots = [lake.snapshot(table) for table in TABLES]
    last = snapshots[-1]
    return {
        run_id
        for run_id in run_ids
        if len({snapshot.mark(run_id) for snapshot in snapshots}) == 1
        and last.has_seen(run_id, seen(zone, run_id, keys))
    }


def materialise(
    lake: Lake,
    zone: LandingZone,
    run_id: str,
    limits: Limits,
    progress: Progress = lambda *_: None,
    keys: AttestationKeys = NO_KEYS,
    executors: Executors | None = None,
) -> list[Written]:
    """Land a run; `bronze.runs` is written last, so that an interrupted run is never taken for a fresh one."""
    mark = seen(zone, run_id, keys)
    with ExitStack() as exits:
        stages = {table.name: exits.enter_context(lake.stage(table, run_id)) for table in land.STAGED}
        if executors is None:
            landed = asyncio.run(
                land.land_run(
                    run_id,
                    zone.manifest(run_id),
                    zone.files(run_id),
                    sinks=stages,
                    limits=limits,
                    progress=progress,
                    keys=keys,
                )
            )
        else:
            landed = land_on(executors, zone, run_id, stages, limits, progress, keys)
        if seen(zone, run_id, keys) != mark:
            raise SourceUnavailable(f"run {run_id} changed while it was read", "run it again when it is at rest")
        with ThreadPoolExecutor(thread_name_prefix="commit") as pool:  # most of a commit is waiting for the disk
            written = list(pool.map(lambda stage: lake.commit(stage, landed.made_from), stages.values()))
    written.append(lake.replace(source_files.TABLE, run_id, landed.source_files, landed.made_from))
    written.append(lake.replace(runs.TABLE, run_id, landed.runs, landed.made_from, seen=mark))
    return written
