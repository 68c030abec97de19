"""Which runs hold attestation tokens of each other, from the log alone, and what is said of them again for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gold import attested_runs
from lake.engines import PolarsEngine
from silver import runs

if TYPE_CHECKING:
    from collections.abc import Callable

    from assets.build.freshness import Snapshots
    from lake.snapshot import Written
    from lake.store import Lake


def find_replays(lake: Snapshots) -> dict[str, list[str]]:
    """All runs that share an id or a nonce of their tokens, each with the others."""
    return attested_runs.find_replays(lake.snapshot(runs.TABLE).index())


def find_replays_of(lake: Snapshots, run_id: str) -> list[str]:
    """The other runs that hold tokens of this one; all runs are looked at only where it has any."""
    own = lake.snapshot(runs.TABLE).index([run_id]).get(run_id)
    return [] if own is None or own["attestation_ids"] is None else find_replays(lake).get(run_id, [])


def measure_again(lake: Lake, fingerprint: Callable[[str, list[str]], str]) -> list[Written]:
    """Say again what attests a run, where runs that hold its tokens came or went since; gives those partitions."""
    index, snapshot, engine = lake.snapshot(runs.TABLE).index(), lake.snapshot(attested_runs.TABLE), PolarsEngine()
    found = attested_runs.find_replays(index)
    written = []
    for run_id, run in sorted(index.items()):
        others = found.get(run_id, [])
        # A run that has no such row yet gets it when it is measured itself.
        if run["attestation_ids"] is None or snapshot.mark(run_id) is None:
            continue
        if not snapshot.is_made_from(run_id, fingerprint(run_id, others)):
            rows = engine.rows(attested_runs.measure(engine.read(lake, runs.TABLE, [run_id]), others))
            written.append(lake.replace(attested_runs.TABLE, run_id, rows, fingerprint(run_id, others)))
    return written
