"""Delta tables that are open in this process: each is opened once for whoever reads it, and again where it has changed.

To open a table of an object store takes a request for each log entry since the last checkpoint; to see that nothing has
changed since, one listing of the log's end, and what has is read on from there. A local table takes milliseconds, and a
command that asks of 60 tables in several places some hundreds of them.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

import obstore
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from lake.log_marks import LogMarks

if TYPE_CHECKING:
    from lake.locations import Location

_KEPT_PER_TABLE = 4
_KEPT_LAKES = 8


def open_table(root: Location, version: int | None = None) -> DeltaTable | None:
    """Open a table as it is now, or as it was; none where there is none."""
    try:
        return DeltaTable(str(root), version=version, storage_options=dict(root.options) or None)
    except TableNotFoundError:
        return None


def share_tables(place: Location) -> OpenTables:
    """The tables of a lake that are open in this process, whoever in it opened them."""
    return _find_shared(place.root, frozenset(place.options.items()))


class FixedTable:
    """What a table was at one version, whatever becomes of the handle that it was read from."""

    marks: LogMarks

    def __init__(self, root: Location, handle: DeltaTable, before: FixedTable | None) -> None:
        self._version = handle.version()
        self._schema = handle.schema()
        self._metadata = handle.metadata()
        self._files = handle.get_add_actions(flatten=True)
        # Those of an earlier version are read on from.
        known = None if before is None or before.version() > self._version else before.marks
        if known is not None and known.version == self._version:
            self.marks = known
        else:
            self.marks = LogMarks(root, self._version, None if known is None else known.basis)

    def version(self) -> int:
        """The version."""
        return self._version

    def schema(self) -> Any:
        """The columns."""
        return self._schema

    def metadata(self) -> Any:
        """What the table says of itself."""
        return self._metadata

    def get_add_actions(self, *, flatten: Literal[True]) -> Any:  # noqa: ARG002 - as Delta's own is called
        """The data files."""
        return self._files


class OpenTables:
    """The tables of one lake; in an object store, who writes has a handle to itself until it gives it back."""

    def __init__(self) -> None:
        # Of a local lake: tables as they were opened last, to be read, with the mark of their log then.
        self.local: dict[str, tuple[DeltaTable, object]] = {}
        self._guard = threading.Lock()
        self._idle: dict[str, list[DeltaTable]] = {}
        # With the mark of the entry of that version, once the log was listed.
        self._known: dict[str, tuple[FixedTable, str | None]] = {}

    def read(self, root: Location) -> FixedTable | None:
        """The table as it is now, to be read."""
        known, mark = self._known.get(root.root, (None, None))
        if known is not None:
            last, found = _find_end(root, known.version())
            if found is not None and last == known.version() and mark in {None, found}:
                self._known[root.root] = (known, found)
                return known
            if found is None or mark not in {None, found}:
                self._forget(root)
        handle = self.take(root)
        return None if handle is None else self.give_back(root, handle)

    def take(self, root: Location) -> DeltaTable | None:
        """The table as it is now, for one writer alone."""
        with self._guard:
            waiting = self._idle.get(root.root)
            handle = waiting.pop() if waiting else None
        if handle is not None:
            last, mark = _find_end(root, handle.version())
            if mark is None:
                self._forget(root)
            elif last == handle.version():
                return handle
            else:
                try:
                    handle.update_incremental()
                except DeltaError:  # an entry that it needs is gone: a checkpoint stands in for it
                    return open_table(root)
                return handle
        return open_table(root)

    def give_back(self, root: Location, handle: DeltaTable) -> FixedTable:
        """Keep a handle for whoever needs one next; gives what the table is."""
        known, _ = self._known.get(root.root, (None, None))
        fixed = FixedTable(root, handle, known)
        with self._guard:
            if known is None or known.version() < fixed.version():
                self._known[root.root] = (fixed, None)
            waiting = self._idle.setdefault(root.root, [])
            if len(waiting) < _KEPT_PER_TABLE:
                waiting.append(handle)
        return fixed

    def fix(self, root: Location, handle: DeltaTable) -> FixedTable:
        """What a table is whose handle a writer holds."""
        return FixedTable(root, handle, self._known.get(root.root, (None, None))[0])

    def _forget(self, root: Location) -> None:
        """The log was taken away, or put back to an earlier state: nothing that was read of it holds."""
        with self._guard:
            self._idle.pop(root.root, None)
            self._known.pop(root.root, None)


@lru_cache(maxsize=_KEPT_LAKES)
def _find_shared(_root: str, _options: frozenset[tuple[str, str]]) -> OpenTables:
    return OpenTables()


def _find_end(root: Location, version: int) -> tuple[int, str | None]:
    """The last version of a table's log, and the mark of the entry of this one; none where that is not there."""
    offset = f"_delta_log/{version:020}"
    last, mark = version, None
    for page in obstore.list(root.store, "_delta_log", offset=offset):
        for item in page:
            number, _, kind = item["path"].rpartition("/")[2].partition(".")
            if kind == "json" and number.isdecimal():
                last = max(last, int(number))
                if int(number) == version:
                    mark = f"{item['e_tag']} {item['last_modified']}"
    return last, mark
