"""Rule violations counted in one DuckDB view over a table's own files: all rows, and no copy but of few."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb
import narwhals as nw

from assets.checks.backends import Backend, count_violations
from lake.errors import ContractBroken, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from assets.checks.backends import Counts
    from assets.checks.rules import Rule
    from lake.store import Lake
    from lake.tables import Table

# So few rows DuckDB reads once, and Polars counts: to plan the count of every rule takes DuckDB longer than that.
_FEW_ROWS = 10_000
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
        # The data files that the view of each other table shows.
        self._shown: dict[str, list[str]] = {}

    def read(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> list[dict[str, str]]:
        """Show some runs in the view; give the name and the kind of each column."""
        try:
            rows = lake.relation(self.connection, table, run_ids)
        except duckdb.BinderException as error:
            raise ContractBroken("a data file does not have all declared columns") from error
        self._table = table.full_name
        rows.create_view(VIEW)
        self.rows = nw.from_native(rows)
        return [{"name": name, "type": str(kind)} for name, kind in zip(rows.columns, rows.types, strict=True)]

    def count(self, rules: Sequence[Rule]) -> Counts:
        """Count the selected rows, and those that violate each of these rules."""
        if self.is_empty:
            return super().count(rules)
        with self.reading():
            first = self.rows.head(_FEW_ROWS + 1).collect("polars")
        return count_violations(first.lazy(), rules) if len(first) <= _FEW_ROWS else super().count(rules)

    def show(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> None:
        """Show some runs of another table under its own name; a view of the same local files stays as it is."""
        files = lake.files(table, run_ids)
        if lake.place.is_local and self._shown.get(table.full_name) == files:
            return
        rows = lake.relation(self.connection, table, run_ids)
        self.connection.execute(_USE[table.tier])
        rows.create_view(table.name)
        self.connection.execute("USE main")
        self._shown[table.full_name] = files

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
