"""Spark, for runs that one machine cannot hold: it places and repeats our work, or runs a plan as its own SQL."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw

from lake.cluster import Cluster, is_client
from lake.engines import ReplanningEngine
from lake.errors import ContractBroken
from lake.executors import Executors

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lake.frames import Frame
    from lake.store import Lake
    from lake.tables import Table


class SparkEngine(ReplanningEngine):
    """A tier is handed out to executors where they can reach the lake (docs/decisions/0014); frames are Spark's own."""

    name = "spark"
    tables_at_once = 1

    def __init__(self, session: SparkSession | None = None, cluster: Cluster | None = None) -> None:
        chosen = cluster or Cluster()
        self._session = session or chosen.session()
        if not is_client(self._session):
            _remember_classes(self._session)
        self.executors = None if chosen.reach is None else Executors(self._session, chosen.reach)

    def read(self, lake: Lake, table: Table, run_ids: Sequence[str] | None) -> Frame:
        """A data frame over the table's files, with the kinds that are declared."""
        files = lake.files(table, run_ids)
        if lake.has_sealed_source(table, run_ids):
            return self.wrap(lake.read_opened(table, run_ids))
        if not files:
            return nw.from_native(self._session.createDataFrame([], table.spark_ddl))
        reader: Any = self._session.read.schema(table.spark_ddl).option("basePath", lake.uri(table))
        frame: Frame = nw.from_native(reader.parquet(*files).select(*table.column_names))
        return frame

    def wrap(self, rows: pa.Table) -> Frame:
        """Rows shipped to the session, in one piece: Spark 4.3 drops all that comes after an empty chunk."""
        return nw.from_native(self._session.createDataFrame(rows.combine_chunks()))

    def rows(self, frame: Frame, *, is_small: bool = False, is_lean: bool = False) -> pa.Table:  # noqa: ARG002
        """Run the plan; Spark decides for itself what to keep."""
        from pyspark.errors import PySparkException

        try:
            return frame.collect("pyarrow").to_native()
        except PySparkException as error:
            # Spark's own text may quote values that are to be sealed.
            raise ContractBroken(
                f"spark could not compute this: {type(error).__name__}", "try another engine with --engine"
            ) from error


# What PySpark asks of Java for almost every step and column of a plan.
_ASKED_OFTEN = (
    "functions",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.expressions.Window",
    "PythonUtils",
    "PythonSQLUtils",
)


class _KnownClass:
    """A class of Java's of which each method is looked up once."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def __getattr__(self, name: str) -> Any:
        method = vars(self)[name] = getattr(self._found, name)
        return method


def _remember_classes(session: SparkSession) -> None:
    """Keep what PySpark looks up anew at each use, for which Java searches all its archives: a third of planning."""
    known = vars(session.sparkContext._jvm)  # noqa: SLF001 - where PySpark itself looks first
    for name in _ASKED_OFTEN:
        if name not in known:
            known[name] = _KnownClass(getattr(session.sparkContext._jvm, name))  # noqa: SLF001
