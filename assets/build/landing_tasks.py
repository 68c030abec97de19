"""A run's files read by executors, one task a file: the same reader as here, and nothing but reports comes back."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, cast

from bronze import land, unreadable
from bronze.file_report import FileReport, hold_back
from bronze.manifest import parse
from bronze.read_file import ReadContext, read_file
from lake.errors import EvidenceRejected, naming
from lake.executor_stage import AdoptedFile
from lake.identity import MANIFEST
from lake.landed_files import LandedFile
from lake.staging import ClosedFile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bronze.limits import Limits
    from bronze.read_file import Progress
    from lake.attestation_keys import AttestationKeys
    from lake.executors import Executors, Site
    from lake.landing_zone import LandingZone
    from lake.staging import PartitionWriter, Stage

_TABLES = {table.name: table for table in land.STAGED}
_EVENTS, _UNREADABLE = "trace events", "unreadable byte ranges"


@dataclass(frozen=True)
class FileOrder:
    """One file to be read, and where its rows are to wait."""

    run_id: str
    name: str
    size_bytes: int
    etag: str
    limits: Limits
    keys: AttestationKeys
    spools: Mapping[str, str]


@dataclass(frozen=True)
class FileAnswer:
    """What became of a file, and the data files of its rows, which have no name yet."""

    report: FileReport
    events: ClosedFile | None = None
    records: Mapping[str, ClosedFile | None] = field(default_factory=dict)
    unreadable: ClosedFile | None = None


def land_on(
    executors: Executors,
    zone: LandingZone,
    run_id: str,
    stages: Mapping[str, Stage],
    limits: Limits,
    progress: Progress,
    keys: AttestationKeys,
    *,
    manifest: bytes,
    memory: land.Memory = land.NO_MEMORY,
    is_open: bool = False,
) -> land.Landed:
    """Land all files of a run on executors, the largest first; rows wait on this process's stages.

    Of an open run, a file that has not changed since it was read is not read again.
    """
    parse(manifest, f"{run_id}/{MANIFEST}")  # a broken one is refused before anything is read
    sources = zone.files(run_id)
    spools = {name: str(stage.spool) for name, stage in stages.items()}
    reports = [FileReport(one.name, one.size_bytes, reason=one.problem) for one in sources if one.problem is not None]
    read: set[str | None] = set()
    readable = []
    for source in sources:
        if source.problem is not None:
            continue
        if is_open and memory.is_held_back(source):
            reports.append(hold_back(FileReport(source.name, source.size_bytes)))
            continue
        found = _recall(memory, source, read)
        if found is None:
            readable.append(source)
        else:
            reports.append(found)
    readable.sort(key=lambda source: (-(source.size_bytes or 0), source.name))
    orders = [
        FileOrder(run_id, source.name, source.size_bytes or 0, source.etag, limits, keys, spools) for source in readable
    ]
    for answer in sorted(executors.each(read_landed, orders), key=lambda answer: answer.report.name):
        report = answer.report
        progress(report.name, report.size_bytes or 0, report.rows_count)
        if (
            report.content_sha256 is not None and report.content_sha256 in read
        ):  # the same content under two names was read by two executors: once is enough
            content = report.content_sha256
            reports.append(FileReport(report.name, report.size_bytes, report.sha256, content_sha256=content))
            continue
        read.add(report.content_sha256)
        if report.is_trace:
            report.events = AdoptedFile(stages["trace_events"], answer.events)
        if report.outcome == "kept":
            report.unreadable = AdoptedFile(stages[unreadable.TABLE.name], answer.unreadable)
        report.records = {name: AdoptedFile(stages[name], closed) for name, closed in answer.records.items()}
        reports.append(report)
    return land.settle_landing(run_id, manifest, reports, keys, is_open=is_open)


def _recall(memory: land.Memory, source: LandedFile, read: set[str | None]) -> FileReport | None:
    """The report of a file that has not changed since an earlier landing read it."""
    sha256 = memory.find_digest(source)
    found = None if sha256 is None else memory.recall(sha256, source)
    if found is None or found.content_sha256 is None:
        return found
    if found.content_sha256 in read:
        return FileReport(source.name, source.size_bytes, sha256, content_sha256=found.content_sha256)
    read.add(found.content_sha256)
    return found


def read_landed(site: Site, order: FileOrder) -> FileAnswer:
    """Read one file to its end, on an executor; at most a few shards of it are in memory."""
    source = LandedFile(site.zone.place, order.run_id, order.name, order.size_bytes, order.etag, seals=site.zone.seals)
    with ExitStack() as exits:
        stages = {
            name: exits.enter_context(site.lake.executor_stage(_TABLES[name], order.run_id, spool))
            for name, spool in order.spools.items()
        }
        try:
            fetched = exits.enter_context(asyncio.run(source.fetch()))
        except EvidenceRejected as error:  # it became a link out or a pipe since it was listed
            return FileAnswer(FileReport(source.name, source.size_bytes, reason=str(error)))
        report = FileReport(source.name, source.size_bytes, fetched.sha256, content_sha256=fetched.content_sha256)
        with naming(f"reading {source.name}"):
            read_file(report, fetched, ReadContext(stages, order.limits, lambda *_: None, order.keys))
        units = {_EVENTS: report.events, _UNREADABLE: report.unreadable, **report.records}
        closed = {name: cast("PartitionWriter", unit).close() for name, unit in units.items() if unit is not None}
    return FileAnswer(
        report=replace(report, events=None, records={}, unreadable=None),
        events=closed.pop(_EVENTS, None),
        unreadable=closed.pop(_UNREADABLE, None),
        records=closed,
    )
