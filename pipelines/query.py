"""`teetotal query`: one statement that reads, over all tables of the lake, its values bound by name."""

from __future__ import annotations

import json
import re
import threading
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

import duckdb
import pyarrow as pa

from assets.catalogue import TABLES
from lake.connections import closed_off, lock
from lake.errors import EvidenceRejected, LakeError, SourceUnavailable, nearest
from pipelines import timeline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from lake.store import Lake
    from lake.tables import Table

Value = str | int | float | bool

_BATCH_ROWS = 65_536
_MOST_TEXT = 300
_AGAIN_S = 0.2
_READS = {duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN}
_TAKEN = "SELECT, WITH, FROM, VALUES, DESCRIBE, SHOW, SUMMARIZE and EXPLAIN are taken"
_USE = {"bronze": "USE bronze", "silver": "USE silver", "gold": "USE gold"}
_PARAMETER = re.compile(r"([A-Za-z0-9_]+)(:text)?=(.*)", re.DOTALL)
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
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

    def __init__(self, relation: duckdb.DuckDBPyRelation, tables: Iterable[Table], clock: _Clock) -> None:
        self._relation = _plain(relation)
        self._clock = clock
        tokens = {column.name for table in tables for column in table.sealed}
        kinds = zip(self._relation.columns, self._relation.types, strict=True)
        self.sealed = [name for name, kind in kinds if name in tokens and kind.id == "varchar"]

    def rows(self, limit: int | None = None) -> pa.RecordBatchReader:
        """The rows, or the first of them, batch by batch."""
        asked = self._relation if limit is None else self._relation.limit(limit)
        with self._clock.explained():
            batches = asked.to_arrow_reader(_BATCH_ROWS)
        return pa.RecordBatchReader.from_batches(batches.schema, self._each(batches))

    def first(self, limit: int | None = None) -> tuple[pa.RecordBatchReader, int]:
        """The first rows, and how many there are in all; they are counted only where there are more."""
        found = self.rows(None if limit is None else limit + 1).read_all()
        if limit is None or found.num_rows <= limit:
            return found.to_reader(), found.num_rows
        with self._clock.explained():
            return found.slice(0, limit).to_reader(), len(self._relation)

    def _each(self, batches: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        with self._clock.explained():
            yield from batches


@contextmanager
def query(
    lake: Lake, sql: str, parameters: Mapping[str, Value] | None = None, timeout_s: float | None = 60.0
) -> Iterator[Answer]:
    """Ask the lake; what is no single statement that reads, or lacks a value, is refused before anything runs."""
    values = dict(parameters or {})
    with closed_off() as connection, _Clock(connection, timeout_s) as clock:
        with clock.explained():
            statement = _statement(connection, sql)
            names = _names(connection, sql)
        _expect(statement.named_parameters, values)
        tables = _tables(names)
        _open(connection, lake, tables)
        if set(timeline.READS) <= set(tables):
            timeline.create(connection)
        lock(connection)
        with clock.explained(names or ()):
            clock.start()
            relation = connection.sql(statement, params=values)  # the person's own text, held by all of the above
        yield Answer(relation, tables, clock)


def parameters(texts: Iterable[str]) -> dict[str, Value]:
    """Values as they are typed: `name=value`, or `name:text=value` where a number is meant as a text."""
    values: dict[str, Value] = {}
    for text in texts:
        found = _PARAMETER.fullmatch(_encodable(text))
        if found is None:
            raise EvidenceRejected(f"{text[:80]!r} is no parameter", "expected name=value, or name:text=value")
        name, is_text, value = found.groups()
        if name in values:
            raise EvidenceRejected(f"the parameter {name} is given twice", "give it once")
        values[name] = value if is_text else _value(value)
    return values


def text_of(sql: str | None, file: Path | None, stdin: IO[bytes]) -> str:
    """The statement as it was typed, or out of a file, or for `-` out of the standard input."""
    if (sql is None) == (file is None):
        raise EvidenceRejected(
            "there is no statement" if sql is None else "there are two statements, one typed and one in a file",
            "expected one: SQL, - for standard input, or --file F",
        )
    if file is None and sql != "-":
        return _encodable(sql or "")
    where = "the standard input" if file is None else repr(str(file)[:160])
    try:
        return (stdin.read() if file is None else file.read_bytes()).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise EvidenceRejected(f"{where} is not UTF-8", "save the statement as UTF-8") from error
    except (OSError, ValueError) as error:  # a path with a null byte is a wrong value
        raise EvidenceRejected(f"{where} cannot be read: {getattr(error, 'strerror', error)}", "check it") from error


def _value(text: str) -> Value:
    """A whole number of 64 bits, another number, true or false; anything else is text, also 007 and nan."""
    if _WHOLE.fullmatch(text) and len(text) < 20 and -(1 << 63) <= int(text) < 1 << 63:
        return int(text)
    if _NUMBER.fullmatch(text) and not _WHOLE.fullmatch(text):
        return float(text)
    return {"true": True, "false": False}.get(text, text)


def _encodable(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise EvidenceRejected(f"{text[:80]!r} is not UTF-8", "type it as UTF-8") from error
    return text


def _statement(connection: duckdb.DuckDBPyConnection, sql: str) -> duckdb.Statement:
    found = connection.extract_statements(sql)
    if len(found) != 1:
        raise EvidenceRejected(f"expected one statement, found {len(found) or 'none'}", "ask one question at a time")
    if found[0].type not in _READS:
        hint = f"{_TAKEN}; PIVOT only with the values in its ON … IN (…)"
        raise EvidenceRejected(f"a query only reads, and this is {found[0].type.name}", hint)
    return found[0]


def _names(connection: duckdb.DuckDBPyConnection, sql: str) -> set[str] | None:
    """The tables that a text names, as `tier.name`; none where the text alone does not tell, as with SHOW."""
    told = connection.execute("SELECT json_serialize_sql($sql)", {"sql": sql}).fetchone()
    try:
        todo = [json.loads(told[0])] if told else []
    except RecursionError:
        return None
    names: set[str] = set()
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            kind = node.get("type")
            if kind in {"SHOW_REF", "TABLE_FUNCTION"} or node.get("error") is True:
                return None
            if kind == "BASE_TABLE" and node["schema_name"]:
                names.add(f"{node['schema_name']}.{node['table_name']}".lower())
        todo += node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return names


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
        connection.from_arrow(lake.dataset(table)).create_view(table.name)
    connection.execute("USE main")


def _plain(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The same columns, each with a name and a kind that every format has."""
    single = relation.select(duckdb.StarExpression())  # gives the second of two equal names another
    columns = []
    for name, kind in zip(single.columns, single.types, strict=True):
        column = duckdb.ColumnExpression(name)
        columns.append(column if kind.id in _KEPT else column.cast(_CASTS.get(kind.id, "VARCHAR")).alias(name))
    return single.select(*columns)


class _Clock:
    """Interrupts a connection when its time is up, and says in one line why a statement failed."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, timeout_s: float | None) -> None:
        self._connection = connection
        self._timeout_s = timeout_s
        self._is_done = threading.Event()
        self._is_late = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Clock:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_done.set()
        if self._thread.ident is not None:
            self._thread.join()

    def start(self) -> None:
        """From here on the time counts."""
        if self._timeout_s is not None:
            self._thread.start()

    @contextmanager
    def explained(self, names: Iterable[str] = ()) -> Iterator[None]:
        """Turn what DuckDB answers with into one line that says what to do."""
        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._told(error, names) from error

    def _watch(self) -> None:
        if self._is_done.wait(self._timeout_s):
            return
        self._is_late.set()
        while not self._is_done.wait(_AGAIN_S):  # between two batches an interrupt may find nothing to stop
            self._connection.interrupt()

    def _told(self, error: Exception, names: Iterable[str]) -> LakeError:
        if self._is_late.is_set():
            return EvidenceRejected(
                f"no answer within {self._timeout_s:g} s", "ask for less, or allow more with --timeout (0: no limit)"
            )
        lines = [line for line in map(_printable, str(error).splitlines()) if line.strip()]
        what = lines[0][:_MOST_TEXT] if lines else type(error).__name__
        if "reading the Arrow source failed" in what:
            return SourceUnavailable(
                what, "a file of the lake could not be read; if the lake has just changed, ask again"
            )
        if isinstance(error, duckdb.OutOfMemoryException):
            return EvidenceRejected(
                what, "ask for fewer rows or columns: a query may use half of the memory, and no disk"
            )
        if isinstance(error, duckdb.ConversionException):
            return EvidenceRejected(what, "a number that is meant as a text is given as --param name:text=…")
        absent = _ABSENT.match(what)
        if absent:
            asked = next(iter(sorted(set(names) - TABLES.keys())), absent[1])
            return EvidenceRejected(f"there is no table {asked!r}", nearest(asked, [*TABLES, timeline.NAME]))
        hint = lines[1][:_MOST_TEXT] if len(lines) > 1 and not _LINE.match(lines[1]) else ""
        return EvidenceRejected(what, hint)


def _printable(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)
