"""What a table's Delta log says: the files of each run, and what they were made from."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from lake.datafiles import compare_sizes
from lake.digest import combine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from deltalake import DeltaTable

    from lake.locations import Location
    from lake.log_marks import LogMarks
    from lake.open_tables import FixedTable
    from lake.tables import Table

# A check asks for the files of the same few tables again and again; those of a large lake are too many to keep all.
_recent_actions: deque[tuple[DeltaTable | FixedTable, int, pl.DataFrame]] = deque(maxlen=8)


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


@dataclass(frozen=True)
class Snapshot:
    """One table at one version."""

    table: Table
    _handle: DeltaTable | FixedTable | None
    _root: Location
    # What the table's partitions were made from; none where the table is not there.
    _log: LogMarks | None = None
    # For a full rebuild: nothing counts as made.
    _is_rebuilt: bool = False
    # The columns that another version wrote otherwise: such a table has no rows that this version can read.
    outdated: tuple[str, ...] = ()

    def is_made_from(self, run_id: str, made_from: str) -> bool:
        """Whether a run's partition was made from exactly these inputs by exactly this code."""
        return not self._is_rebuilt and self.mark(run_id) == mark_of(made_from)

    def has_seen(self, run_id: str, seen: str) -> bool:
        """Whether a run's partition was made when the landing directory bore exactly this mark."""
        if self._log is None or self._log.find(seen_id(run_id)) != mark_of(seen):
            return False
        return not self.damages(run_id)

    @property
    def run_ids(self) -> list[str]:
        """The runs, or whatever else names a partition, that have rows in the table."""
        return sorted(self._paths)

    def content_sha256(self, run_id: str) -> str:
        """The content digest of a run's partition; that of no rows where it has none."""
        if run_id not in self._digests:  # the checks of a table ask for it one by one
            self._digests[run_id] = combine(format_label(path) for path in self._paths.get(run_id, ()))
        return self._digests[run_id]

    @cached_property
    def _digests(self) -> dict[str, str]:
        return {}

    @cached_property
    def _paths(self) -> dict[str, list[str]]:
        """The data files of every run, from one pass over the log for any number of runs."""
        if self._handle is None:
            return {}
        found = _actions(self._handle).group_by(self._named).agg("path")
        return dict(zip(found[self._named].to_list(), found["path"].to_list(), strict=True))

    @property
    def _named(self) -> str:
        return _partition_column(self.table)

    def partition(self, run_id: str) -> Written:
        """A run's partition as it is: what a replacement that changes nothing would say of it."""
        handle = self._handle
        files = {} if handle is None else list_data_files(handle, self.table, [run_id])
        return Written(
            table=self.table.full_name,
            run_id=run_id,
            rows=0 if handle is None else rows_count(handle, self.table, run_id),
            bytes=sum(size for size, _ in files.values()),
            files=len(files),
            content_sha256=combine(format_label(path) for path in files),
            version=0 if handle is None else handle.version(),
            is_changed=False,
        )

    def mark(self, run_id: str) -> int | None:
        """What stands for the inputs that a run's partition was made from.

        None where it was never made, or where a file of it is missing or truncated: it has to be made again.
        """
        # A snapshot never changes, and which files are there is asked once.
        if run_id not in self._marks:
            log = None if self.damages(run_id) else self._log
            self._marks[run_id] = None if log is None else log.find(run_id)
        return self._marks[run_id]

    @cached_property
    def _marks(self) -> dict[str, int | None]:
        return {}

    def has_bytes(self, run_id: str, digests: Mapping[str, str]) -> bool | None:
        """Whether these are the bytes of a run's data files as they were written; none where nobody wrote that down."""
        mark = None if self._log is None else self._log.find(bytes_id(run_id))
        return None if mark is None else mark == bytes_mark(digests)

    def damages(self, run_id: str) -> dict[str, str]:
        """The files of a run's partition that are missing or not as large as they were written, with the reason."""
        mine = self.sizes.get(run_id, {})
        if self._root.is_local:
            return compare_sizes(self._root, mine)
        return {path: reason for path, reason in self._remote_damages.items() if path in mine}

    @cached_property
    def _remote_damages(self) -> dict[str, str]:
        return compare_sizes(self._root, {path: size for files in self.sizes.values() for path, size in files.items()})

    @cached_property
    def sizes(self) -> dict[str, dict[str, int]]:
        """The data files of each run with their sizes, as the log has them."""
        found: dict[str, dict[str, int]] = {}
        if self._handle is not None:
            columns = (self._named, "path", "size_bytes")
            for run_id, path, size in _actions(self._handle).select(columns).iter_rows():
                found.setdefault(run_id, {})[path] = size
        return found

    def index(self, run_ids: Iterable[str] | None = None) -> dict[str, dict[str, str | None]]:
        """What the indexed columns say of every run, or of some, from the log alone."""
        if self._handle is None:
            return {}
        actions = _actions(self._handle)
        if run_ids is not None:
            actions = actions.filter(pl.col(self._named).is_in(sorted(run_ids)))
        return {
            action[self._named]: {name: action.get(f"min.{name}") for name in self.table.indexed}
            for action in actions.iter_rows(named=True)
        }

    def files(self, run_id: str) -> list[str]:
        """The data files of a run's partition, below the table's own path."""
        return [] if self._handle is None else sorted(list_data_files(self._handle, self.table, [run_id]))

    @property
    def version(self) -> int | None:
        """The Delta version; none where the table does not exist yet."""
        return None if self._handle is None else self._handle.version()


