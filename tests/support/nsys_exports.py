"""Exports of Nsight Systems as its own tool lays them out, written row by row, and what is true of them."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

SESSION_NS = 1_700_000_000_000_000_000
_HOST = 1 << 48
_TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT, systemClockNs INTEGER);
CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INTEGER, devStateName TEXT, name TEXT, nameEnum INTEGER, value TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER, srcKind INTEGER,
    dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, eventClass INTEGER, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER, returnValue INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_SYNCHRONIZATION (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER,
    streamId INTEGER, correlationId INTEGER, globalPid INTEGER, syncType INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, globalTid INTEGER,
    textId INTEGER, domainId INTEGER, jsonText TEXT, binaryData TEXT);
"""
_INSERTS = {
    "StringIds": "INSERT INTO StringIds VALUES (?, ?)",
    "KERNEL": "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "MEMCPY": "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    "GRAPH": "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    "RUNTIME": "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?, ?, ?)",
    "SYNC": "INSERT INTO CUPTI_ACTIVITY_KIND_SYNCHRONIZATION VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    "NVTX": "INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
}


@dataclass(frozen=True)
class Work:
    """One operation on a GPU, and the call that launched it."""

    process: int
    device: int
    name: str
    start: int
    end: int
    launched_at: int | None


@dataclass
class Export:
    """Rows on their way into a database, and the work among them."""

    host: str | None = "node-a"
    work: list[Work] = field(default_factory=list)
    _rows: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: {name: [] for name in _INSERTS})
    _names: dict[str, int] = field(default_factory=dict)
    _calls: dict[tuple[int, int], int] = field(default_factory=dict)

    def call(self, process: int, name: str, start: int, end: int, tie: int | None = None, thread: int = 0) -> None:
        """A call of the CUDA runtime."""
        self._rows["RUNTIME"].append((start, end, 0, _thread(process, thread), tie, self._named(name), 0))
        if tie is not None:
            self._calls[process, tie] = start

    def kernel(self, process: int, device: int, name: str, start: int, end: int, tie: int, **more: Any) -> None:
        """A kernel; `node` makes it one of a CUDA graph, `context` is its process's own unless given."""
        row = (start, end, device, more.get("context", device + 1), more.get("stream", 7), tie, _process(process))
        self._rows["KERNEL"].append((*row, self._named(name), more.get("node")))
        self._worked(process, device, name, start, end, tie)

    def copy(self, process: int, device: int, start: int, end: int, tie: int) -> None:
        """A copy from pinned host memory."""
        row = (start, end, device, device + 1, 7, tie, _process(process), 4096, 1, 1, 2)
        self._rows["MEMCPY"].append(row)
        self._worked(process, device, "Memcpy Unknown (1 -> 2)", start, end, tie)

    def graph(self, process: int, device: int, start: int, end: int, tie: int, *, is_told: bool = True) -> None:
        """A whole graph; where its nodes are told as well, it is no work of its own."""
        self._rows["GRAPH"].append((start, end, device, device + 1, 7, tie, _process(process), 5))
        if is_told:
            self._worked(process, device, "CUDA graph 5", start, end, tie)

    def sync(self, process: int, device: int, start: int, end: int) -> None:
        """The profiler's record of a synchronisation: it says GPU 0 whatever the GPU was."""
        self._rows["SYNC"].append((start, end, 0, device + 1, 7, 0, _process(process), 3))

    def mark(self, process: int, name: str, start: int, end: int, json: str | None = None, thread: int = 0) -> None:
        """An NVTX range."""
        self._rows["NVTX"].append((start, end, 59, name, _thread(process, thread), None, 0, json, None))

    def to_bytes(self, path: Path, script: str = "") -> bytes:
        """The database."""
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as database:
            database.executescript(_TABLES + script)
            database.execute("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (?, '', '', 0)", (SESSION_NS,))
            if self.host is not None:
                database.execute(
                    "INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, 'Local (CLI)', 'Hostname', 0, ?)", (_HOST, self.host)
                )
            self._rows["StringIds"] = [(place, name) for name, place in self._names.items()]
            for name, rows in self._rows.items():
                database.executemany(_INSERTS[name], rows)
            database.commit()
        return path.read_bytes()

    def _named(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names) + 1)

    def _worked(self, process: int, device: int, name: str, start: int, end: int, tie: int) -> None:
        self.work.append(Work(process, device, name, start, end, self._calls.get((process, tie))))


def _process(process: int) -> int:
    return _HOST | process << 24


def _thread(process: int, thread: int) -> int:
    return _process(process) | (thread or process)


# -- what is true, by counting nanoseconds one after another: no code of the project ---------------------------------


def tell_truth(work: Iterable[Work]) -> dict[str, int]:
    """Events, extent, busy, idle, compute, communication and their overlap of one process on one GPU."""
    mine = list(work)
    first, last = min(one.start for one in mine), max(one.end for one in mine)
    busy = compute = both = comm = 0
    for at in range(first, last):
        running = [one.name for one in mine if one.start <= at < one.end]
        is_comm = any(name.startswith("nccl") for name in running)
        is_compute = any(not name.startswith(("nccl", "Memcpy")) for name in running)
        busy, compute, comm, both = (
            busy + bool(running),
            compute + is_compute,
            comm + is_comm,
            both + (is_comm and is_compute),
        )
    return {
        "gpu_events": len(mine),
        "total_ns": last - first,
        "busy_ns": busy,
        "idle_ns": last - first - busy,
        "hta_compute_ns": compute,
        "hta_comm_ns": comm,
        "hta_overlap_ns": both,
    }


def eight_processes(seed: int) -> tuple[Export, dict[int, tuple[int, int]]]:
    """Eight processes on eight GPUs with the same correlation ids; the last also works on GPU 0; three have graphs.

    Beside it: the process and the GPU of each rank, which is the order of GPUs, what is driven on the side last.
    """
    export, chance = Export(), random.Random(seed)
    for place in range(8):
        process = 100 + place
        for tie, device in enumerate(_devices(chance, place), start=1):
            start = tie * 40 + chance.randrange(20)
            export.call(process, "cudaLaunchKernel_v7000", start - 30, start - 25, tie)
            length = 1 + chance.randrange(60)
            kind = chance.choice(["gemm", "relu", "ncclDevKernel_AllReduce", "copy"])
            if kind == "copy":
                export.copy(process, device, start, start + length, tie)
            else:
                export.kernel(process, device, kind, start, start + length, tie, stream=chance.choice([7, 13]))
        export.sync(process, place, 1000, 1100)
        export.mark(process, "forward", 10, 900)
    for process, device, has_nodes in ((103, 3, False), (104, 4, True), (105, 5, True)):
        export.call(process, "cudaGraphLaunch_v10000", 2000, 2010, 900)
        if has_nodes:
            for node in range(3):
                export.kernel(process, device, f"node{node}", 2020 + node * 30, 2045 + node * 30, 900, node=node + 1)
        if process != 104:
            export.graph(process, device, 2020, 2110, 900, is_told=not has_nodes)
    return export, {**{rank: (100 + rank, rank) for rank in range(8)}, 8: (107, 0)}


def _devices(chance: random.Random, place: int) -> Iterator[int]:
    for _ in range(20):
        yield 0 if place == 7 and chance.random() < 0.3 else place
