"""A table's rules as a Great Expectations suite, and its Data Docs: the only module that imports Great Expectations.

A suite asks for counts alone, and one metric holds the counts of all its rules: every row is read once, whatever the
number of rules, and no value of a row is in a result or on a page of the Data Docs.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import great_expectations as gx
import narwhals as nw
import sqlalchemy as sa
from great_expectations.core.id_dict import BatchSpec
from great_expectations.core.run_identifier import RunIdentifier
from great_expectations.data_context.types.base import (
    DataContextConfig,
    InMemoryStoreBackendDefaults,
    ProgressBarsConfig,
)
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.execution_engine.sqlalchemy_execution_engine import SqlAlchemyExecutionEngine
from great_expectations.expectations.expectation import BatchExpectation
from great_expectations.expectations.metadata_types import FailureSeverity
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from great_expectations.render.renderer.page_renderer import ValidationResultsPageRenderer
from great_expectations.render.view.view import DefaultJinjaPageView
from great_expectations.validator.metric_configuration import MetricConfiguration

from assets.checks import duckdb_backend
from assets.checks.backends import count_violations, list_column_differences
from assets.checks.rules import Must, list_rules
from lake.duckdb_dialect import URL, sharing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.core.batch_definition import BatchDefinition
    from great_expectations.data_context.data_context.ephemeral_data_context import EphemeralDataContext
    from great_expectations.datasource.fluent.interfaces import Batch
    from great_expectations.validator.validator import ValidationDependencies

    from assets.checks.backends import Backend, Counts
    from assets.checks.rules import Rule
    from lake.tables import Table

_COUNTS, _COLUMNS = "rules.counts", "columns.kinds"
# The tables whose suites were made, by the name that a metric's arguments carry.
_TABLES: dict[str, Table] = {}
_FETCHED = re.compile(
    r"<script\b.*?</script>|<style\b.*?</style>|<link\b[^>]*>|<img\b[^>]*>", re.DOTALL | re.IGNORECASE
)
_STYLE = "<style>body { font-family: sans-serif; margin: 2em } td { padding: 0.2em 1em; vertical-align: top }</style>"


class ExpectRuleHolds(BatchExpectation):
    """Expect that no row (of a rule on columns: no column) violates the rule."""

    table: str
    rule: str
    must: str

    success_keys: ClassVar[tuple[str, ...]] = ("table", "rule", "must")

    def get_validation_dependencies(self, *args: Any, **kwargs: Any) -> ValidationDependencies:
        """One metric for all rules of a table, so that Great Expectations resolves it once."""
        found = super().get_validation_dependencies(*args, **kwargs)
        domain = {"batch_id": self.batch_id}
        metric = MetricConfiguration("table.row_count", domain, {})
        if self.must != Must.BE_DECLARED:
            metric = MetricConfiguration(_COUNTS, domain, {"table": self.table})
        found.set_metric_configuration("found", metric)
        found.set_metric_configuration("columns", MetricConfiguration(_COLUMNS, domain, {}))
        return found

    def _validate(self, metrics: dict[str, Any], *_: Any, **__: Any) -> dict[str, Any]:
        rows, violations = metrics["found"], 0
        if self.must == Must.BE_DECLARED:
            violations, what = (
                len(list_column_differences(metrics["columns"], list_rules(_TABLES[self.table])[0])),
                "columns",
            )
        else:
            rows, violations = metrics["found"].rows, metrics["found"].violations[self.rule]
            what = f"of {rows:,} rows"
        return {
            "success": violations == 0,
            "result": {
                "observed_value": f"{violations:,} {what} violate it",
                "element_count": rows,
                "unexpected_count": violations,
            },
        }


class RuleCounts(TableMetricProvider):
    """How many rows violate each rule of a table: the same count as without Great Expectations."""

    metric_name = _COUNTS
    value_keys = ("table",)

    @metric_value(engine=SqlAlchemyExecutionEngine)
    def _sqlalchemy(cls, execution_engine: Any, metric_value_kwargs: Any, **_: Any) -> Counts:  # noqa: N805 - called by name
        rows = execution_engine.engine.raw_connection().driver_connection.view(duckdb_backend.VIEW)
        return count_violations(nw.from_native(rows), _read_rules(metric_value_kwargs))

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(cls, execution_engine: Any, metric_domain_kwargs: Any, metric_value_kwargs: Any, **_: Any) -> Counts:  # noqa: N805 - called by name
        rows = execution_engine.get_domain_records(metric_domain_kwargs)
        return count_violations(nw.from_native(rows), _read_rules(metric_value_kwargs))


class ColumnKinds(TableMetricProvider):
    """The name and the kind of each column."""

    metric_name = _COLUMNS

    @metric_value(engine=SqlAlchemyExecutionEngine)
    def _sqlalchemy(cls, execution_engine: Any, **_: Any) -> list[dict[str, str]]:  # noqa: N805 - called by name
        columns = sa.inspect(execution_engine.engine).get_columns(duckdb_backend.VIEW)
        return [{"name": column["name"], "type": str(column["type"])} for column in columns]

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(cls, execution_engine: Any, metric_domain_kwargs: Any, **_: Any) -> list[dict[str, str]]:  # noqa: N805 - called by name
        from assets.checks import spark_backend  # imports pyspark

        return spark_backend.list_columns(execution_engine.get_domain_records(metric_domain_kwargs).schema)


def _read_rules(arguments: dict[str, Any]) -> tuple[Rule, ...]:
    return list_rules(_TABLES[arguments["table"]])


def validate_table(backend: Backend, table: Table, judged: Sequence[Rule]) -> ExpectationSuiteValidationResult:
    """Validate the rows that a backend has selected against these rules of the table."""
    _TABLES[table.full_name] = table
    suite = gx.ExpectationSuite(name=table.full_name, expectations=[_expectation(table, rule) for rule in judged])
    return _batch(backend).validate(suite)


def render_page(result: ExpectationSuiteValidationResult, run_ids: str, engine: str) -> str:
    """A result as a page of the Data Docs that fetches nothing: what it would load from elsewhere could read it."""
    result.meta["run_id"] = RunIdentifier(run_name=run_ids, run_time=datetime.now(UTC))
    # Not how each engine names its batch.
    result.meta["batch_spec"] = BatchSpec(data_asset_name=result.suite_name, engine=engine)
    text: str = _view().render(ValidationResultsPageRenderer().render(result))  # type: ignore[no-untyped-call]  # it is not annotated
    return _FETCHED.sub("", text).replace("</head>", f"{_STYLE}</head>", 1)


def _expectation(table: Table, rule: Rule) -> ExpectRuleHolds:
    return ExpectRuleHolds(
        table=table.full_name,
        rule=rule.name,
        must=rule.must,
        severity=FailureSeverity(rule.severity),
        description=rule.sentence,
        meta={"rule": rule.name},
    )


def _batch(backend: Backend) -> Batch:
    if isinstance(backend, duckdb_backend.DuckDBBackend):
        backend.show_selected()
        return _view_definition(backend).get_batch()
    return _frame_definition().get_batch({"dataframe": backend.rows.to_native()})


@cache
def _view() -> DefaultJinjaPageView:
    """One for all pages: a new one would compile its templates again."""
    return DefaultJinjaPageView()


@cache
def _view_definition(backend: duckdb_backend.DuckDBBackend) -> BatchDefinition[Any]:
    source = _context().data_sources.add_sql(
        "duckdb",
        connection_string=URL,
        create_temp_table=False,
        kwargs=sharing(backend.connection),  # type: ignore[call-arg]
    )
    asset = source.add_table_asset(duckdb_backend.VIEW, table_name=duckdb_backend.VIEW)
    return asset.add_batch_definition_whole_table("all")


@cache
def _frame_definition() -> BatchDefinition[Any]:
    """It reuses whatever Spark session there is, and keeps no copy of the rows."""
    source = _context().data_sources.add_spark("spark", persist=False)
    return source.add_dataframe_asset("checked").add_batch_definition_whole_dataframe("all")


@cache
def _context() -> EphemeralDataContext:
    """Great Expectations without a project on disk, a progress bar or a message to anybody."""
    config = DataContextConfig(
        store_backend_defaults=InMemoryStoreBackendDefaults(),
        progress_bars=ProgressBarsConfig(globally=False),
        analytics_enabled=False,
    )
    return gx.get_context(project_config=config, mode="ephemeral")
