"""`teetotal show` of a view: what `teetotal query` would answer, in the order of time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.errors import EvidenceRejected, nearest
from pipelines.cli import sandbox
from silver import timeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake.store import Lake

TIMELINE = timeline.NAME
# No run's id holds a comma.
_ROWS = """
SELECT * FROM silver.timeline
WHERE $runs = '' OR list_contains(string_split($runs, ','), run_id)
ORDER BY run_id, ts_ns, source, kind, rank, device_id, name
"""


@contextmanager
def open_timeline(
    lake: Lake, run_ids: Sequence[str], columns: Sequence[str], limit: int | None
) -> Iterator[tuple[pa.RecordBatchReader, int]]:
    """The rows of some runs, or of all, and how many there are without a limit."""
    with sandbox.ask(lake, _ROWS, {"runs": ",".join(run_ids)}) as answer:
        total = answer.count()  # first: one answer is open at a time
        rows = answer.rows(limit)
        names = rows.schema.names
        for name in columns:
            if name not in names:
                raise EvidenceRejected(f"{TIMELINE} has no column {name[:160]!r}", nearest(name[:160], names))
        wanted = list(columns or names)
        schema = pa.schema([rows.schema.field(name) for name in wanted])
        yield pa.RecordBatchReader.from_batches(schema, (batch.select(wanted) for batch in rows)), total
