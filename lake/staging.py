"""Files on their way into the lake: written aside, named by their content, invisible until the door commits them."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake.transaction import AddAction

from lake.cut_off import delete_object, repeat_cut_off
from lake.digest import ContentDigest, digest_file
from lake.errors import ContractBroken
from lake.identity import slug
from lake.locations import make_private, report_unreachable
from lake.locks import hold_lock
from lake.tables import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

    from lake.durability import Disk
    from lake.locations import Location
    from lake.tables import Column, Table

_ROW_GROUP_ROWS = 16_384
# Arrow verifies them when it reads; Polars and DuckDB do not (docs/decisions/0016).
PAGE_CHECKSUMS = True


@dataclass(frozen=True)
class Staged:
    """One finished data file that is not yet part of the table."""

    path: str
    values: dict[str, str]
    rows: int
    bytes: int
    # Of the file as it is written; the digest in its name is of its rows.
    bytes_sha256: str
    stats: str
    spooled: Path | str

    def add_action(self) -> AddAction:
        """What the Delta log will say of it."""
        return AddAction(self.path, self.bytes, self.values, int(time.time() * 1000), True, self.stats)


@dataclass(frozen=True)
class ClosedFile:
    """A data file that has all its rows and no name yet: the name may need what only all files of a run tell."""

    sha256: str
    rows: int
    bytes: int
    bytes_sha256: str
    stats: str
    # A path on the lake's own disk, or the key of an object that an executor has put into the store.
    spooled: Path | str


class PartitionWriter:
    """A writer of one data file: rows in key order, checked, sealed and digested as they pass."""

    def __init__(self, stage: Stage, spool: Path) -> None:
        self._stage = stage
        self._spool = spool
        self._schema = stage.table.file_schema
        self._digest = ContentDigest(self._schema)
        self._writer: pq.ParquetWriter | None = None
        self._rows = 0
        # The data file as it was taken in; none before that, or where it has no rows.
        self.staged: Staged | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows; a batch that is not of the declared schema is refused."""
        if batch.schema != self._schema:
            raise ContractBroken(
                f"{self._stage.table.full_name}: a batch of [{', '.join(f'{f.name} {f.type}' for f in batch.schema)}] "
                f"is not of the declared [{', '.join(f'{f.name} {f.type}' for f in self._schema)}]"
            )
        for field, column in zip(self._schema, batch.columns, strict=True):
            if not field.nullable and column.null_count:
                raise ContractBroken(
                    f"{self._stage.table.full_name}.{field.name} may not be null, {column.null_count} rows are"
                )
        if not batch.num_rows:
            return
        batch = self._stage.seal(batch)
        if self._writer is None:
            self._writer = _writer(self._spool, self._stage.table)
        self._digest.update(batch)
        self._rows += batch.num_rows
        self._waiting.append(batch)
        self._waiting_rows += batch.num_rows
        if self._waiting_rows >= _ROW_GROUP_ROWS:
            with report_unreachable(f"{self._spool} could not be written"):
                self._flush(self._writer)

    def _flush(self, writer: pq.ParquetWriter) -> None:
        """Write what waits as one row group: small batches would make small, slow ones."""
        if self._waiting:
            writer.write_table(pa.Table.from_batches(self._waiting), self._waiting_rows)
        self._waiting, self._waiting_rows = [], 0

    def finish(self, **values: Any) -> None:
        """End the file and hand it to the stage; `values` are its partition values beside the run's."""
        self.staged = self._stage.take(self.close(), values)

    def close(self) -> ClosedFile | None:
        """End the file; it has no name yet. None where it has no rows: there is no file then."""
        if self._writer is None:
            return None
        with report_unreachable(f"{self._spool} could not be written"):
            self._flush(self._writer)
            self._writer.close()
            return ClosedFile(
                sha256=self._digest.hexdigest(),
                rows=self._rows,
                bytes=self._spool.stat().st_size,
                bytes_sha256=digest_file(self._spool),
                stats=_stats(self._spool, self._stage.table),
                spooled=self._stage.hand_over(self._spool),
            )

    def discard(self) -> None:
        """End the file and forget it."""
        if self._writer is not None:
            self._writer.close()
            self._spool.unlink()


