"""Landing one run: its files side by side, each hashed, recognised, inflated ahead of its parse and read in shards."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self

import pyarrow as pa

from bronze import kineto_arguments, runs, source_files, trace_events, unreadable
from bronze.ahead import ahead
from bronze.envelope import Envelope
from bronze.file_report import FileReport, Rows, settled
from bronze.inflate import Inflated
from bronze.kineto import MOST_BASE_NS, KinetoReader, NotATrace
from bronze.manifest import parse
from lake.errors import EvidenceRejected
from lake.identity import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from bronze.limits import Limits

TABLES = (trace_events.TABLE, unreadable.TABLE, source_files.TABLE, runs.TABLE)
# Raise with every change of what a reader makes of the same bytes: every run is then landed again.
READERS_VERSION = 1
_BASE_IN_TAIL = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})')
_TAIL_BLOCKS = 3


class Fetched(Protocol):
    """A file's bytes at hand, to be read as often as needed."""

    sha256: str

    def blocks(self) -> Iterator[bytes]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *args: object) -> None: ...


class Source(Protocol):
    """A file of the landing zone."""

    @property
    def name(self) -> str: ...
    @property
    def size_bytes(self) -> int | None: ...
    @property
    def problem(self) -> str | None: ...
    async def fetch(self) -> Fetched: ...


class Sink(Protocol):
    """Where rows go: one data file per call, invisible until the whole run is committed."""

    def unit(self) -> Rows: ...


class Progress(Protocol):
    """Told after every shard: which file, how many of its bytes have been read, and how many rows they gave."""

    def __call__(self, name: str, source_bytes: int, rows: int, /) -> None: ...


@dataclass(frozen=True)
class Landed:
    """Everything that one run has landed, ready to be committed."""

    files: tuple[FileReport, ...]
    source_files: pa.Table
    runs: pa.Table
    made_from: str


@dataclass(frozen=True)
class _Desk:
    """What a reader of one file needs beside the file."""

    events: Sink
    stretches: Sink
    limits: Limits
    progress: Progress


