"""Dagster's records in files, as this process keeps them while tests run: the same databases, with less to wait for."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pytest
from dagster._core.storage import sql
from dagster._core.storage.event_log.sqlite import sqlite_event_log
from dagster._core.storage.runs.sqlite import sqlite_run_storage
from sqlalchemy import event
from sqlalchemy.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Of the databases that a launch writes to: its own log, the index of all, and the list of launches.
_DATABASES = 16


@contextmanager
def hasten_records() -> Iterator[None]:
    """Make one engine per database rather than one per statement, and do not wait for the disk.

    A launch with its checks opens 2,700 connections, and Dagster compiles every statement anew for each. What is
    written survives a kill of this process as before; only a power cut could lose it. Processes that a test starts
    keep their records as a deployment does.
    """
    event.listen(Engine, "connect", _leave_syncing_to_the_system)
    with pytest.MonkeyPatch.context() as patch:
        for module in (sqlite_event_log, sqlite_run_storage):
            patch.setattr(module, "create_engine", _find_engine)
        yield
    event.remove(Engine, "connect", _leave_syncing_to_the_system)
    _make_engine.cache_clear()


def _leave_syncing_to_the_system(connection: object, _: object) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous = OFF")


def _find_engine(url: str, connect_args: Mapping[str, Any] | None = None, **named: Any) -> Engine:
    return _make_engine(url, tuple((connect_args or {}).items()), **named)


@lru_cache(maxsize=_DATABASES)
def _make_engine(url: str, connect_args: tuple[tuple[str, Any], ...], **named: Any) -> Engine:
    return sql.create_engine(url, connect_args=dict(connect_args), **named)
