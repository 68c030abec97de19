"""What a table's Delta log says: the files of each run, and what they were made from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lake.datafiles import compare_sizes
from lake.digest import combine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lake.locations import Location
    from lake.table_log import DataFile, TableLog
    from lake.tables import Table


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
    # None where the table is not there, or not as declared.
    _log: TableLog | None
    _root: Location
    # For a full rebuild: nothing counts as made.
    _is_rebuilt: bool = False
    # The columns that another version wrote otherwise: such a table has no rows that this version can read.
    outdated: tuple[str, ...] = ()

    def is_made_from(self, run_id: str, made_from: str) -> bool:
        """Whether a run's partition was made from exactly these inputs by exactly this code."""
        return not self._is_rebuilt and self.mark(run_id) == mark_of(made_from)

    def has_seen(self, run_id: str, seen: str) -> bool:
        """Whether a run's partition was made when the landing directory bore exactly this mark."""
        if self._log is None or self._log.find_mark(seen_id(run_id)) != mark_of(seen):
            return False
        return not self.damages(run_id)

    @property
    def run_ids(self) -> list[str]:
        """The runs, or whatever else names a partition, that have rows in the table."""
        return sorted(self._files)

    def content_sha256(self, run_id: str) -> str:
        """The content digest of a run's partition; that of no rows where it has none."""
        if run_id not in self._digests:  # the checks of a table ask for it one by one
            self._digests[run_id] = combine(map(format_label, self._files.get(run_id, ())))
        return self._digests[run_id]

    @cached_property
    def _digests(self) -> dict[str, str]:
        return {}

    @property
    def _files(self) -> Mapping[str, Mapping[str, DataFile]]:
        return {} if self._log is None else self._log.files

    def partition(self, run_id: str) -> Written:
        """A run's partition as it is: what a replacement that changes nothing would say of it."""
        files = self._files.get(run_id, {})
        return Written(
            table=self.table.full_name,
            run_id=run_id,
            rows=sum(file.rows for file in files.values()),
            bytes=sum(file.size_bytes for file in files.values()),
            files=len(files),
            content_sha256=combine(map(format_label, files)),
            version=self.version or 0,
            is_changed=False,
        )

    def mark(self, run_id: str) -> int | None:
        """What stands for the inputs that a run's partition was made from.

        None where it was never made, or where a file of it is missing or truncated: it has to be made again.
        """
        # A snapshot never changes, and which files are there is asked once.
        if run_id not in self._marks:
            log = None if self.damages(run_id) else self._log
            self._marks[run_id] = None if log is None else log.find_mark(run_id)
        return self._marks[run_id]

    @cached_property
    def _marks(self) -> dict[str, int | None]:
        return {}

    def has_bytes(self, run_id: str, digests: Mapping[str, str]) -> bool | None:
        """Whether these are the bytes of a run's data files as they were written; none where nobody wrote that down."""
        mark = None if self._log is None else self._log.find_mark(bytes_id(run_id))
        return None if mark is None else mark == bytes_mark(digests)

    def damages(self, run_id: str) -> dict[str, str]:
        """The files of a run's partition that are missing or not as large as they were written, with the reason."""
        mine = self.sizes(run_id)
        if self._root.is_local:
            return compare_sizes(self._root, mine)
        return {path: reason for path, reason in self._remote_damages.items() if path in mine}

    @cached_property
    def _remote_damages(self) -> dict[str, str]:
        return compare_sizes(
            self._root, {path: size for run_id in self._files for path, size in self.sizes(run_id).items()}
        )

    def sizes(self, run_id: str) -> dict[str, int]:
        """The data files of a run with their sizes, as the log has them."""
        return {path: file.size_bytes for path, file in self._files.get(run_id, {}).items()}

    def index(self, run_ids: Iterable[str] | None = None) -> dict[str, dict[str, str | None]]:
        """What the indexed columns say of every run, or of some, from the log alone."""
        asked = self._files if run_ids is None else self._files.keys() & set(run_ids)
        return {run_id: self._read_index(file) for run_id in asked for file in self._files[run_id].values()}

    def _read_index(self, file: DataFile) -> dict[str, str | None]:
        lows = file.stats.get("minValues") or {}
        return {name: lows.get(name) for name in self.table.indexed}

    def files(self, run_id: str) -> list[str]:
        """The data files of a run's partition, below the table's own path."""
        return sorted(self._files.get(run_id, ()))

    @property
    def version(self) -> int | None:
        """The Delta version; none where the table does not exist yet."""
        return None if self._log is None else self._log.version


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


def format_label(path: str) -> str:
    """What of a path says which rows it holds: the inner partition and the digest in the name."""
    return path.partition("/")[2]