def bytes_id(run_id: str) -> str:
    """The application id under which the digest of the bytes of a run's data files is kept."""
    return f"{run_id}@bytes"  # no run id holds an @


def bytes_mark(digests: Mapping[str, str]) -> int:
    """What stands for the bytes of all data files of a partition, by their paths."""
    return mark_of(combine(f"{format_label(path)} {sha256}" for path, sha256 in digests.items()))


def seen_id(run_id: str) -> str:
    """The application id under which the mark of a run's landing directory is kept."""
    return f"{run_id}@seen"  # no run id holds an @


def stated_id(run_id: str) -> str:
    """The application id under which is kept which rows of a run's partition a signed statement speaks of."""
    return f"{run_id}@stated"  # no run id holds an @


def mark_of(made_from: str) -> int:
    """A fingerprint as the whole number that Delta keeps per application id."""
    return int(made_from[:15], 16)


def list_data_files(
    handle: DeltaTable | FixedTable, table: Table, run_ids: Iterable[str] | None
) -> dict[str, tuple[int, dict[str, str | None]]]:
    """The data files that make up some runs, or the whole table: path to size and partition values."""
    actions = _actions(handle)
    if run_ids is not None:
        actions = actions.filter(pl.col(_partition_column(table)).is_in(sorted(run_ids)))
    return {
        action["path"]: (
            action["size_bytes"],
            {name: str(action[f"partition.{name}"]) for name in table.partition_by},
        )
        for action in actions.iter_rows(named=True)
    }


def _actions(handle: DeltaTable | FixedTable) -> pl.DataFrame:
    """The files of a table; not by pyarrow, which imports pandas whenever a Python value meets it."""
    version = handle.version()
    for known, at, actions in list(_recent_actions):
        if known is handle and at == version:
            return actions
    actions = pl.DataFrame(handle.get_add_actions(flatten=True))
    _recent_actions.append((handle, version, actions))
    return actions


def _partition_column(table: Table) -> str:
    return f"partition.{table.partition_key}"


def rows_count(handle: DeltaTable | FixedTable, table: Table, run_id: str) -> int:
    """How many rows a run's partition holds, from the log alone."""
    actions = _actions(handle).filter(pl.col(_partition_column(table)) == run_id)
    return int(actions["num_records"].sum())


def format_label(path: str) -> str:
    """What of a path says which rows it holds: the inner partition and the digest in the name."""
    return path.partition("/")[2]
