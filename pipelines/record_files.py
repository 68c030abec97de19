"""The database files of Dagster's records: opened once per process, and a new one copied from one that is empty."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.storage.sql import create_engine
from dagster._core.storage.sqlite import SQLITE_BUSY_TIMEOUT_SECONDS, create_db_conn_string
from sqlalchemy import event
from sqlalchemy.exc import DatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy.engine import Engine

# The index of all launches, and the logs of those that were read or written last: a web server looks at many.
_MOST_FILES = 8
# Beside the logs of launches, whose names end in `.db`; what an empty one holds, Dagster's version decides.
_EMPTY_LOG = f"empty-log-{dg.__version__}"


class OpenFiles:
    """The database files of one process, those used last kept open."""

    def __init__(self, most: int = _MOST_FILES) -> None:
        self._most = most
        self._engines: OrderedDict[str, Engine] = OrderedDict()

    def find(self, address: str) -> Engine:
        """The engine of a file; opened where it is not open, and the one unused for longest is closed for it."""
        engine = self._engines.pop(address, None)
        if engine is None:
            while len(self._engines) >= self._most:
                self._engines.popitem(last=False)[1].dispose()
            engine = open_file(address)
        self._engines[address] = engine
        return engine

    def close(self) -> None:
        """Close all; the next use opens what it needs again."""
        while self._engines:
            self._engines.popitem()[1].dispose()


def open_file(address: str) -> Engine:
    """The engine of a file, which keeps one connection open."""
    engine = create_engine(address, connect_args={"timeout": SQLITE_BUSY_TIMEOUT_SECONDS}, pool_size=1)
    event.listen(engine, "connect", _sync_at_checkpoints)
    return engine


def _sync_at_checkpoints(connection: Any, _: object) -> None:
    """Do not wait for the disk at every event: a power cut may lose the last of them, and never the file's order.

    Dagster logs ahead too, but only once it has made a file's tables, and waits for the disk at each of those.
    """
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=NORMAL")


def is_set_up(engine: Engine) -> bool:
    """Whether a file has its tables and one revision: Dagster then leaves it as it is until it is told to migrate.

    To find out the same, Dagster reads the scripts of all its revisions.
    """
    if not Path(str(engine.url.database)).is_file():  # opening it would make it
        return False
    try:
        with engine.connect() as connection:
            found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").fetchall()
    except DatabaseError:  # no such table, or no database: Dagster makes the one, and tells of the other
        return False
    return len(found) == 1 and bool(found[0][0])


def copy_empty_log(path: Path, make_tables: Callable[[Engine], None]) -> None:
    """Make the file of a new launch from an empty one, which is made once for each version of Dagster.

    One that another process makes at the same time stays; where files cannot be linked, none is made.
    """
    empty = path.with_name(_EMPTY_LOG)
    with suppress(OSError):
        if not empty.is_file():
            with tempfile.TemporaryDirectory(dir=path.parent) as aside:
                engine = open_file(create_db_conn_string(aside, path.stem))
                make_tables(engine)
                engine.dispose()
                _copy(Path(aside, path.name), empty)
        _copy(empty, path)


def _copy(source: Path, target: Path) -> None:
    """Copy a file to a name that nobody has taken, whole or not at all."""
    with tempfile.NamedTemporaryFile(dir=target.parent) as file, source.open("rb") as content:
        shutil.copyfileobj(content, file)
        file.flush()
        shutil.copymode(source, file.name)
        with suppress(FileExistsError):
            os.link(file.name, target)
