"""An export of Nsight Systems of any size: eight processes on a GPU each, with colliding ids and steps in NVTX."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PROCESSES = 8
_WORK_PER_STEP = 500
_SESSION_NS = 1_700_000_000_000_000_000
_HOST = 1 << 48
_TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT, systemClockNs INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, gridX INTEGER, blockX INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER);
"""
_NAMES = ("cudaLaunchKernel_v7000", "gemm", "relu", "layer_norm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL")


def write_export(path: Path, rows: int) -> int:
    """Write at least so many rows; gives how many there are."""
    steps = max(2, -(-rows // (_PROCESSES * (2 * _WORK_PER_STEP + 1))))
    with closing(sqlite3.connect(path)) as database:
        database.executescript(_TABLES)
        database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '', 0)", (_SESSION_NS,))
        database.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(_NAMES, start=1))
        database.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, 7, ?, ?, ?, 128, 256)", _kernels(steps)
        )
        database.executemany("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 0, ?, ?, 1, 0)", _calls(steps))
        database.executemany("INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, ?)", _marks(steps))
        database.commit()
    return steps * _PROCESSES * (2 * _WORK_PER_STEP + 1)


def _work(steps: int) -> Iterator[tuple[int, int, int]]:
    """Step, correlation and start of each operation, in the order of time."""
    for place in range(steps * _WORK_PER_STEP):
        step = place // _WORK_PER_STEP
        yield step, place + 1, step * 10_000_000 + place % _WORK_PER_STEP * 15_000


def _kernels(steps: int) -> Iterator[tuple[int, ...]]:
    for _, tie, start in _work(steps):
        for place in range(_PROCESSES):
            name = 5 if tie % 50 == 0 else 2 + tie % 3
            began = start + 6_000 + place * 31
            yield began, began + 9_000, place, place + 1, tie, _process(place), name


def _calls(steps: int) -> Iterator[tuple[int, ...]]:
    for _, tie, start in _work(steps):
        for place in range(_PROCESSES):
            yield start + place * 17, start + place * 17 + 4_000, _process(place) | 1, tie


def _marks(steps: int) -> Iterator[tuple[int, int, str, int]]:
    for step in range(steps):
        for place in range(_PROCESSES):
            yield step * 10_000_000, step * 10_000_000 + 9_000_000, f"iteration {step}", _process(place) | 1


def _process(place: int) -> int:
    return _HOST | (100 + place) << 24
