"""The reader of Nsight Systems' SQLite export: declared tables only, wrong types kept and not believed."""

from __future__ import annotations

import json
import math
import sqlite3
from typing import TYPE_CHECKING, Any

from bronze import json_text, nsys_around, nsys_events, nsys_ignored, sqlite_tables, untrusted_sqlite
from bronze.decimals import fit_int64, fit_nanoseconds
from bronze.records import RecordReader
from bronze.tolerant_parser import make_range
from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

VERSION = 2
_LABELS = {
    "ENUM_CUDA_MEMCPY_OPER": "SELECT id, label FROM ENUM_CUDA_MEMCPY_OPER LIMIT 1000",
    "ENUM_CUDA_MEM_KIND": "SELECT id, label FROM ENUM_CUDA_MEM_KIND LIMIT 1000",
}
# By row id, which is the id in every real export and found at once in any other.
_STRING = "SELECT id, value FROM StringIds WHERE rowid = ?"
_DECLARED = {
    *sqlite_tables.NSYS_EVENTS,
    *nsys_ignored.DECLARED,
    *nsys_around.QUERIES,
    *_LABELS,
    "StringIds",
}
_WHOLE = {
    "correlationId": "correlation_id",
    "deviceId": "device_id",
    "contextId": "context_id",
    "streamId": "stream_id",
    "bytes": "payload_bytes",
    "graphId": "graph_id",
    "graphNodeId": "graph_node_id",
}
# A device that is none: CUPTI's mark for work that started on the host.
_NO_DEVICE = (1 << 31) - 1

_NAMES = ("demangledName", "nameId", "textId", "shortName", "mangledName")
_LABELLED = {
    "copyKind": ("copy_kind", "ENUM_CUDA_MEMCPY_OPER"),
    "srcKind": ("source_memory", "ENUM_CUDA_MEM_KIND"),
    "dstKind": ("target_memory", "ENUM_CUDA_MEM_KIND"),
}
# The same text as `json_text` writes, at a fraction of the time: what SQLite holds has no decimals and no doubled keys.
_written = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_REMEMBERED, _SHORT = 1 << 15, 1 << 12


