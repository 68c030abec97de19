"""What Dagster's records say of runs that are forgotten: their partitions, their events, and launches of them alone."""

from __future__ import annotations

import re
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import sqlalchemy as sql
from dagster._serdes import deserialize_value, serialize_value

from assets.specs import TRAINING_RUNS
from pipelines.partitions import list_known, make_range_tags

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from sqlalchemy.engine import Connection

    from pipelines.settings import Home

_MATERIALISED = "ASSET_MATERIALIZATION"
# Rows of these are deleted where any text of them names the run: what was checked, launched in bulk, or ticked.
_NAMED_IN = ("asset_check_executions", "bulk_actions", "job_ticks", "asset_daemon_asset_evaluations")


class ForgottenRecords:
    """The records of one instance, in which some runs are to be named no more."""

    def __init__(self, instance: dg.DagsterInstance, home: Home, run_ids: Collection[str]) -> None:
        self._instance = instance
        self._home = home
        self._run_ids = set(run_ids)
        ids = "|".join(map(re.escape, sorted(run_ids)))
        self._pattern = re.compile(rf"(?<![A-Za-z0-9_.-])(?:{ids})(?![A-Za-z0-9_.-])")
        self._storage: Any = instance.event_log_storage
        self.launches = 0
        self.events = 0

    def remove(self) -> None:
        """Remove partitions, events and launches; what SQLite has deleted is not left in its files."""
        for run_id in self._run_ids.intersection(list_known(self._instance)):
            self._instance.delete_dynamic_partition(str(TRAINING_RUNS.name), run_id)
        newest = self._find_newest()
        runs = self._instance.get_runs()
        for run in runs:
            with self._storage.run_connection(run.run_id) as connection:
                removed = self._remove_events(connection, newest, run.run_id)
            is_named = not self._run_ids.isdisjoint(run.tags.values())
            if is_named:
                self._leave_out(run.run_id)
            if removed or is_named:
                self._instance.compute_log_manager.delete_logs(prefix=[run.run_id])
        with self._storage.index_connection() as connection:
            self._remove_events(connection, newest)
            self._remind_assets(connection)
        for connection in self._connect_all():
            self._remove_rows(connection)
        if not self._home.is_postgres:
            _compact(self._home.directory)

    def _find_newest(self) -> set[tuple[str, str, str]]:
        """Launch, asset and partition of the newest materialisation of each partition that stays."""
        with self._storage.index_connection() as connection:
            events = _reflect(connection, "event_logs")
            rows = _ask(
                connection,
                sql.select(events.c.run_id, events.c.asset_key, events.c.partition)
                .where(events.c.dagster_event_type == _MATERIALISED)
                .order_by(events.c.id),
            )
            found = {(key, partition): launch for launch, key, partition in rows if partition not in self._run_ids}
        return {(launch, key, partition) for (key, partition), launch in found.items()}

    def _remove_events(
        self, connection: Connection, newest: set[tuple[str, str, str]], launch: str | None = None
    ) -> bool:
        """Delete the events that are of a run or name it, but for the newest materialisation of what stays."""
        events = _reflect(connection, "event_logs")
        columns = (events.c.id, events.c.run_id, events.c.asset_key, events.c.partition, events.c.event)
        asked = sql.select(*columns) if launch is None else sql.select(*columns).where(events.c.run_id == launch)
        gone = [row.id for row in _ask(connection, asked) if self._is_removed(row, newest)]
        for first in range(0, len(gone), 500):
            some = gone[first : first + 500]
            _ask(connection, sql.delete(events).where(events.c.id.in_(some)))
            if sql.inspect(connection).has_table("asset_event_tags"):
                tags = _reflect(connection, "asset_event_tags")
                _ask(connection, sql.delete(tags).where(tags.c.event_id.in_(some)))
        self.events += len(gone) if launch is not None else 0
        return bool(gone)

    def _is_removed(self, row: Any, newest: set[tuple[str, str, str]]) -> bool:
        if row.partition in self._run_ids:
            return True
        return (row.run_id, row.asset_key, row.partition) not in newest and self._names(row.event)

    def _names(self, text: object) -> bool:
        return isinstance(text, str) and self._pattern.search(text) is not None

    def _leave_out(self, launch: str) -> None:
        """Delete a launch of these runs alone; one of others too is from now on a launch of those."""
        with self._storage.index_connection() as connection:
            events = _reflect(connection, "event_logs")
            asked = sql.select(events.c.partition).where(events.c.run_id == launch).distinct()
            others = {partition for (partition,) in _ask(connection, asked)} - self._run_ids
        left = [run_id for run_id in list_known(self._instance) if run_id in others]
        if left:
            self._instance.add_run_tags(launch, make_range_tags(left))
            self._take_out_subset(launch)
            return
        self._instance.delete_run(launch)
        self.launches += 1
        if hasattr(self._storage, "path_for_shard"):
            Path(self._storage.path_for_shard(launch)).unlink(missing_ok=True)

    def _take_out_subset(self, launch: str) -> None:
        """Take the list of its runs out of a launch's own record: its tags, and its events, say which they are."""
        storage: Any = self._instance.run_storage
        with storage.connect() as connection:
            runs = _reflect(connection, "runs")
            mine = runs.c.run_id == launch
            run = deserialize_value(_ask(connection, sql.select(runs.c.run_body).where(mine)).scalar(), dg.DagsterRun)
            body = serialize_value(run._replace(partitions_subset=None))
            _ask(connection, sql.update(runs).where(mine).values(run_body=body))

    def _remind_assets(self, connection: Connection) -> None:
        """Let each asset's newest event be one that is still there."""
        assets, events = _reflect(connection, "asset_keys"), _reflect(connection, "event_logs")
        for row in _ask(connection, sql.select(assets)).fetchall():
            if not self._names(row.last_materialization):
                continue
            newest = _ask(
                connection,
                sql.select(events.c.event)
                .where(events.c.asset_key == row.asset_key, events.c.dagster_event_type == _MATERIALISED)
                .order_by(events.c.id.desc())
                .limit(1),
            ).scalar()
            _ask(
                connection,
                sql.update(assets)
                .where(assets.c.id == row.id)
                .values(last_materialization=newest, cached_status_data=None),
            )

    def _connect_all(self) -> Iterator[Connection]:
        with ExitStack() as stack:
            runs: Any = self._instance.run_storage
            schedules: Any = self._instance.schedule_storage
            for connect in (self._storage.index_connection, runs.connect, schedules.connect):
                yield stack.enter_context(connect())

    def _remove_rows(self, connection: Connection) -> None:
        for name in _NAMED_IN:
            if not sql.inspect(connection).has_table(name):
                continue
            table = _reflect(connection, name)
            gone = [row.id for row in _ask(connection, sql.select(table)) if any(map(self._names, row))]
            for one in gone:
                _ask(connection, sql.delete(table).where(table.c.id == one))


def _ask(connection: Connection, statement: sql.Executable) -> Any:
    """Every statement here is an expression of SQLAlchemy's; a text has another type."""
    return connection.execute(statement)


def _reflect(connection: Connection, name: str) -> sql.Table:
    return sql.Table(name, sql.MetaData(), autoload_with=connection)


def _compact(home: Path) -> None:
    """Write SQLite's files anew: what was deleted would stay in free pages."""
    found: Sequence[Path] = sorted(home.rglob("*.db"))
    for path in found:
        with closing(sqlite3.connect(path, isolation_level=None, timeout=60)) as connection:
            connection.execute("VACUUM")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
