"""DuckDB connections that do what teetotal asks and nothing else."""

from __future__ import annotations

import duckdb

_QUIET: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "preserve_insertion_order": "true",
}


def open_ordered(threads: int = 1) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB for one worker: rows come out in the order in which they went in."""
    return duckdb.connect(":memory:", config={**_QUIET, "threads": str(threads)})


def open_parallel() -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB for one big question at a time."""
    return duckdb.connect(":memory:", config=_QUIET)


def open_sandboxed(memory_bytes: int) -> duckdb.DuckDBPyConnection:
    """An in-memory DuckDB for a statement that someone else wrote: no file, no extension, no variable of ours.

    It does not spill either: what it spills would lie unsealed on disk, and it may open whatever lies where it spills.
    """
    return duckdb.connect(
        ":memory:",
        config={
            **_QUIET,
            "allow_community_extensions": "false",
            "enable_external_access": "false",
            "memory_limit": f"{memory_bytes}B",
            "python_enable_replacements": "false",
            "temp_directory": "",
        },
    )


def lock(connection: duckdb.DuckDBPyConnection) -> None:
    """From here on no setting changes and nothing is written, not even in memory."""
    connection.execute("SET lock_configuration = true")
    connection.execute("BEGIN TRANSACTION READ ONLY")
