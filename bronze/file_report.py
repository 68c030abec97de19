"""What became of one landed file, and what has to be decided with all files of a run in view."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from bronze.envelope import Envelope

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

TRACE = "kineto"
# Formats of which a part says nothing of the whole (of a database any page may change); the others are appended to.
_WRITTEN_AT_ONCE = (TRACE, "nsys_sqlite", "mlflow_sqlite")
_RANK_IN_NAME = re.compile(r"(?:rank|worker|(?:^|[-_.])r)[-_]?(\d{1,6})(?=\D|$)", re.IGNORECASE)


class Unnamed(Protocol):
    """A data file that has its rows and waits for its name."""

    def finish(self, **values: Any) -> None: ...
    def discard(self) -> None: ...


class Rows(Unnamed, Protocol):
    """A data file in the making."""

    def write(self, batch: pa.RecordBatch) -> None: ...


@dataclass
class FileReport:
    """What became of one file."""

    name: str
    size_bytes: int | None
    sha256: str | None = None
    # Of its plain bytes, sealed or not: what makes two files the same; none where it may not be read.
    content_sha256: str | None = None
    format: str = "unknown"
    outcome: str = "rejected"
    reason: str | None = None
    inflated_bytes: int | None = None
    events_count: int = 0
    rows_count: int = 0
    passed_count: int = 0
    unreadable_count: int = 0
    residue_count: int = 0
    ignored_tables: Mapping[str, int | None] = field(default_factory=dict)
    is_complete: bool | None = None
    base_ns: int | None = None
    # When its first event began and its last one ended.
    first_ns: int | None = None
    last_ns: int | None = None
    # The process whose calls it holds, of a trace.
    process_id: str | None = None
    envelope: Envelope = field(default_factory=Envelope)
    attestation_ids: frozenset[str] = frozenset()
    rank: int | None = None
    rank_source: str | None = None
    events: Unnamed | None = None
    records: Mapping[str, Unnamed] = field(default_factory=dict)
    unreadable: Unnamed | None = None
    # Why it waits: a file of an open run that is not complete yet.
    unfinished: str | None = None

    @property
    def is_trace(self) -> bool:
        """Whether it is a trace whose rows are here."""
        return self.outcome == "kept" and self.format == TRACE

    @property
    def world_size(self) -> int | None:
        """Ranks of the job, as the trace says."""
        return parse_count(self._distributed.get("world_size")) or None

    @property
    def backend(self) -> str | None:
        """Collective backend, as the trace says."""
        backend = self._distributed.get("backend")
        return storable_text(backend)

    @property
    def gpu(self) -> str | None:
        """Name of the first GPU that the trace lists."""
        devices = self.envelope.get("deviceProperties")
        first = devices[0] if isinstance(devices, list) and devices else None
        name = first.get("name") if isinstance(first, dict) else None
        return storable_text(name)

    @property
    def identity(self) -> list[str]:
        """What of a file decides its rows: its content, and its rank where the content does not give it."""
        return [self.sha256 or self.name, str(self.rank), self.reason or ""]

    @property
    def _distributed(self) -> dict[str, Any]:
        found = self.envelope.get("distributedInfo")
        return found if isinstance(found, dict) else {}

    def rank_itself(self) -> None:
        """Take the rank that the trace gives, else that of the file's name."""
        rank = parse_count(self._distributed.get("rank")) if self.is_trace else None
        if rank is not None:
            self.rank, self.rank_source = rank, "trace"
            return
        named = _RANK_IN_NAME.search(self.name)
        if named is not None:
            self.rank, self.rank_source = int(named[1]), "file_name"


def hold_back(report: FileReport, why: str = "it is not complete yet") -> FileReport:
    """The report of a file that is part of no table while its run is open."""
    return replace(report, unfinished=why)


def split_unfinished(reports: list[FileReport]) -> tuple[list[FileReport], dict[str, str]]:
    """Take out the files that are still being written, and say why: of a trace that is cut, the last step would be too.

    Lines and records that are appended are read as far as they go.
    """
    for report in reports:
        if report.outcome == "kept" and report.format in _WRITTEN_AT_ONCE and report.is_complete is False:
            report.unfinished = "it is not complete yet"
    read = {report.sha256 for report in reports if report.outcome == "kept" or report.reason}
    cut = {report.sha256 for report in reports if report.unfinished and report.sha256}
    held = {
        one.name: one.unfinished or "it is not complete yet"
        for one in reports
        if one.unfinished or (one.sha256 and (one.sha256 in cut or one.sha256 not in read))
    }
    for report in reports:
        if report.name in held:
            for unit in (report.events, report.unreadable, *report.records.values()):
                if unit is not None:
                    unit.discard()
    return [report for report in reports if report.name not in held], held


def settle_reports(reports: list[FileReport]) -> list[FileReport]:
    """Decide what needs all files: which of equal files is kept, and the rank of those that do not say it."""
    reports.sort(key=lambda report: report.name)
    by_content: dict[str, list[FileReport]] = {}
    for report in reports:
        by_content.setdefault(report.content_sha256 or f"?{report.name}", []).append(report)
    settled = []
    for same in by_content.values():
        read = next((report for report in same if report.events or report.records or report.reason), same[0])
        # Two sealed copies have one content and two digests; unreadable ranges name the one that was read.
        named = read if read.sha256 != same[0].sha256 and read.unreadable_count else same[0]
        first = replace(read, name=named.name, size_bytes=named.size_bytes, sha256=named.sha256)
        if first.outcome == "kept":
            first.rank_itself()
        settled.append(first)
        settled += [
            FileReport(
                other.name,
                other.size_bytes,
                other.sha256,
                format=first.format,
                outcome="merged",
                reason=f"same content as {first.name}",
            )
            for other in same
            if other is not named
        ]
    kept = [report for report in settled if report.is_trace]
    _assume_ranks(kept)
    return sorted(settled, key=lambda report: report.name)


def overlap(one: FileReport, later: FileReport) -> bool:
    """Whether two traces cannot be two cycles of one profiler: a time of one lies within the other."""
    return one.last_ns is None or later.first_ns is None or later.first_ns < one.last_ns


def _assume_ranks(traces: list[FileReport]) -> None:
    """Number traces that give no rank by the free ones; those of one process that follow each other share theirs.

    Processes of several hosts may have one number. Theirs are profiled side by side, cycles of one process never.
    """
    by_process: dict[str | None, list[FileReport]] = {}
    for report in traces:
        if report.rank is None:
            by_process.setdefault(report.process_id, []).append(report)
    ranks: list[list[FileReport]] = []
    for process_id, same in by_process.items():
        same.sort(key=lambda report: report.first_ns or 0)
        are_cycles = process_id is not None and not any(overlap(*two) for two in itertools.pairwise(same))
        ranks += [same] if are_cycles else [[report] for report in same]
    taken = {report.rank for report in traces}
    free = (rank for rank in itertools.count() if rank not in taken)
    for rank, files in zip(free, sorted(ranks, key=lambda files: min(one.sha256 or "" for one in files)), strict=False):
        for report in files:
            report.rank, report.rank_source = rank, "assumed"


def storable_text(value: object) -> str | None:
    """A text that can be stored; none where it is no text."""
    return value.encode("utf-8", "replace").decode("utf-8") if isinstance(value, str) else None


def parse_count(value: object) -> int | None:
    """A count or a rank as a source may write it: a number, or a text of digits."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 10:
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31 else None
