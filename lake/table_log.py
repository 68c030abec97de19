"""What a table's Delta log says at one version: its columns, data files and marks, from one pass over the log.

To open a table, Delta replays the log up to a checkpoint: 90 ms of a processor in a lake of 10,000 runs, and in an
object store two requests for every entry. Here the checkpoint's few needed columns are read, once per process, and
after that only new entries (docs/decisions/0052). A log that uses what we never write is left to Delta.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import Schema

from lake.cut_off import repeat_read
from lake.locations import report_unreachable
from lake.log_entries import UnknownLog, list_actions, read_entries, read_log_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from deltalake import DeltaTable

    from lake.locations import Location

_CHECKPOINT_COLUMNS = (
    *("add.path", "add.size", "add.stats", "add.partitionValues", "add.deletionVector"),
    *("txn", "metaData.schemaString", "metaData.partitionColumns", "protocol", "sidecar"),
)
# What our tables ask of readers and writers; whoever asks for more has written something else.
_READER_VERSION, _WRITER_VERSION = 1, 2


class DataFile:
    """One data file as the log has it."""

    __slots__ = ("_stats", "_text", "size_bytes", "values")

    def __init__(self, size_bytes: int, values: Mapping[str, str | None], stats: str | None) -> None:
        self.size_bytes = size_bytes
        self.values = values
        self._text = stats
        self._stats: dict[str, Any] | None = None

    @property
    def stats(self) -> dict[str, Any]:
        """The statistics; most files are never asked for theirs."""
        if self._stats is None:
            self._stats = json.loads(self._text or "{}")
        return self._stats

    @property
    def rows(self) -> int:
        """How many rows it holds."""
        return int(self.stats.get("numRecords") or 0)


@dataclass(frozen=True)
class _Layout:
    """A table's columns and partitions."""

    schema: str
    partition_columns: tuple[str, ...]

    @property
    def columns(self) -> dict[str, str]:
        return _list_columns(self.schema)


@lru_cache(maxsize=1024)
def _list_columns(schema: str) -> dict[str, str]:
    """The kind of each column, as Arrow names it: many versions of a table have one schema, and many lakes too."""
    return {column.name: str(column.type) for column in pa.schema(Schema.from_json(schema).to_arrow())}


@dataclass
class TableLog:
    """One table at one version; it never changes."""

    version: int
    layout: _Layout
    # By the value of the first partition column: of most tables, the run.
    files: dict[str, dict[str, DataFile]]
    marks: dict[str, int] = field(repr=False)
    # Where Delta has read the log: it is asked for each mark.
    handle: DeltaTable | None = None

    @property
    def columns(self) -> dict[str, str]:
        """The kind of each column, as Arrow names it."""
        return self.layout.columns

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """What the table is partitioned by."""
        return self.layout.partition_columns

    def find_mark(self, app_id: str) -> int | None:
        """The mark of an application id; none where it has none, or where its run was forgotten."""
        if self.handle is None:
            return self.marks.get(app_id)
        with report_unreachable(f"the log of {self.handle.table_uri} could not be read"):
            return repeat_read(partial(self.handle.transaction_version, app_id))


def read_log(root: Location, before: TableLog | None = None) -> TableLog | None:
    """The table as it is now, read on from an earlier version; none where there is none."""
    with report_unreachable(f"the log of {root} could not be read"):
        try:
            state = _State.start(root) if before is None else _State.go_on(before)
            for entry in read_entries(root, state.version):
                state.apply(entry)
            return state.fix()
        except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
            raise UnknownLog from error


def describe_opened(handle: DeltaTable) -> TableLog:
    """What Delta says of a table that it has opened."""
    found = pl.DataFrame(handle.get_add_actions(flatten=True))
    columns = handle.metadata().partition_columns
    files: dict[str, dict[str, DataFile]] = {}
    for action in found.iter_rows(named=True):
        values = {name: None if (value := action[f"partition.{name}"]) is None else str(value) for name in columns}
        lows = {name[4:]: value for name, value in action.items() if name.startswith("min.")}
        stats = json.dumps({"numRecords": action["num_records"], "minValues": lows}, default=str)
        files.setdefault(str(values[columns[0]]), {})[action["path"]] = DataFile(action["size_bytes"], values, stats)
    layout = _Layout(handle.schema().to_json(), tuple(columns))
    return TableLog(handle.version(), layout, files, {}, handle)