class NsysSqliteReader(RecordReader):
    """One pass over one database."""

    def __init__(self, database: Path | bytes) -> None:
        super().__init__(nsys_events.TABLE)
        self._database = database
        self._labels: dict[str, dict[int, str]] = {}
        self._list_ignored = nsys_around.Around()
        self._places: set[tuple[Any, ...]] = set()

    def _read(self) -> Iterator[None]:
        try:
            database, present = untrusted_sqlite.open_untrusted(self._database, _DECLARED)
        except sqlite3.Error as error:
            raise EvidenceRejected(f"it is an SQLite file that cannot be opened: {error}") from error
        try:
            yield from self._tables(database, present)
        finally:
            database.close()

    def _tables(self, database: sqlite3.Connection, present: dict[str, str]) -> Iterator[None]:
        if present.keys().isdisjoint(sqlite_tables.NSYS_EVENTS):
            raise EvidenceRejected(
                "it is an SQLite database without a table of an Nsight Systems export",
                "export with `nsys export --type sqlite`",
            )
        self._keep("tables", sorted(present)[:1000])
        for name in nsys_around.QUERIES:
            if present.get(name) == "table":
                self._learn(database, name)
        self._labels = {name: self._labels_of(database, name, present) for name in _LABELS}
        names = _names(database) if present.get("StringIds") == "table" else _describe_missing_name
        for name in sqlite_tables.NSYS_EVENTS:
            if name in present and present[name] != "table":
                self.report(make_range(0, 0, f"{name} is a {present[name]}, no plain table: it is not run", b""))
            elif name in present:
                yield from self._rows(database, name, names)
        ignored = {name: kind for name, kind in present.items() if name not in sqlite_tables.NSYS_EVENTS}
        self.ignored_tables = nsys_ignored.count_ignored(database, ignored)

    def _keep(self, key: str, value: Any) -> None:
        text = json_text.compact_json({key: value}) or ""
        if not self.envelope.keep(key, text[len(key) + 4 : -1]):
            self.report(make_range(0, 0, f"what {key} says is too large to be kept", b""))

    def _learn(self, database: sqlite3.Connection, name: str) -> None:
        """Read a small table that events need, and keep it in the envelope where it says something of its own."""
        try:
            rows = nsys_around.read_small(database, name)
        except sqlite3.Error as error:
            self.report(make_range(0, 0, f"{name} could not be read: {error}", b""))
            return
        if name in nsys_around.KEPT:
            self._keep(name, rows)
        self._list_ignored.take(name, rows)
        if name == "TARGET_INFO_SESSION_START_TIME" and len(rows) == 1:
            self._list_ignored.session_ns = fit_nanoseconds(rows[0].get("utcEpochNs"))

    def _labels_of(self, database: sqlite3.Connection, name: str, present: dict[str, str]) -> dict[int, str]:
        if present.get(name) != "table":
            return {}
        try:
            found = database.execute(_LABELS[name]).fetchall()
        except sqlite3.Error as error:
            self.report(make_range(0, 0, f"{name} could not be read: {error}", b""))
            return {}
        return {key: label for key, label in found if isinstance(key, int) and isinstance(label, str)}

    def _rows(self, database: sqlite3.Connection, name: str, names: Callable[[object], str | None]) -> Iterator[None]:
        """Every row of a table; one that cannot be read is reported by its place."""
        for row in sqlite_tables.read_rows(database, name):
            if isinstance(row, sqlite_tables.Fault):
                self.report(make_range(0, 0, row.reason, b""))
                self.is_complete = self.is_complete and not row.is_end
            else:
                self._take(name, row, names)
            yield

    def _take(self, table: str, found: dict[str, Any], names: Callable[[object], str | None]) -> None:
        row: dict[str, Any] = {"report": table}
        left = {key: value for key, value in found.items() if value is not None}
        if left.get("deviceId") == _NO_DEVICE:
            left["deviceId"] = str(_NO_DEVICE)
        for key, column in _WHOLE.items():
            row[column] = _pop_integer(left, key)
        self._timed(row, left)
        _name(row, left, names)
        for key, (column, labels) in _LABELLED.items():
            number = fit_int64(left.get(key))
            if number is not None:
                label = self._labels.get(labels, {}).get(number)
                row[column] = str(number) if label is None else label
                left = left if label is not None else {k: v for k, v in left.items() if k != key}
        if row["payload_bytes"] is not None:
            row["is_payload_rounded"] = False
        self._list_ignored.place(row, left)
        self._explain(table, row, left)
        self._count_place(row)
        result = fit_int64(left.get("returnValue"))
        if result is not None:
            row["result"] = str(result)
            del left["returnValue"]
        row["args"] = _written({key: _describe_plainly(value) for key, value in left.items()}) if left else None
        self.add(nsys_events.TABLE, row, 256 + len(row["args"] or "") + len(row.get("name") or ""))

    def _timed(self, row: dict[str, Any], left: dict[str, Any]) -> None:
        if "start" not in left and "timestamp" in left:
            left["start"] = left.pop("timestamp")
        start, end = fit_nanoseconds(left.get("start")), fit_nanoseconds(left.get("end"))
        duration = None if start is None or end is None else fit_nanoseconds(end - start)
        row["start_ns"], row["duration_ns"] = start, duration
        if start is not None:
            del left["start"]
            row["ts_ns"] = (
                None
                if self._list_ignored.session_ns is None
                else fit_nanoseconds(self._list_ignored.session_ns + start)
            )
        if duration is not None:
            del left["end"]

    def _explain(self, table: str, row: dict[str, Any], left: dict[str, Any]) -> None:
        """Add what a row of this table means only together with the tables around it."""
        if table == "NVTX_EVENTS":
            row |= self._list_ignored.nccl(left)
        elif table == "GPU_METRICS":
            row["name"] = self._list_ignored.metric(left)
        elif table == "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" and "name" not in row:
            row["name"] = f"CUDA graph {row['graph_id']}"

    def _count_place(self, row: dict[str, Any]) -> None:
        """Refuse an export of more processes, devices and contexts than there can be, before anybody groups by them."""
        self._places.add(tuple(row.get(key) for key in ("host_id", "process_id", "device_id", "context_id")))
        if len(self._places) > nsys_events.MOST_PLACES:
            raise EvidenceRejected(f"it names more than {nsys_events.MOST_PLACES:,} processes, devices and contexts")


def _name(row: dict[str, Any], left: dict[str, Any], names: Callable[[object], str | None]) -> None:
    """Take the first name that a row has; the others stay beside it, as texts."""
    for key in _NAMES:
        name = names(left.get(key))
        if name is not None:
            left[key] = name
            if "name" not in row:
                row["name"] = left.pop(key)
    if "name" not in row and isinstance(left.get("text"), str):
        row["name"] = left.pop("text")


def _pop_integer(left: dict[str, Any], key: str) -> int | None:
    """A whole number out of what is left; anything else stays there."""
    value = fit_int64(left.get(key))
    if value is not None:
        del left[key]
    return value


def _describe_missing_name(_key: object) -> None:
    return None


def _names(database: sqlite3.Connection) -> Callable[[object], str | None]:
    """What an id stands for, by the export's own table of strings; only some short ones are remembered."""
    known: dict[int, str | None] = {}

    def find_name(key: object) -> str | None:
        number = fit_int64(key)
        if number is None or number in known:
            return None if number is None else known[number]
        try:
            found = database.execute(_STRING, (number,)).fetchone()
        except sqlite3.Error:
            return None
        name = found[1] if found is not None and found[0] == number and isinstance(found[1], str) else None
        if len(known) < _REMEMBERED and len(name or "") < _SHORT:
            known[number] = name
        return name

    return find_name


def _describe_plainly(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return untrusted_sqlite.to_json_value(value)
