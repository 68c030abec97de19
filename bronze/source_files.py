"""One row per file of a run's landing directory: what it is, what it says of itself, and what became of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from bronze import json_text
from bronze.formats import NAMES
from lake.tables import RUN_ID, Table, boolean, int32, int64, text

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

    from bronze.file_report import FileReport

OUTCOMES = ("kept", "merged", "rejected")
RANK_SOURCES = ("trace", "file_name", "assumed")

TABLE = Table(
    tier="bronze",
    name="source_files",
    grain="One row per file of a run's landing directory, its manifest aside.",
    key=("file_name",),
    columns=(
        RUN_ID,
        text("file_name", "Name of the file in the landing directory.", sensitive=True),
        text(
            "source_sha256",
            "Digest of the file's bytes as they landed, sealed or not; null where they may not be read.",
            nullable=True,
        ),
        int64("size_bytes", "Size as landed.", nullable=True, minimum=0),
        text("format", "What the content is, whatever the name says; of a sealed file what is inside.", one_of=NAMES),
        text(
            "outcome",
            "kept: its rows are here; merged: same content as another file; rejected: see reason.",
            one_of=OUTCOMES,
        ),
        text("reason", "Why the file was merged or rejected, as a sentence.", nullable=True),
        int64("inflated_bytes", "Size after decompression.", nullable=True, minimum=0),
        int64("events_count", "Trace events landed from it; 0 where it is no trace.", minimum=0),
        int64("rows_count", "Rows landed from it, in whichever tables its format fills.", minimum=0),
        int64(
            "passed_count",
            "Lines that are no record of its format and are not kept: headers, blank lines, a job's other output.",
            minimum=0,
        ),
        int64("unreadable_count", "Byte ranges of it that no reader could parse.", minimum=0),
        int64(
            "residue_count",
            "Landed rows of which a text is kept because the typed columns do not carry all of them.",
            minimum=0,
        ),
        text(
            "ignored_tables",
            "Tables of a database that are not read, with their rows, as JSON text; null for a table that nobody knows "
            "and nobody counts.",
            nullable=True,
        ),
        boolean("is_complete", "Whether the source was read to a proper end.", nullable=True),
        boolean(
            "is_counted",
            "Whether silver and gold are made from it; no trace of a cycle before the last `open_cycles_count` of its "
            "rank is, while the run is open.",
        ),
        int32(
            "rank",
            "Rank that recorded it; of a file that is no trace only where its name says so.",
            nullable=True,
            minimum=0,
        ),
        text("rank_source", "Where the rank comes from.", nullable=True, one_of=RANK_SOURCES),
        int64("world_size", "Ranks of the job, as the trace says.", nullable=True, minimum=1),
        text("backend", "Collective backend, as the trace says.", nullable=True),
        text("gpu_name", "Name of the first GPU that the trace lists.", nullable=True),
        int64("base_ns", "baseTimeNanoseconds of the trace; null where it has none.", nullable=True),
        text(
            "envelope",
            "All that the trace says beside its events, as JSON text.",
            nullable=True,
            sensitive=True,
            repeats=False,
        ),
    ),
)


def rows(run_id: str, reports: Sequence[FileReport], uncounted: Set[str] = frozenset()) -> pa.Table:
    """The rows of one run; `uncounted` names the files that silver and gold leave aside."""
    found = [
        {
            "run_id": run_id,
            "file_name": report.name,
            "source_sha256": report.sha256,
            "size_bytes": report.size_bytes,
            "format": report.format,
            "outcome": report.outcome,
            "reason": report.reason,
            "inflated_bytes": report.inflated_bytes,
            "events_count": report.events_count,
            "rows_count": report.rows_count,
            "passed_count": report.passed_count,
            "unreadable_count": report.unreadable_count,
            "residue_count": report.residue_count,
            "ignored_tables": json_text.compact_json(dict(report.ignored_tables)),
            "is_complete": report.is_complete,
            "is_counted": report.name not in uncounted,
            "rank": report.rank,
            "rank_source": report.rank_source,
            "world_size": report.world_size,
            "backend": report.backend,
            "gpu_name": report.gpu,
            "base_ns": report.base_ns,
            "envelope": report.envelope.to_text(),
        }
        for report in reports
    ]
    return pa.Table.from_pylist(found, schema=TABLE.arrow_schema)
