"""One row per event of a profiler trace, with its time as exact UTC nanoseconds and nothing dropped."""

from __future__ import annotations

from bronze.kineto_arguments import ARGUMENTS
from lake.tables import RUN_ID, Table, int32, int64, text

TABLE = Table(
    tier="bronze",
    name="trace_events",
    grain="One row per element of a trace's `traceEvents` array.",
    key=("source_sha256", "ordinal"),
    partition_by=("run_id", "rank", "source_sha256"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that recorded the trace.", minimum=0),
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of the event among the readable events of its source, from 0.", minimum=0),
        int64("offset_bytes", "First byte of the event in the inflated source.", minimum=0),
        text(
            "phase",
            "Event phase (`ph`): X complete, M metadata, s/f flow, i instant, C counter.",
            nullable=True,
        ),
        text("category", "Event category (`cat`), as the source spells it.", nullable=True),
        text("name", "Event name.", nullable=True),
        text("process_id", "Process (`pid`): a number, a device or a label, as text.", nullable=True),
        text("thread_id", "Thread (`tid`): a number, a stream or a label, as text.", nullable=True),
        int64(
            "ts_ns",
            "Start: baseTimeNanoseconds + ts, exact. Null where no such time can be held.",
            nullable=True,
        ),
        int64("duration_ns", "Duration (`dur`), exact; negative where the source says so.", nullable=True),
        text("flow_id", "Flow or async id (`id`), as text.", nullable=True),
        text("binding_point", "Flow binding point (`bp`).", nullable=True),
        text("scope", "Instant scope (`s`).", nullable=True),
        text("args", "All arguments as compact JSON text.", nullable=True, repeats=False),
        text(
            "residue",
            "The event's own text, where the columns beside it do not carry all of it (unknown, doubled or null "
            "keys, times that are none, repaired JSON).",
            nullable=True,
            repeats=False,
        ),
        *(argument.column for argument in ARGUMENTS),
    ),
)
