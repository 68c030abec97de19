"""The tables that are read of a database that someone else wrote, and a walk over their rows that no broken row ends."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# Written out: a query is a literal, and a table that is not declared here is not read.
# ruff: noqa: E501 - one line a table and question
_FROM = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid >= ? ORDER BY rowid",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE rowid >= ? ORDER BY rowid",
    "CUPTI_ACTIVITY_KIND_MEMSET": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE rowid >= ? ORDER BY rowid",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE rowid >= ? ORDER BY rowid",
    "CUPTI_ACTIVITY_KIND_DRIVER": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_DRIVER WHERE rowid >= ? ORDER BY rowid",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION WHERE rowid >= ? ORDER BY rowid",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE WHERE rowid >= ? ORDER BY rowid",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_OVERHEAD WHERE rowid >= ? ORDER BY rowid",
    "NVTX_EVENTS": "SELECT rowid, * FROM NVTX_EVENTS WHERE rowid >= ? ORDER BY rowid",
    "PROFILER_OVERHEAD": "SELECT rowid, * FROM PROFILER_OVERHEAD WHERE rowid >= ? ORDER BY rowid",
    "OSRT_API": "SELECT rowid, * FROM OSRT_API WHERE rowid >= ? ORDER BY rowid",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": "SELECT rowid, * FROM CUDA_UM_CPU_PAGE_FAULT_EVENTS WHERE rowid >= ? ORDER BY rowid",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": "SELECT rowid, * FROM CUDA_UM_GPU_PAGE_FAULT_EVENTS WHERE rowid >= ? ORDER BY rowid",
    "GPU_METRICS": "SELECT rowid, * FROM GPU_METRICS WHERE rowid >= ? ORDER BY rowid",
    "metrics": "SELECT rowid, * FROM metrics WHERE rowid >= ? ORDER BY rowid",
}
_NEXT = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "SELECT rowid FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid >= ? ORDER BY rowid LIMIT 1",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "SELECT rowid FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE rowid >= ? ORDER BY rowid LIMIT 1",
    "CUPTI_ACTIVITY_KIND_MEMSET": "SELECT rowid FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE rowid >= ? ORDER BY rowid LIMIT 1",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "SELECT rowid FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE rowid >= ? ORDER BY rowid LIMIT 1",
    "CUPTI_ACTIVITY_KIND_DRIVER": "SELECT rowid FROM CUPTI_ACTIVITY_KIND_DRIVER WHERE rowid >= ? ORDER BY rowid LIMIT 1",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "SELECT rowid FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION WHERE rowid >= ? ORDER BY rowid LIMIT 1",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "SELECT rowid FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE WHERE rowid >= ? ORDER BY rowid LIMIT 1",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "SELECT rowid FROM CUPTI_ACTIVITY_KIND_OVERHEAD WHERE rowid >= ? ORDER BY rowid LIMIT 1",
    "NVTX_EVENTS": "SELECT rowid FROM NVTX_EVENTS WHERE rowid >= ? ORDER BY rowid LIMIT 1",
    "PROFILER_OVERHEAD": "SELECT rowid FROM PROFILER_OVERHEAD WHERE rowid >= ? ORDER BY rowid LIMIT 1",
    "OSRT_API": "SELECT rowid FROM OSRT_API WHERE rowid >= ? ORDER BY rowid LIMIT 1",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": "SELECT rowid FROM CUDA_UM_CPU_PAGE_FAULT_EVENTS WHERE rowid >= ? ORDER BY rowid LIMIT 1",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": "SELECT rowid FROM CUDA_UM_GPU_PAGE_FAULT_EVENTS WHERE rowid >= ? ORDER BY rowid LIMIT 1",
    "GPU_METRICS": "SELECT rowid FROM GPU_METRICS WHERE rowid >= ? ORDER BY rowid LIMIT 1",
    "metrics": "SELECT rowid FROM metrics WHERE rowid >= ? ORDER BY rowid LIMIT 1",
}
_ONE = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE rowid = ?",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_MEMCPY WHERE rowid = ?",
    "CUPTI_ACTIVITY_KIND_MEMSET": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_MEMSET WHERE rowid = ?",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE rowid = ?",
    "CUPTI_ACTIVITY_KIND_DRIVER": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_DRIVER WHERE rowid = ?",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION WHERE rowid = ?",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE WHERE rowid = ?",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "SELECT rowid, * FROM CUPTI_ACTIVITY_KIND_OVERHEAD WHERE rowid = ?",
    "NVTX_EVENTS": "SELECT rowid, * FROM NVTX_EVENTS WHERE rowid = ?",
    "PROFILER_OVERHEAD": "SELECT rowid, * FROM PROFILER_OVERHEAD WHERE rowid = ?",
    "OSRT_API": "SELECT rowid, * FROM OSRT_API WHERE rowid = ?",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": "SELECT rowid, * FROM CUDA_UM_CPU_PAGE_FAULT_EVENTS WHERE rowid = ?",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": "SELECT rowid, * FROM CUDA_UM_GPU_PAGE_FAULT_EVENTS WHERE rowid = ?",
    "GPU_METRICS": "SELECT rowid, * FROM GPU_METRICS WHERE rowid = ?",
    "metrics": "SELECT rowid, * FROM metrics WHERE rowid = ?",
}
_COUNT = {
    "CUPTI_ACTIVITY_KIND_KERNEL": "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY": "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET": "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME": "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_DRIVER": "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_DRIVER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION": "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_OVERHEAD": "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_OVERHEAD",
    "NVTX_EVENTS": "SELECT count(*) FROM NVTX_EVENTS",
    "PROFILER_OVERHEAD": "SELECT count(*) FROM PROFILER_OVERHEAD",
    "OSRT_API": "SELECT count(*) FROM OSRT_API",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS": "SELECT count(*) FROM CUDA_UM_CPU_PAGE_FAULT_EVENTS",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS": "SELECT count(*) FROM CUDA_UM_GPU_PAGE_FAULT_EVENTS",
    "GPU_METRICS": "SELECT count(*) FROM GPU_METRICS",
    "metrics": "SELECT count(*) FROM metrics",
}
# Of MLflow's store; all others hold events of an Nsight Systems export.
METRICS = "metrics"
NSYS_EVENTS = tuple(table for table in _FROM if table != METRICS)
_FIRST, _LAST = -(1 << 63), (1 << 63) - 1
_MOST_FAULTS = 10_000


@dataclass(frozen=True)
class Fault:
    """A row, or all rows from one on, that the database does not give."""

    reason: str
    is_end: bool = False


def read_rows(database: sqlite3.Connection, table: str) -> Iterator[dict[str, Any] | Fault]:
    """Every row of a table in its order; one that cannot be read is a fault, and the next is tried."""
    at, read, faults = _FIRST, 0, 0
    while True:
        try:
            cursor = database.execute(_FROM[table], (at,))
            headers = [column[0] for column in cursor.description][1:]
            if "rowid" in {header.casefold() for header in headers}:
                yield Fault(f"{table} has a column that hides the places of its rows", is_end=True)
                return
            for place, *values in cursor:
                at, read = place + 1, read + 1
                yield dict(zip(headers, values, strict=True))
        except sqlite3.Error as error:
            # The row before the broken one is lost with it: both are asked for by themselves.
            faults += 1
            found = _read_row_alone(database, table, at, error) if faults < _MOST_FAULTS else None
            if found is None:
                yield Fault(f"{table} breaks off after {read:,} {_quote_table(database, table)}: {error}", is_end=True)
                return
            at, row = found[0] + 1, found[1]
            read += not isinstance(row, Fault)
            yield row
            if at > _LAST:
                return
        else:
            return


def _read_row_alone(
    database: sqlite3.Connection, table: str, at: int, why: sqlite3.Error
) -> tuple[int, dict[str, Any] | Fault] | None:
    """The next row by itself, with its place; none where not even its place can be told."""
    try:
        found = database.execute(_NEXT[table], (at,)).fetchone()
    except sqlite3.Error:
        return None
    if found is None or not isinstance(found[0], int):
        return None
    unreadable = Fault(f"row {found[0]} of {table} cannot be read: {why}")
    try:
        cursor = database.execute(_ONE[table], (found[0],))
        headers = [column[0] for column in cursor.description][1:]
        row = cursor.fetchone()
    except sqlite3.Error:
        return found[0], unreadable
    # A damaged page may have no row at the place that it gave.
    return found[0], unreadable if row is None else dict(zip(headers, row[1:], strict=True))


def _quote_table(database: sqlite3.Connection, table: str) -> str:
    try:
        return f"of {database.execute(_COUNT[table]).fetchone()[0]:,} rows"
    except sqlite3.Error:
        return "rows"
