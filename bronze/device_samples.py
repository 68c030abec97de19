"""One row per reading: one quantity of one device at one moment, as a tool printed it."""

from __future__ import annotations

from lake.tables import RUN_ID, Table, float64, int64, text

TOOLS = ("nvidia_smi", "dcgm", "conf_compute")

TABLE = Table(
    tier="bronze",
    name="device_samples",
    grain="One row per reading of one quantity of one device at one moment.",
    key=("source_sha256", "ordinal"),
    partition_by=("run_id", "source_sha256"),
    columns=(
        RUN_ID,
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of the reading among those of its source, from 0.", minimum=0),
        int64("offset_bytes", "First byte of its line in the inflated source.", minimum=0),
        text("tool", "What printed it.", one_of=TOOLS),
        int64("ts_ns", "When, UTC, where the source says it with its zone.", nullable=True),
        int64(
            "wall_ns",
            "When, by a clock whose zone the source does not say, read as if it were UTC.",
            nullable=True,
        ),
        int64("device_id", "GPU, by its number.", nullable=True),
        text("device_uuid", "GPU, by its own id.", nullable=True, sensitive=True),
        text("device_name", "GPU model, as the source names it.", nullable=True),
        text("metric", "Quantity, as the source spells it, unit aside."),
        text("unit", "Unit, from the header or the cell; null where neither gives one.", nullable=True),
        text("value", "The reading as the source writes it, unit aside.", nullable=True),
        float64("value_number", "The reading as a number; null where it is none, or stands for none.", nullable=True),
        text(
            "missing_reason", "Why there is no number though the source prints something, as a sentence.", nullable=True
        ),
        text("labels", "Labels of the reading as JSON text.", nullable=True, sensitive=True),
    ),
)