class Stage:
    """The stage of one partition: holds its lock, its spool directory and its finished units."""

    def __init__(
        self,
        place: Location,
        table: Table,
        run_id: str,
        seal: Callable[[pa.RecordBatch], pa.RecordBatch],
        prefix: str = "",
    ) -> None:
        self.table = table
        # How the names of its files begin, where those of bronze say that they are sealed.
        self._prefix = prefix
        self.run_id = run_id
        self.seal = seal
        self._place = place
        self._units: list[Staged] = []
        self._settled: set[str] = set()
        self._guard = threading.Lock()
        self._exits = ExitStack()
        self._spool = Path()
        self._opened = 0

    def __enter__(self) -> Self:
        with report_unreachable(f"{self._place} could not be written to"), ExitStack() as exits:
            if self._place.is_local:
                # Same file system as the table, so that a finished file moves into it by one rename.
                home = self._place.directory / "_staging" / self.table.full_name
                self._spool = home / "spool" / self.run_id
                make_private(home.parent)
                if self.table.tier == "bronze":  # it repeats the source, names and all
                    make_private(self._place.directory / "bronze")
                for folder in (home / "locks", self._spool.parent):
                    folder.mkdir(parents=True, exist_ok=True)
                exits.enter_context(
                    hold_lock(home / "locks" / self.run_id, f"{self.table.full_name}, run {self.run_id}")
                )
                shutil.rmtree(self._spool, ignore_errors=True)  # what a killed writer left
                self._spool.mkdir()
                exits.callback(shutil.rmtree, self._spool, ignore_errors=True)
            else:
                self._spool = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="teetotal-")))
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exits.close()

    @property
    def spool(self) -> Path:
        """A folder for what is needed on the way; it is emptied when the stage ends, or by the next one."""
        return self._spool

    def unit(self) -> PartitionWriter:
        """Open a data file."""
        with self._guard:
            self._opened += 1
            return PartitionWriter(self, self._spool / f"{self._opened}.parquet")

    def hand_over(self, spool: Path) -> Path | str:
        """Where a closed file waits to be settled."""
        return spool

    def take(self, closed: ClosedFile | None, values: dict[str, Any]) -> Staged | None:
        """Take a closed file in, under the name that its content and its partition give it."""
        named = self._name_values(values)
        if closed is None:
            return None
        staged = Staged(
            path=self._name_file(closed.sha256, named),
            values=named,
            rows=closed.rows,
            bytes=closed.bytes,
            bytes_sha256=closed.bytes_sha256,
            stats=closed.stats,
            spooled=closed.spooled,
        )
        self.keep(staged)
        return staged

    def recall(self, staged: Staged, values: dict[str, Any]) -> Staged:
        """Take in a data file that is part of the table already; under another name than before, as a copy of it."""
        named = self._name_values(values)
        sha256 = PurePosixPath(staged.path).stem.removeprefix(self._prefix)
        recalled = replace(staged, path=self._name_file(sha256, named), values=named)
        if recalled.path == staged.path:
            self._settled.add(staged.path)
        else:
            recalled = replace(recalled, spooled=self._copy(staged))
        self.keep(recalled)
        return recalled

    def _copy(self, staged: Staged) -> Path | str:
        root = self._place.child(*self.table.path.split("/"))
        with report_unreachable(f"{root}/{staged.path} could not be copied"):
            if root.is_local:
                with self._guard:
                    self._opened += 1
                    spool = self._spool / f"{self._opened}.parquet"
                return Path(shutil.copyfile(root.directory / staged.path, spool))
            import obstore

            key = f"{self.table.partition_key}={self.run_id}/unsettled-{uuid4().hex}.parquet"
            obstore.copy(root.store, staged.path, key)
            return key

    def _name_values(self, values: dict[str, Any]) -> dict[str, str]:
        """The partition that a data file will be part of; values that the table could not hold are refused."""
        first, *inner = self.table.partition_by
        if sorted(values) != sorted(inner):
            raise ContractBroken(f"a unit of {self.table.full_name} needs {inner}, not {sorted(values)}")
        for name in inner:
            _check_value(self.table.column(name), values[name], self.table.full_name)
        return {first: self.run_id, **{name: slug(str(values[name]), name) for name in inner}}

    def _name_file(self, sha256: str, named: dict[str, str]) -> str:
        return "/".join(
            (*(f"{name}={named[name]}" for name in self.table.partition_by), f"{self._prefix}{sha256}.parquet")
        )

    def keep(self, *staged: Staged) -> None:
        """Take finished units in, also such as an executor has finished."""
        with self._guard:
            self._units += staged

    @property
    def units(self) -> list[Staged]:
        """The finished units, in the order of their names."""
        return sorted(self._units, key=lambda unit: unit.path)

    def has_other_bytes(self, unit: Staged) -> bool:
        """Whether the file that has a unit's name is another one: damaged, or written by another version."""
        if unit.path in self._settled:
            return False
        if not self._place.is_local:
            return True  # to fetch an object takes as long as to put it
        with suppress(OSError):  # what cannot be read is replaced
            root = self._place.child(*self.table.path.split("/"))
            return digest_file(root.directory / unit.path) != unit.bytes_sha256
        return True

    def settle(self, units: Sequence[Staged], disk: Disk | None) -> None:
        """Move finished files to their final names; equal content has equal names, so a repeat lands on itself.

        On a local disk they and their directories are durable before anything can refer to them.
        """
        due = [unit for unit in units if unit.path not in self._settled]
        root = self._place.child(*self.table.path.split("/"))
        for unit in due:
            self._move(unit, root)
            self._settled.add(unit.path)
        if disk is not None:
            # After the move: the journal of most file systems then takes the names to the disk with the content.
            paths = [root.directory / unit.path for unit in due]
            disk.sync_files(paths)
            disk.sync_folders({path.parent for path in paths})

    @staticmethod
    def _move(unit: Staged, root: Location) -> None:
        if root.is_local:
            target = root.directory / unit.path
            target.parent.mkdir(parents=True, exist_ok=True)
            Path(unit.spooled).replace(target)
        elif isinstance(unit.spooled, str):
            import obstore

            # Each by itself: a rename that was cut off in between could not be repeated.
            repeat_cut_off(partial(obstore.copy, root.store, unit.spooled, unit.path))
            delete_object(root.store, unit.spooled)
        else:
            import obstore

            repeat_cut_off(partial(obstore.put, root.store, unit.path, unit.spooled))
            unit.spooled.unlink()


