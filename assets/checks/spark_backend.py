"""Rule violations counted by Spark, in a data frame over a table's own files: for what only a cluster can read."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import narwhals as nw
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.errors import PySparkException
from pyspark.sql.types import StructField, StructType

from assets.checks.backends import Backend
from lake.errors import ContractBroken, SourceUnavailable
from lake.locations import report_unreachable
from lake.spark import SparkEngine
from lake.tables import DUCKDB_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from lake.store import Lake
    from lake.tables import Table


class SparkBackend(Backend):
    """Counts with a session that is there already."""

    name = "spark"

    def __init__(self, session: SparkSession) -> None:
        self._session = session
        self._table = ""

    def read(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> list[dict[str, str]]:
        """Select the files of some runs, with the kinds that the files have, not those they should have."""
        self._table = table.full_name
        with self.reading():
            found = self._read_found(lake, table, run_ids)
            self.rows = nw.from_native(found)
            return list_columns(found.schema)

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

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn what Spark says of files that it cannot read into one line."""
        try:
            yield
        except (PySparkException, pa.ArrowInvalid) as error:
            raise SourceUnavailable(
                f"{self._table} could not be checked on Spark: {type(error).__name__}",
                "check that Spark can read the files of the lake; if the lake has just changed, check again",
            ) from error


def list_columns(schema: StructType) -> list[dict[str, str]]:
    """The name and the kind of each column, in DuckDB's word where the lake has such a kind."""
    words = ((field.name, field.dataType.simpleString().upper()) for field in schema)
    return [{"name": name, "type": DUCKDB_KINDS.get(kind, kind)} for name, kind in words]


def _odd_files(lake: Lake, table: Table, run_ids: Sequence[str] | None) -> Iterator[str]:
    """One file of each layout that is not the declared one; Spark itself asks one file and takes the rest for alike."""
    wanted = None if run_ids is None else pc.field(table.partition_key).isin(pa.array(run_ids, pa.string()))
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
