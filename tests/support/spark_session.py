"""Spark, as the tests use it, beside the engines of the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}


def start_session() -> SparkSession:
    """A local session."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    session: SparkSession = builder.master("local[2]").config(map=_SPARK).getOrCreate()
    return session
