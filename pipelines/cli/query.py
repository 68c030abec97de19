"""`teetotal query`: one statement that reads, answered by a process that ends when its time or its memory is up."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from functools import cached_property
from multiprocessing.connection import Pipe
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa

from lake import errors
from lake.errors import EvidenceRejected, LimitReached, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from multiprocessing.connection import Connection
    from pathlib import Path

    from lake.locations import Location

Value = str | int | float | bool

# A table for a person is drawn from memory; the other formats are written batch by batch.
_MOST_DRAWN_BYTES = 256 << 20
_PARAMETER = re.compile(r"([A-Za-z0-9_]+)(:text)?=(.*)", re.DOTALL)
_WHOLE = re.compile(r"-?(0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


class Answer:
    """What a statement gives: rows that are read as they are made, and the names of its columns of tokens."""

    def __init__(self, child: _Child) -> None:
        self._child = child

    @cached_property
    def sealed(self) -> list[str]:
        """The columns of tokens; waits until the statement is planned."""
        return list(json.loads(self._child.expect(b"plan"))["sealed"])

    def rows(self, limit: int | None = None) -> pa.RecordBatchReader:
        """The rows, or the first of them, batch by batch."""
        self._ask("rows", limit)
        schema = pa.ipc.read_schema(pa.py_buffer(self._child.expect(b"schema")))
        return pa.RecordBatchReader.from_batches(schema, self._each(schema))

    def first(self, limit: int | None = None) -> tuple[pa.RecordBatchReader, int]:
        """The first rows, and how many there are in all; they are counted only where there are more."""
        rows = self.rows(None if limit is None else limit + 1)
        kept: list[pa.RecordBatch] = []
        for batch in rows:
            kept.append(batch)
            if sum(one.nbytes for one in kept) > _MOST_DRAWN_BYTES:
                raise LimitReached(
                    f"more than {_MOST_DRAWN_BYTES >> 20} MiB of rows for a table on the terminal",
                    "write them to a file: --format csv, json or parquet",
                )
        found = pa.Table.from_batches(kept, rows.schema)
        if limit is None or found.num_rows <= limit:
            return found.to_reader(), found.num_rows
        self._ask("count")
        return found.slice(0, limit).to_reader(), int(self._child.expect(b"count"))

    def _ask(self, what: str, limit: int | None = None) -> None:
        _ = self.sealed  # what goes wrong with the plan is told first
        self._child.send({"what": what, "limit": limit})

    def _each(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        while True:
            kind, content = self._child.receive()
            if kind != b"batch":
                return
            batch = pa.ipc.read_record_batch(pa.py_buffer(content), schema)
            batch.validate()
            yield batch


@contextmanager
def query(
    lake: Location,
    sql: str,
    parameters: Mapping[str, Value] | None = None,
    timeout_s: float | None = 60.0,
    *,
    memory_bytes: int,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Answer]:
    """Ask the lake in a process of its own; what goes wrong is told when the answer is first looked at.

    The time counts from when that process is ready to when the last row has been taken.
    """
    request = {
        "lake": lake.root,
        "options": dict(lake.options),
        "sql": sql,
        "values": dict(parameters or {}),
        "memory_bytes": memory_bytes,
        "timeout_s": timeout_s,
    }
    child = _Child(request, environment)
    try:
        yield Answer(child)
    finally:
        child.end()


class _Child:
    """The process that answers; it is killed when its time is up, and in any case when we are done with it."""

    def __init__(self, request: dict[str, Any], environment: Mapping[str, str] | None) -> None:
        self._request = request
        self._is_late = False
        self._timer: threading.Timer | None = None
        self._connection, theirs = Pipe()
        words = ["-m", f"{__package__}.query_child", str(theirs.fileno()), str(os.getpid())]
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own module, by our own interpreter
                [sys.executable, "-P", *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=None if environment is None else dict(environment),
            )
        except OSError as error:
            self._connection.close()
            raise SourceUnavailable(
                f"the process for the query could not be started: {error.strerror}",
                "end other programs, then ask again",
            ) from error
        finally:
            theirs.close()

    def send(self, content: dict[str, Any]) -> None:
        """Tell the process something; where it is gone, what it said last is read next."""
        try:
            self._connection.send_bytes(json.dumps(content).encode())
        except OSError:
            return

    def receive(self) -> tuple[bytes, bytes]:
        """The next message, its kind first; an error that the process met is raised here."""
        try:
            if self._timer is None:
                self._begin(self._connection)
            kind, _, content = self._connection.recv_bytes().partition(b" ")
        except (EOFError, OSError):
            raise self._explain_end() from None
        if kind == b"error":
            raise self._rebuild(json.loads(content))
        return kind, content

    def expect(self, kind: bytes) -> bytes:
        """The content of the next message, which is of that kind."""
        found, content = self.receive()
        if found != kind:
            raise SourceUnavailable(f"the query process said {found!r} where {kind!r} was expected", "ask again")
        return content

    def end(self) -> None:
        """Kill the process, whatever it does, and wait until it is gone."""
        if self._timer is not None:
            self._timer.cancel()
        self._process.kill()
        self._process.wait()
        self._connection.close()

    def _begin(self, connection: Connection) -> None:
        """Wait until the process has imported what it needs, hand it the request, and let the time count."""
        connection.recv_bytes()
        timeout_s = self._request["timeout_s"]
        self._timer = threading.Timer(timeout_s or 0, self._expire)
        self._timer.daemon = True
        if timeout_s is not None:
            self._timer.start()
        self.send(self._request)

    def _expire(self) -> None:
        self._is_late = True
        self._process.kill()

    def _explain_end(self) -> errors.LakeError:
        status = self._process.wait()
        if self._is_late or -status == signal.SIGALRM:
            return LimitReached(
                f"no answer within {self._request['timeout_s']:g} s",
                "ask for less, or allow more with --timeout (0: no limit)",
            )
        if status > 0:
            return SourceUnavailable(f"the query process ended with status {status}", "ask again")
        # Where an allocation fails in a library that cannot go on without it, the library ends the process.
        return self._lack_memory(f"; its process ended with {signal.Signals(-status).name}")

    def _rebuild(self, told: dict[str, str]) -> errors.LakeError:
        """The error that the process met, as ours."""
        kind = getattr(errors, told["kind"], LimitReached)
        return self._lack_memory() if kind is LimitReached else kind(told["what"], told["hint"])

    def _lack_memory(self, more: str = "") -> LimitReached:
        return LimitReached(
            f"the statement needs more than the {self._request['memory_bytes'] / 1e9:.1f} GB of memory that it may use"
            f"{more}",
            "ask for fewer rows or columns, or allow more with --memory; a query does not spill to disk",
        )


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
