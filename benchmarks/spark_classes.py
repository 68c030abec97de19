"""How Java processes of Spark start sooner: they compile little, and find its classes, verified, in one file.

`python -m benchmarks.spark_classes` makes that file for the Java and the Spark at hand. Without it, or with that of
another Java, which Java then passes over, all works as it does with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

_ARCHIVE = Path(sys.prefix) / ".spark-classes.jsa"
_TIMEOUT_S = 300
# Jobs are short: a process that compiles little starts sooner.
_QUICK = "-XX:TieredStopAtLevel=1"
_SILENT = "-Xlog:cds=off -Xlog:cds+dynamic=off"


def list_options() -> str:
    """What a Java process of a short job is started with."""
    return f"{_QUICK} -XX:SharedArchiveFile={_ARCHIVE} {_SILENT}" if _ARCHIVE.exists() else _QUICK


def make_archive() -> None:
    """Keep the classes that a few plans load; where that cannot be done, say so and go on without."""
    part = _ARCHIVE.with_suffix(".part")
    options = f"{_QUICK} -XX:ArchiveClassesAtExit={part} {_SILENT}"
    variables = {**os.environ, "SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1"}
    program = "from benchmarks.spark_classes import run_plans; run_plans()"
    done = subprocess.run(
        [sys.executable, "-c", program], env=variables, capture_output=True, text=True, check=False, timeout=_TIMEOUT_S
    )
    if done.returncode or not part.exists():
        sys.stderr.write(f"Spark will start without an archive of its classes: {done.stderr[-500:]}\n")
        return
    part.replace(_ARCHIVE)


def run_plans() -> None:
    """Load what a session loads: rows in and out, joins, windows, files."""
    import tempfile

    import pyarrow as pa
    from pyspark.sql import SparkSession, Window
    from pyspark.sql import functions as sql

    builder: Any = SparkSession.builder
    session = builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    rows = session.createDataFrame(pa.table({"run": ["a", "b"] * 5, "at": list(range(10)), "share": [0.5] * 10}))
    window = Window.partitionBy("run").orderBy("at")
    numbered = rows.withColumn("place", sql.row_number().over(window)).withColumn("sum", sql.sum("at").over(window))
    sums = rows.groupBy("run").agg(sql.sum("at").alias("total"), sql.max("share").alias("most"))
    joined = numbered.join(sums, "run", "left").filter(sql.col("total") > 1).distinct()
    with tempfile.TemporaryDirectory() as folder:
        joined.localCheckpoint().write.parquet(f"{folder}/rows")
        kept: Any = session.read.parquet(f"{folder}/rows").unionByName(joined)
        kept.orderBy("run", "at").toArrow()
    session.stop()


if __name__ == "__main__":
    make_archive()
