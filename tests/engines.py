"""Spark, as the tests use it, beside the engines of the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lake.frames import Frame

_SPARK = {
    "spark.ui.enabled": "false",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    # Rows are few and plans are large: interpreting them is much quicker than compiling each to Java first.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


def started() -> SparkSession:
    """A local session."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    session: SparkSession = builder.master("local[2]").config(map=_SPARK).getOrCreate()
    return session


class SparkBench:
    """Spark, as the tests use it."""

    name = "spark"

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def wrap(self, rows: pa.Table) -> Frame:
        """Rows shipped to the session, in one piece: Spark 4.3 drops all that comes after an empty chunk."""
        return nw.from_native(self._session.createDataFrame(rows.combine_chunks()))

    def rows(self, frame: Frame) -> pa.Table:
        """Run the plan."""
        return frame.collect("pyarrow").to_native()
