"""Spark, for runs that one machine cannot hold: the session is whatever Spark's own settings say, else this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw

from lake.errors import ContractBroken

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lake.frames import Frame
    from lake.store import Lake
    from lake.tables import Table

# Asked for where nobody has: quiet, and as many parts as a few cores can take.
_DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
}


class SparkEngine:
    """Spark reads the table's files itself; rows come back as Arrow."""

    name = "spark"

    def __init__(self, session: SparkSession | None = None) -> None:
        self._session = session or _session()

    def read(self, lake: Lake, table: Table, run_ids: Sequence[str]) -> Frame:
        """A data frame over the table's files, with the kinds that are declared."""
        files = lake.files(table, run_ids)
        if not files:
            return self.wrap(table.arrow_schema.empty_table())
        reader: Any = self._session.read.schema(table.spark_ddl).option("basePath", lake.uri(table))
        frame: Frame = nw.from_native(reader.parquet(*files).select(*table.column_names))
        return frame

    def wrap(self, rows: pa.Table) -> Frame:
        """Rows shipped to the session, in one piece: Spark 4.3 drops all that comes after an empty chunk."""
        return nw.from_native(self._session.createDataFrame(rows.combine_chunks()))

    def rows(self, frame: Frame) -> pa.Table:
        """Run the plan."""
        from pyspark.errors import PySparkException

        try:
            return frame.collect("pyarrow").to_native()
        except PySparkException as error:
            # Spark's own text may quote values that are to be sealed.
            raise ContractBroken(
                f"spark could not compute this: {type(error).__name__}", "try another engine with --engine"
            ) from error


def _session() -> SparkSession:
    try:
        from pyspark.sql import SparkSession
    except ModuleNotFoundError:
        raise ContractBroken("pyspark is not installed", "install teetotal[spark]; Spark needs Java 17") from None
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    builder: Any = SparkSession.builder
    session: SparkSession = builder.appName("teetotal").config(map=_DEFAULTS).getOrCreate()
    return session
