"""Rule violations counted by Spark, in a data frame over a table's own files: for what only a cluster can read."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.errors import PySparkException
from pyspark.sql import functions as sf
from pyspark.sql.types import StructField, StructType

from assets.checks.backends import Counts
from assets.checks.rules import Must
from lake.errors import ContractBroken, SourceUnavailable
from lake.locations import report_unreachable
from lake.spark import SparkEngine
from lake.tables import DUCKDB_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from assets.checks.rules import Rule
    from lake.store import Lake
    from lake.tables import Table


def count_violations(rows: DataFrame, rules: Sequence[Rule]) -> Counts:
    """Count all rules on single rows in one aggregation; a unique key needs one of its own."""
    single = [rule for rule in rules if rule.must not in {Must.BE_DECLARED, Must.BE_UNIQUE}]
    (found,) = rows.agg(sf.count("*"), *(sf.count_if(_is_violated(rule)) for rule in single)).collect()
    counts = dict(zip((rule.name for rule in single), found[1:], strict=True))
    for rule in rules:
        if rule.must is Must.BE_UNIQUE:
            (sum_of_sizes,) = _count_doubles(rows, rule.columns).agg(sf.sum("count")).collect()
            counts[rule.name] = int(sum_of_sizes[0] or 0)
    return Counts(found[0], counts)


def _is_violated(rule: Rule) -> Column:
    """What is true of a row that violates the rule; a null violates none but the one that forbids it."""
    column = sf.col(rule.columns[0])
    if rule.must is Must.BE_PRESENT:
        return column.isNull()
    if rule.must is Must.BE_ONE_OF:
        return ~column.isin(list(rule.arguments))
    if rule.must is Must.BE_FINITE:
        return sf.isnan(column) | (sf.abs(column) == float("inf"))
    if rule.must is Must.BE_SHAPED:
        # Java would find the shape anywhere, and lets `$` stand before a last line break.
        return ~column.rlike(rf"\A(?:{rule.arguments[0]})\z")
    low, high = rule.arguments
    # Both engines take what is no number for more than any number.
    below = sf.lit(False) if low is None else column < low
    return below if high is None else below | (column > high)


def _count_doubles(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """The values of these columns that more than one row has, and how many rows."""
    return rows.groupBy(*names).count().where(sf.col("count") > 1)


class SparkBackend:
    """Counts with a session that is there already."""

    name = "spark"

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self.rows: DataFrame | None = None
        self._table = ""

    def read(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> list[dict[str, str]]:
        """Select the files of some runs, with the kinds that the files have, not those they should have."""
        self._table = table.full_name
        with self._reading():
            self.rows = self._read_found(lake, table, run_ids)
            return list_columns(self.rows.schema)

    def _read_found(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> DataFrame:
        rows: DataFrame = SparkEngine(self._session).read(lake, table, run_ids).to_native()
        declared = list_columns(rows.schema)
        for path in _odd_files(lake, table, run_ids):
            there = {field.name: field for field in self._session.read.parquet(path).schema}
            if not there.keys() >= set(table.file_schema.names):
                raise ContractBroken("a data file does not have all declared columns")
            found = StructType([StructField(one.name, there.get(one.name, one).dataType) for one in rows.schema])
            if list_columns(found) != declared:
                reader: Any = self._session.read.schema(found).option("basePath", lake.uri(table))
                other: DataFrame = reader.parquet(*lake.files(table, run_ids)).select(*table.column_names)
                return other
        return rows

    def count(self, rules: Sequence[Rule]) -> Counts:
        """Count the selected rows."""
        rows: Any = self.rows
        with self._reading():
            return count_violations(rows, rules)

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn what Spark says of files that it cannot read into one line."""
        try:
            yield
        except (PySparkException, pa.ArrowInvalid) as error:
            raise SourceUnavailable(
                f"{self._table} could not be checked on Spark: {type(error).__name__}",
                "check that Spark can read the files of the lake; if the lake has just changed, check again",
            ) from error

    def samples(self, rule: Rule, names: Sequence[str], most: int) -> list[dict[str, Any]]:
        """Some rows that violate a rule, by these columns."""
        rows: Any = self.rows
        if rule.must is Must.BE_UNIQUE:
            found = _count_doubles(rows, tuple(dict.fromkeys((*names, *rule.columns)))).select(*names).distinct()
        else:
            found = rows.where(_is_violated(rule)).select(*names)
        return [row.asDict() for row in found.limit(most).collect()]


def list_columns(schema: StructType) -> list[dict[str, str]]:
    """The name and the kind of each column, in DuckDB's word where the lake has such a kind."""
    words = ((field.name, field.dataType.simpleString().upper()) for field in schema)
    return [{"name": name, "type": DUCKDB_KINDS.get(kind, kind)} for name, kind in words]


def _odd_files(lake: Lake, table: Table, run_ids: Sequence[str] | None) -> Iterator[str]:
    """One file of each layout that is not the declared one; Spark itself asks one file and takes the rest for alike."""
    wanted = None if run_ids is None else pc.field("run_id").isin(pa.array(run_ids, pa.string()))
    seen = {_describe_layout(table.file_schema)}
    with report_unreachable(f"{lake.uri(table)} could not be read"):
        for fragment in lake.dataset(table).get_fragments(wanted):
            layout = _describe_layout(fragment.physical_schema)
            # A table without a file has fragments, but none of a file.
            if layout not in seen and isinstance(fragment, ds.FileFragment):
                seen.add(layout)
                yield f"{lake.uri(table)}/{fragment.path}"


def _describe_layout(schema: pa.Schema) -> frozenset[tuple[str, str]]:
    return frozenset((field.name, str(field.type)) for field in schema)