class _Budget:
    """At most so many bytes in flight: a file waits until the files before it have made room."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._room = asyncio.Condition()

    async def take(self, size: int) -> int:
        size = min(max(size, 1), self._limit)
        async with self._room:
            await self._room.wait_for(lambda: self._used + size <= self._limit)
            self._used += size
        return size

    async def give(self, size: int) -> None:
        async with self._room:
            self._used -= size
            self._room.notify_all()


async def land_run(
    run_id: str,
    manifest: bytes,
    sources: Sequence[Source],
    *,
    events: Sink,
    stretches: Sink,
    limits: Limits,
    progress: Progress,
) -> Landed:
    """Land all files of a run; a file that cannot be read is reported, and the others go on."""
    claims = parse(manifest, f"{run_id}/{MANIFEST}")
    desk = _Desk(events, stretches, limits, progress)
    budget = _Budget(limits.bytes_in_flight)
    claimed: set[str] = set()
    with ThreadPoolExecutor(limits.workers, thread_name_prefix="land") as pool:

        async def land(source: Source) -> FileReport:
            if source.problem is not None:
                return FileReport(source.name, source.size_bytes, reason=source.problem)
            held = await budget.take(source.size_bytes or 0)
            try:
                with await source.fetch() as fetched:
                    report = FileReport(source.name, source.size_bytes, sha256=fetched.sha256)
                    if fetched.sha256 not in claimed:
                        claimed.add(fetched.sha256)
                        loop = asyncio.get_running_loop()
                        await loop.run_in_executor(pool, _read, report, fetched, desk)
                    return report
            finally:
                await budget.give(held)

        try:
            async with asyncio.TaskGroup() as tasks:
                landing = [tasks.create_task(land(source)) for source in sources]
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # one reason is enough to say what to do
    reports = settled([task.result() for task in landing])
    for report in reports:
        if report.events is not None:
            report.events.finish(rank=report.rank, source_sha256=report.sha256)
    return Landed(
        files=tuple(reports),
        source_files=source_files.rows(run_id, reports),
        runs=runs.rows(run_id, manifest, claims, reports),
        made_from=_digest(
            [version(), hashlib.sha256(manifest).hexdigest(), sorted(report.identity for report in reports)]
        ),
    )


def seen(manifest_etag: str, listing: Sequence[tuple[str, str]]) -> str:
    """A cheap mark of a landing directory: as long as it is unchanged, nothing needs to be read."""
    return _digest([version(), manifest_etag, sorted(listing)])


def version() -> str:
    """The version of everything that decides what a source becomes."""
    schemas = [f"{table.full_name}:{table.spark_ddl}" for table in TABLES]
    return _digest([READERS_VERSION, kineto_arguments.VERSION, schemas])


def peek(blocks: Iterator[bytes], limits: Limits) -> Envelope:
    """What a trace says of itself before its events; empty where it is no trace."""
    reader = KinetoReader(iter(Inflated(blocks, limits)), limits)
    try:
        next(iter(reader), None)
    except (NotATrace, EvidenceRejected):
        return Envelope()
    return reader.envelope


# -- one file -----------------------------------------------------------------------------------------------


def _read(report: FileReport, fetched: Fetched, desk: _Desk) -> None:
    """Read one file to its end, or say why it cannot be."""
    base_ns: int | None = None
    while True:
        events, stretches = desk.events.unit(), desk.stretches.unit()
        try:
            reader = _read_once(report, fetched, desk, base_ns, events, stretches)
        except EvidenceRejected as error:
            events.discard()
            stretches.discard()
            report.format, report.outcome, report.reason = "unknown", "rejected", str(error)
            return
        if (reader.base_ns or 0) == reader.base_used_ns:
            report.events = events
            stretches.finish()
            return
        # The base is not what the end of the file had made us believe: once more, with it.
        events.discard()
        stretches.discard()
        base_ns = reader.base_ns or 0


def _read_once(
    report: FileReport, fetched: Fetched, desk: _Desk, base_ns: int | None, events: Rows, stretches: Rows
) -> KinetoReader:
    source = _Counted(fetched.blocks())
    inflated = Inflated(source, desk.limits, fetched.blocks)
    reader = KinetoReader(ahead(inflated), desk.limits, lambda: _base_in_tail(fetched, desk.limits), base_ns=base_ns)
    try:
        for batch in reader:
            events.write(batch)
            if reader.has_many_unreadable:
                stretches.write(unreadable.rows(fetched.sha256, reader.take_unreadable()))
            desk.progress(report.name, source.bytes, reader.events_count)
    except NotATrace:
        if inflated.fault and not inflated.total_bytes:
            raise EvidenceRejected(f"{inflated.fault}, and nothing can be got out of it") from None
        raise
    if inflated.fault:
        reader.cut_short(inflated.fault)
    stretches.write(unreadable.rows(fetched.sha256, reader.take_unreadable()))
    report.format, report.outcome = "kineto", "kept"
    report.inflated_bytes = inflated.total_bytes
    report.events_count = reader.events_count
    report.unreadable_count = reader.unreadable_count
    report.residue_count = reader.residue_count
    report.is_complete = reader.is_complete
    report.base_ns = reader.base_ns
    report.envelope = reader.envelope
    return reader


class _Counted:
    """An iterator that knows how many bytes it has given."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self.bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        block = next(self._blocks)
        self.bytes += len(block)
        return block


def _base_in_tail(fetched: Fetched, limits: Limits) -> int | None:
    """Look for the base time at the end of the file, where older recorders wrote it."""
    last = deque(Inflated(fetched.blocks(), limits), maxlen=_TAIL_BLOCKS)
    found = _BASE_IN_TAIL.findall(b"".join(last))
    base_ns = int(found[-1]) if found else MOST_BASE_NS
    return base_ns if base_ns < MOST_BASE_NS else None


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
