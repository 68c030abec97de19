"""The runs that have answers of their own: what any question across runs begins with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.errors import EvidenceRejected, nearest

if TYPE_CHECKING:
    from gold.pairs import Index


def require_measured(index: Index, run_id: str) -> None:
    """Refuse the name of a run that has no gold tables."""
    if run_id not in index:
        raise EvidenceRejected(f"no run {run_id[:160]!r} with gold tables", nearest(run_id[:160], index))
