"""The door: the one place that writes to the lake, and the readers beside it."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, TableNotFoundError
from deltalake.transaction import RemoveAction

from lake.contract import declared, matches, partitions
from lake.digest import combine
from lake.errors import ContractBroken, SourceUnavailable
from lake.identity import slug
from lake.places import reaching
from lake.staging import Stage, Staged

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import duckdb
    import polars as pl

    from lake.places import Place
    from lake.tables import Table

_TRIES = 40
_BATCH_ROWS = 65_536
_PATTERNS = set("*?[]{}%#=")
_CONFIGURATION = {"delta.checkpointInterval": "20"}


@dataclass(frozen=True)
class Written:
    """What one replacement did: the partition as it now is, and whether anything had to be written."""

    table: str
    run_id: str
    rows: int
    bytes: int
    files: int
    content_sha256: str
    version: int
    is_changed: bool


class Lake:
    """All tables under one root; every write replaces the partition of one run, whole, in one commit."""

    def __init__(self, place: Place) -> None:
        if set(place.root) & _PATTERNS:
            raise ContractBroken(
                f"the lake cannot lie in {place.root}: readers would take part of that path for a pattern",
                f"choose a path without {' '.join(sorted(_PATTERNS))}",
            )
        self.place = place

    # -- writing ------------------------------------------------------------------------------------------

    def stage(self, table: Table, run_id: str) -> Stage:
        """Open a stage for one partition: units are written aside, nothing is visible until `commit`."""
        return Stage(self.place, table, slug(run_id))

    def replace(self, table: Table, run_id: str, frame: Any, made_from: str, seen: str | None = None) -> Written:
        """Replace a run's partition by a frame (anything that speaks Arrow), sorted by the table's key."""
        rows = declared(table, pa.table(frame), run_id)
        rows = rows.sort_by([(name, "ascending") for name in table.key])
        with self.stage(table, run_id) as stage:
            for values in partitions(table, rows):
                part = rows.filter(matches(values)) if values else rows
                unit = stage.unit()
                for batch in part.select(table.file_schema.names).combine_chunks().to_batches(_BATCH_ROWS):
                    unit.write(batch)
                unit.finish(**values)
            return self.commit(stage, made_from, seen)

    def commit(self, stage: Stage, made_from: str, seen: str | None = None) -> Written:
        """Make a stage's units the run's partition in one commit; write nothing where it holds them already."""
        units = stage.units
        # One application id per run: a second writer of the same run conflicts, writers of other runs do not.
        marks = {stage.run_id: _mark(made_from)}
        marks |= {} if seen is None else {_seen_id(stage.run_id): _mark(seen)}
        for attempt in range(_TRIES):
            handle = self._open_or_create(stage.table)
            held = _held(handle, stage.table, [stage.run_id])
            wanted = {unit.path: unit for unit in units}
            adds = [unit.add_action() for path, unit in wanted.items() if path not in held]
            with reaching(f"{self._uri(stage.table)} could not be written to"):
                for unit in units:
                    if unit.path not in held:
                        stage.settle(unit)
            removes = [_remove(path, size, values) for path, (size, values) in held.items() if path not in wanted]
            written = Written(
                table=stage.table.full_name,
                run_id=stage.run_id,
                rows=sum(unit.rows for unit in units),
                bytes=sum(unit.bytes for unit in units),
                files=len(units),
                content_sha256=_content(units),
                version=handle.version(),
                is_changed=bool(adds or removes),
            )
            if not written.is_changed and all(handle.transaction_version(app) == mark for app, mark in marks.items()):
                return written
            if seen is None and handle.transaction_version(_seen_id(stage.run_id)) is not None:
                marks[_seen_id(stage.run_id)] = 0  # it is no longer what was seen then
            properties = CommitProperties(
                custom_metadata={
                    "teetotal.run_id": stage.run_id,
                    "teetotal.content_sha256": written.content_sha256,
                    "teetotal.made_from_sha256": made_from,
                },
                app_transactions=[Transaction(app, mark) for app, mark in marks.items()],
            )
            try:
                with reaching(f"{self._uri(stage.table)} could not be committed to"):
                    _commit(handle, [*removes, *adds], stage.table, properties)
            except _Outrun:
                time.sleep(random.uniform(0, 0.02 * (attempt + 1)))  # noqa: S311 - jitter, not a secret
                continue
            handle.update_incremental()
            return replace(written, version=handle.version())
        raise SourceUnavailable(
            f"{stage.table.full_name}, run {stage.run_id}: {_TRIES} commits in a row lost to other writers",
            "run it again when fewer writers are at work on this lake",
        )

    # -- reading ------------------------------------------------------------------------------------------

    def snapshot(self, table: Table) -> Snapshot:
        """The table as it is now: one look at the log for any number of questions."""
        return Snapshot(table, self._open(table))

    def scan(self, table: Table, run_ids: Sequence[str] | None = None) -> pl.LazyFrame:
        """A Polars scan of the table, or of some runs of it; an absent table is an empty one."""
        import polars as pl

        files = self._files(table, run_ids)
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
        files = self._files(table, run_ids)
        if not files:
            return connection.from_arrow(table.arrow_schema.empty_table())
        if not self.place.is_local:
            # DuckDB's own way to an object store is an extension that would have to be downloaded.
            rows = DeltaTable(self._uri(table), storage_options=dict(self.place.options)).to_pyarrow_dataset()
            if run_ids is not None:
                rows = rows.filter(pc.field("run_id").isin(pa.array(run_ids, pa.string())))
            return connection.from_arrow(rows).select(*table.column_names)
        types = {name: table.duckdb_types[name] for name in table.partition_by}
        return connection.sql(
            "SELECT * FROM read_parquet($files, hive_partitioning = true, hive_types = $types)",
            params={"files": files, "types": types},
        ).select(*table.column_names)

    # -- inside -------------------------------------------------------------------------------------------

    def _files(self, table: Table, run_ids: Sequence[str] | None) -> list[str]:
        """The files of some runs, or of all, as the table is now."""
        wanted = None if run_ids is None else {slug(run_id) for run_id in run_ids}
        handle = self._open(table)
        held = {} if handle is None else _held(handle, table, wanted)
        return sorted(f"{self._uri(table)}/{path}" for path in held)

    def _uri(self, table: Table) -> str:
        return str(self.place.child(*table.path.split("/")))

    def _open(self, table: Table) -> DeltaTable | None:
        with reaching(f"{self._uri(table)} did not answer"):
            try:
                handle = DeltaTable(self._uri(table), storage_options=dict(self.place.options) or None)
            except TableNotFoundError:
                return None
        found = {field.name: str(field.type) for field in pa.schema(handle.schema().to_arrow())}
        declared = {field.name: str(field.type) for field in table.arrow_schema}
        parted = handle.metadata().partition_columns
        if found != declared or parted != list(table.partition_by):
            differing = sorted(name for name in {*found, *declared} if found.get(name) != declared.get(name))
            differing = differing or [f"partitions {', '.join(parted)}"]
            raise ContractBroken(
                f"{table.full_name} in {self.place} was written with other columns: {', '.join(differing)}",
                "it was made by another version: move that directory away and run `teetotal run --full`",
            )
        return handle

    def _open_or_create(self, table: Table) -> DeltaTable:
        handle = self._open(table)
        if handle is not None:
            return handle
        with (
            reaching(f"{self._uri(table)} could not be made"),
            suppress(CommitFailedError),
        ):  # another writer made it a moment earlier: it is there now
            DeltaTable.create(
                self._uri(table),
                schema=table.arrow_schema,
                mode="ignore",
                partition_by=list(table.partition_by),
                name=table.full_name,
                description=table.grain,
                configuration=_CONFIGURATION,
                storage_options=dict(self.place.options) or None,
            )
        handle = self._open(table)
        if handle is None:
            raise SourceUnavailable(f"{self._uri(table)} could not be created", "check that the lake can be written to")
        return handle


@dataclass(frozen=True)
class Snapshot:
    """One table at one version."""

    table: Table
    _handle: DeltaTable | None

    def is_made_from(self, run_id: str, made_from: str) -> bool:
        """Whether a run's partition was made from exactly these inputs by exactly this code."""
        return self.mark(run_id) == _mark(made_from)

    def has_seen(self, run_id: str, seen: str) -> bool:
        """Whether a run's partition was made when the landing directory bore exactly this mark."""
        return self._handle is not None and self._handle.transaction_version(_seen_id(run_id)) == _mark(seen)

    @property
    def run_ids(self) -> list[str]:
        """The runs that have rows in the table."""
        if self._handle is None:
            return []
        return sorted({values["run_id"] for values in self._handle.partitions()})

    def content_sha256(self, run_id: str) -> str:
        """The content digest of a run's partition; that of no rows where it has none."""
        if self._handle is None:
            return combine(())
        return combine(_label(path) for path in _held(self._handle, self.table, [run_id]))

    def mark(self, run_id: str) -> int | None:
        """What stands for the inputs that a run's partition was made from; none where it was never made."""
        return None if self._handle is None else self._handle.transaction_version(run_id)

    def files(self, run_id: str) -> list[str]:
        """The data files of a run's partition, below the table's own path."""
        return [] if self._handle is None else sorted(_held(self._handle, self.table, [run_id]))

    @property
    def version(self) -> int | None:
        """The Delta version; none where the table does not exist yet."""
        return None if self._handle is None else self._handle.version()


