"""The bronze tables of one run, made from its landing directory."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bronze import land, runs, source_files, trace_events, unreadable
from lake.errors import SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bronze.limits import Limits
    from lake.landing_zone import LandingZone
    from lake.snapshot import Written
    from lake.store import Lake

TABLES = land.TABLES


def seen(zone: LandingZone, run_id: str) -> str:
    """The mark of a run's landing directory as it is now."""
    listing = [(entry.name, entry.problem or entry.etag) for entry in zone.files(run_id)]
    return land.seen(zone.manifest_etag(run_id), listing)


def fresh(lake: Lake, zone: LandingZone, run_ids: Iterable[str]) -> set[str]:
    """Those runs that all bronze tables hold exactly as they lie in the landing zone; one look a table for all."""
    snapshots = [lake.snapshot(table) for table in TABLES]
    last = snapshots[-1]
    return {
        run_id
        for run_id in run_ids
        if len({snapshot.mark(run_id) for snapshot in snapshots}) == 1 and last.has_seen(run_id, seen(zone, run_id))
    }


def materialise(
    lake: Lake, zone: LandingZone, run_id: str, limits: Limits, progress: land.Progress = lambda *_: None
) -> list[Written]:
    """Land a run; `bronze.runs` is written last, so that an interrupted run is never taken for a fresh one."""
    mark = seen(zone, run_id)
    with lake.stage(trace_events.TABLE, run_id) as events, lake.stage(unreadable.TABLE, run_id) as stretches:
        landed = asyncio.run(
            land.land_run(
                run_id,
                zone.manifest(run_id),
                zone.files(run_id),
                events=events,
                stretches=stretches,
                limits=limits,
                progress=progress,
            )
        )
        if seen(zone, run_id) != mark:
            raise SourceUnavailable(f"run {run_id} changed while it was read", "run it again when it is at rest")
        written = [lake.commit(stage, landed.made_from) for stage in (events, stretches)]
    written.append(lake.replace(source_files.TABLE, run_id, landed.source_files, landed.made_from))
    written.append(lake.replace(runs.TABLE, run_id, landed.runs, landed.made_from, seen=mark))
    return written
