"""Rule violations counted by DuckDB, in one view over a table's own files: all rows, no copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import sqlalchemy as sa

from assets.checks.backends import Counts
from assets.checks.rules import Must
from lake.duckdb_dialect import URL, sharing
from lake.errors import ContractBroken, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from assets.checks.rules import Rule
    from lake.store import Lake
    from lake.tables import Table

# The one view that every table is read through.
VIEW = "checked"


def count_violations(fetch: Callable[[sa.Select[Any]], sa.Result[Any]], rules: Sequence[Rule]) -> Counts:
    """Count all rules on single rows in one query; a unique key needs a query of its own."""
    single = [rule for rule in rules if rule.must not in {Must.BE_DECLARED, Must.BE_UNIQUE}]
    asked = (sa.func.count(), *(sa.func.count().filter(_is_violated(rule)) for rule in single))
    # Labelled, because SQLAlchemy tells columns apart by name.
    labelled = [count.label(f"count_{place}") for place, count in enumerate(asked)]
    columns: list[sa.ColumnElement[Any]] = list(labelled)
    query: sa.Select[Any] = sa.select(*columns).select_from(sa.table(VIEW))
    rows, *counts = (int(count) for count in fetch(query).one())
    found = dict(zip((rule.name for rule in single), counts, strict=True))
    for rule in rules:
        if rule.must is Must.BE_UNIQUE:
            found[rule.name] = int(fetch(_count_shared_keys(rule.columns)).scalar() or 0)
    return Counts(rows, found)


def _count_shared_keys(names: Sequence[str]) -> sa.Select[Any]:
    """How many rows have a key that another row has too."""
    columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in names]
    size, short = sa.func.count().label("size"), sa.func.hash(*columns).label("short")
    rows = sa.table(VIEW)
    # First by a hash of the key, which takes a fraction of the memory; then only what may be double, by the key.
    doubtful = sa.select(short).select_from(rows).group_by(short).having(size > 1)
    doubles = sa.select(size).select_from(rows).where(short.in_(doubtful)).group_by(*columns).having(size > 1)
    return sa.select(sa.func.coalesce(sa.func.sum(doubles.subquery().c.size), 0))


def _is_violated(rule: Rule) -> sa.ColumnElement[bool]:
    """What is true of a row that violates the rule; a null violates none but the one that forbids it."""
    column: sa.ColumnClause[Any] = sa.column(rule.columns[0])
    if rule.must is Must.BE_PRESENT:
        return column.is_(None)
    if rule.must is Must.BE_ONE_OF:
        return column.not_in(rule.arguments)
    if rule.must is Must.BE_FINITE:
        return sa.not_(sa.func.isfinite(column))
    if rule.must is Must.BE_SHAPED:
        return sa.not_(sa.func.regexp_full_match(column, rule.arguments[0]))
    low, high = rule.arguments
    return sa.or_(*([column < low] if low is not None else []), *([column > high] if high is not None else []))


class DuckDBBackend:
    """One DuckDB for all tables of a process: setting it up takes longer than most of them."""

    name = "duckdb"

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        connection.sql("SELECT 0 AS nothing").create_view(VIEW)  # Great Expectations looks for it before the first read
        self._engine = sa.create_engine(URL, **sharing(connection))
        self._table = ""

    def read(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> list[dict[str, str]]:
        """Show some runs in the view; give the name and the kind of each column."""
        try:
            rows = lake.relation(self.connection, table, run_ids)
        except duckdb.BinderException as error:
            raise ContractBroken("a data file does not have all declared columns") from error
        self._table = table.full_name
        rows.create_view(VIEW)
        return [{"name": name, "type": str(kind)} for name, kind in zip(rows.columns, rows.types, strict=True)]

    def count(self, rules: Sequence[Rule]) -> Counts:
        """Count what the view shows."""
        return count_violations(self._fetch, rules)

    def samples(self, rule: Rule, names: Sequence[str], most: int) -> list[dict[str, Any]]:
        """Some rows that violate a rule, by these columns."""
        asked: list[sa.ColumnClause[Any]] = [sa.column(name) for name in names]
        rows: sa.Select[Any] = sa.select(*asked).select_from(sa.table(VIEW)).limit(most)
        if rule.must is Must.BE_UNIQUE:
            rows = rows.distinct().group_by(*(sa.column(name) for name in dict.fromkeys((*names, *rule.columns))))
            rows = rows.having(sa.func.count() > 1)
        else:
            rows = rows.where(_is_violated(rule))
        return [dict(row) for row in self._fetch(rows).mappings()]

    def _fetch(self, query: sa.Select[Any]) -> sa.Result[Any]:
        try:
            with self._engine.connect() as session:
                return session.execute(query)
        except sa.exc.DBAPIError as error:
            raise SourceUnavailable(
                f"{self._table} could not be checked: {str(error.orig).partition(chr(10))[0][:300]}",
                "a file of the lake could not be read; if the lake has just changed, check again",
            ) from error
