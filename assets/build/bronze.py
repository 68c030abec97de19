"""The bronze tables of one run, made from its landing directory."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from assets.build.landing_tasks import land_on
from bronze import land, runs, source_files
from lake.attestation_keys import NO_KEYS
from lake.errors import LakeError, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from assets.build.freshness import Snapshots
    from bronze.limits import Limits
    from bronze.read_file import Progress
    from lake.attestation_keys import AttestationKeys
    from lake.executors import Executors
    from lake.landing_zone import LandingZone
    from lake.snapshot import Snapshot, Written
    from lake.store import Lake

TABLES = land.TABLES


def mark_landing(zone: LandingZone, run_id: str, keys: AttestationKeys = NO_KEYS) -> str:
    """The mark of a run's landing directory as it is now."""
    listing = [(entry.name, entry.problem or entry.etag) for entry in zone.files(run_id)]
    return land.mark_landing(zone.manifest_etag(run_id), listing, keys)


def find_stale(
    lake: Snapshots, zone: LandingZone, run_ids: Iterable[str], keys: AttestationKeys = NO_KEYS
) -> dict[str, str]:
    """Those runs that bronze does not hold exactly as they lie in the landing zone, and why; in a few words."""
    snapshots = [lake.snapshot(table) for table in TABLES]
    reasons = ((run_id, _why_stale(snapshots, zone, run_id, keys)) for run_id in run_ids)
    return {run_id: reason for run_id, reason in reasons if reason is not None}


def find_up_to_date(
    lake: Snapshots, zone: LandingZone, run_ids: Iterable[str], keys: AttestationKeys = NO_KEYS
) -> set[str]:
    """The other runs: all bronze tables hold them exactly as they lie in the landing zone."""
    asked = set(run_ids)
    return asked - find_stale(lake, zone, asked, keys).keys()


def _why_stale(snapshots: list[Snapshot], zone: LandingZone, run_id: str, keys: AttestationKeys) -> str | None:
    marks = {snapshot.mark(run_id) for snapshot in snapshots}
    if marks == {None}:
        return "bronze was never made"
    if len(marks) > 1:
        return "bronze is incomplete: a launch was stopped while it was written"
    try:
        is_seen = snapshots[-1].has_seen(run_id, mark_landing(zone, run_id, keys))
    except LakeError as error:  # one directory that cannot be listed says nothing of the others
        return f"its landing directory cannot be read: {error.what}"
    return None if is_seen else "bronze is stale: its files, the attestation keys or the readers changed"


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
        if mark_landing(zone, run_id, keys) != mark:
            raise SourceUnavailable(f"run {run_id} changed while it was read", "run it again when it is at rest")
        with ThreadPoolExecutor(thread_name_prefix="commit") as pool:  # most of a commit is waiting for the disk
            written = list(pool.map(lambda stage: lake.commit(stage, landed.made_from), stages.values()))
    written.append(lake.replace(source_files.TABLE, run_id, landed.source_files, landed.made_from))
    written.append(lake.replace(runs.TABLE, run_id, landed.runs, landed.made_from, seen=mark))
    return written
