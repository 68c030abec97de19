"""One row per size of a bandwidth sweep: how fast copies of that size went, as the benchmark's table says."""

from __future__ import annotations

from lake.tables import RUN_ID, Table, float64, int64, text

TABLE = Table(
    tier="bronze",
    name="copy_rates",
    grain="One row per record of a table of copy sizes and bandwidths, as bandwidthTest's sweeps are kept.",
    key=("source_sha256", "ordinal"),
    partition_by=("run_id", "source_sha256"),
    columns=(
        RUN_ID,
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of the row among those of its source, from 0.", minimum=0),
        int64("offset_bytes", "First byte of the record's line in the inflated source.", minimum=0),
        int64("payload_bytes", "Size of one copy; bytes where the header names no unit.", nullable=True),
        float64(
            "bytes_per_second",
            "Rate to the nearest byte; GB/s (a thousand million bytes) where the header names no unit.",
            nullable=True,
        ),
        text("transfer", "Direction or memory of the copy, where a column of the table says it.", nullable=True),
        text(
            "args",
            "Everything that no column carries exactly, as compact JSON text: other columns, rates between two bytes.",
            nullable=True,
            repeats=False,
        ),
    ),
)
