"""The reader of Nsight Systems' SQLite export: declared tables only, wrong types kept and not believed."""

from __future__ import annotations

import math
import sqlite3
from typing import TYPE_CHECKING, Any

from bronze import json_text, nsys_events, nsys_tables, untrusted_sqlite
from bronze.decimals import fit_int64, fit_nanoseconds
from bronze.records import RecordReader
from bronze.tolerant_parser import make_range
from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

VERSION = 1
# What stands around the events: a few rows each, kept in the envelope.
_AROUND = {
    "TARGET_INFO_SESSION_START_TIME": "SELECT * FROM TARGET_INFO_SESSION_START_TIME LIMIT 100",
    "TARGET_INFO_SYSTEM_ENV": "SELECT * FROM TARGET_INFO_SYSTEM_ENV LIMIT 1000",
    "TARGET_INFO_GPU": "SELECT * FROM TARGET_INFO_GPU LIMIT 100",
    "META_DATA_EXPORT": "SELECT * FROM META_DATA_EXPORT LIMIT 100",
}
_LABELS = {
    "ENUM_CUDA_MEMCPY_OPER": "SELECT id, label FROM ENUM_CUDA_MEMCPY_OPER LIMIT 1000",
    "ENUM_CUDA_MEM_KIND": "SELECT id, label FROM ENUM_CUDA_MEM_KIND LIMIT 1000",
}
# By row id, which is the id in every real export and found at once in any other.
_STRING = "SELECT id, value FROM StringIds WHERE rowid = ?"
_DECLARED = {*nsys_tables.EVENTS, *_AROUND, *_LABELS, "StringIds"}
_WHOLE = {
    "correlationId": "correlation_id",
    "deviceId": "device_id",
    "contextId": "context_id",
    "streamId": "stream_id",
    "bytes": "payload_bytes",
}
_NAMES = ("demangledName", "nameId", "textId", "shortName", "mangledName")
_LABELLED = {
    "copyKind": ("copy_kind", "ENUM_CUDA_MEMCPY_OPER"),
    "srcKind": ("source_memory", "ENUM_CUDA_MEM_KIND"),
    "dstKind": ("target_memory", "ENUM_CUDA_MEM_KIND"),
}
# A global id holds the process in its upper and the thread in its lower 24 bits.
_ID_BITS = 24
_ID_MASK = (1 << _ID_BITS) - 1
_REMEMBERED, _SHORT = 1 << 15, 1 << 12


class NsysSqliteReader(RecordReader):
    """One pass over one database."""

    def __init__(self, path: Path) -> None:
        super().__init__(nsys_events.TABLE)
        self._path = path
        self._labels: dict[str, dict[int, str]] = {}
        self._session_ns: int | None = None

    def _read(self) -> Iterator[None]:
        try:
            database, present = untrusted_sqlite.open_untrusted(self._path, _DECLARED)
        except sqlite3.Error as error:
            raise EvidenceRejected(f"it is an SQLite file that cannot be opened: {error}") from error
        try:
            yield from self._tables(database, present)
        finally:
            database.close()

    def _tables(self, database: sqlite3.Connection, present: dict[str, str]) -> Iterator[None]:
        if present.keys().isdisjoint(nsys_tables.EVENTS):
            raise EvidenceRejected(
                "it is an SQLite database without a table of an Nsight Systems export",
                "export with `nsys export --type sqlite`",
            )
        self._keep("tables", sorted(present)[:1000])
        for name in _AROUND:
            if present.get(name) == "table":
                self._list_ignored(database, name)
        self._labels = {name: self._labels_of(database, name, present) for name in _LABELS}
        names = _names(database) if present.get("StringIds") == "table" else _describe_missing_name
        for name in nsys_tables.EVENTS:
            if name in present and present[name] != "table":
                self.report(make_range(0, 0, f"{name} is a {present[name]}, no plain table: it is not run", b""))
            elif name in present:
                yield from self._rows(database, name, names)

    def _keep(self, key: str, value: Any) -> None:
        text = json_text.compact_json({key: value}) or ""
        if not self.envelope.keep(key, text[len(key) + 4 : -1]):
            self.report(make_range(0, 0, f"what {key} says is too large to be kept", b""))

    def _list_ignored(self, database: sqlite3.Connection, name: str) -> None:
        """Keep a small table in the envelope; the session's start also places every event in time."""
        try:
            cursor = database.execute(_AROUND[name])
            headers = [column[0] for column in cursor.description]
            rows = [{h: untrusted_sqlite.to_json_value(v) for h, v in zip(headers, row, strict=True)} for row in cursor]
        except sqlite3.Error as error:
            self.report(make_range(0, 0, f"{name} could not be read: {error}", b""))
            return
        self._keep(name, rows)
        if name == "TARGET_INFO_SESSION_START_TIME" and len(rows) == 1:
            self._session_ns = fit_nanoseconds(rows[0].get("utcEpochNs"))

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
        for row in nsys_tables.read_rows(database, name):
            if isinstance(row, nsys_tables.Fault):
                self.report(make_range(0, 0, row.reason, b""))
                self.is_complete = self.is_complete and not row.is_end
            else:
                self._take(name, row, names)
            yield

    def _take(self, table: str, found: dict[str, Any], names: Callable[[object], str | None]) -> None:
        row: dict[str, Any] = {"report": table}
        left = {key: value for key, value in found.items() if value is not None}
        for key, column in _WHOLE.items():
            row[column] = _pop_integer(left, key)
        self._timed(row, left)
        for key in _NAMES:
            name = names(left.get(key))
            if name is not None:
                left[key] = name
                if "name" not in row:
                    row["name"] = left.pop(key)
        if "name" not in row and isinstance(left.get("text"), str):
            row["name"] = left.pop("text")
        for key, (column, labels) in _LABELLED.items():
            number = fit_int64(left.get(key))
            if number is not None:
                label = self._labels.get(labels, {}).get(number)
                row[column] = str(number) if label is None else label
                left = left if label is not None else {k: v for k, v in left.items() if k != key}
        if row["payload_bytes"] is not None:
            row["is_payload_rounded"] = False
        self._set_process(row, left)
        result = fit_int64(left.get("returnValue"))
        if result is not None:
            row["result"] = str(result)
            del left["returnValue"]
        row["args"] = json_text.compact_json({key: _describe_plainly(value) for key, value in left.items()})
        self.add(nsys_events.TABLE, row, 256 + len(row["args"] or "") + len(row.get("name") or ""))

    def _timed(self, row: dict[str, Any], left: dict[str, Any]) -> None:
        start, end = fit_nanoseconds(left.get("start")), fit_nanoseconds(left.get("end"))
        duration = None if start is None or end is None else fit_nanoseconds(end - start)
        row["start_ns"], row["duration_ns"] = start, duration
        if start is not None:
            del left["start"]
            row["ts_ns"] = None if self._session_ns is None else fit_nanoseconds(self._session_ns + start)
        if duration is not None:
            del left["end"]

    @staticmethod
    def _set_process(row: dict[str, Any], left: dict[str, Any]) -> None:
        """Process and thread out of the global id, which stays as it is beside them."""
        thread, process = fit_int64(left.get("globalTid")), fit_int64(left.get("globalPid"))
        if thread is not None:
            row["thread_id"] = str(thread & _ID_MASK)
        both = thread if thread is not None else process
        if both is not None:
            row["process_id"] = str(both >> _ID_BITS & _ID_MASK)


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

    def named(key: object) -> str | None:
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

    return named


def _describe_plainly(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return untrusted_sqlite.to_json_value(value)
