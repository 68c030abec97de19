"""The door: the one place that writes to the lake, and the readers beside it."""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError

from lake import commits
from lake.contract import check_columns, matches, partitions, require_declared
from lake.datafiles import compare_sizes, open_data_file, pick_paths
from lake.datasets import dataset
from lake.digest import combine
from lake.durability import Disk
from lake.errors import ContractBroken, SourceUnavailable
from lake.executor_stage import ExecutorStage
from lake.identity import slug
from lake.keyring_guard import KeyringGuard
from lake.locations import report_unreachable
from lake.log_recovery import remove_leftovers, set_aside_cut_entries
from lake.sealing import TOKEN, seal, unseal
from lake.snapshot import Snapshot, Written, bytes_id, bytes_mark, format_label, list_data_files, mark_of, seen_id
from lake.staging import Stage
from lake.tables import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    import duckdb
    import polars as pl
    from pyarrow.dataset import Dataset

    from lake.keyring import Keyring
    from lake.locations import Location
    from lake.tables import Table

_BATCH_ROWS = 65_536
_PATTERNS = set("*?[]{}%#=")
_CONFIGURATION = {"delta.checkpointInterval": "20", "delta.dataSkippingNumIndexedCols": "-1"}  # default: the first 32


class Lake:
    """All tables under one root; every write replaces the partition of one run, whole, in one commit.

    The keyring is asked for only when a table with sealed columns is written or revealed.
    """

    def __init__(self, place: Location, keyring: Callable[[], Keyring] | None = None) -> None:
        if set(place.root) & _PATTERNS:
            raise ContractBroken(
                f"the lake cannot lie in {place.root}: readers would take part of that path for a pattern",
                f"choose a path without {' '.join(sorted(_PATTERNS))}",
            )
        self.place = place
        self._guard = None if keyring is None else KeyringGuard(place, keyring)
        self._disk = Disk(place.directory) if place.is_local else None
        self._rewrites = False
        self._skips_damaged = False

    def rewriting(self) -> Lake:
        """The same lake, for a full rebuild: nothing is up to date, and what is written is compared byte by byte."""
        lake = copy(self)
        lake._rewrites = True  # noqa: SLF001 - a copy of our own
        return lake

    def skipping_damaged(self) -> Lake:
        """The same lake, for an overview: partitions with a missing or truncated file have no rows."""
        lake = copy(self)
        lake._skips_damaged = True  # noqa: SLF001 - a copy of our own
        return lake

    # -- writing ------------------------------------------------------------------------------------------

    def stage(self, table: Table, run_id: str) -> Stage:
        """Open a stage for one partition: units are written aside, nothing is visible until `commit`."""
        return Stage(self.place, table, slug(run_id), self._sealer(table, slug(run_id)))

    def executor_stage(self, table: Table, run_id: str, spool: str) -> ExecutorStage:
        """Open, on an executor, the part of a stage that another process holds open."""
        return ExecutorStage(self.place, table, slug(run_id), self._sealer(table, slug(run_id)), spool)

    def replace(self, table: Table, run_id: str, frame: Any, made_from: str, seen: str | None = None) -> Written:
        """Replace a run's partition by a frame (anything that speaks Arrow), sorted by the table's key."""
        with self.stage(table, run_id) as stage:
            self.add(stage, frame)
            return self.commit(stage, made_from, seen)

    def add(self, stage: Stage, frame: Any) -> None:
        """Put a frame's rows on a stage, sorted by the table's key: one data file for each of its inner partitions."""
        table = stage.table
        rows = require_declared(table, pa.table(frame), stage.run_id).combine_chunks()
        parts = partitions(table, rows)
        for values in parts:
            part = rows if len(parts) == 1 else rows.filter(matches(values)).combine_chunks()
            order = pc.sort_indices(part, sort_keys=[(name, "ascending") for name in table.key])
            part = part.select(table.file_schema.names)
            unit = stage.unit()
            for first in range(0, part.num_rows, _BATCH_ROWS):
                for batch in part.take(order.slice(first, _BATCH_ROWS)).combine_chunks().to_batches():
                    unit.write(batch)
            unit.finish(**values)

    def commit(self, stage: Stage, made_from: str, seen: str | None = None) -> Written:
        """Make a stage's units the run's partition in one commit; write nothing where it holds them already."""
        # One application id per run: a second writer of the same run conflicts, writers of other runs do not.
        marks = {stage.run_id: mark_of(made_from)}
        marks |= {} if seen is None else {seen_id(stage.run_id): mark_of(seen)}
        for attempt in range(commits.TRIES):
            handle = self._open_or_create(stage.table)
            actions, written, bytes_marks = self._exchange(handle, stage)
            marks |= bytes_marks
            if not actions and all(handle.transaction_version(app) == mark for app, mark in marks.items()):
                return written
            if seen is None and handle.transaction_version(seen_id(stage.run_id)) is not None:
                marks[seen_id(stage.run_id)] = 0  # it is no longer what was seen then
            try:
                return self._commit(handle, stage, actions, written, marks, {"made_from_sha256": made_from})
            except commits.CommitConflict:
                commits.wait_before_retry(attempt)
        raise commits.too_many_conflicts(stage.table, stage.run_id)

    def reseal(self, table: Table, run_id: str) -> Written:
        """Seal a run's partition again with the active key: the same rows, made from and having seen the same."""
        for attempt in range(commits.TRIES):
            with self.stage(table, run_id) as stage:
                keyring, handle = self._keys(table), self._open_or_create(table)
                for path, (_, values) in list_data_files(handle, table, [run_id]).items():
                    unit = stage.unit()
                    for batch in self._batches(table, path):
                        unit.write(unseal(table, batch, keyring, run_id))
                    unit.finish(**_cast_partition_values(table, values))
                actions, written, bytes_marks = self._exchange(handle, stage)
                if not actions:
                    return written
                # The log keeps every mark; this one is said again so that another writer of the run conflicts.
                marks = {run_id: handle.transaction_version(run_id) or 0, **bytes_marks}
                try:
                    return self._commit(handle, stage, actions, written, marks, {"sealed_with": keyring.active_id})
                except commits.CommitConflict:  # the partition may be another by now: its rows are read again
                    commits.wait_before_retry(attempt)
        raise commits.too_many_conflicts(table, run_id)

    def tidy(self, table: Table, retention_hours: int) -> list[str]:
        """Write the log as one checkpoint and delete files that no version since then holds; gives their names.

        Data files are never merged: a partition is written whole, in files as large as a chunk, and its content
        digest is that of those files. What grows with every commit is the log.
        """
        handle = self._open(table)
        if handle is None:
            return []
        with report_unreachable(f"{self.uri(table)} could not be tidied"):
            handle.create_checkpoint()
            if self._disk is not None:
                self._disk.sync_log(self.log(table), handle.version() - 1, handle.version())
                remove_leftovers(self.log(table))
            handle.cleanup_metadata()
            # full: also what a killed writer left, which no version ever held.
            return sorted(handle.vacuum(retention_hours, dry_run=False, full=True))

    # -- reading ------------------------------------------------------------------------------------------

    def snapshot(self, table: Table) -> Snapshot:
        """The table as it is now: one look at the log for any number of questions."""
        return Snapshot(table, self._open(table), self.root(table), self._rewrites)

    def scan(self, table: Table, run_ids: Sequence[str] | None = None) -> pl.LazyFrame:
        """A Polars scan of the table, or of some runs of it; an absent table is an empty one."""
        import polars as pl

        files = self.files(table, run_ids)
        if not files:
            return pl.LazyFrame(schema=table.polars_schema)
        return pl.scan_parquet(
            files,
            glob=False,
            hive_partitioning=True,
            hive_schema={name: table.polars_schema[name] for name in table.partition_by},
            storage_options=dict(self.place.options) or None,
        ).select(table.column_names)

    def relation(
        self, connection: duckdb.DuckDBPyConnection, table: Table, run_ids: Sequence[str] | None = None
    ) -> duckdb.DuckDBPyRelation:
        """The same rows as a DuckDB relation over the table's own files; values are bound."""
        files = self.files(table, run_ids)
        if not files:
            return connection.from_arrow(table.arrow_schema.empty_table())
        if not self.place.is_local:
            # DuckDB's own way to an object store is an extension that would have to be downloaded.
            rows = self.dataset(table)
            if run_ids is not None:
                rows = rows.filter(pc.field("run_id").isin(pa.array(run_ids, pa.string())))
            return connection.from_arrow(rows).select(*table.column_names)
        types = {name: table.duckdb_types[name] for name in table.partition_by}
        return connection.sql(
            # Values by place: two relations that share a parameter's name cannot be joined.
            "SELECT * FROM read_parquet(?, hive_partitioning = true, hive_types = ?)",
            params=[files, types],
        ).select(*table.column_names)

    def dataset(self, table: Table) -> Dataset:
        """The same rows for an engine that may open no file by itself; a damaged one is an error when it is read."""
        sizes = self.snapshot(table).sizes
        return dataset(table, sorted(path for files in sizes.values() for path in files), self.root(table))

    def batches(
        self, table: Table, run_id: str, columns: Sequence[str], **values: int | str
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some inner partitions, file by file and a batch at a time: nothing is read ahead."""
        handle = self._open(table)
        stored = [name for name in table.file_schema.names if name in columns]
        schema = table.arrow_schema_of(columns)
        for path, (_, parted) in sorted(
            ({} if handle is None else list_data_files(handle, table, [slug(run_id)])).items()
        ):
            constants = {"run_id": run_id, **_cast_partition_values(table, parted)}
            if any(constants[name] != value for name, value in values.items()):
                continue
            for batch in self._batches(table, path, stored):
                arrays = [
                    batch.column(name) if name in stored else pa.repeat(pa.scalar(constants[name], kind), len(batch))
                    for name, kind in zip(schema.names, schema.types, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def unlock(self, tables: Iterable[Table]) -> None:
        """Ask for the keyring now where one of these tables needs it, rather than halfway through."""
        for table in tables:
            if table.sealed:
                self._keys(table)

    def reveal(self, table: Table, rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
        """Rows of the table with their sealed columns opened; free text opens only beside its run id and its key."""
        if not any(column.name in rows.schema.names for column in table.sealed):
            return rows
        return unseal(table, rows, self._keys(table))

    def sealed_with(self, table: Table) -> dict[str, set[str]]:
        """The ids of the keys whose tokens each run's partition holds."""
        import polars as pl

        found: dict[str, set[str]] = {}
        for column in table.sealed:
            key_id = pl.col(column.name).str.extract(TOKEN).alias("key_id")
            ids = self.scan(table).select("run_id", key_id).drop_nulls().unique().collect(engine="streaming")
            for run_id, one in ids.iter_rows():
                found.setdefault(run_id, set()).add(one)
        return found

    # -- inside -------------------------------------------------------------------------------------------

    def _sealer(self, table: Table, run_id: str) -> Callable[[pa.RecordBatch], pa.RecordBatch]:
        keyring = self._keys(table, will_seal=True) if table.sealed else None
        return _keep_rows if keyring is None else partial(seal, table, run_id=run_id, keyring=keyring)

    def _keys(self, table: Table, *, will_seal: bool = False) -> Keyring:
        if self._guard is None:
            names = ", ".join(column.name for column in table.sealed)
            raise ContractBroken(
                f"{table.full_name} has sealed columns ({names}), and there is no keyring",
                "name one: --keyring, TEETOTAL_KEYRING or TEETOTAL_KEYRING_SECRET",
            )
        return self._guard.open(table, self.dataset, will_seal=will_seal)

    def _exchange(self, handle: DeltaTable, stage: Stage) -> tuple[list[Any], Written, dict[str, int]]:
        """Move a stage's files to their names.

        Gives the actions that make them the partition, what it will be, and the mark of its bytes where they change.
        """
        units = {unit.path: unit for unit in stage.units}
        before = list_data_files(handle, stage.table, [stage.run_id])
        added = [unit for path, unit in units.items() if path not in before]
        kept = {path: size for path, (size, _) in before.items() if path in units}
        damaged = compare_sizes(self.root(stage.table), kept)
        removes = [
            commits.remove_file(path, size, values) for path, (size, values) in before.items() if path not in units
        ]
        # Where anything changes, the bytes of all files are known afterwards: those that stay are compared.
        is_compared = bool(units) and bool(self._rewrites or added or removes or damaged)
        repaired = [
            units[path] for path in kept if path in damaged or (is_compared and stage.has_other_bytes(units[path]))
        ]
        with report_unreachable(f"{self.uri(stage.table)} could not be written to"):
            stage.settle([*added, *repaired], self._disk)
        # A version that writes other bytes for the same rows gives a file another size: the log must say so.
        adds = [unit.add_action() for unit in (*added, *(u for u in repaired if u.bytes != kept[u.path]))]
        written = Written(
            table=stage.table.full_name,
            run_id=stage.run_id,
            rows=sum(unit.rows for unit in units.values()),
            bytes=sum(unit.bytes for unit in units.values()),
            files=len(units),
            content_sha256=combine(map(format_label, units)),
            version=handle.version(),
            is_changed=bool(added or removes or repaired),
        )
        mark = bytes_mark({path: unit.bytes_sha256 for path, unit in units.items()})
        return [*removes, *adds], written, {bytes_id(stage.run_id): mark} if is_compared else {}

    def _commit(
        self,
        handle: DeltaTable,
        stage: Stage,
        actions: list[Any],
        written: Written,
        marks: dict[str, int],
        notes: dict[str, str],
    ) -> Written:
        notes = {"run_id": stage.run_id, "content_sha256": written.content_sha256, **notes}
        properties = CommitProperties(
            custom_metadata={f"teetotal.{name}": note for name, note in notes.items()},
            app_transactions=[Transaction(app, mark) for app, mark in marks.items()],
        )
        before = handle.version()
        with report_unreachable(f"{self.uri(stage.table)} could not be committed to"):
            commits.commit_actions(handle, actions, stage.table, properties)
            handle.update_incremental()
            if self._disk is not None:
                self._disk.sync_log(self.log(stage.table), before, handle.version())
        return replace(written, version=handle.version())

    def _batches(self, table: Table, path: str, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one data file as they are stored, some at a time."""
        with open_data_file(table, self.root(table), path) as (_, file):
            yield from file.iter_batches(_BATCH_ROWS, columns=columns)

    def files(self, table: Table, run_ids: Sequence[str] | None) -> list[str]:
        """The data files of some runs, or of all, as the table is now."""
        return [f"{self.uri(table)}/{path}" for path in self._paths(table, run_ids)]

    def _paths(self, table: Table, run_ids: Sequence[str] | None) -> list[str]:
        """The same below the table's own path."""
        found = self.snapshot(table).sizes
        wanted = found if run_ids is None else {slug(run_id) for run_id in run_ids}
        sizes = {path: size for run_id, files in found.items() if run_id in wanted for path, size in files.items()}
        return pick_paths(table, self.root(table), sizes, skips_damaged=self._skips_damaged)

    def uri(self, table: Table) -> str:
        """Where the table lies."""
        return str(self.root(table))

    def log(self, table: Table) -> Path:
        """The directory of a local table's log."""
        return self.root(table).directory / "_delta_log"

    def root(self, table: Table) -> Location:
        """The place of a table."""
        return self.place.child(*table.path.split("/"))

    def _open(self, table: Table) -> DeltaTable | None:
        with report_unreachable(f"{self.uri(table)} did not answer"):
            if self.place.is_local:
                aside = self.place.directory / "_staging" / table.full_name / "unreadable"
                set_aside_cut_entries(self.log(table), aside, table.full_name)
            try:
                handle = DeltaTable(self.uri(table), storage_options=dict(self.place.options) or None)
            except TableNotFoundError:
                return None
        check_columns(table, handle, self.place)
        return handle

    def _open_or_create(self, table: Table) -> DeltaTable:
        handle = self._open(table)
        if handle is not None:
            return handle
        # Where the commit fails, another writer made it a moment earlier: it is there now.
        with report_unreachable(f"{self.uri(table)} could not be made"), suppress(CommitFailedError):
            DeltaTable.create(
                self.uri(table),
                schema=table.arrow_schema,
                mode="ignore",
                partition_by=list(table.partition_by),
                name=table.full_name,
                description=table.grain,
                configuration=_CONFIGURATION,
                storage_options=dict(self.place.options) or None,
            )
            if self._disk is not None:
                self._disk.sync_log(self.log(table), -1, 0)
        handle = self._open(table)
        if handle is None:
            raise SourceUnavailable(f"{self.uri(table)} could not be created", "check that the lake can be written to")
        return handle


def _keep_rows(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch


def _cast_partition_values(table: Table, values: dict[str, str | None]) -> dict[str, Any]:
    """The partition values inside a run's partition, of the kinds that are declared."""
    inner = {name: value for name, value in values.items() if name != "run_id"}
    return {name: value if table.column(name).kind is Kind.TEXT else int(value or 0) for name, value in inner.items()}
