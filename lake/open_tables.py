"""Delta tables of an object store that are open in this process: one listing tells whether one is still current.

To open a table anew takes a request for each log entry since the last checkpoint; a local disk has no such price.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import obstore
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from lake.log_marks import LogMarks

if TYPE_CHECKING:
    from lake.locations import Location

_KEPT_PER_TABLE = 4


def open_table(root: Location) -> DeltaTable | None:
    """Open a table as it is now; none where there is none."""
    try:
        return DeltaTable(str(root), storage_options=dict(root.options) or None)
    except TableNotFoundError:
        return None


class OpenTables:
    """The tables of one lake in an object store.

    What a reader gets is never changed afterwards; a writer has a table to itself until it gives it back.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._read: dict[str, tuple[DeltaTable, str]] = {}
        self._idle: dict[str, list[DeltaTable]] = {}
        self._marks: dict[str, LogMarks] = {}

    def read(self, root: Location) -> DeltaTable | None:
        """The table as it is now, to be read."""
        known, mark = self._read.get(root.root, (None, None))
        if known is not None and _find_end(root, known.version()) == (known.version(), mark):
            return known
        found = open_table(root)
        if known is not None and (found is None or found.version() <= known.version()):
            self._marks.pop(root.root, None)  # the log was put back to an earlier state
        if found is not None:
            version, mark = _find_end(root, found.version())
            if mark is not None and version == found.version():
                self._read[root.root] = (found, mark)
        return found

    def take(self, root: Location) -> DeltaTable | None:
        """The table as it is now, for one writer alone."""
        with self._guard:
            waiting = self._idle.get(root.root)
            known = waiting.pop() if waiting else None
        if known is None:
            return open_table(root)
        last, mark = _find_end(root, known.version())
        if mark is None:  # the log was taken away, or put back to an earlier state
            self._marks.pop(root.root, None)
            return open_table(root)
        if last != known.version():
            try:
                known.update_incremental()
            except DeltaError:  # an entry that it needs is gone: a checkpoint stands in for it
                return open_table(root)
        return known

    def find_marks(self, root: Location, handle: DeltaTable) -> LogMarks:
        """The marks of a table as it was opened; those of an earlier version are read on from."""
        known = self._marks.get(root.root)
        if known is not None and known.version == handle.version():
            return known
        found = LogMarks(root, handle, None if known is None else known.basis)
        if known is None or known.version < found.version:
            self._marks[root.root] = found
        return found

    def give_back(self, root: Location, handle: DeltaTable) -> None:
        """Keep a table for the next writer."""
        with self._guard:
            waiting = self._idle.setdefault(root.root, [])
            if len(waiting) < _KEPT_PER_TABLE:
                waiting.append(handle)


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
