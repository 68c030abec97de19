"""Whether what a run's tables were made from is still what lies upstream; one look a table for any number of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assets.lineage import UPSTREAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

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


class Origins:
    """What the tables upstream of some others were made from; one look at each for any number of runs."""

    def __init__(self, lake: Lake, known: Mapping[str, Table], tables: Iterable[Table]) -> None:
        names = sorted({name for table in tables for name in UPSTREAM[table.full_name]})
        self._snapshots = {name: lake.snapshot(known[name]) for name in names}

    def marks(self, run_id: str) -> list[int | None]:
        """The marks of a run in all of them."""
        return [snapshot.mark(run_id) for snapshot in self._snapshots.values()]

    def upstream(self, table: Table, run_id: str) -> list[int | None]:
        """The one mark that all a table is made from bear, or all of them where they differ."""
        return sorted({self._snapshots[name].mark(run_id) for name in UPSTREAM[table.full_name]}, key=str)

    def lacking(self, run_id: str) -> list[str]:
        """The tables that a run does not have."""
        return [name for name, snapshot in self._snapshots.items() if snapshot.mark(run_id) is None]
