"""Landing one run: its files side by side, each hashed, recognised, inflated ahead of its parse and read in shards."""

from __future__ import annotations

import asyncio
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from bronze import attestations, formats, kineto_arguments, nsys_report, runs, source_files, trace_events, unreadable
from bronze.envelope import Envelope
from bronze.file_report import TRACE, FileReport, settle_reports
from bronze.inflate import Inflated
from bronze.kineto import KinetoReader, NotATrace
from bronze.manifest import parse
from bronze.read_file import Fetched, Progress, ReadContext, Sink, read_file, read_head
from lake.attestation_keys import NO_KEYS, AttestationKeys
from lake.errors import EvidenceRejected, naming
from lake.identity import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bronze.limits import Limits

# Those that are filled while files are read; the other two have a row a file and a row a run.
STAGED = (trace_events.TABLE, *formats.TABLES, unreadable.TABLE)
TABLES = (*STAGED, source_files.TABLE, runs.TABLE)
# Raise with every change of what a reader makes of the same bytes: every run is then landed again.
READERS_VERSION = 3


class Source(Protocol):
    """A file of the landing zone."""

    @property
    def name(self) -> str: ...
    @property
    def size_bytes(self) -> int | None: ...
    @property
    def problem(self) -> str | None: ...
    async def fetch(self) -> Fetched: ...


@dataclass(frozen=True)
class Landed:
    """Everything that one run has landed, ready to be committed."""

    files: tuple[FileReport, ...]
    source_files: pa.Table
    runs: pa.Table
    made_from: str


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
    sinks: Mapping[str, Sink],
    limits: Limits,
    progress: Progress,
    keys: AttestationKeys = NO_KEYS,
) -> Landed:
    """Land all files of a run; a file that cannot be read is reported, and the others go on."""
    parse(manifest, f"{run_id}/{MANIFEST}")  # a broken one is refused before anything is read
    context = ReadContext(sinks, limits, progress, keys)
    budget = _Budget(limits.bytes_in_flight)
    claimed: set[str] = set()
    with ThreadPoolExecutor(limits.workers, thread_name_prefix="land") as pool:

        async def land(source: Source) -> FileReport:
            if source.problem is not None:
                return FileReport(source.name, source.size_bytes, reason=source.problem)
            held = await budget.take(source.size_bytes or 0)
            try:
                try:
                    fetching = await source.fetch()
                except EvidenceRejected as error:  # it became a link out or a pipe since it was listed
                    return FileReport(source.name, source.size_bytes, reason=str(error))
                with fetching as fetched:
                    content = fetched.content_sha256
                    report = FileReport(source.name, source.size_bytes, fetched.sha256, content_sha256=content)
                    if content is None:
                        report.reason = fetched.problem
                    elif content not in claimed:
                        claimed.add(content)
                        loop = asyncio.get_running_loop()
                        with naming(f"reading {source.name}"):
                            await loop.run_in_executor(pool, read_file, report, fetched, context)
                    return report
            finally:
                await budget.give(held)

        try:
            async with asyncio.TaskGroup() as tasks:
                landing = [tasks.create_task(land(source)) for source in sources]
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # one reason is enough to say what to do
    return settle_landing(run_id, manifest, [task.result() for task in landing], keys)


def settle_landing(run_id: str, manifest: bytes, reports: list[FileReport], keys: AttestationKeys = NO_KEYS) -> Landed:
    """What a run has landed, once every file of it was read: what needs all files is decided, and units get names."""
    claims = parse(manifest, f"{run_id}/{MANIFEST}")
    reports = settle_reports(reports)
    for report in reports:
        if report.events is not None:
            report.events.finish(rank=report.rank, source_sha256=report.sha256)
        for unit in report.records.values():
            unit.finish(source_sha256=report.sha256)
    return Landed(
        files=tuple(reports),
        source_files=source_files.rows(run_id, reports),
        runs=runs.rows(run_id, manifest, claims, reports),
        made_from=_digest(
            [
                version(),
                hashlib.sha256(manifest).hexdigest(),
                sorted(report.identity for report in reports),
                *([keys.sha256] if any(attestations.TABLE.name in report.records for report in reports) else ()),
            ]
        ),
    )


def mark_landing(manifest_etag: str, listing: Sequence[tuple[str, str]], keys: AttestationKeys = NO_KEYS) -> str:
    """A cheap mark of a landing directory and the given keys: while it is unchanged, nothing needs to be read."""
    return _digest([version(), manifest_etag, sorted(listing), keys.sha256])


def version() -> str:
    """The version of everything that decides what a source becomes."""
    schemas = [f"{table.full_name}:{table.spark_ddl}" for table in TABLES]
    return _digest([READERS_VERSION, kineto_arguments.VERSION, formats.VERSIONS, schemas])


@dataclass(frozen=True)
class Peek:
    """What a file is before it has landed: its format, none where no reader knows it, and what it says at its start."""

    format: str | None
    head: bytes = b""
    envelope: Envelope = field(default_factory=Envelope)


def peek(again: Callable[[], Iterator[bytes]], name: str, limits: Limits) -> Peek:
    """Look at the first bytes of a file; of a trace, at what it says of itself before its events."""
    try:
        head = read_head(again(), limits)
        if nsys_report.is_report(name):
            return Peek(formats.SQLITE.name, head)
        known = formats.recognise_format(head, lambda: iter(Inflated(again(), limits)))
        if known is not None:
            return Peek(known.name, head)
        reader = KinetoReader(iter(Inflated(again(), limits)), limits)
        next(iter(reader), None)
    except (NotATrace, EvidenceRejected):
        return Peek(None)
    return Peek(TRACE, head, reader.envelope)


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
