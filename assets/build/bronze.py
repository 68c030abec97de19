"""The bronze tables of one run, made from its landing directory."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from assets.build.freshness import mark_landing
from assets.build.landing_tasks import land_on
from bronze import land, runs, source_files
from lake.attestation_keys import NO_KEYS
from lake.errors import SourceUnavailable

if TYPE_CHECKING:
    from bronze.limits import Limits
    from bronze.read_file import Progress
    from lake.attestation_keys import AttestationKeys
    from lake.executors import Executors
    from lake.landing_zone import LandingZone
    from lake.snapshot import Written
    from lake.store import Lake

TABLES = land.TABLES


def materialise(
    lake: Lake,
    zone: LandingZone,
    run_id: str,
    limits: Limits,
    progress: Progress = lambda *_: None,
    keys: AttestationKeys = NO_KEYS,
    executors: Executors | None = None,
) -> list[Written]:
    """Land a run; `bronze.runs` is written last, so that an interrupted run never counts as up to date."""
    mark = mark_landing(zone, run_id, keys)
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
        if mark_landing(zone.relist(), run_id, keys) != mark:
            raise SourceUnavailable(f"run {run_id} changed while it was read", "run it again when it is at rest")
        with ThreadPoolExecutor(thread_name_prefix="commit") as pool:  # most of a commit is waiting for the disk
            written = list(pool.map(lambda stage: lake.commit(stage, landed.made_from), stages.values()))
    written.append(lake.replace(source_files.TABLE, run_id, landed.source_files, landed.made_from))
    written.append(lake.replace(runs.TABLE, run_id, landed.runs, landed.made_from, seen=mark))
    return written
