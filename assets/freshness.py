"""Whether what a run's tables were made from is still what lies upstream; one look a table for any number of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from lake.store import Lake
    from lake.tables import Table


def fresh(
    lake: Lake, tables: Sequence[Table], run_ids: Iterable[str], made_from: Callable[[Table, str], str]
) -> set[str]:
    """Those runs of which all tables were made from what lies upstream of each, as `made_from` tells it."""
    snapshots = [(table, lake.snapshot(table)) for table in tables]
    return {
        run_id
        for run_id in run_ids
        if all(snapshot.is_made_from(run_id, made_from(table, run_id)) for table, snapshot in snapshots)
    }
