"""A promise about the rows of several tables, and the rows that break it: each is declared with its query, by tier."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assets.checks.rules import Check
from lake.identity import is_slug

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    # A column of which every value must be one of the same column in the only table that it reads, and nothing else:
    # where few rows show that it is, the query is not asked.
    matched_column: str = ""


def find_violations(
    backend: DuckDBBackend, lake: Lake, relation: Relation, run_ids: Sequence[str] | None
) -> tuple[int, list[dict[str, Any]]]:
    """How many rows break a relation, and some of them; the backend has selected the runs' rows."""
    read = _with_partners(backend, relation, run_ids)
    for table in relation.reads:
        backend.show(lake, table, read)
    if relation.matched_column and backend.has_all_values(relation.matched_column, *relation.reads):
        return 0, []
    backend.show_selected()
    found = backend.connection.execute(relation.query)
    names = [name for name, *_ in found.description or ()]
    rows = found.fetchmany(MOST_SAMPLES)
    count = len(rows)
    while more := found.fetchmany(_COUNTED_AT_ONCE):
        count += len(more)
    return count, [dict(zip(names, row, strict=True)) for row in rows]


def _with_partners(backend: DuckDBBackend, relation: Relation, run_ids: Sequence[str] | None) -> list[str] | None:
    """The runs to read: those in question, and those that their rows name."""
    if run_ids is None:
        return None
    named = {value for name in relation.partners for value in backend.find_values(name)}
    return sorted({*run_ids, *filter(is_slug, named)})
