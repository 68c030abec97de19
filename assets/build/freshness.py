"""Whether what a run's tables were made from is still what lies upstream; one look a table for any number of runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from assets.build.lineage import UPSTREAM

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from lake.snapshot import Snapshot
    from lake.tables import Table


class Snapshots(Protocol):
    """What tells how a table is: the lake as it is now, or one look at it."""

    def snapshot(self, table: Table) -> Snapshot:
        """The table at one version."""


class Look:
    """A look at the lake for many questions: each table's log is read once, when it is first asked for."""

    def __init__(self, lake: Snapshots) -> None:
        self._lake = lake
        self._snapshots: dict[str, Snapshot] = {}

    def snapshot(self, table: Table) -> Snapshot:
        """The table as it was when it was first asked for."""
        if table.full_name not in self._snapshots:
            self._snapshots[table.full_name] = self._lake.snapshot(table)
        return self._snapshots[table.full_name]


def find_stale(
    lake: Snapshots, tables: Sequence[Table], run_ids: Iterable[str], made_from: Callable[[Table, str], str]
) -> dict[str, str]:
    """Those runs of which a table was not made from what lies upstream of it, as `made_from` tells it, and why."""
    snapshots = [(table, lake.snapshot(table)) for table in tables]
    reasons: dict[str, str] = {}
    for run_id in run_ids:
        for table, snapshot in snapshots:
            if not snapshot.is_made_from(run_id, made_from(table, run_id)):
                reasons[run_id] = _describe(table, snapshot, run_id)
                break
    return reasons


def _describe(table: Table, snapshot: Snapshot, run_id: str) -> str:
    if snapshot.damages(run_id):
        return f"a data file of {table.full_name} is missing or truncated"
    if snapshot.mark(run_id) is None:
        return f"{table.full_name} was never made"
    return f"{table.full_name} is stale: what it is made from changed, or how"


class Origins:
    """What the tables upstream of some others were made from; one look at each for any number of runs."""

    def __init__(self, lake: Snapshots, known: Mapping[str, Table], tables: Iterable[Table]) -> None:
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
