"""A table's rules as a Great Expectations suite, run on DuckDB: the one module that imports it, and slowly.

The suite asks for counts alone, and Great Expectations puts them into one query: every row is read once, whatever the
number of rules, and no value of a row is in a result or on a page of the Data Docs.
"""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import great_expectations as gx
import sqlalchemy as sa
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.metric_function_types import MetricPartialFunctionTypes
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.data_context.types.base import (
    DataContextConfig,
    InMemoryStoreBackendDefaults,
    ProgressBarsConfig,
)
from great_expectations.execution_engine.sqlalchemy_execution_engine import SqlAlchemyExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.metrics.metric_provider import metric_partial, metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.view.view import DefaultJinjaPageView
from great_expectations.validator.metric_configuration import MetricConfiguration

from assets.rules import Must
from lake.connections import all_cores
from lake.duckdb_dialect import URL, sharing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.validator.validator import ValidationDependencies

    from assets.rules import Rule

# The one view that every table is looked at through.
VIEW = "checked"
# One suite at a time: all share the view.
LOCK = threading.Lock()
_FETCHED = re.compile(
    r"<script\b.*?</script>|<style\b.*?</style>|<link\b[^>]*>|<img\b[^>]*>", re.DOTALL | re.IGNORECASE
)
_STYLE = "<style>body { font-family: sans-serif; margin: 2em } td { padding: 0.2em 1em; vertical-align: top }</style>"


class RowsBreaking(TableMetricProvider):
    """How many rows break a rule on each row by itself; all such counts become one query."""

    metric_name = "rows.breaking"
    value_keys = ("must", "columns", "arguments")

    @metric_partial(
        engine=SqlAlchemyExecutionEngine,
        partial_fn_type=MetricPartialFunctionTypes.AGGREGATE_FN,
        domain_type=MetricDomainTypes.TABLE,
    )
    def _sqlalchemy(cls, metric_domain_kwargs: Any, metric_value_kwargs: Any, **_: Any) -> Any:  # noqa: N805 - called by name
        return sa.func.count().filter(_breaks(**metric_value_kwargs)), metric_domain_kwargs, {}


class RowsSharingKey(TableMetricProvider):
    """How many rows have a key that another row has too."""

    metric_name = "rows.sharing_key"
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


