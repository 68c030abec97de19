"""DuckDB connections that do what teetotal asks and nothing else."""

from __future__ import annotations

import duckdb

_QUIET: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "preserve_insertion_order": "true",
    "threads": "1",
}


def single_threaded() -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB for one worker: rows come out in the order in which they went in."""
    return duckdb.connect(":memory:", config=_QUIET)
