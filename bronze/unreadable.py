"""One row per byte range of a source that no reader could parse: where it lies, how long it is, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lake.tables import RUN_ID, Table, int64, text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bronze.tolerant_parser import UnreadableRange

TABLE = Table(
    tier="bronze",
    name="unreadable",
    grain="One row per byte range of a source file that no reader could parse.",
    key=("source_sha256", "offset_bytes", "length_bytes", "reason"),
    columns=(
        RUN_ID,
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("offset_bytes", "First byte of the byte range in the inflated source.", minimum=0),
        int64(
            "length_bytes",
            "Length of the byte range; 0 where something is missing rather than wrong.",
            minimum=0,
        ),
        text("reason", "Why it could not be read, as a sentence."),
        text("beginning", "How the byte range begins, bytes that are not printable escaped.", sensitive=True),
    ),
)


def rows(sha256: str, found: Sequence[UnreadableRange]) -> pa.RecordBatch:
    """The rows of one source, run aside."""
    columns = {
        "source_sha256": [sha256] * len(found),
        "offset_bytes": [one.offset for one in found],
        "length_bytes": [one.length for one in found],
        "reason": [one.reason for one in found],
        "beginning": [one.beginning for one in found],
    }
    return pa.RecordBatch.from_pydict(columns, schema=TABLE.file_schema)