class _State:
    """A table while its log is read."""

    def __init__(self, version: int, layout: _Layout | None = None) -> None:
        self.version = version
        self._layout = layout
        self._files: dict[str, dict[str, DataFile]] = {}
        self._marks: dict[str, int] = {}

    @classmethod
    def start(cls, root: Location) -> _State:
        """What the last checkpoint says; nothing where there is none."""
        hint = read_log_file(root, "_last_checkpoint")
        if hint is None:
            return cls(-1)
        last = json.loads(hint)
        if last.get("parts") is not None:
            raise UnknownLog
        state = cls(int(last["version"]))
        state._take_checkpoint(read_log_file(root, f"{state.version:020}.checkpoint.parquet"))
        return state

    @classmethod
    def go_on(cls, before: TableLog) -> _State:
        """An earlier version, to be read on from."""
        if before.handle is not None:
            raise UnknownLog
        state = cls(before.version, before.layout)
        # Partitions are replaced, never changed in place: whoever holds the earlier version keeps it.
        state._files, state._marks = dict(before.files), dict(before.marks)
        return state

    def fix(self) -> TableLog | None:
        """The table as it was read; none where there is no table."""
        if self._layout is None:
            if self.version >= 0:
                raise UnknownLog
            return None
        return TableLog(self.version, self._layout, self._files, self._marks)

    def apply(self, entry: bytes) -> None:
        """Take in the next entry of the log."""
        for kind, said in list_actions(entry):
            if kind == "add":
                if said.get("deletionVector") is not None:
                    raise UnknownLog
                self._add(unquote(said["path"]), said["size"], said["partitionValues"], said.get("stats"))
            elif kind == "remove":
                self._remove(unquote(said["path"]))
            elif kind == "txn":
                self._marks[said["appId"]] = int(said["version"])
                if said.get("lastUpdated") is not None:  # only the marks of forgotten runs bear a time
                    del self._marks[said["appId"]]
            elif kind == "metaData":
                self._describe(said["schemaString"], said["partitionColumns"])
            elif kind == "protocol":
                _require_known(said)
        self.version += 1

    def _take_checkpoint(self, data: bytes | None) -> None:
        if data is None:
            raise UnknownLog
        file = pq.ParquetFile(io.BytesIO(data))
        names = set(file.schema_arrow.names)
        rows = file.read([name for name in _CHECKPOINT_COLUMNS if name.partition(".")[0] in names], use_threads=False)
        if "sidecar" in names and rows.column("sidecar").null_count < rows.num_rows:
            raise UnknownLog  # its rows lie in other files
        for said in rows.column("protocol").drop_null().to_pylist():
            _require_known(said)
        for said in rows.column("metaData").drop_null().to_pylist():
            self._describe(said["schemaString"], said["partitionColumns"])
        adds = rows.column("add").drop_null().combine_chunks()
        if "deletionVector" in [one.name for one in adds.type] and adds.field("deletionVector").null_count < len(adds):
            raise UnknownLog
        if self._layout is None:
            raise UnknownLog
        parts = _list_values(adds.field("partitionValues"), len(self._layout.partition_columns))
        first, facts = self._layout.partition_columns[0], (adds.field(name).to_pylist() for name in ("path", "size"))
        for path, size, values, stats in zip(*facts, parts, adds.field("stats").to_pylist(), strict=True):
            mine = self._files.setdefault(str(values[first]), {})
            mine[unquote(path) if "%" in path else path] = DataFile(size, values, stats)
        marks = rows.column("txn").drop_null().combine_chunks()
        self._marks = dict(zip(*(marks.field(name).to_pylist() for name in ("appId", "version")), strict=True))
        for app_id in marks.filter(marks.field("lastUpdated").is_valid()).field("appId").to_pylist():
            del self._marks[app_id]  # of a forgotten run

    def _describe(self, schema: str, partition_columns: Sequence[str]) -> None:
        layout = _Layout(schema, tuple(partition_columns))
        if layout != self._layout:  # one that stays has its columns read already
            self._layout = layout

    def _add(self, path: str, size: int, values: Mapping[str, str | None], stats: str | None) -> None:
        if self._layout is None:
            raise UnknownLog
        name = str(values[self._layout.partition_columns[0]])
        self._files[name] = {**self._files.get(name, {}), path: DataFile(size, values, stats)}

    def _remove(self, path: str) -> None:
        name = unquote(path.partition("/")[0].partition("=")[2])
        left = {one: file for one, file in self._files.get(name, {}).items() if one != path}
        if left:
            self._files[name] = left
        else:
            self._files.pop(name, None)


def _require_known(protocol: Mapping[str, Any]) -> None:
    if protocol["minReaderVersion"] > _READER_VERSION or protocol["minWriterVersion"] > _WRITER_VERSION:
        raise UnknownLog


def _list_values(column: pa.MapArray, count: int) -> Iterable[dict[str, str | None]]:
    """The partition values of each file."""
    names, values = column.keys.to_pylist(), column.items.to_pylist()
    if count < 1 or len(names) != count * len(column):
        raise UnknownLog
    starts = range(0, len(names), count)
    return (dict(zip(names[at : at + count], values[at : at + count], strict=True)) for at in starts)
