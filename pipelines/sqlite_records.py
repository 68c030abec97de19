"""Dagster's records in SQLite files, each opened once per process: Dagster itself opens them for every statement.

A launch with its checks stores hundreds of events, and each took several connections, of which each compiled its
statements anew: a third of a small run's time. The files are the same; `storage: sqlite` opens them too.
"""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dagster import DagsterEventType
from dagster._core.events import ASSET_CHECK_EVENTS, ASSET_EVENTS
from dagster._core.storage.event_log.schema import AssetKeyTable, SqlEventLogStorageTable
from dagster._core.storage.event_log.sqlite.sqlite_event_log import INDEX_SHARD_NAME, SqliteEventLogStorage
from dagster._core.storage.runs.sqlite.sqlite_run_storage import SqliteRunStorage
from dagster._core.storage.schedules.sqlite.sqlite_schedule_storage import SqliteScheduleStorage
from dagster._core.storage.sqlite import create_db_conn_string
from dagster._core.storage.sqlite_storage import DagsterSqliteStorage
from sqlalchemy import bindparam, func, inspect, select

from pipelines.check_records import store_check_events
from pipelines.record_files import OpenFiles, copy_empty_log, is_set_up, open_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from dagster import AssetKey
    from dagster._core.events.log import EventLogEntry
    from dagster._serdes import ConfigurableClassData
    from sqlalchemy.engine import Connection, Engine

# What a launch tells of many partitions, one after the other, and how many of them and for how long they may wait.
_MAY_WAIT = {
    DagsterEventType.ASSET_MATERIALIZATION,
    DagsterEventType.ASSET_OBSERVATION,
    DagsterEventType.ASSET_CHECK_EVALUATION,
}
_MOST_WAITING = 1_000
_LONGEST_WAIT = 1.0
_INSERT = SqlEventLogStorageTable.insert()
_UPDATE_ASSET = AssetKeyTable.update().where(AssetKeyTable.c.asset_key == bindparam("of_asset"))


class SqliteEventLog(SqliteEventLogStorage):
    """Dagster's event log: a file per launch and an index of all."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._files = OpenFiles()
        # The transactions of a batch, by file.
        self._begun: dict[str, Connection] = {}
        # The last event of each kind that a batch has of an asset, and its number.
        self._last_events: dict[tuple[AssetKey, DagsterEventType], tuple[EventLogEntry, int]] = {}
        self._batch_lock = threading.RLock()
        # What a launch tells of tables and checks, until something else is stored or asked.
        self._waiting: list[EventLogEntry] = []
        self._waiting_since = 0.0
        self._tables: set[str] = set()
        self._asset_columns: set[str] = set()
        super().__init__(base_dir, inst_data)

    @contextmanager
    def _connect(self, shard: str) -> Iterator[Connection]:
        with self._batch_lock:
            if shard in self._begun:
                yield self._begun[shard]
                return
            self._store_waiting()
            engine = self._files.find(self.conn_string_for_shard(shard))
            if shard not in self._initialized_dbs:
                self._initdb(engine, for_index_shard=shard == INDEX_SHARD_NAME)
                self._initialized_dbs.add(shard)
            with engine.begin() as connection:
                yield connection

    def _initdb(self, engine: Engine, for_index_shard: bool = False) -> None:
        """Make a file's tables where it has none; what a new launch's file holds is copied, not made again."""
        path = Path(str(engine.url.database))
        if not for_index_shard and not path.exists():
            copy_empty_log(path, super()._initdb)
        if not is_set_up(engine):
            super()._initdb(engine, for_index_shard)

    def has_table(self, table_name: str) -> bool:
        """Whether the index has such a table: asked at every check, and it is never taken away."""
        if table_name not in self._tables:
            with self._connect(INDEX_SHARD_NAME) as connection:
                self._tables.update(inspect(connection).get_table_names())
        return table_name in self._tables

    def _has_asset_key_col_on_connection(self, conn: Connection, column_name: str) -> bool:
        """Whether the index knows such a column of assets: asked at every event of an asset, and never taken away."""
        if column_name not in self._asset_columns:
            self._asset_columns.update(column["name"] for column in inspect(conn).get_columns(AssetKeyTable.name))
        return column_name in self._asset_columns

    def _store_asset_event(self, conn: Connection, event: EventLogEntry, event_id: int) -> None:
        """What the index says of an asset as a whole: of a batch, by the last events alone, once all are stored."""
        told = event.dagster_event
        if not (self._begun and told and told.asset_key):
            super()._store_asset_event(conn, event, event_id)
            return
        kind = (told.asset_key, told.event_type)
        self._last_events.pop(kind, None)
        self._last_events[kind] = (event, event_id)

    def store_event(self, event: EventLogEntry) -> None:
        """Store an event; of what a launch tells of tables and checks in quick succession, a batch at a time.

        Whatever else is stored or asked comes after them, so that nobody in this process sees a difference; another
        process sees them up to a second later.
        """
        with self._batch_lock:
            if self._begun or not _may_wait(event):
                super().store_event(event)
                return
            if not self._waiting:
                self._waiting_since = time.monotonic()
            self._waiting.append(event)
            if len(self._waiting) >= _MOST_WAITING or time.monotonic() - self._waiting_since > _LONGEST_WAIT:
                self._store_waiting()

    def _store_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        if waiting:
            self.store_event_batch(waiting)

    def store_event_batch(self, events: Sequence[EventLogEntry]) -> None:
        """Store events of one launch in one transaction per file."""
        with self._batch_lock, ExitStack() as stack:
            self._store_waiting()
            try:
                for shard in dict.fromkeys((*(event.run_id for event in events), INDEX_SHARD_NAME)):
                    self._begun[shard] = stack.enter_context(self._connect(shard))
                for (run_id, is_indexed), group in groupby(events, key=lambda one: (one.run_id, _is_indexed(one))):
                    if is_indexed:
                        self._store_indexed_events(run_id, list(group))
                    else:
                        for one in group:
                            self.store_event(one)
                for last, event_id in self._last_events.values():
                    self._store_last_event(self._begun[INDEX_SHARD_NAME], last, event_id)
            finally:
                self._begun.clear()
                self._last_events.clear()

    def _store_indexed_events(self, run_id: str, events: Sequence[EventLogEntry]) -> None:
        """Store events of assets and checks in the file of their launch and in the index: each is made text once."""
        rows = [self._event_to_row(event) for event in events]
        index = self._begun[INDEX_SHARD_NAME]
        self._begun[run_id].execute(_INSERT, rows)
        index.execute(_INSERT, rows)
        # Nobody else writes to the index within a transaction that has written: the numbers follow each other.
        last = index.execute(select(func.max(SqlEventLogStorageTable.c.id))).scalar_one()
        stored = list(zip(events, rows, range(last - len(rows) + 1, last + 1), strict=True))
        of_assets = [(event, event_id) for event, _, event_id in stored if event.dagster_event_type in ASSET_EVENTS]
        if of_assets:
            self._store_asset_event_tags(index, *zip(*of_assets, strict=True))
        for event, event_id in of_assets:
            self._store_asset_event(index, event, event_id)
        store_check_events(index, (one for one in stored if one[0].dagster_event_type in ASSET_CHECK_EVENTS))

    def _store_last_event(self, index: Connection, event: EventLogEntry, event_id: int) -> None:
        """Write into an asset's row what its last event says; Dagster tries each time to add the row first."""
        values = self._get_asset_entry_values(event, event_id, self._has_asset_key_index_cols_on_connection(index))
        asset_key = event.get_dagster_event().asset_key
        if not (values and asset_key):
            return
        if not index.execute(_UPDATE_ASSET, {"of_asset": asset_key.to_string(), **values}).rowcount:
            super()._store_asset_event(index, event, event_id)

    def wipe(self) -> None:
        """Remove everything; what is open is closed first."""
        self._waiting.clear()
        self._files.close()
        super().wipe()

    def dispose(self) -> None:
        """Close the files."""
        with self._batch_lock:
            self._store_waiting()
        super().dispose()
        self._files.close()