def _seen_id(run_id: str) -> str:
    return f"{run_id}@seen"  # no run id holds an @


def _mark(made_from: str) -> int:
    """A fingerprint as the whole number that Delta keeps per application id."""
    return int(made_from[:15], 16)


def _held(
    handle: DeltaTable, table: Table, run_ids: Iterable[str] | None
) -> dict[str, tuple[int, dict[str, str | None]]]:
    """The data files that make up some runs, or the whole table: path to size and partition values."""
    actions = pa.table(handle.get_add_actions(flatten=True))
    if run_ids is not None:
        actions = actions.filter(pc.field("partition.run_id").isin(pa.array(sorted(run_ids), pa.string())))
    return {
        action["path"]: (
            action["size_bytes"],
            {name: str(action[f"partition.{name}"]) for name in table.partition_by},
        )
        for action in actions.to_pylist()
    }


class _Outrun(Exception):
    """Another writer committed first."""


def _commit(handle: DeltaTable, actions: list[Any], table: Table, properties: CommitProperties) -> None:
    try:
        handle.create_write_transaction(
            actions, "append", handle.schema(), list(table.partition_by), commit_properties=properties
        )
    except CommitFailedError as error:
        raise _Outrun from error


def _remove(path: str, size: int, values: dict[str, str | None]) -> RemoveAction:
    return RemoveAction(path, True, int(time.time() * 1000), size, values)


def _label(path: str) -> str:
    """What of a path says which rows it holds: the inner partition and the digest in the name."""
    return path.partition("/")[2]


def _content(units: Iterable[Staged]) -> str:
    return combine(_label(unit.path) for unit in units)