class RuleIsKept(BatchExpectation):
    """Expect that no row (of a rule on columns: no column) breaks the rule."""

    must: str
    columns: list[str]
    arguments: list[Any]

    success_keys: ClassVar[tuple[str, ...]] = ("must", "columns", "arguments")

    def get_validation_dependencies(self, *args: Any, **kwargs: Any) -> ValidationDependencies:
        found = super().get_validation_dependencies(*args, **kwargs)
        domain = {"batch_id": self.batch_id}
        found.set_metric_configuration("rows", MetricConfiguration("table.row_count", domain, {}))
        found.set_metric_configuration("breaking", self._metric(domain))
        return found

    def _metric(self, domain: dict[str, Any]) -> MetricConfiguration:
        if self.must == Must.BE_DECLARED:
            return MetricConfiguration("table.column_types", domain, {"include_nested": False})
        if self.must == Must.BE_UNIQUE:
            return MetricConfiguration("rows.sharing_key", domain, {"columns": self.columns})
        asked = {"must": self.must, "columns": self.columns, "arguments": self.arguments}
        return MetricConfiguration("rows.breaking", domain, asked)

    def _validate(self, metrics: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        breaking = metrics["breaking"]
        if self.must == Must.BE_DECLARED:
            breaking = len(differing(breaking, self.columns, self.arguments))
        what = "columns" if self.must == Must.BE_DECLARED else f"of {metrics['rows']:,} rows"
        return {
            "success": breaking == 0,
            "result": {
                "observed_value": f"{breaking:,} {what} break it",
                "element_count": metrics["rows"],
                "unexpected_count": breaking,
            },
        }


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


class Bench:
    """One context and one DuckDB for all suites of a process: to set them up takes longer than most of them."""

    def __init__(self) -> None:
        self.connection = all_cores()
        self.connection.sql("SELECT 0 AS nothing").create_view(VIEW)  # it must be there when it is named first
        config = DataContextConfig(
            store_backend_defaults=InMemoryStoreBackendDefaults(),
            progress_bars=ProgressBarsConfig(globally=False),
            analytics_enabled=False,
        )
        source = gx.get_context(project_config=config, mode="ephemeral").data_sources.add_sql(
            "lake",
            connection_string=URL,
            create_temp_table=False,
            kwargs=sharing(self.connection),  # type: ignore[call-arg]
        )
        self._rows = source.add_table_asset(VIEW, table_name=VIEW).add_batch_definition_whole_table("all")

    def validate(self, name: str, rules: Sequence[Rule]) -> ExpectationSuiteValidationResult:
        """Hold what the view shows to the rules, as a suite of that name."""
        suite = gx.ExpectationSuite(name=name, expectations=[_expectation(rule) for rule in rules])
        return self._rows.get_batch().validate(suite)

    def samples(self, rule: Rule, names: Sequence[str], most: int) -> list[dict[str, Any]]:
        """Some rows that break a rule, by these columns; of a rule on columns, those that are others."""
        if rule.must is Must.BE_DECLARED:
            view = self.connection.view(VIEW)
            found = [{"name": name, "type": kind} for name, kind in zip(view.columns, view.types, strict=True)]
            return [{"column": text} for text in differing(found, rule.columns, rule.arguments)[:most]]
        if not names:
            return []
        asked: list[sa.ColumnClause[Any]] = [sa.column(name) for name in names]
        rows: sa.Select[Any] = sa.select(*asked).select_from(sa.table(VIEW)).limit(most)
        if rule.must is Must.BE_UNIQUE:
            rows = rows.distinct().group_by(*(sa.column(name) for name in dict.fromkeys((*names, *rule.columns))))
            rows = rows.having(sa.func.count() > 1)
        else:
            rows = rows.where(_breaks(rule.must, rule.columns, rule.arguments))
        engine = self._rows.get_batch().data.execution_engine
        return [dict(row) for row in engine.execute_query(rows).mappings()]


@cache
def bench() -> Bench:
    """The one that the process keeps; hold `LOCK` while it is in use."""
    return Bench()


def _expectation(rule: Rule) -> RuleIsKept:
    return RuleIsKept(
        must=rule.must,
        columns=list(rule.columns),
        arguments=list(rule.arguments),
        severity=FailureSeverity(rule.severity),
        description=rule.sentence,
        meta={"rule": rule.name},
    )


def page(result: ExpectationSuiteValidationResult, run_ids: str) -> str:
    """A result as a page of the Data Docs that fetches nothing: what it would load from elsewhere could read it."""
    result.meta["run_id"] = RunIdentifier(run_name=run_ids, run_time=datetime.now(UTC))
    text: str = DefaultJinjaPageView().render(  # type: ignore[no-untyped-call]  # it is not annotated
        ValidationResultsPageRenderer().render(result)
    )
    return _FETCHED.sub("", text).replace("</head>", f"{_STYLE}</head>", 1)


def differing(found: Sequence[dict[str, Any]], names: Sequence[str], kinds: Sequence[Any]) -> list[str]:
    """Where the columns that are there and those declared differ, place by place."""
    there = [f"{column['name']} {column['type']}" for column in found]
    declared = [f"{name} {kind}" for name, kind in zip(names, kinds, strict=True)]
    longest = max(len(there), len(declared))
    pairs = zip(*(texts + ["nothing"] * (longest - len(texts)) for texts in (there, declared)), strict=True)
    return [f"{one} where {other} is declared" for one, other in pairs if one != other]
