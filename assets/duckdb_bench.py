"""Suites on DuckDB, in one view over a table's own files: all rows, no copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import sqlalchemy as sa
from great_expectations.execution_engine.sqlalchemy_execution_engine import SqlAlchemyExecutionEngine
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider

from assets.rules import Must
from assets.suites import BREAKING, BREAKING_KEYS, KINDS, SHARING_KEY, context, counted
from lake.duckdb_dialect import URL, sharing
from lake.errors import ContractBroken

if TYPE_CHECKING:
    from collections.abc import Sequence

    import great_expectations as gx
    from great_expectations.core import ExpectationSuiteValidationResult

    from assets.rules import Rule
    from lake.store import Lake
    from lake.tables import Table

# The one view that every table is looked at through.
VIEW = "checked"


class ColumnKinds(TableMetricProvider):
    """The name and the kind of each column."""

    metric_name = KINDS

    @metric_value(engine=SqlAlchemyExecutionEngine)
    def _sqlalchemy(cls, execution_engine: Any, **_: Any) -> list[dict[str, str]]:  # noqa: N805 - called by name
        columns = sa.inspect(execution_engine.engine).get_columns(VIEW)
        return [{"name": column["name"], "type": str(column["type"])} for column in columns]


class RowsBreaking(TableMetricProvider):
    """How many rows break a rule on each row by itself; all such counts become one query."""

    metric_name = BREAKING
    value_keys = BREAKING_KEYS

    @counted(engine=SqlAlchemyExecutionEngine)
    def _sqlalchemy(cls, metric_domain_kwargs: Any, metric_value_kwargs: Any, **_: Any) -> Any:  # noqa: N805 - called by name
        return sa.func.count().filter(_breaks(**metric_value_kwargs)), metric_domain_kwargs, {}


class RowsSharingKey(TableMetricProvider):
    """How many rows have a key that another row has too."""

    metric_name = SHARING_KEY
    value_keys = ("columns",)

    @metric_value(engine=SqlAlchemyExecutionEngine)
    def _sqlalchemy(cls, execution_engine: Any, metric_value_kwargs: Any, **_: Any) -> int:  # noqa: N805 - called by name
        columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in metric_value_kwargs["columns"]]
        size, short = sa.func.count().label("size"), sa.func.hash(*columns).label("short")
        rows = sa.table(VIEW)
        # First by a hash of the key, which takes a fraction of the memory; then only what may be double, by the key.
        doubtful = sa.select(short).select_from(rows).group_by(short).having(size > 1)
        doubles = sa.select(size).select_from(rows).where(short.in_(doubtful)).group_by(*columns).having(size > 1)
        groups = doubles.subquery()
        found = execution_engine.execute_query(sa.select(sa.func.coalesce(sa.func.sum(groups.c.size), 0)))
        return int(found.scalar())


def _breaks(must: str, columns: Sequence[str], arguments: Sequence[Any]) -> sa.ColumnElement[bool]:
    """What is true of a row that breaks the rule; a null breaks none but the one that forbids it."""
    column: sa.ColumnClause[Any] = sa.column(columns[0])
    if must == Must.BE_PRESENT:
        return column.is_(None)
    if must == Must.BE_ONE_OF:
        return column.not_in(arguments)
    if must == Must.BE_FINITE:
        return sa.not_(sa.func.isfinite(column))
    if must == Must.BE_SHAPED:
        return sa.not_(sa.func.regexp_full_match(column, arguments[0]))
    low, high = arguments
    return sa.or_(*([column < low] if low is not None else []), *([column > high] if high is not None else []))


class DuckDBBench:
    """One DuckDB for all suites of a process: to set it up takes longer than most of them."""

    name = "duckdb"

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self.connection = connection
        connection.sql("SELECT 0 AS nothing").create_view(VIEW)  # it must be there when it is named first
        source = context().data_sources.add_sql(
            "lake",
            connection_string=URL,
            create_temp_table=False,
            kwargs=sharing(connection),  # type: ignore[call-arg]
        )
        self._rows = source.add_table_asset(VIEW, table_name=VIEW).add_batch_definition_whole_table("all")

    def look(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> list[dict[str, str]]:
        """Show some runs in the view; gives the name and the kind of each column."""
        try:
            rows = lake.relation(self.connection, table, run_ids)
        except duckdb.BinderException as error:
            raise ContractBroken("a data file does not have all declared columns") from error
        rows.create_view(VIEW)
        return [{"name": name, "type": str(kind)} for name, kind in zip(rows.columns, rows.types, strict=True)]

    def validate(self, suite: gx.ExpectationSuite) -> ExpectationSuiteValidationResult:
        """Hold what the view shows to a suite."""
        return self._rows.get_batch().validate(suite)

    def samples(self, rule: Rule, names: Sequence[str], most: int) -> list[dict[str, Any]]:
        """Some rows that break a rule, by these columns."""
        asked: list[sa.ColumnClause[Any]] = [sa.column(name) for name in names]
        rows: sa.Select[Any] = sa.select(*asked).select_from(sa.table(VIEW)).limit(most)
        if rule.must is Must.BE_UNIQUE:
            rows = rows.distinct().group_by(*(sa.column(name) for name in dict.fromkeys((*names, *rule.columns))))
            rows = rows.having(sa.func.count() > 1)
        else:
            rows = rows.where(_breaks(rule.must, rule.columns, rule.arguments))
        engine = self._rows.get_batch().data.execution_engine
        return [dict(row) for row in engine.execute_query(rows).mappings()]
