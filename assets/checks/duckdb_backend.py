"""Rule violations counted in one DuckDB view over a table's own files: all rows, and no copy but of few."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import narwhals as nw

from assets.checks.backends import Backend, Counts, count_violations
from assets.checks.held_rules import are_held
from lake.errors import ContractBroken, SourceUnavailable
from lake.few_rows import FEW_ROWS, MOST_FILES
from lake.regular_files import mark_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from assets.checks.rules import Rule
    from lake.store import Lake
    from lake.tables import Table

# So small a table stays in memory for the queries that read it; a larger one DuckDB reads from its files.
_KEPT_BYTES = 1 << 20
# The one view that every table is read through.
VIEW = "checked"
_USE = {"bronze": "USE bronze", "silver": "USE silver", "gold": "USE gold"}


class DuckDBBackend(Backend):
    """One DuckDB for all tables of a process: setting it up takes longer than most of them."""

    name = "duckdb"

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        connection.sql("SELECT 0 AS nothing").create_view(VIEW)  # Great Expectations looks for it before the first read
        connection.execute("CREATE SCHEMA IF NOT EXISTS bronze")
        connection.execute("CREATE SCHEMA IF NOT EXISTS silver")
        connection.execute("CREATE SCHEMA IF NOT EXISTS gold")
        self._table = ""
        # The selected rows where they are few, and what was selected; none where the view shows it already.
        self._few: pa.Table | None = None
        self._unshown: tuple[Lake, Table, Sequence[str] | None] | None = None
        # The data files that the view of each other table shows, and its rows where they are in memory.
        self._shown: dict[str, tuple[list[str], pa.Table | None]] = {}

    def select(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> list[dict[str, str]]:
        """Select the rows of some runs; few rows that are stored as declared are not shown until a query asks."""
        few = lake.read_few(table, run_ids, FEW_ROWS)
        self.is_empty = few is not None and not few.num_rows
        if few is None:
            return self.read(lake, table, run_ids)
        self._table, self._few, self._unshown = table.full_name, few, (lake, table, run_ids)
        return [{"name": name, "type": kind} for name, kind in table.duckdb_types.items()]

    def read(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> list[dict[str, str]]:
        """Show some runs in the view; give the name and the kind of each column."""
        self._few = self._unshown = None
        try:
            rows = lake.relation(self.connection, table, run_ids)
        except duckdb.BinderException as error:
            raise ContractBroken("a data file does not have all declared columns") from error
        self._table = table.full_name
        rows.create_view(VIEW)
        self.rows = nw.from_native(rows)
        return [{"name": name, "type": str(kind)} for name, kind in zip(rows.columns, rows.types, strict=True)]

    def show_selected(self) -> None:
        """Show the selected rows in the view, where they were only read so far."""
        if self._unshown is None:
            return
        if self._few is None or self._few.nbytes > _KEPT_BYTES:
            with self.reading():
                self.read(*self._unshown)
            return
        self.connection.from_arrow(self._few).create_view(VIEW)
        self._unshown = None

    def find_values(self, name: str) -> set[str]:
        """The different values of a text column of the selected rows."""
        if self._few is not None:
            return set(self._few.column(name).unique().to_pylist()) - {None}
        self.show_selected()
        found = self.connection.view(VIEW).select(name).distinct().fetchall()
        return {value for (value,) in found if value is not None}

    def count(self, rules: Sequence[Rule]) -> Counts:
        """Count the selected rows, and those that violate each of these rules."""
        if self._few is not None and are_held(self._few, rules):
            count = self._few.num_rows
            if self._few.nbytes > _KEPT_BYTES:
                self._few = None
            return Counts.without_violations(count, rules)
        if self._unshown is not None:
            with self.reading():
                self.read(*self._unshown)
        with self.reading():
            first = self.rows.head(FEW_ROWS + 1).collect("polars")
        return count_violations(first.lazy(), rules) if len(first) <= FEW_ROWS else super().count(rules)

    def show(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> None:
        """Show some runs of another table under its own name; a view of the same local files stays as it is."""
        files = _mark_files(lake, table, run_ids)
        if table.full_name in self._shown and self._shown[table.full_name][0] == files:
            return
        self._shown.pop(table.full_name, None)
        few = lake.read_few(table, run_ids, FEW_ROWS)
        few = few if few is not None and few.nbytes <= _KEPT_BYTES else None
        rows = lake.relation(self.connection, table, run_ids) if few is None else self.connection.from_arrow(few)
        self.connection.execute(_USE[table.tier])
        rows.create_view(table.name)
        self.connection.execute("USE main")
        if files is not None:
            self._shown[table.full_name] = (files, few)

    def has_all_values(self, name: str, table: Table) -> bool:
        """Whether each value of a column is in another table that is shown; false also where only a query can say."""
        _, others = self._shown.get(table.full_name, (None, None))
        if self._few is None or others is None:
            return False
        values = set(self._few.column(name).unique().to_pylist())
        return None not in values and values <= set(others.column(name).unique().to_pylist())

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn what DuckDB says of files that it cannot read into one line."""
        try:
            yield
        except duckdb.Error as error:
            raise SourceUnavailable(
                f"{self._table} could not be checked: {str(error).partition(chr(10))[0][:300]}",
                "a file of the lake could not be read; if the lake has just changed, check again",
            ) from error


def _mark_files(lake: Lake, table: Table, run_ids: Sequence[str] | None) -> list[str] | None:
    """The local files of a table, and of as few as may be in memory also when each changed; none where it is remote."""
    if not lake.place.is_local:
        return None
    files = lake.files(table, run_ids)
    return files if len(files) > MOST_FILES else [f"{file} {mark_of(Path(file).stat())}" for file in files]
