"""Literal tables, rows and made-up traces that the tests of the lake and of the assets share."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from lake.tables import RUN_ID, Table, boolean, float64, int32, int64, text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lake.store import Lake

FIRST, SECOND = "1" * 64, "2" * 64

# Every kind of value, with and without nulls, in one partition a run.
READINGS = Table(
    tier="silver",
    name="readings",
    grain="One row per reading of a sensor.",
    key=("ordinal",),
    columns=(
        RUN_ID,
        int64("ordinal", "Place of the reading.", minimum=0),
        int32("slot", "Where the sensor sits."),
        text("label", "What the sensor is called.", nullable=True),
        float64("power_w", "What it read.", nullable=True),
        boolean("is_valid", "Whether it was in range."),
    ),
)
# Partitions inside a run's partition, as bronze.trace_events has them.
CELLS = Table(
    tier="silver",
    name="cells",
    grain="One row per cell of a battery.",
    key=("cell",),
    partition_by=("run_id", "rank", "site"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that reads it."),
        text("site", "Where it stands."),
        text("cell", "Name of the cell."),
    ),
)
# Names and free texts that are sealed at rest, in partitions inside a run's partition.
VISITS = Table(
    tier="silver",
    name="visits",
    grain="One row per visit of a person to a host.",
    key=("ordinal",),
    partition_by=("run_id", "rank"),
    columns=(
        RUN_ID,
        int32("rank", "Rank that saw it."),
        int64("ordinal", "Place of the visit."),
        text("host", "Where it was.", sensitive=True),
        text("owner", "Who it was.", nullable=True, sensitive=True),
        text("note", "What was said.", nullable=True, sensitive=True, is_free_text=True),
        text("reply", "What was said to that.", nullable=True, sensitive=True, is_free_text=True),
        text("colour", "Nothing that matters."),
    ),
)
HOST, OWNER, NOTE = "host-vauxhall-7", "erika.mustermann", "call me at home, 0170 5550123"


def readings(run_id: str = "a", powers: Sequence[float | None] = (1.5, None, 0.0), label: str | None = "x") -> pa.Table:
    """Rows of READINGS, one a power."""
    count = len(powers)
    return pa.table(
        {
            "run_id": [run_id] * count,
            "ordinal": range(count),
            "slot": [7] * count,
            "label": [label] * count,
            "power_w": powers,
            "is_valid": [power is not None for power in powers],
        },
        schema=READINGS.arrow_schema,
    )


def many_readings(run_id: str, count: int = 1_500_000) -> pa.Table:
    """So many rows of READINGS that a file of them has more than 10 MiB, whatever packs it."""
    chance = np.random.default_rng(count)
    return pa.table(
        {
            "run_id": pa.array([run_id]).take(pa.array(np.zeros(count, np.int64))),
            "ordinal": np.arange(count),
            "slot": np.full(count, 7, np.int32),
            "label": pa.nulls(count, pa.string()),
            "power_w": chance.random(count),
            "is_valid": np.full(count, fill_value=True),
        },
        schema=READINGS.arrow_schema,
    )


def visits(run_id: str = "a", notes: Sequence[str | None] = (NOTE, NOTE, None, ""), host: str = HOST) -> pa.Table:
    """Rows of VISITS, one a note, which the reply repeats, on two ranks; every third has no owner."""
    count = len(notes)
    return pa.table(
        {
            "run_id": [run_id] * count,
            "rank": [place % 2 for place in range(count)],
            "ordinal": range(count),
            "host": [host] * count,
            "owner": [None if place % 3 == 2 else OWNER for place in range(count)],
            "note": notes,
            "reply": notes,
            "colour": ["red"] * count,
        },
        schema=VISITS.arrow_schema,
    )


def replace_column(rows: pa.Table, column: str, values: Any, kind: pa.DataType | None = None) -> pa.Table:
    """The same rows with one column replaced, whatever its type."""
    return rows.set_column(rows.column_names.index(column), column, pa.array(values, kind))


def trace(rank: int | None, events_count: int, *, seed: int = 0, world_size: int = 3) -> bytes:
    """A trace in Kineto's own byte layout; without a rank it does not say who recorded it."""
    chance = random.Random(f"{rank}-{seed}")
    envelope: dict[str, object] = {"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000}
    envelope["deviceProperties"] = [{"id": 0, "name": "NVIDIA H200", "totalGlobalMem": 150_000_000_000}]
    if rank is not None:
        envelope["distributedInfo"] = {"backend": "nccl", "rank": rank, "world_size": world_size}
    head = ",\n  ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in envelope.items())
    ts = 5_000_000
    events = []
    for ordinal in range(events_count):
        ts += chance.randrange(1, 40_000)
        dur = chance.randrange(1, 9_000_000)
        events.append(
            "  {\n"
            f'    "ph": "X", "cat": "cpu_op", "name": "aten::op_{ordinal % 97}", "pid": {4000 + (rank or 0)}, '
            f'"tid": {4000 + ordinal % 3},\n'
            f'    "ts": {ts // 1000}.{ts % 1000:03}, "dur": {dur // 1000}.{dur % 1000:03},\n'
            '    "args": {\n'
            f'      "External id": {ordinal + 1},"Record function id": 0, "Ev Idx": {ordinal}\n'
            "    }\n"
            "  }"
        )
    body = ",\n".join(events)
    return f'{{\n  {head},\n  "traceEvents": [\n{body}\n  ],\n  "traceName": "t.json"\n}}\n'.encode()


def digests(lake: Lake, run_id: str, tables: Sequence[Table]) -> dict[str, str]:
    """The content digest of a run's partition in each table."""
    return {table.full_name: lake.snapshot(table).content_sha256(run_id) for table in tables}


def files_under(root: Path) -> dict[str, bytes]:
    """Every file below a directory, by its path, with its bytes."""
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}
