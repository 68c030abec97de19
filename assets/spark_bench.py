"""Suites on Spark, in a data frame over a table's own files: for tables that only a cluster can look through."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from great_expectations.execution_engine.sparkdf_execution_engine import SparkDFExecutionEngine
from great_expectations.expectations.metrics.metric_provider import metric_value
from great_expectations.expectations.metrics.table_metric_provider import TableMetricProvider
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from assets.rules import Must
from assets.suites import BREAKING, BREAKING_KEYS, KINDS, SHARING_KEY, context, counted
from lake.errors import ContractBroken, SourceUnavailable
from lake.places import reaching
from lake.spark import SparkEngine
from lake.tables import DUCKDB_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import great_expectations as gx
    from great_expectations.core import ExpectationSuiteValidationResult
    from great_expectations.core.batch_definition import BatchDefinition
    from pyspark.sql import Column, DataFrame, SparkSession

    from assets.rules import Rule
    from lake.store import Lake
    from lake.tables import Table


class ColumnKinds(TableMetricProvider):
    """The name and the kind of each column."""

    metric_name = KINDS

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(cls, execution_engine: Any, metric_domain_kwargs: Any, **_: Any) -> list[dict[str, str]]:  # noqa: N805 - called by name
        return _kinds(execution_engine.get_domain_records(metric_domain_kwargs).schema)


class RowsBreaking(TableMetricProvider):
    """How many rows break a rule on each row by itself; all such counts become one aggregation."""

    metric_name = BREAKING
    value_keys = BREAKING_KEYS

    @counted(engine=SparkDFExecutionEngine)
    def _spark(cls, metric_domain_kwargs: Any, metric_value_kwargs: Any, **_: Any) -> Any:  # noqa: N805 - called by name
        return sf.count_if(_breaks(**metric_value_kwargs)), metric_domain_kwargs, {}


class RowsSharingKey(TableMetricProvider):
    """How many rows have a key that another row has too."""

    metric_name = SHARING_KEY
    value_keys = ("columns",)

    @metric_value(engine=SparkDFExecutionEngine)
    def _spark(cls, execution_engine: Any, metric_domain_kwargs: Any, metric_value_kwargs: Any, **_: Any) -> int:  # noqa: N805 - called by name
        rows = execution_engine.get_domain_records(metric_domain_kwargs)
        (found,) = _doubles(rows, metric_value_kwargs["columns"]).agg(sf.sum("count")).collect()
        return int(found[0] or 0)


def _breaks(must: str, columns: Sequence[str], arguments: Sequence[Any]) -> Column:
    """What is true of a row that breaks the rule; a null breaks none but the one that forbids it."""
    column = sf.col(columns[0])
    if must == Must.BE_PRESENT:
        return column.isNull()
    if must == Must.BE_ONE_OF:
        return ~column.isin(list(arguments))
    if must == Must.BE_FINITE:
        return sf.isnan(column) | (sf.abs(column) == float("inf"))
    if must == Must.BE_SHAPED:
        # Java would find the shape anywhere, and lets `$` stand before a last line break.
        return ~column.rlike(rf"\A(?:{arguments[0]})\z")
    low, high = arguments
    # Both engines take what is no number for more than any number.
    below = sf.lit(False) if low is None else column < low
    return below if high is None else below | (column > high)


def _doubles(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """The values of these columns that more than one row has, and how many rows."""
    return rows.groupBy(*names).count().where(sf.col("count") > 1)


class SparkBench:
    """Looks at tables with a session that is there already."""

    name = "spark"

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._batches = _batches()
        self._rows: DataFrame | None = None

    def look(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> list[dict[str, str]]:
        """Lay the files of some runs before Spark, with the kinds that the files have, not those they should have."""
        try:
            self._rows = self._found(lake, table, run_ids)
        except PySparkException as error:
            raise SourceUnavailable(
                f"{table.full_name} could not be checked on Spark: {type(error).__name__}",
                "check that Spark can read the files of the lake; if the lake has just changed, check again",
            ) from error
        return _kinds(self._rows.schema)

    def _found(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> DataFrame:
        rows: DataFrame = SparkEngine(self._session).read(lake, table, run_ids).to_native()
        declared = _kinds(rows.schema)
        for path in _odd_files(lake, table, run_ids):
            there = {field.name: field for field in self._session.read.parquet(path).schema}
            if not there.keys() >= set(table.file_schema.names):
                raise ContractBroken("a data file does not have all declared columns")
            found = StructType([StructField(one.name, there.get(one.name, one).dataType) for one in rows.schema])
            if _kinds(found) != declared:
                reader: Any = self._session.read.schema(found).option("basePath", lake.uri(table))
                other: DataFrame = reader.parquet(*lake.files(table, run_ids)).select(*table.column_names)
                return other
        return rows

    def validate(self, suite: gx.ExpectationSuite) -> ExpectationSuiteValidationResult:
        """Hold the rows to a suite."""
        return self._batches.get_batch({"dataframe": self._rows}).validate(suite)

    def samples(self, rule: Rule, names: Sequence[str], most: int) -> list[dict[str, Any]]:
        """Some rows that break a rule, by these columns."""
        rows: Any = self._rows
        if rule.must is Must.BE_UNIQUE:
            found = _doubles(rows, tuple(dict.fromkeys((*names, *rule.columns)))).select(*names).distinct()
        else:
            found = rows.where(_breaks(rule.must, rule.columns, rule.arguments)).select(*names)
        return [row.asDict() for row in found.limit(most).collect()]


@cache
def _batches() -> BatchDefinition[Any]:
    """One context for all suites of a process; it reuses whatever session there is, and keeps no copy of the rows."""
    source = context().data_sources.add_spark("lake", persist=False)
    return source.add_dataframe_asset("checked").add_batch_definition_whole_dataframe("all")


def _kinds(schema: StructType) -> list[dict[str, str]]:
    """The name and the kind of each column, in DuckDB's word where the lake has such a kind."""
    words = ((field.name, field.dataType.simpleString().upper()) for field in schema)
    return [{"name": name, "type": DUCKDB_KINDS.get(kind, kind)} for name, kind in words]


def _odd_files(lake: Lake, table: Table, run_ids: Sequence[str] | None) -> Iterator[str]:
    """One file of each layout that is not the declared one; Spark itself asks one file and takes the rest for alike."""
    wanted = None if run_ids is None else pc.field("run_id").isin(pa.array(run_ids, pa.string()))
    seen = {_layout(table.file_schema)}
    with reaching(f"{lake.uri(table)} could not be read"):
        for fragment in lake.dataset(table).get_fragments(wanted):
            layout = _layout(fragment.physical_schema)
            # A table without a file has fragments, but none of a file.
            if layout not in seen and isinstance(fragment, ds.FileFragment):
                seen.add(layout)
                yield f"{lake.uri(table)}/{fragment.path}"


def _layout(schema: pa.Schema) -> frozenset[tuple[str, str]]:
    return frozenset((field.name, str(field.type)) for field in schema)