def _may_wait(event: EventLogEntry) -> bool:
    return event.is_dagster_event and event.dagster_event_type in _MAY_WAIT


def _is_indexed(event: EventLogEntry) -> bool:
    """Whether the index of all launches has the event too; a check that no launch has made is left to Dagster."""
    kinds = (ASSET_EVENTS | ASSET_CHECK_EVENTS) if event.run_id else ASSET_EVENTS
    return event.is_dagster_event and event.dagster_event_type in kinds


class SqliteRuns(SqliteRunStorage):
    """Dagster's list of launches."""

    def __init__(self, conn_string: str, inst_data: ConfigurableClassData | None = None) -> None:
        self._engine = open_file(conn_string)
        self._lock = threading.RLock()
        super().__init__(conn_string, inst_data)

    @classmethod
    def from_local(cls, base_dir: str, inst_data: ConfigurableClassData | None = None) -> Self:
        """Open the list; Dagster makes it where it is not there."""
        found = cls(create_db_conn_string(base_dir, "runs"), inst_data)
        if is_set_up(found._engine):
            return found
        found.dispose()
        return super().from_local(base_dir, inst_data)

    @contextmanager
    def connect(self) -> Iterator[Connection]:
        """One transaction; another thread waits for its end."""
        with self._lock, self._engine.begin() as connection:
            yield connection

    def dispose(self) -> None:
        """Close the file."""
        super().dispose()
        self._engine.dispose()


class SqliteSchedules(SqliteScheduleStorage):
    """Dagster's record of schedules and sensors."""

    @classmethod
    def from_local(cls, base_dir: str, inst_data: ConfigurableClassData | None = None) -> SqliteScheduleStorage:
        """Open the record; Dagster makes it where it is not there."""
        address = create_db_conn_string(base_dir, "schedules")
        engine = open_file(address)
        try:
            return cls(address, inst_data) if is_set_up(engine) else super().from_local(base_dir, inst_data)
        finally:
            engine.dispose()


class SqliteRecords(DagsterSqliteStorage):
    """What `dagster.yaml` names: launches, their events and what is scheduled, in files under one directory."""

    def __init__(self, base_dir: str, inst_data: ConfigurableClassData | None = None) -> None:
        self.base_dir = base_dir
        self._run_storage = SqliteRuns.from_local(f"{base_dir}/history/")
        self._event_log_storage = SqliteEventLog(f"{base_dir}/history/runs/")
        self._schedule_storage = SqliteSchedules.from_local(f"{base_dir}/schedules")
        self._inst_data = inst_data
        super(DagsterSqliteStorage, self).__init__()  # type: ignore[no-untyped-call]  # that class's own would open the files its own way first

    @classmethod
    def from_config_value(cls, inst_data: ConfigurableClassData | None, config_value: Any) -> SqliteRecords:
        """Open the records that `dagster.yaml` names."""
        return cls.from_local(config_value["base_dir"], inst_data)