def _check_value(column: Column, value: object, table: str) -> None:
    """Refuse a partition value that its column could not hold: in a path anything would do."""
    limit = 1 << (31 if column.kind is Kind.INT32 else 63)
    is_whole = isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit
    if not (isinstance(value, str) if column.kind is Kind.TEXT else is_whole):
        raise ContractBroken(f"{table}.{column.name} is declared {column.kind}, the partition value is {value!r}")


def _writer(path: Path, table: Table) -> pq.ParquetWriter:
    columns = [column for column in table.columns if column.name not in table.partition_by]
    return pq.ParquetWriter(
        path,
        table.file_schema,
        compression="zstd",
        compression_level=1,
        # The tokens of free text never repeat.
        use_dictionary=[
            column.name
            for column in columns
            if column.kind is Kind.TEXT and column.repeats and not (column in table.sealed and column.is_free_text)
        ],
        write_statistics=[column.name for column in columns if column.name in (*table.key, *table.indexed)],
        column_encoding={c.name: "DELTA_BINARY_PACKED" for c in columns if c.kind in {Kind.INT32, Kind.INT64}},
        store_schema=False,
        write_page_checksum=PAGE_CHECKSUMS,
    )


def _stats(path: Path, table: Table) -> str:
    """The statistics that let a reader skip a file: row count, and the range of each key or indexed column."""
    footer = pq.read_metadata(path)
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    for group in range(footer.num_row_groups):
        for index in range(footer.num_columns):
            column = footer.row_group(group).column(index)
            name = column.path_in_schema
            if name in (*table.key, *table.indexed) and column.statistics is not None and column.statistics.has_min_max:
                lows[name] = min(lows.get(name, column.statistics.min), column.statistics.min)
                highs[name] = max(highs.get(name, column.statistics.max), column.statistics.max)
    return json.dumps({"numRecords": footer.num_rows, "minValues": lows, "maxValues": highs, "nullCount": {}})
