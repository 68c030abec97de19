"""Stores of MLflow with the few tables that are read, as its schema declares them, and any rows in them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def make_store(metrics: Iterable[tuple[Any, ...]]) -> bytes:
    """A database with one run, `a`, and rows of key, value, timestamp, run, step and whether the value is NaN."""
    with closing(sqlite3.connect(":memory:")) as database:
        database.executescript(
            "CREATE TABLE alembic_version (version_num VARCHAR(32));"
            "CREATE TABLE experiments (experiment_id INTEGER PRIMARY KEY, name VARCHAR(256));"
            "CREATE TABLE runs (run_uuid VARCHAR(32) PRIMARY KEY, name VARCHAR(250), status VARCHAR(9),"
            " start_time BIGINT, end_time BIGINT, lifecycle_stage VARCHAR(20));"
            "CREATE TABLE metrics (key VARCHAR(250) NOT NULL, value FLOAT NOT NULL, timestamp BIGINT NOT NULL,"
            " run_uuid VARCHAR(32) NOT NULL, step BIGINT DEFAULT '0' NOT NULL, is_nan BOOLEAN DEFAULT '0' NOT NULL,"
            " PRIMARY KEY (key, timestamp, step, run_uuid, value, is_nan));"
            "INSERT INTO runs VALUES ('a', 'run', 'FINISHED', 1, 2, 'active');"
        )
        database.executemany("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", metrics)
        database.commit()
        return database.serialize()
