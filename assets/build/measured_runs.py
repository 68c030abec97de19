"""The runs that have answers of their own: what any question across runs begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gold import time_breakdown
from lake.errors import EvidenceRejected, nearest
from silver import runs

if TYPE_CHECKING:
    from assets.build.freshness import Snapshots
    from gold.pairs import Index


def require_measured(index: Index, run_id: str) -> None:
    """Refuse the name of a run that has no gold tables."""
    if run_id not in index:
        raise EvidenceRejected(f"no run {run_id[:160]!r} with gold tables", nearest(run_id[:160], index))


def index_measured_runs(lake: Snapshots) -> Index:
    """What the log says of every run that has its own gold."""
    marks = lake.snapshot(time_breakdown.TABLE)
    index = lake.snapshot(runs.TABLE).index()
    return {run_id: run for run_id, run in index.items() if marks.mark(run_id) is not None}
