"""How the lake is read: tables as Polars scans, DuckDB relations, Arrow datasets, and what the log says of them."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.compute as pc

from lake.compaction import choose_copies
from lake.contract import describe_outdated, find_outdated
from lake.datafiles import open_data_file, pick_paths, source_of
from lake.datasets import dataset
from lake.durability import Disk
from lake.errors import ContractBroken
from lake.few_rows import read_few_rows
from lake.identity import is_slug, slug
from lake.keyring_guard import KeyringGuard
from lake.locations import report_unreachable
from lake.open_tables import open_table, share_tables
from lake.sealed_source import is_sealed_source, scan_opened
from lake.sealing import TOKEN, unseal
from lake.snapshot import Snapshot
from lake.table_log import describe_opened
from lake.tables import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import duckdb
    import polars as pl
    from deltalake import DeltaTable
    from pyarrow.dataset import Dataset

    from lake.keyring import Keyring
    from lake.lineage.recorder import Lineage
    from lake.locations import Location
    from lake.table_log import TableLog
    from lake.tables import Table

BATCH_ROWS = 65_536
_PATTERNS = set("*?[]{}%#=")


class LakeReader:
    """All tables under one root, to be read; the keyring is asked for only when a sealed column is revealed."""

    def __init__(
        self,
        place: Location,
        keyring: Callable[[], Keyring] | None = None,
        lineage: Lineage | None = None,
        *,
        seals_bronze: bool = False,
    ) -> None:
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
        self._sources: frozenset[str] | None = None
        self._tables = share_tables(place)
        # Signs what is written; none where nobody does.
        self._lineage = lineage
        # Whether what is written to bronze is sealed as well; what is read says so by itself.
        self.seals_bronze = seals_bronze

    def sealing_bronze(self) -> Self:
        """The same lake, which seals what it writes to bronze."""
        lake = copy(self)
        lake.seals_bronze = True
        return lake

    def rewriting(self) -> Self:
        """The same lake, for a full rebuild: nothing is up to date, and what is written is compared byte by byte."""
        lake = copy(self)
        lake._rewrites = True  # noqa: SLF001 - a copy of our own
        return lake

    def skipping_damaged(self) -> Self:
        """The same lake, for an overview: partitions with a missing or truncated file have no rows."""
        lake = copy(self)
        lake._skips_damaged = True  # noqa: SLF001 - a copy of our own
        return lake

    def of_sources(self, sources: Iterable[str]) -> Self:
        """The same lake, as if tables that are kept by source held these alone: files of others are not opened."""
        lake = copy(self)
        lake._sources = frozenset(sources)  # noqa: SLF001 - a copy of our own
        return lake

    def snapshot(self, table: Table) -> Snapshot:
        """The table as it is now: one look at the log for any number of questions."""
        log = self._read_log(table)
        outdated = () if log is None else find_outdated(table, log)
        return Snapshot(table, None if outdated else log, self.root(table), self._rewrites, outdated)

    def scan(self, table: Table, run_ids: Sequence[str] | None = None) -> pl.LazyFrame:
        """A Polars scan of the table, or of some runs of it; an absent table is an empty one."""
        import polars as pl

        files = self.files(table, run_ids)
        if not files:
            return pl.LazyFrame(schema=table.polars_schema)
        if any(map(is_sealed_source, files)):
            return scan_opened(table, partial(self._opened_batches, table, run_ids))
        return self._scan_stored(table, files)

    def _scan_stored(self, table: Table, files: list[str]) -> pl.LazyFrame:
        import polars as pl

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
                rows = rows.filter(pc.field(table.partition_key).isin(pa.array(run_ids, pa.string())))
            return connection.from_arrow(rows).select(*table.column_names)
        types = {name: table.duckdb_types[name] for name in table.partition_by}
        return connection.sql(
            # Values by place: two relations that share a parameter's name cannot be joined.
            "SELECT * FROM read_parquet(?, hive_partitioning = true, hive_types = ?)",
            params=[files, types],
        ).select(*table.column_names)

    def read_few(self, table: Table, run_ids: Sequence[str] | None, most_rows: int) -> pa.Table | None:
        """The same rows in memory; none where they are more, or where only an engine can say what a file holds."""
        return read_few_rows(table, self.root(table), self._paths(table, run_ids), most_rows)

    def dataset(self, table: Table) -> Dataset:
        """The same rows for an engine that may open no file by itself; a damaged one is an error when it is read."""
        return dataset(table, self._list_data_files(table), self.root(table))

    def compacted_dataset(self, table: Table) -> Dataset:
        """The same, with compacted copies in place of small data files: for a question about many runs."""
        choice = choose_copies(self.root(table), self._list_data_files(table))
        return dataset(table, choice.data_files, self.root(table), [copy.path for copy in choice.copies])

    def _list_data_files(self, table: Table) -> list[str]:
        snapshot = self._require_readable(table)
        paths = (path for run_id in snapshot.run_ids for path in snapshot.files(run_id))
        return sorted(path for path in paths if self._is_of_sources(path))

    def batches(
        self, table: Table, run_id: str, columns: Sequence[str], **values: int | str
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some inner partitions, file by file and a batch at a time: nothing is read ahead."""
        log = self._read_log(table)
        self._require_declared(table, log)
        stored = [name for name in table.file_schema.names if name in columns]
        schema = table.arrow_schema_of(columns)
        for path, file in sorted({}.items() if log is None else log.files.get(slug(run_id), {}).items()):
            constants = {table.partition_key: run_id, **cast_partition_values(table, file.values)}
            if any(constants[name] != value for name, value in values.items()) or not self._is_of_sources(path):
                continue
            for batch in self._open_file(table, path, stored, run_id):
                arrays = [
                    batch.column(name) if name in stored else pa.repeat(pa.scalar(constants[name], kind), len(batch))
                    for name, kind in zip(schema.names, schema.types, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def list_stored(self, tiers: Sequence[str]) -> list[str]:
        """The full names of all tables that lie below these directories, declared or not."""
        found = []
        for tier in tiers:
            below = self.place.child(tier)
            with report_unreachable(f"{below} cannot be listed"):
                found += [f"{tier}.{name}" for name in below.list_directories() if is_slug(name)]
        return sorted(found)

    def unlock(self, tables: Iterable[Table]) -> None:
        """Ask for the keyring now where one of these tables needs it, rather than halfway through."""
        for table in tables:
            if table.sealed:
                self._keys(table)

    def reveal(self, table: Table, rows: pa.RecordBatch | pa.Table) -> pa.RecordBatch | pa.Table:
        """Rows of the table with their sealed columns opened; free text opens only beside its run id and its key."""
        if self.has_sealed_source(table):
            return unseal(table.source_sealed, rows, self._keys(table.source_sealed), may_be_plain=True)
        if not any(column.name in rows.schema.names for column in table.sealed):
            return rows
        return unseal(table, rows, self._keys(table))

    def has_sealed_source(self, table: Table, run_ids: Sequence[str] | None = None) -> bool:
        """Whether a table of bronze holds what sources wrote as tokens, of one of these runs."""
        return table.tier == "bronze" and any(map(is_sealed_source, self._paths(table, run_ids)))

    def read_opened(self, table: Table, run_ids: Sequence[str] | None) -> pa.Table:
        """All rows of a table of bronze, opened in memory: for an engine that would open the files by itself."""
        return pa.Table.from_batches(self._opened_batches(table, run_ids), table.arrow_schema)

    def sealed_with(self, table: Table) -> dict[str, set[str]]:
        """The ids of the keys whose tokens each run's partition holds."""
        import polars as pl

        found: dict[str, set[str]] = {}
        files = [path for path in self.files(table, None) if table.tier != "bronze" or is_sealed_source(path)]
        for column in table.source_sealed.sealed if files else ():
            key_id = pl.col(column.name).str.extract(TOKEN).alias("key_id")
            ids = (
                self._scan_stored(table, files)
                .select(table.partition_key, key_id)
                .drop_nulls()
                .unique()
                .collect(engine="streaming")
            )
            for run_id, one in ids.iter_rows():
                found.setdefault(run_id, set()).add(one)
        return found

    def files(self, table: Table, run_ids: Sequence[str] | None) -> list[str]:
        """The data files of some runs, or of all, as the table is now."""
        return [f"{self.uri(table)}/{path}" for path in self._paths(table, run_ids)]

    def uri(self, table: Table) -> str:
        """Where the table lies."""
        return str(self.root(table))

    def log(self, table: Table) -> Path:
        """The directory of a local table's log."""
        return self.root(table).directory / "_delta_log"

    def root(self, table: Table) -> Location:
        """The place of a table."""
        return self._tables.root(table.full_name)

    def _keys(self, table: Table, *, will_seal: bool = False) -> Keyring:
        if self._guard is None:
            names = ", ".join(column.name for column in table.sealed)
            raise ContractBroken(
                f"{table.full_name} has sealed columns ({names}), and there is no keyring",
                "name one: --keyring, TEETOTAL_KEYRING or TEETOTAL_KEYRING_SECRET",
            )
        return self._guard.open(table, self.dataset, will_seal=will_seal)

    def _batches(self, table: Table, path: str, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The rows of one data file as they are stored, some at a time."""
        with open_data_file(table, self.root(table), path) as (_, file):
            yield from file.iter_batches(BATCH_ROWS, columns=columns)

    def _open_file(
        self, table: Table, path: str, columns: list[str] | None = None, run_id: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of one data file, with what a source wrote opened where the file is sealed."""
        if not is_sealed_source(path):
            yield from self._batches(table, path, columns)
            return
        keyring = self._keys(table.source_sealed)
        # Free text opens only beside its row's key.
        needed = None if columns is None else [*columns, *(name for name in table.key if name not in columns)]
        needed = None if needed is None else [name for name in needed if name in table.file_schema.names]
        for batch in self._batches(table, path, needed):
            opened = unseal(table.source_sealed, batch, keyring, run_id)
            yield opened if columns is None else opened.select(columns)

    def _opened_batches(
        self, table: Table, run_ids: Sequence[str] | None, columns: Sequence[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows of some runs with what is sealed opened, some at a time."""
        chosen = set(self._paths(table, run_ids))
        for run_id in sorted({path.partition("/")[0].partition("=")[2] for path in chosen}):
            yield from self.batches(table, run_id, columns or table.column_names)

    def _paths(self, table: Table, run_ids: Sequence[str] | None) -> list[str]:
        """The same below the table's own path."""
        snapshot = self._require_readable(table)
        wanted = snapshot.run_ids if run_ids is None else sorted({slug(run_id) for run_id in run_ids})
        sizes = {path: size for run_id in wanted for path, size in snapshot.sizes(run_id).items()}
        sizes = {path: size for path, size in sizes.items() if self._is_of_sources(path)}
        return pick_paths(table, self.root(table), sizes, skips_damaged=self._skips_damaged)

    def _is_of_sources(self, path: str) -> bool:
        """Whether a data file is to be read: all are, unless some sources alone were asked for."""
        if self._sources is None:
            return True
        source = source_of(path)
        return source is None or source in self._sources

    def _require_readable(self, table: Table) -> Snapshot:
        """The table as it is now; an overview takes one that another version wrote for an empty one."""
        snapshot = self.snapshot(table)
        if snapshot.outdated and not self._skips_damaged:
            raise describe_outdated(table, snapshot.outdated, self.place)
        return snapshot

    def _open(self, table: Table) -> DeltaTable | None:
        """The table as it is declared, for one writer; none where it is not there, an error where it is outdated."""
        handle = self._find_handle(table)
        self._require_declared(table, None if handle is None else self._read_log(table))
        return handle

    def _require_declared(self, table: Table, log: TableLog | None) -> None:
        outdated = () if log is None else find_outdated(table, log)
        if outdated:
            raise describe_outdated(table, outdated, self.place)

    def _read_log(self, table: Table) -> TableLog | None:
        """What the table's log says now; none where there is no table."""
        return self._tables.read(table.full_name)

    def _read_log_at(self, table: Table, handle: DeltaTable) -> TableLog:
        """What the log says at the version at which a writer has opened the table."""
        log = self._read_log(table)
        return log if log is not None and log.version == handle.version() else describe_opened(handle)

    def _find_handle(self, table: Table) -> DeltaTable | None:
        if not self.place.is_local:
            return self._tables.take(self.root(table))
        with report_unreachable(f"{self.uri(table)} did not answer"):
            self._tables.set_aside(table.full_name)
            return open_table(self.root(table))


def cast_partition_values(table: Table, values: Mapping[str, str | None]) -> dict[str, Any]:
    """The partition values inside a run's partition, of the kinds that are declared."""
    inner = {name: values[name] for name in table.partition_by[1:]}
    return {name: value if table.column(name).kind is Kind.TEXT else int(value or 0) for name, value in inner.items()}
