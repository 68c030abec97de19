"""A promise about the rows of several tables, and the rows that break it: each is declared with its query, by tier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assets.checks.rules import Check
from lake.identity import is_slug

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

    from lake.store import Lake
    from lake.tables import Table

MOST_SAMPLES = 5
_USE = {"bronze": "USE bronze", "silver": "USE silver", "gold": "USE gold"}


@dataclass(frozen=True, kw_only=True)
class Relation(Check):
    """A promise about a table, `checked` in its query, and others, which it reads of the same runs and of partners."""

    is_blocking: bool = True
    table: Table
    # Finds the rows that break the promise, by columns that are sensitive nowhere.
    query: str
    reads: tuple[Table, ...] = ()
    # Columns that name further runs, whose rows are read too.
    partners: tuple[str, ...] = ()


def make_schemas(connection: duckdb.DuckDBPyConnection) -> None:
    """Make room for views of the tables that relations read."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS bronze")
    connection.execute("CREATE SCHEMA IF NOT EXISTS silver")
    connection.execute("CREATE SCHEMA IF NOT EXISTS gold")


def find_violations(
    connection: duckdb.DuckDBPyConnection, lake: Lake, relation: Relation, run_ids: Sequence[str] | None
) -> tuple[int, list[dict[str, Any]]]:
    """How many rows break a relation, and some of them.

    The connection has the schemas of all tiers, and shows the runs' rows as `checked`.
    """
    read = _with_partners(connection, relation, run_ids)
    for table in relation.reads:
        rows = lake.relation(connection, table, read)
        connection.execute(_USE[table.tier])
        rows.create_view(table.name)
        connection.execute("USE main")
    found = connection.sql(relation.query)
    names, rows_found = found.columns, found.limit(MOST_SAMPLES + 1).fetchall()
    count = len(rows_found) if len(rows_found) <= MOST_SAMPLES else len(found)
    return count, [dict(zip(names, row, strict=True)) for row in rows_found[:MOST_SAMPLES]]


def _with_partners(
    connection: duckdb.DuckDBPyConnection, relation: Relation, run_ids: Sequence[str] | None
) -> list[str] | None:
    """The runs to read: those in question, and those that their rows name."""
    if run_ids is None:
        return None
    rows = connection.view("checked")
    named = {value for name in relation.partners for (value,) in rows.select(name).distinct().fetchall()}
    return sorted({*run_ids, *(value for value in named if value is not None and is_slug(value))})
