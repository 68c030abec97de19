"""`teetotal run`: bring every run that is new or stale up to date, and go on where one fails."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from assets import bronze, gold, silver
from lake.attestation_keys import NO_KEYS, AttestationKeys
from lake.errors import EvidenceRejected, LakeError, nearest
from lake.identity import slug

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from bronze.limits import Limits
    from lake.engines import Engine
    from lake.landing_zone import LandingZone
    from lake.store import Lake, Written
    from pipelines.progress import Watcher

_TRIES = 3


@dataclass(frozen=True)
class Outcome:
    """What became of one run: the tables written, or the reason why none was."""

    run_id: str
    written: tuple[Written, ...] = ()
    fault: LakeError | None = None
    is_skipped: bool = False


def run(
    lake: Lake,
    zone: LandingZone,
    limits: Limits,
    watcher: Watcher,
    engine: Engine,
    run_ids: Sequence[str] = (),
    *,
    full: bool = False,
    keys: AttestationKeys = NO_KEYS,
) -> list[Outcome]:
    """Materialise the runs that were named, or all; a fresh one is left alone unless `full`."""
    complete, _ = zone.run_ids()
    for run_id in run_ids:
        if slug(run_id) not in complete:
            raise EvidenceRejected(f"no run {run_id!r} in {zone.place}", nearest(run_id, complete))
    wanted = list(run_ids) or complete
    landed = set() if full else bronze.fresh(lake, zone, wanted, keys)
    conformed = set() if full else silver.fresh(lake, landed)
    measured = set() if full else gold.fresh(lake, conformed)
    outcomes = []
    for run_id in watcher.runs(wanted):
        if run_id in measured:
            outcomes.append(Outcome(run_id, is_skipped=True))
            continue
        try:
            written = [] if run_id in landed else _tried(partial(_land, lake, zone, limits, watcher, run_id, keys))
            written += [] if run_id in conformed else _tried(partial(silver.materialise, lake, run_id, engine))
            written += _tried(partial(gold.materialise, lake, run_id, engine))
            outcomes.append(Outcome(run_id, tuple(written)))
        except LakeError as error:
            outcomes.append(Outcome(run_id, fault=error))
    if outcomes:
        _tried(partial(gold.relate, lake))
    return outcomes


def _land(
    lake: Lake, zone: LandingZone, limits: Limits, watcher: Watcher, run_id: str, keys: AttestationKeys
) -> list[Written]:
    with watcher.files(zone.files(run_id)) as progress:
        return bronze.materialise(lake, zone, run_id, limits, progress, keys)


def _tried(work: Callable[[], list[Written]]) -> list[Written]:
    """Do something, again a few times where the reason is transient."""
    for attempt in range(_TRIES):
        try:
            return work()
        except LakeError as error:
            if not error.is_transient or attempt == _TRIES - 1:
                raise
            time.sleep(0.5 * 2**attempt)
    raise AssertionError("unreachable")
