"""One landed file: recognised by its content, read to its end by the reader of its format, or refused with a reason."""

from __future__ import annotations

import re
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Protocol, Self

import pyarrow.compute as pc

from bronze import formats, nsys_report, trace_events, unreadable
from bronze.file_report import TRACE
from bronze.inflate import Inflated
from bronze.kineto import MOST_BASE_NS, KinetoReader, NotATrace
from bronze.prefetch import prefetch
from bronze.tolerant_parser import make_range
from bronze.untrusted_sqlite import MAGIC, hold_in_memory
from lake.errors import EvidenceRejected
from lake.locations import report_unreachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    import pyarrow as pa

    from bronze.file_report import FileReport, Rows
    from bronze.formats import Format
    from bronze.limits import Limits
    from bronze.records import RecordReader
    from bronze.tolerant_parser import UnreadableRange
    from lake.attestation_keys import AttestationKeys

_BASE_IN_TAIL = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d{1,19})')
_TAIL_BLOCKS = 3
# Categories of what a process does itself; other events bear the number of a device, or none.
_CALLS = "(?i)^(cpu_op|operator|user_annotation|python_function|((cuda|hip|xpu)_)?(runtime|driver))$"


class Fetched(Protocol):
    """A file's plain bytes at hand, to be read as often as needed; `problem` says why they may not be."""

    # Of the bytes as they landed, sealed or not.
    sha256: str
    # Of the plain bytes; the same where the file is not sealed.
    content_sha256: str | None
    problem: str | None
    is_sealed: bool

    def blocks(self) -> Iterator[bytes]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *args: object) -> None: ...


class Sink(Protocol):
    """Where rows go: one data file per call, invisible until the whole run is committed."""

    @property
    def spool(self) -> Path: ...
    def unit(self) -> Rows: ...


class Progress(Protocol):
    """Told after every shard: which file, how many of its bytes have been read, and how many rows they gave."""

    def __call__(self, name: str, source_bytes: int, rows: int, /) -> None: ...


@dataclass(frozen=True)
class ReadContext:
    """What a reader of one file needs beside the file: where rows go, by table, and what bounds and proves them."""

    sinks: Mapping[str, Sink]
    limits: Limits
    progress: Progress
    keys: AttestationKeys


def read_file(report: FileReport, fetched: Fetched, context: ReadContext) -> None:
    """Read one file to its end, or say why it cannot be."""
    if fetched.problem is not None:
        report.reason = fetched.problem
        return
    try:
        head = read_head(fetched.blocks(), context.limits)
        if nsys_report.is_report(report.name) and not head.startswith(MAGIC):
            _read_records(report, fetched, context, formats.SQLITE, is_report=True)
            return
        known = formats.recognise_format(head, lambda: iter(Inflated(fetched.blocks(), context.limits)))
        if known is not None:
            _read_records(report, fetched, context, known)
            return
        _read_trace(report, fetched, context)
        if report.outcome == "rejected" and (said := formats.describe_unknown(head)) is not None:
            report.reason = f"{said} (docs/landing.md lists what is read)"
    except EvidenceRejected as error:
        _refuse(report, error)


def read_head(blocks: Iterator[bytes], limits: Limits) -> bytes:
    """The first bytes, inflated."""
    head = b""
    for block in Inflated(blocks, limits):
        head += block[: formats.HEAD_BYTES - len(head)]
        if len(head) >= formats.HEAD_BYTES:
            break
    return head


def _refuse(report: FileReport, error: EvidenceRejected) -> None:
    report.format, report.outcome, report.reason = "unknown", "rejected", str(error)


# -- records --------------------------------------------------------------------------------------------------------


def _read_records(
    report: FileReport, fetched: Fetched, context: ReadContext, known: Format, *, is_report: bool = False
) -> None:
    """Read a file that is no trace; its rows stay invisible until the run is committed."""
    source = _Counted(fetched.blocks())
    inflated = Inflated(source, context.limits, fetched.blocks)
    with ExitStack() as held:
        if known.reader is None:
            database = held.enter_context(_spool(inflated, fetched, context, known, is_report=is_report))
            known, reader = formats.choose_database_reader(database)
        else:
            reader = known.reader(iter(inflated), context.limits, context.keys)
        units = {name: context.sinks[name].unit() for name in known.tables}
        unreadable_rows = context.sinks[unreadable.TABLE.name].unit()
        try:
            _drain(reader, report, context, units, unreadable_rows, source, fetched.sha256)
        except BaseException:
            for unit in (*units.values(), unreadable_rows):
                unit.discard()
            raise
    if inflated.fault:
        reader.cut_short(make_range(inflated.total_bytes, 0, inflated.fault, b""))
    unreadable_rows.write(unreadable.rows(fetched.sha256, reader.take_unreadable()))
    report.records, report.unreadable = units, unreadable_rows
    report.format, report.outcome = known.name, "kept"
    report.inflated_bytes = inflated.total_bytes
    report.rows_count = reader.rows_count
    report.passed_count = reader.passed_count
    report.unreadable_count = reader.unreadable_count
    report.ignored_tables = reader.ignored_tables
    report.is_complete = reader.is_complete
    report.envelope = reader.envelope
    report.attestation_ids = frozenset(reader.attestation_ids)


def _drain(
    reader: RecordReader,
    report: FileReport,
    context: ReadContext,
    units: Mapping[str, Rows],
    unreadable_rows: Rows,
    source: _Counted,
    sha256: str,
) -> None:
    for table, batch in reader:
        if batch.num_rows:
            units[table].write(batch)
        _hold_count(reader.rows_count + reader.unreadable_count, context.limits)
        if reader.has_many_unreadable:
            unreadable_rows.write(unreadable.rows(sha256, reader.take_unreadable()))
        context.progress(report.name, source.bytes, reader.rows_count)
    _hold_count(reader.rows_count + reader.unreadable_count, context.limits)


