"""Landing one run: its files side by side, each hashed, recognised, inflated ahead of its parse and read in shards."""

from __future__ import annotations

import asyncio
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from bronze import attestations, formats, kineto_arguments, nsys_report, runs, source_files, trace_events, unreadable
from bronze.envelope import Envelope
from bronze.file_report import TRACE, FileReport, hold_back, settle_reports, split_unfinished
from bronze.inflate import Inflated
from bronze.kineto import KinetoReader, NotATrace
from bronze.manifest import parse
from bronze.open_cycles import find_earlier_cycles
from bronze.read_file import Fetched, Progress, ReadContext, Sink, read_file, read_head
from lake.attestation_keys import NO_KEYS, AttestationKeys
from lake.errors import EvidenceRejected, SourceUnavailable, naming
from lake.identity import MANIFEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from bronze.limits import Limits

# Those that are filled while files are read; the other two have a row a file and a row a run.
STAGED = (trace_events.TABLE, *formats.TABLES, unreadable.TABLE)
TABLES = (*STAGED, source_files.TABLE, runs.TABLE)
# Raise with every change of what a reader makes of the same bytes: every run is then landed again.
READERS_VERSION = 4


class Source(Protocol):
    """A file of the landing zone."""

    @property
    def name(self) -> str: ...
    @property
    def size_bytes(self) -> int | None: ...
    @property
    def etag(self) -> str: ...
    @property
    def problem(self) -> str | None: ...
    async def fetch(self, *, is_copied: bool = False) -> Fetched: ...


class Memory(Protocol):
    """What earlier landings of an open run have read: such a file is not read again while it stays as it was."""

    def find_digest(self, source: Source) -> str | None:
        """The digest of a file that has not changed since it was read; none where it must be fetched to know it."""

    def recall(self, sha256: str, source: Source) -> FileReport | None:
        """What became of these bytes, with the data files of their rows; none where they must be read."""

    def is_held_back(self, source: Source) -> bool:
        """Whether a file was held back as unfinished and has not changed since."""


class _NoMemory:
    """Nothing was read before."""

    def find_digest(self, source: Source) -> str | None:  # noqa: ARG002
        return None

    def recall(self, sha256: str, source: Source) -> FileReport | None:  # noqa: ARG002
        return None

    def is_held_back(self, source: Source) -> bool:  # noqa: ARG002
        return False


NO_MEMORY = _NoMemory()


@dataclass(frozen=True)
class Landed:
    """Everything that one run has landed, ready to be committed."""

    files: tuple[FileReport, ...]
    source_files: pa.Table
    runs: pa.Table
    made_from: str
    # Files of an open run that are not complete yet, with the reason: they are part of no table so far.
    held_back: Mapping[str, str] = field(default_factory=dict)


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


@dataclass
class _FileLanding:
    """The landing of a run's files, one by one: bytes that two files share, or that were read before, are read once."""

    context: ReadContext
    budget: _Budget
    pool: ThreadPoolExecutor
    memory: Memory
    is_open: bool
    claimed: set[str] = field(default_factory=set)

    async def land(self, source: Source) -> FileReport:
        """Say what became of a file, whatever it takes to know."""
        if source.problem is not None:
            return FileReport(source.name, source.size_bytes, reason=source.problem)
        if self.is_open and self.memory.is_held_back(source):
            return hold_back(FileReport(source.name, source.size_bytes))
        known = self.memory.find_digest(source)
        found = None if known is None else self.memory.recall(known, source)
        if found is not None:
            return self._claim(found)
        held = await self.budget.take(source.size_bytes or 0)
        try:
            return await (self._read_open(source) if self.is_open else self._read(source))
        finally:
            await self.budget.give(held)

    async def _read_open(self, source: Source) -> FileReport:
        """Read a file that may be written meanwhile: then a copy of it, as far as it has come."""
        with suppress(SourceUnavailable):
            return await self._read(source)
        with suppress(SourceUnavailable):
            return await self._read(source, is_copied=True)
        return hold_back(FileReport(source.name, source.size_bytes), "it could not be read now")

    async def _read(self, source: Source, *, is_copied: bool = False) -> FileReport:
        try:
            fetching = await source.fetch(is_copied=is_copied)
        except EvidenceRejected as error:  # it became a link out or a pipe since it was listed
            return FileReport(source.name, source.size_bytes, reason=str(error))
        with fetching as fetched:
            content = fetched.content_sha256
            report = FileReport(source.name, source.size_bytes, fetched.sha256, content_sha256=content)
            if content is None:  # it landed sealed and does not open: yet, or ever
                report.reason = fetched.problem
                return hold_back(report, fetched.problem or "") if self.is_open else report
            if content in self.claimed:
                return report
            found = self.memory.recall(fetched.sha256, source)
            if found is not None:
                return self._claim(found)
            self.claimed.add(content)
            loop = asyncio.get_running_loop()
            try:
                with naming(f"reading {source.name}"):
                    await loop.run_in_executor(self.pool, read_file, report, fetched, self.context)
            except SourceUnavailable:
                self.claimed.discard(content)
                raise
            return report

    def _claim(self, found: FileReport) -> FileReport:
        """What an earlier landing made of a file, unless another file of the run has the same content."""
        content = found.content_sha256
        if content is None:
            return found
        if content in self.claimed:
            return FileReport(found.name, found.size_bytes, found.sha256, content_sha256=content)
        self.claimed.add(content)
        return found


