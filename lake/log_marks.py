"""The marks that a Delta log keeps by application id, all of them from one pass over the log.

Delta itself looks through the whole log for each one that it is asked for: in an object store a request for every
entry, and in a lake of many runs a look at the marks of all of them.
"""

from __future__ import annotations

import io
import json
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from obstore.exceptions import NotFoundError

from lake.locations import report_unreachable

if TYPE_CHECKING:
    from lake.locations import Location

# A store answers many requests in the time of one.
_SIDE_BY_SIDE = 16
# So few are asked of Delta itself where the log lies on this disk.
_FEW = 8


class LogMarks:
    """The marks of one table at one version."""

    def __init__(
        self,
        root: Location,
        version: int,
        basis: tuple[int, dict[str, int]] | None = None,
        handle: DeltaTable | None = None,
    ) -> None:
        """`basis` are an earlier version of the same log and its marks: only later entries are read then.

        `handle` is the table, open at this version, where it stays so.
        """
        self._root = root
        self._given = handle
        self._basis = basis
        self._asked = 0
        self._found: dict[str, int] | None = None
        self._is_unreadable = False
        self.version = version

    def find(self, app_id: str) -> int | None:
        """The mark of an application id; none where it has none, or where its run was forgotten."""
        self._asked += 1
        if self._found is None and not self._is_unreadable and (not self._root.is_local or self._asked > _FEW):
            self._found = self._read()
            self._is_unreadable = self._found is None
            self._basis = None
        if self._found is not None:
            return self._found.get(app_id)
        # A log that was written by another program, or is being tidied at this moment: Delta knows its way.
        with report_unreachable(f"the log of {self._root} could not be read"):
            return self._handle.transaction_version(app_id)

    @cached_property
    def _handle(self) -> DeltaTable:
        if self._given is not None:
            return self._given
        return DeltaTable(str(self._root), version=self.version, storage_options=dict(self._root.options) or None)

    @property
    def basis(self) -> tuple[int, dict[str, int]] | None:
        """What a later version can be read on from: these marks, or those that these would be read on from."""
        return self._basis if self._found is None else (self.version, self._found)

    def _read(self) -> dict[str, int] | None:
        if self._basis is not None and self._basis[0] <= self.version:
            first, found = self._basis[0], dict(self._basis[1])
        else:
            first = self._find_checkpoint()
            marks = {} if first < 0 else self._read_checkpoint(first)
            if marks is None:
                return None
            found = marks
        names = [f"{version:020}.json" for version in range(first + 1, self.version + 1)]
        if self._root.is_local or len(names) < 2:
            entries = list(map(self._get, names))
        else:
            with ThreadPoolExecutor(min(len(names), _SIDE_BY_SIDE), thread_name_prefix="log") as pool:
                entries = list(pool.map(self._get, names))
        for entry in entries:
            if entry is None:
                return None
            _apply(entry, found)
        return found

    def _find_checkpoint(self) -> int:
        """The version of the last checkpoint; -1 where there is none, or one of a later version than ours."""
        try:
            version = int(json.loads(self._get("_last_checkpoint") or b"")["version"])
        except (ValueError, KeyError, TypeError):
            return -1
        return version if version <= self.version else -1

    def _read_checkpoint(self, version: int) -> dict[str, int] | None:
        data = self._get(f"{version:020}.checkpoint.parquet")
        if data is None:
            return None
        file = pq.ParquetFile(io.BytesIO(data))
        if "txn" not in file.schema_arrow.names or "sidecar" in file.schema_arrow.names:
            return None
        rows = file.read(columns=["txn"]).column("txn").drop_null().to_pylist()
        found: dict[str, int] = {}
        for row in rows:
            _keep(row, found)
        return found

    def _get(self, name: str) -> bytes | None:
        with report_unreachable(f"the log of {self._root} could not be read"):
            try:
                if self._root.is_local:
                    return (self._root.directory / "_delta_log" / name).read_bytes()
                return bytes(self._root.store.get(f"_delta_log/{name}").bytes())
            except (FileNotFoundError, NotFoundError):
                return None


def _apply(entry: bytes, found: dict[str, int]) -> None:
    for line in entry.splitlines():
        if b'"txn"' in line:
            said: Any = json.loads(line)
            if "txn" in said:
                _keep(said["txn"], found)


def _keep(row: dict[str, Any], found: dict[str, int]) -> None:
    """Take one mark in; only those of forgotten runs bear a time, and they count no longer."""
    if row.get("lastUpdated") is not None:
        found.pop(row["appId"], None)
    else:
        found[row["appId"]] = int(row["version"])
