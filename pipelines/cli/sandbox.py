"""One statement that someone else wrote, on a DuckDB that reads the tables of the lake and nothing else."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from assets.build.catalogue import TABLES
from lake.connections import lock, open_sandboxed
from lake.errors import EvidenceRejected, LakeError, LimitReached, SourceUnavailable, nearest
from pipelines.cli.statements import list_tables, read_statement
from silver import timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from lake.store import Lake
    from lake.tables import Table
    from pipelines.cli.query import Value

_BATCH_ROWS = 65_536
_MOST_TEXT = 300
_USE = {"bronze": "USE bronze", "silver": "USE silver", "gold": "USE gold"}
_ABSENT = re.compile(r'Catalog Error: Table with name "?([^"]+?)"? does not exist')
_LINE = re.compile(r"LINE \d+:")

# What an answer's columns become: the kinds of the lake's own columns, which every format can write.
_KEPT = {
    "varchar",
    "boolean",
    "tinyint",
    "smallint",
    "integer",
    "bigint",
    "utinyint",
    "usmallint",
    "uinteger",
    "double",
}
_CASTS = {"hugeint": "BIGINT", "uhugeint": "BIGINT", "ubigint": "BIGINT", "float": "DOUBLE", "decimal": "DOUBLE"}


class Answer:
    """What a statement gives: rows that are read as they are made, and the names of its columns of tokens."""

    def __init__(self, relation: duckdb.DuckDBPyRelation, tables: Iterable[Table]) -> None:
        self._relation = _name_columns(relation)
        tokens = {column.name for table in tables for column in table.sealed}
        kinds = zip(self._relation.columns, self._relation.types, strict=True)
        self.sealed = [name for name, kind in kinds if name in tokens and kind.id == "varchar"]

    def rows(self, limit: int | None = None) -> pa.RecordBatchReader:
        """The rows, or the first of them, batch by batch."""
        asked = self._relation if limit is None else self._relation.limit(limit)
        with _explain():
            batches = asked.to_arrow_reader(_BATCH_ROWS)
        return pa.RecordBatchReader.from_batches(batches.schema, _each(batches))

    def count(self) -> int:
        """How many rows there are in all."""
        with _explain():
            return len(self._relation)


@contextmanager
def ask(
    lake: Lake, sql: str, parameters: Mapping[str, Value] | None = None, memory_bytes: int = 1 << 30
) -> Iterator[Answer]:
    """Ask the lake; what is no single statement that reads, or lacks a value, is refused before anything runs.

    Nothing here ends a statement that takes too long: `pipelines.cli.query` runs this in a process that it can kill.
    """
    values = dict(parameters or {})
    with open_sandboxed(memory_bytes) as connection:
        with _explain():
            statement = read_statement(connection, sql)
            names = list_tables(connection, statement)
        _expect(statement.named_parameters, values)
        tables = _tables(names)
        _open(connection, lake, tables)
        if set(timeline.READS) <= set(tables):
            timeline.create_view(connection)
        lock(connection)
        with _explain(names or ()):
            relation = connection.sql(statement, params=values)  # the person's own text, held by all of the above
            answer = Answer(relation, tables)
        yield answer


def _tables(names: set[str] | None) -> list[Table]:
    """The tables that are named, those of a view included; all where the text does not tell, or names another."""
    if names is None or not names <= {*TABLES, timeline.NAME}:
        return list(TABLES.values())
    behind = {table.full_name for table in timeline.READS} if timeline.NAME in names else set()
    return [TABLES[name] for name in sorted((names | behind) - {timeline.NAME})]


def _expect(asked: set[str], values: Mapping[str, Value]) -> None:
    missing, extra = sorted(asked - values.keys()), sorted(values.keys() - asked)
    if missing:
        hint = " ".join(f"--param {name}=…" for name in missing)
        raise EvidenceRejected(f"no value for {', '.join(f'${name}' for name in missing)}", f"give {hint}")
    if extra:
        names = ", ".join(f"${name}" for name in sorted(asked))
        raise EvidenceRejected(
            f"the statement has no {', '.join(f'${name}' for name in extra)}", f"it has {names or 'no parameters'}"
        )


def _open(connection: duckdb.DuckDBPyConnection, lake: Lake, tables: Iterable[Table]) -> None:
    """Put each table under its name; one that is not there yet is an empty one."""
    # As Arrow datasets, so that DuckDB need open no file. Views over `read_parquet` would need `allowed_paths`, and
    # what DuckDB may read there it may write: `EXPLAIN ANALYZE COPY … TO` a file of the lake has replaced it. Columns
    # and filters are handed down all the same, so a question on one run reads that run's files only.
    connection.execute("CREATE SCHEMA bronze; CREATE SCHEMA silver; CREATE SCHEMA gold")
    for table in tables:
        connection.execute(_USE[table.tier])
        connection.from_arrow(lake.compacted_dataset(table)).create_view(table.name)
    connection.execute("USE main")


def _name_columns(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The same columns, each with a name and a kind that every format has."""
    single = relation.select(duckdb.StarExpression())  # gives the second of two equal names another
    columns = []
    for name, kind in zip(single.columns, single.types, strict=True):
        column = duckdb.ColumnExpression(name)
        columns.append(column if kind.id in _KEPT else column.cast(_CASTS.get(kind.id, "VARCHAR")).alias(name))
    return single.select(*columns)


def _each(batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    with _explain():
        yield from batches


@contextmanager
def _explain(names: Iterable[str] = ()) -> Iterator[None]:
    """Turn what DuckDB answers with into one line that says what to do."""
    try:
        yield
    except (duckdb.OutOfMemoryException, pa.ArrowMemoryError, MemoryError) as error:
        raise LimitReached("the statement needs more memory than it may use") from error
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise _translate(error, names) from error


def _translate(error: Exception, names: Iterable[str]) -> LakeError:
    lines = [line for line in map(_printable, str(error).splitlines()) if line.strip()]
    what = lines[0][:_MOST_TEXT] if lines else type(error).__name__
    if "reading the Arrow source failed" in what:
        return SourceUnavailable(what, "a file of the lake could not be read; if the lake has just changed, ask again")
    # While rows are fetched, DuckDB may raise it as an error of another type.
    if isinstance(error, duckdb.ConversionException) or what.startswith("Conversion Error"):
        return EvidenceRejected(what, "a number that is meant as a text is given as --param name:text=…")
    absent = _ABSENT.match(what)
    if absent:
        asked = next(iter(sorted(set(names) - TABLES.keys())), absent[1])
        return EvidenceRejected(f"there is no table {asked!r}", nearest(asked, [*TABLES, timeline.NAME]))
    hint = lines[1][:_MOST_TEXT] if len(lines) > 1 and not _LINE.match(lines[1]) else ""
    return EvidenceRejected(what, hint)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
