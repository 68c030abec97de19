"""A promise about the rows of several tables, and the rows that break it: each is declared with its query, by tier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assets.checks.rules import Check
from lake.identity import is_slug

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

    from assets.checks.duckdb_backend import DuckDBBackend
    from lake.store import Lake
    from lake.tables import Table

MOST_SAMPLES = 5
# Rows that are counted and let go, where more break a relation than are shown.
_COUNTED_AT_ONCE = 10_000


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
    # Whether none but a row of the table itself can break it: then a run without rows holds it, unasked.
    is_of_rows: bool = False


def find_violations(
    backend: DuckDBBackend, lake: Lake, relation: Relation, run_ids: Sequence[str] | None
) -> tuple[int, list[dict[str, Any]]]:
    """How many rows break a relation, and some of them; the backend shows the runs' rows as `checked`."""
    read = _with_partners(backend.connection, relation, run_ids)
    for table in relation.reads:
        backend.show(lake, table, read)
    found = backend.connection.execute(relation.query)
    names = [name for name, *_ in found.description or ()]
    rows = found.fetchmany(MOST_SAMPLES)
    count = len(rows)
    while more := found.fetchmany(_COUNTED_AT_ONCE):
        count += len(more)
    return count, [dict(zip(names, row, strict=True)) for row in rows]


def _with_partners(
    connection: duckdb.DuckDBPyConnection, relation: Relation, run_ids: Sequence[str] | None
) -> list[str] | None:
    """The runs to read: those in question, and those that their rows name."""
    if run_ids is None:
        return None
    rows = connection.view("checked")
    named = {value for name in relation.partners for (value,) in rows.select(name).distinct().fetchall()}
    return sorted({*run_ids, *(value for value in named if value is not None and is_slug(value))})
