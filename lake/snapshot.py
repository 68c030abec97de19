"""What a table's Delta log says: the files of each run, and what they were made from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from lake.digest import combine

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deltalake import DeltaTable

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
    _handle: DeltaTable | None

    def is_made_from(self, run_id: str, made_from: str) -> bool:
        """Whether a run's partition was made from exactly these inputs by exactly this code."""
        return self.mark(run_id) == mark_of(made_from)

    def has_seen(self, run_id: str, seen: str) -> bool:
        """Whether a run's partition was made when the landing directory bore exactly this mark."""
        return self._handle is not None and self._handle.transaction_version(seen_id(run_id)) == mark_of(seen)

    @property
    def run_ids(self) -> list[str]:
        """The runs that have rows in the table."""
        if self._handle is None:
            return []
        return sorted({values["run_id"] for values in self._handle.partitions()})

    def content_sha256(self, run_id: str) -> str:
        """The content digest of a run's partition; that of no rows where it has none."""
        if self._handle is None:
            return combine(())
        return combine(label(path) for path in held(self._handle, self.table, [run_id]))

    def partition(self, run_id: str) -> Written:
        """A run's partition as it is: what a replacement that changes nothing would say of it."""
        handle = self._handle
        files = {} if handle is None else held(handle, self.table, [run_id])
        return Written(
            table=self.table.full_name,
            run_id=run_id,
            rows=0 if handle is None else rows_count(handle, run_id),
            bytes=sum(size for size, _ in files.values()),
            files=len(files),
            content_sha256=combine(label(path) for path in files),
            version=0 if handle is None else handle.version(),
            is_changed=False,
        )

    def mark(self, run_id: str) -> int | None:
        """What stands for the inputs that a run's partition was made from; none where it was never made."""
        return None if self._handle is None else self._handle.transaction_version(run_id)

    def index(self) -> dict[str, dict[str, str | None]]:
        """What the indexed columns say of every run, from the log alone."""
        if self._handle is None:
            return {}
        actions = _actions(self._handle)
        return {
            action["partition.run_id"]: {name: action.get(f"min.{name}") for name in self.table.indexed}
            for action in actions.iter_rows(named=True)
        }

    def files(self, run_id: str) -> list[str]:
        """The data files of a run's partition, below the table's own path."""
        return [] if self._handle is None else sorted(held(self._handle, self.table, [run_id]))

    @property
    def version(self) -> int | None:
        """The Delta version; none where the table does not exist yet."""
        return None if self._handle is None else self._handle.version()


def seen_id(run_id: str) -> str:
    """The application id under which the mark of a run's landing directory is kept."""
    return f"{run_id}@seen"  # no run id holds an @


def mark_of(made_from: str) -> int:
    """A fingerprint as the whole number that Delta keeps per application id."""
    return int(made_from[:15], 16)


def held(
    handle: DeltaTable, table: Table, run_ids: Iterable[str] | None
) -> dict[str, tuple[int, dict[str, str | None]]]:
    """The data files that make up some runs, or the whole table: path to size and partition values."""
    actions = _actions(handle)
    if run_ids is not None:
        actions = actions.filter(pl.col("partition.run_id").is_in(sorted(run_ids)))
    return {
        action["path"]: (
            action["size_bytes"],
            {name: str(action[f"partition.{name}"]) for name in table.partition_by},
        )
        for action in actions.iter_rows(named=True)
    }


def _actions(handle: DeltaTable) -> pl.DataFrame:
    """The files of a table; not by pyarrow, which imports pandas whenever a Python value meets it."""
    return pl.DataFrame(handle.get_add_actions(flatten=True))


def rows_count(handle: DeltaTable, run_id: str) -> int:
    """How many rows a run's partition holds, from the log alone."""
    actions = _actions(handle).filter(pl.col("partition.run_id") == run_id)
    return int(actions["num_records"].sum())


def label(path: str) -> str:
    """What of a path says which rows it holds: the inner partition and the digest in the name."""
    return path.partition("/")[2]
