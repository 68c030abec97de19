"""One row per record of a training log: a line of a job's output, of a table or of JSON, or a scalar."""

from __future__ import annotations

from lake.tables import RUN_ID, Table, float64, int64, text

RECORDS = ("mllog", "line", "csv", "scalar")

TABLE = Table(
    tier="bronze",
    name="training_log",
    grain="One row per line on a step or with `:::MLLOG`, record of a table, or scalar of TensorBoard or MLflow.",
    key=("source_sha256", "ordinal"),
    partition_by=("run_id", "source_sha256"),
    columns=(
        RUN_ID,
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of the row among the training records of its source, from 0.", minimum=0),
        int64("offset_bytes", "First byte of the record in the inflated source; 0 for a row of a database.", minimum=0),
        text(
            "record",
            "mllog: a line that begins so; line: one on a step, as a trainer prints it; csv: a record of a table or of "
            "JSON lines, or a step of Weights & Biases; scalar: one number under its name.",
            one_of=RECORDS,
        ),
        int64("ts_ns", "When it was written, UTC, exact from the source's own digits.", nullable=True),
        int64(
            "clock_ns",
            "What it calls only time or elapsed, or a date without a zone: a reading of a clock of its own, or how "
            "long something took, as silver.throughput tells by all of them.",
            nullable=True,
        ),
        text("namespace", "Namespace of an mllog line.", nullable=True),
        text("event_type", "INTERVAL_START, INTERVAL_END or POINT_IN_TIME, as the source spells it.", nullable=True),
        text(
            "record_key",
            "Key of an mllog line, for example epoch_start; the pattern of a line on a step; tag of a scalar.",
            nullable=True,
        ),
        text(
            "record_value",
            "Value of an mllog line: a text as it is, anything else as JSON text; a scalar's number.",
            nullable=True,
        ),
        int64("epoch_number", "Epoch, as the source counts.", nullable=True),
        int64("step_number", "Step, as the source counts.", nullable=True),
        int64("began_ns", "When the epoch or step began, UTC, where the source says so.", nullable=True),
        text("phase", "What the source calls this part of the run, for example warmup.", nullable=True),
        int64("duration_ns", "How long the epoch or step took, where the source says so.", nullable=True),
        float64("samples_per_second", "Throughput in samples.", nullable=True),
        float64("tokens_per_second", "Throughput in tokens.", nullable=True),
        float64("loss_number", "Loss.", nullable=True),
        int64("batch_size", "Samples per step, as the source says.", nullable=True),
        text(
            "args",
            "Everything that no column carries exactly, as compact JSON text: other columns, metadata, numbers whose "
            "digits a double does not give back.",
            nullable=True,
            repeats=False,
        ),
    ),
)
