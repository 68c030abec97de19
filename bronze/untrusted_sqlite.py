"""A database that someone else wrote, opened to be read and for nothing else."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from bronze.tolerant_parser import make_printable
from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from bronze.limits import Limits

MAGIC = b"SQLite format 3\x00"
# The two bytes of the header that say whether changes are kept in a file beside it.
_JOURNAL_MODE = slice(18, 20)
_FUNCTIONS = {"count"}
# What one value, one statement and one program may take; nothing can be attached.
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 1 << 20,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 1 << 16,
    sqlite3.SQLITE_LIMIT_COLUMN: 2000,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 50,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}


def open_untrusted(database: Path | bytes, tables: Collection[str]) -> tuple[sqlite3.Connection, dict[str, str]]:
    """Open what never changes, a file or its bytes, and list it.

    Only these tables may be read, and no view, trigger or function runs.
    """
    where = ":memory:" if isinstance(database, bytes) else f"file:{quote(str(database))}?mode=ro&immutable=1"
    connection = sqlite3.connect(where, uri=True, isolation_level=None, check_same_thread=False)
    try:
        if isinstance(database, bytes):
            connection.deserialize(database)
        listed = _restrict(connection, {name.casefold() for name in tables})
    except sqlite3.Error:
        connection.close()
        raise
    except UnicodeDecodeError as error:  # the message of an error, in which SQLite repeats a name that is no UTF-8
        connection.close()
        raise sqlite3.DatabaseError("its schema is damaged") from error
    return connection, listed


@contextmanager
def hold_in_memory(blocks: Iterable[bytes], limits: Limits) -> Iterator[bytes]:
    """The bytes of a database that must not become a file; one that is too large for memory is refused."""
    held = bytearray()
    for block in blocks:
        held += block
        if len(held) > limits.max_sealed_database_bytes:
            raise EvidenceRejected(
                f"it is a sealed database of more than {limits.max_sealed_database_bytes:,} bytes, which would all "
                "have to be in memory, twice",
                "raise TEETOTAL_MAX_SEALED_DATABASE_BYTES if this machine has that much memory, and run with --full",
            )
    # A journal beside it would have to be a file: as with one that never changes, there is none.
    held[_JOURNAL_MODE] = b"\x01\x01"
    yield bytes(held)


def _restrict(connection: sqlite3.Connection, known: set[str]) -> dict[str, str]:
    """Take from a connection whatever it could do beyond reading these tables, once it has listed what is there."""
    for limit, most in _LIMITS.items():
        connection.setlimit(limit, most)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA query_only = ON")
    connection.execute("PRAGMA cell_size_check = ON")
    connection.execute("PRAGMA mmap_size = 0")
    connection.text_factory = make_printable
    listed = _list_objects(connection, known)

    def authorize(action: int, one: str | None, two: str | None, _database: str | None, inside: str | None) -> int:
        is_ours = inside is None and (
            action == sqlite3.SQLITE_SELECT
            or (action == sqlite3.SQLITE_READ and (one or "").casefold() in known)
            or (action == sqlite3.SQLITE_FUNCTION and (two or "").casefold() in _FUNCTIONS)
        )
        return sqlite3.SQLITE_OK if is_ours else sqlite3.SQLITE_DENY

    connection.set_authorizer(authorize)
    return listed


def _list_objects(connection: sqlite3.Connection, known: set[str]) -> dict[str, str]:
    """Tables and views by name, and what each is: a `table`, a `view`, or a table that computes what it shows."""
    found: dict[str, str] = {}
    for name, kind, begins in connection.execute(
        "SELECT substr(name, 1, 128), type, substr(sql, 1, 32) FROM sqlite_master"
        " WHERE type IN ('table', 'view') LIMIT 10000"
    ):
        is_virtual = "virtual" in str(begins or "").casefold()
        found[str(name)] = "virtual table" if is_virtual else str(kind)
    for name in [name for name, kind in found.items() if kind == "table" and name.casefold() in known]:
        # No authorizer is asked for what a computed column calls, so such a table is not asked at all.
        hidden = connection.execute("SELECT hidden FROM pragma_table_xinfo(?)", (name,)).fetchall()
        if any(flag for (flag,) in hidden):
            found[name] = "table with computed columns"
    return found


def to_json_value(value: Any) -> Any:
    """A value as JSON can hold it: bytes as hexadecimal text, at most some of them."""
    return {"blob": value[:1024].hex(), "length": len(value)} if isinstance(value, bytes) else value
