"""`teetotal query --engine spark`: the same question put to Spark, its values bound by name."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from assets.build.catalogue import TABLES
from lake.errors import EvidenceRejected, LakeError, nearest
from lake.spark import SparkEngine
from pipelines.cli.spark_text import check_spark_statement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lake.cluster import Cluster
    from lake.store import Lake
    from pipelines.cli.query import Value

_MOST_TEXT = 300
# A text means here what we took it to mean, and a path is no table.
_READING = {
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.ansi.doubleQuotedIdentifiers": "false",
}
# What an answer's columns become: the kinds of the lake's own columns, which every format can write.
_KEPT = {"string", "boolean", "tinyint", "smallint", "int", "bigint", "double"}


class SparkAnswer:
    """What a statement gives: the rows when they are asked for, and the names of its columns of tokens."""

    def __init__(self, frame: DataFrame, clock: _Deadline) -> None:
        self._frame = _name_columns(frame)
        self._clock = clock
        tokens = {column.name for table in TABLES.values() for column in table.sealed}
        self.sealed = [name for name, kind in self._frame.dtypes if name in tokens and kind == "string"]

    def rows(self, limit: int | None = None) -> pa.RecordBatchReader:
        """The rows, or the first of them."""
        asked = self._frame if limit is None else self._frame.limit(limit)
        with self._clock.explain_errors():
            return asked.toArrow().to_reader()

    def first(self, limit: int | None = None) -> tuple[pa.RecordBatchReader, int]:
        """The first rows, and how many there are in all; they are counted only where there are more."""
        found = self.rows(None if limit is None else limit + 1).read_all()
        if limit is None or found.num_rows <= limit:
            return found.to_reader(), found.num_rows
        with self._clock.explain_errors():
            return found.slice(0, limit).to_reader(), self._frame.count()


@contextmanager
def spark_query(
    lake: Lake,
    cluster: Cluster,
    sql: str,
    parameters: Mapping[str, Value] | None = None,
    timeout_s: float | None = 60.0,
) -> Iterator[SparkAnswer]:
    """Ask the lake; what does not only read, or lacks a value, is refused before Spark sees it."""
    values = dict(parameters or {})
    asked = check_spark_statement(sql, TABLES)
    _expect(asked.values, values)
    session = cluster.session().newSession()
    for name, value in _READING.items():
        session.conf.set(name, value)
    engine = SparkEngine(session)
    files = set()
    with _Deadline(session, timeout_s) as clock, clock.explain_errors():
        for name in asked.tables:
            files |= set(lake.files(TABLES[name], None))
            engine.read(lake, TABLES[name], None).to_native().createOrReplaceTempView(f"`{name}`")
        frame = session.sql(asked.text, args=values)  # the person's own text, held by all of the above
        if any(_path(file) not in files for file in frame.inputFiles()):
            raise EvidenceRejected("a query reads the tables of the lake, and this reads other files", "ask for those")
        yield SparkAnswer(frame, clock)


def _expect(asked: Iterable[str], values: Mapping[str, Value]) -> None:
    missing, extra = sorted(set(asked) - values.keys()), sorted(values.keys() - set(asked))
    if missing:
        hint = " ".join(f"--param {name}=…" for name in missing)
        raise EvidenceRejected(f"no value for {', '.join(f':{name}' for name in missing)}", f"give {hint}")
    if extra:
        names = ", ".join(f":{name}" for name in sorted(asked))
        listed = ", ".join(f":{name}" for name in extra)
        raise EvidenceRejected(f"the statement has no {listed}", f"it has {names or 'no parameters'}")


def _name_columns(frame: DataFrame) -> DataFrame:
    """The same columns, each with a name and a kind that every format has."""
    names: list[str] = []
    for name in frame.columns:
        more = sum(other == name or other.startswith(f"{name}_") for other in names)
        names.append(name if name not in names else f"{name}_{more}")
    single = frame.toDF(*names)
    columns = []
    for name, kind in single.dtypes:
        column: Any = single[f"`{name.replace('`', '``')}`"]
        is_number = kind.startswith("decimal") or kind == "float"
        columns.append(column if kind in _KEPT else column.cast("double" if is_number else "string").alias(name))
    return single.select(*columns)


def _path(uri: str) -> str:
    """A file as the lake names it."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme in {"", "file"} else unquote(uri)


class _Deadline:
    """Interrupts what a session does when its time is up, and says in one line why a statement failed."""

    def __init__(self, session: SparkSession, timeout_s: float | None) -> None:
        self._session = session
        self._timeout_s = timeout_s
        self._is_late = threading.Event()
        self._timer = threading.Timer(timeout_s or 0, self._stop)

    def __enter__(self) -> _Deadline:
        if self._timeout_s is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    @contextmanager
    def explain_errors(self) -> Iterator[None]:
        """Turn what Spark answers with into one line that says what to do."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        try:
            yield
        except (PySparkException, Py4JError) as error:
            raise self._describe_error(error) from error

    def _stop(self) -> None:
        self._is_late.set()
        if type(self._session).__module__.startswith("pyspark.sql.connect"):
            self._session.interruptAll()
        else:  # a tag would not reach the thread that hands rows over; this process has nothing else under way
            self._session.sparkContext.cancelAllJobs()

    def _describe_error(self, error: Exception) -> LakeError:
        if self._is_late.is_set():
            return EvidenceRejected(
                f"no answer within {self._timeout_s:g} s", "ask for less, or allow more with --timeout (0: no limit)"
            )
        from pyspark.errors import PySparkException

        if not isinstance(error, PySparkException):
            return EvidenceRejected(f"Spark could not answer: {type(error).__name__}", "its own log says why")
        if error.getCondition() == "TABLE_OR_VIEW_NOT_FOUND":
            name = str((error.getMessageParameters() or {}).get("relationName", "")).replace("`", "")
            return EvidenceRejected(f"there is no table {name!r}", nearest(name, TABLES))
        lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        return EvidenceRejected("".join(char if char.isprintable() else " " for char in lines[0])[:_MOST_TEXT])
