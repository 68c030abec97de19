"""The bronze tables of one run, made from its landing directory."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from assets.build.freshness import mark_landing
from assets.build.landing_memory import describe_landing, recall_landing
from assets.build.landing_tasks import land_on
from assets.build.provenance import list_sources
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
    """Land a run; `bronze.runs` is written last, so that an interrupted run never counts as up to date.

    Of a run that is open, or was when it was last read, only files that are new or have changed are read.
    """
    mark = mark_landing(zone, run_id, keys)
    manifest, sources, is_open = zone.manifest(run_id), zone.files(run_id), zone.is_open(run_id)
    note = lake.read_landing_note(run_id)
    with ExitStack() as exits:
        stages = {table.name: exits.enter_context(lake.stage(table, run_id)) for table in land.STAGED}
        memory = recall_landing(lake, run_id, stages, keys, zone.seals, note)
        if executors is None:
            landed = asyncio.run(
                land.land_run(
                    run_id,
                    manifest,
                    sources,
                    sinks=stages,
                    limits=limits,
                    progress=progress,
                    keys=keys,
                    memory=memory,
                    is_open=is_open,
                )
            )
        else:
            landed = land_on(
                executors,
                zone,
                run_id,
                stages,
                limits,
                progress,
                keys,
                manifest=manifest,
                memory=memory,
                is_open=is_open,
            )
        # What comes to an open run while it is read makes it stale, and is read by the next landing.
        if not is_open and mark_landing(zone.relist(), run_id, keys) != mark:
            raise SourceUnavailable(f"run {run_id} changed while it was read", "run it again when it is at rest")
        whole, each = list_sources(run_id, zone.landed_manifest(run_id), (file.sha256 for file in landed.files), keys)
        with ThreadPoolExecutor(thread_name_prefix="commit") as pool:  # most of a commit is waiting for the disk
            commit = partial(lake.commit, made_from=landed.made_from, sources=whole)
            written = list(pool.map(commit, stages.values()))
    # Of each file one table speaks; all others name the whole of them.
    written.append(
        lake.replace(source_files.TABLE, run_id, landed.source_files, landed.made_from, sources=[*whole, *each])
    )
    written.append(lake.replace(runs.TABLE, run_id, landed.runs, landed.made_from, seen=mark, sources=whole))
    if is_open:
        lake.write_landing_note(run_id, describe_landing(landed, sources, keys, zone.seals))
    elif note is not None:
        lake.write_landing_note(run_id, None)
    return written
