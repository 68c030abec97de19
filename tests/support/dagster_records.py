"""Dagster's records in files, as this process keeps them while tests run: the same databases, with less to wait for."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy import event
from sqlalchemy.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def hasten_records() -> Iterator[None]:
    """Do not wait for the disk.

    What is written survives a kill of this process as before; only a power cut could lose it. Processes that a test
    starts keep their records as a deployment does.
    """
    event.listen(Engine, "connect", _leave_syncing_to_the_system)
    yield
    event.remove(Engine, "connect", _leave_syncing_to_the_system)


def _leave_syncing_to_the_system(connection: object, _: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")
