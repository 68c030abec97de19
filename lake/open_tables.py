"""The tables of a lake that this process knows: each log is read once for whoever asks, and on from there.

In an object store, to see that nothing has changed since takes one listing of the log's end. Who writes has a handle of
Delta's; one that was opened there, at the cost of a request for each log entry, is kept for who writes next.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from lake.cut_off import list_objects, repeat_read
from lake.locations import Location, report_unreachable
from lake.log_entries import UnknownLog
from lake.log_recovery import is_last_entry, mark_entry, set_aside_cut_entries
from lake.table_log import describe_opened, read_log

if TYPE_CHECKING:
    from lake.table_log import TableLog

_KEPT_PER_TABLE = 4
_KEPT_LAKES = 8


def open_table(root: Location, version: int | None = None) -> DeltaTable | None:
    """Open a table as it is now, or as it was; none where there is none."""
    try:
        return repeat_read(partial(DeltaTable, str(root), version=version, storage_options=dict(root.options) or None))
    except TableNotFoundError:
        return None


def is_table(root: Location) -> bool:
    """Whether a table lies there, declared or not."""
    with report_unreachable(f"{root} did not answer"):
        return repeat_read(partial(DeltaTable.is_deltatable, str(root), dict(root.options) or None))


def read_current(root: Location, before: TableLog | None = None) -> TableLog | None:
    """What the log says now, by Delta where we do not know our way in it; none where there is no table."""
    for basis in (None,) if before is None else (before, None):
        with suppress(UnknownLog):
            return read_log(root, basis)
    handle = open_table(root)
    return None if handle is None else describe_opened(handle)


def share_tables(place: Location) -> OpenTables:
    """The tables of a lake that are open in this process, whoever in it opened them."""
    return _find_shared(place.root, frozenset(place.options.items()))


class OpenTables:
    """The tables of one lake; in an object store, who writes has a handle to itself until it gives it back."""

    def __init__(self, place: Location) -> None:
        self._place = place
        self._guard = threading.Lock()
        self._roots: dict[str, Location] = {}
        self._idle: dict[str, list[DeltaTable]] = {}
        # As they were read last, with what stood for the log then.
        self._known: dict[str, tuple[TableLog, object]] = {}

    def read(self, table: str) -> TableLog | None:
        """What the log of a table says now; none where there is no table. It is read only where it has changed."""
        root = self.root(table)
        with report_unreachable(f"{root} did not answer"):
            return self._read_locally(table, root) if root.is_local else self._read_remotely(table, root)

    def root(self, table: str) -> Location:
        """The place of a table, put together once."""
        if table not in self._roots:
            self._roots[table] = self._place.child(*table.split("."))
        return self._roots[table]

    def set_aside(self, table: str) -> None:
        """Move what a power cut left of a local table's log out of it."""
        aside = self._place.directory / "_staging" / table / "unreadable"
        set_aside_cut_entries(self.root(table).directory / "_delta_log", aside, table)

    def _read_locally(self, table: str, root: Location) -> TableLog | None:
        folder = root.directory / "_delta_log"
        known, mark = self._known.get(table, (None, None))
        is_whole = known is not None and mark == mark_entry(folder, known.version)
        if known is not None and is_whole and is_last_entry(folder, known.version):
            return known
        self.set_aside(table)
        log = read_current(root, known if is_whole else None)
        if log is not None:
            # Marked after it was read: what was committed in between is an entry that follows.
            self._known[table] = (log, mark_entry(folder, log.version))
        return log

    def _read_remotely(self, table: str, root: Location) -> TableLog | None:
        known, mark = self._known.get(table, (None, None))
        if known is not None:
            last, found = _find_end(root, known.version)
            if found is None or mark not in {None, found}:
                self._forget(root)
                self._known.pop(table, None)
                known = None
            elif last == known.version:
                self._known[table] = (known, found)
                return known
        log = read_current(root, known)
        if log is not None:
            self._known[table] = (log, None)  # marked when the log is listed
        return log

    def take(self, root: Location) -> DeltaTable | None:
        """The table as it is now, for one writer alone."""
        with report_unreachable(f"{root} did not answer"):
            return self._take(root)

    def _take(self, root: Location) -> DeltaTable | None:
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
                    repeat_read(handle.update_incremental)
                except DeltaError:  # an entry that it needs is gone: a checkpoint stands in for it
                    return open_table(root)
                return handle
        return open_table(root)

    def give_back(self, root: Location, handle: DeltaTable) -> None:
        """Keep a handle for whoever writes next."""
        with self._guard:
            waiting = self._idle.setdefault(root.root, [])
            if len(waiting) < _KEPT_PER_TABLE:
                waiting.append(handle)

    def _forget(self, root: Location) -> None:
        """The log was taken away, or put back to an earlier state: no handle that was opened before holds."""
        with self._guard:
            self._idle.pop(root.root, None)


@lru_cache(maxsize=_KEPT_LAKES)
def _find_shared(root: str, options: frozenset[tuple[str, str]]) -> OpenTables:
    return OpenTables(Location(root, dict(options)))


def _find_end(root: Location, version: int) -> tuple[int, str | None]:
    """The last version of a table's log, and the mark of the entry of this one; none where that is not there."""
    offset = f"_delta_log/{version:020}"
    last, mark = version, None
    for item in list_objects(root.store, "_delta_log", offset=offset):
        number, _, kind = item["path"].rpartition("/")[2].partition(".")
        if kind == "json" and number.isdecimal():
            last = max(last, int(number))
            if int(number) == version:
                mark = f"{item['e_tag']} {item['last_modified']}"
    return last, mark