async def land_run(
    run_id: str,
    manifest: bytes,
    sources: Sequence[Source],
    *,
    sinks: Mapping[str, Sink],
    limits: Limits,
    progress: Progress,
    keys: AttestationKeys = NO_KEYS,
    memory: Memory = NO_MEMORY,
    is_open: bool = False,
) -> Landed:
    """Land all files of a run; a file that cannot be read is reported, and the others go on.

    Of an open run, files that `memory` knows are not read, and those that are still being written are held back.
    """
    parse(manifest, f"{run_id}/{MANIFEST}")  # a broken one is refused before anything is read
    context, budget = ReadContext(sinks, limits, progress, keys), _Budget(limits.bytes_in_flight)
    with ThreadPoolExecutor(limits.workers, thread_name_prefix="land") as pool:
        files = _FileLanding(context, budget, pool, memory, is_open)
        try:
            async with asyncio.TaskGroup() as tasks:
                landing = [tasks.create_task(files.land(source)) for source in sources]
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # one reason is enough to say what to do
    return settle_landing(run_id, manifest, [task.result() for task in landing], keys, is_open=is_open)


def settle_landing(
    run_id: str, manifest: bytes, reports: list[FileReport], keys: AttestationKeys = NO_KEYS, *, is_open: bool = False
) -> Landed:
    """What a run has landed, once every file of it was read: what needs all files is decided, and units get names."""
    claims = parse(manifest, f"{run_id}/{MANIFEST}")
    reports, held_back = split_unfinished(reports) if is_open else (reports, {})
    reports = settle_reports(reports)
    for report in reports:
        if report.events is not None:
            report.events.finish(rank=report.rank, source_sha256=report.sha256)
        for unit in report.records.values():
            unit.finish(source_sha256=report.sha256)
        if report.unreadable is not None:
            report.unreadable.finish()
    most = claims.claims.get("open_cycles_count") if is_open else None
    uncounted = frozenset() if most is None else find_earlier_cycles(reports, int(most))
    return Landed(
        files=tuple(reports),
        source_files=source_files.rows(run_id, reports, uncounted),
        runs=runs.rows(run_id, manifest, claims, reports, is_open=is_open),
        made_from=_digest(
            [
                version(),
                hashlib.sha256(manifest).hexdigest(),
                sorted(report.identity for report in reports),
                *([keys.sha256] if any(attestations.TABLE.name in report.records for report in reports) else ()),
                *(["open"] if is_open else ()),
            ]
        ),
        held_back=held_back,
    )


def mark_landing(
    manifest_etag: str, listing: Sequence[tuple[str, str]], keys: AttestationKeys = NO_KEYS, *, is_open: bool = False
) -> str:
    """A cheap mark of a landing directory and the given keys: while it is unchanged, nothing needs to be read."""
    return _digest([version(), manifest_etag, sorted(listing), keys.sha256, *(["open"] if is_open else ())])


def version() -> str:
    """The version of everything that decides what a source becomes."""
    return _digest_readers(json.dumps([READERS_VERSION, kineto_arguments.VERSION, formats.VERSIONS]))


@cache
def _digest_readers(versions: str) -> str:
    """Once for each: a look at many runs asks for it with every one of them."""
    schemas = [f"{table.full_name}:{table.spark_ddl}" for table in TABLES]
    return _digest([*json.loads(versions), schemas])


@dataclass(frozen=True)
class Peek:
    """What a file is before it has landed: its format, none where no reader knows it, and what it says at its start."""

    format: str | None
    head: bytes = b""
    envelope: Envelope = field(default_factory=Envelope)


def peek(again: Callable[[], Iterator[bytes]], name: str, limits: Limits) -> Peek:
    """Look at the first bytes of a file; of a trace, at what it says of itself before its events."""
    head = b""
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
        return Peek(None, head)
    return Peek(TRACE, head, reader.envelope)


def _digest(parts: object) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