def _hold_count(count: int, limits: Limits) -> None:
    """Refuse a file of more rows than any recorder writes, before they fill the disk."""
    if count > limits.max_file_rows:
        raise EvidenceRejected(
            f"it gives more than {limits.max_file_rows:,} rows",
            "raise TEETOTAL_MAX_FILE_ROWS if you trust it, and run with --full",
        )


def _spool(
    inflated: Inflated, fetched: Fetched, context: ReadContext, known: Format, *, is_report: bool
) -> AbstractContextManager[Path | bytes]:
    """A database as a file of its own; of one that landed sealed nothing is written to a disk: it is held in memory."""
    folder = context.sinks[known.tables[0]].spool
    if not fetched.is_sealed:
        return nsys_report.export_report(inflated, folder) if is_report else _Spool(inflated, folder)
    if is_report:
        raise EvidenceRejected(
            "it is a sealed report of Nsight Systems, and `nsys export` would need it in the clear on a disk",
            "export it where it was recorded with `nsys export --type sqlite FILE`, and seal the .sqlite",
        )
    return hold_in_memory(inflated, context.limits)


class _Spool:
    """The inflated bytes as a file of their own, for a reader that must jump about in them."""

    def __init__(self, blocks: Inflated, folder: Path) -> None:
        self._blocks = blocks
        self._file = NamedTemporaryFile(dir=folder, prefix="source-", suffix=".sqlite")  # noqa: SIM115 - closed at exit

    def __enter__(self) -> Path:
        with report_unreachable("the spool of the lake could not be written to"):
            for block in self._blocks:
                self._file.write(block)
            self._file.flush()
        return Path(self._file.name)

    def __exit__(self, *_: object) -> None:
        self._file.close()


# -- traces ---------------------------------------------------------------------------------------------------------


def _read_trace(report: FileReport, fetched: Fetched, context: ReadContext) -> None:
    """Read a trace to its end, again where its base time stands at its end and is another than was thought."""
    base_ns: int | None = None
    while True:
        events, unreadable_rows = (
            context.sinks[trace_events.TABLE.name].unit(),
            context.sinks[unreadable.TABLE.name].unit(),
        )
        try:
            reader = _read_once(report, fetched, context, base_ns, events, unreadable_rows)
        except EvidenceRejected as error:
            events.discard()
            unreadable_rows.discard()
            _refuse(report, error)
            return
        if (reader.base_ns or 0) == reader.base_used_ns:
            report.events, report.unreadable = events, unreadable_rows
            return
        # The base is not what the end of the file had made us believe: once more, with it.
        events.discard()
        unreadable_rows.discard()
        base_ns = reader.base_ns or 0


def _read_once(
    report: FileReport, fetched: Fetched, context: ReadContext, base_ns: int | None, events: Rows, unreadable_rows: Rows
) -> KinetoReader:
    source = _Counted(fetched.blocks())
    inflated = Inflated(source, context.limits, fetched.blocks)
    report.first_ns = report.last_ns = report.process_id = None
    reader = KinetoReader(
        prefetch(inflated), context.limits, lambda: _base_in_tail(fetched, context.limits), base_ns=base_ns
    )
    try:
        for batch, found, landed in prefetch(_shards(reader), most=1):
            events.write(batch)
            _extend_times(report, batch)
            report.process_id = report.process_id or _find_process(batch)
            _hold_count(landed + reader.unreadable_count, context.limits)
            if found:
                unreadable_rows.write(unreadable.rows(fetched.sha256, found))
            context.progress(report.name, source.bytes, landed)
    except NotATrace:
        if inflated.fault and not inflated.total_bytes:
            raise EvidenceRejected(f"{inflated.fault}, and nothing can be got out of it") from None
        raise
    _hold_count(reader.events_count + reader.unreadable_count, context.limits)
    if inflated.fault:
        reader.cut_short(inflated.fault)
    unreadable_rows.write(unreadable.rows(fetched.sha256, reader.take_unreadable()))
    report.format, report.outcome = TRACE, "kept"
    report.inflated_bytes = inflated.total_bytes
    report.events_count = report.rows_count = reader.events_count
    report.unreadable_count = reader.unreadable_count
    report.residue_count = reader.residue_count
    report.is_complete = reader.is_complete
    report.base_ns = reader.base_ns
    report.envelope = reader.envelope
    return reader


def _extend_times(report: FileReport, batch: pa.RecordBatch) -> None:
    """Note when the events that last began and ended: cycles of one profiler follow each other."""
    lasting = batch.filter(pc.equal(batch.column("phase"), "X"))
    starts, durations = lasting.column("ts_ns"), lasting.column("duration_ns")
    first, last = pc.min(starts).as_py(), pc.max(pc.add(starts, pc.max_element_wise(durations, 0))).as_py()
    if first is not None:
        report.first_ns = first if report.first_ns is None else min(first, report.first_ns)
        report.last_ns = last if report.last_ns is None else max(last, report.last_ns)


def _find_process(batch: pa.RecordBatch) -> str | None:
    """The process that made the first call: its number, where it has one."""
    calls = batch.filter(pc.match_substring_regex(batch.column("category"), _CALLS)).column("process_id")
    first = calls[0].as_py() if len(calls) else None
    return first if first is not None and first.isdecimal() else None


def _shards(reader: KinetoReader) -> Iterator[tuple[pa.RecordBatch, list[UnreadableRange], int]]:
    """Rows, unreadable byte ranges where many have gathered, and events so far: decoded while the last is written."""
    for batch in reader:
        yield batch, reader.take_unreadable() if reader.has_many_unreadable else [], reader.events_count


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
