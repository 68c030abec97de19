"""One row per collective or statement on collectives: of NCCL's Inspector, its tests, or its debug log."""

from __future__ import annotations

from lake.tables import RUN_ID, Table, int32, int64, text

RECORDS = ("inspector", "nccl_tests", "nccl_log_collective", "nccl_log_tuning", "nccl_log_cc")

TABLE = Table(
    tier="bronze",
    name="collective_records",
    grain="One row per collective or statement on collectives that NCCL, its Inspector or its tests wrote.",
    key=("source_sha256", "ordinal"),
    partition_by=("run_id", "source_sha256"),
    columns=(
        RUN_ID,
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of the row among the collective records of its source, from 0.", minimum=0),
        int64("offset_bytes", "First byte of its line (in a JSON document: of its element) in the source.", minimum=0),
        text(
            "record",
            "inspector: one collective as the Inspector timed it; nccl_tests: one size of a benchmark; "
            "nccl_log_collective: a call; nccl_log_tuning: how a size is done; nccl_log_cc: the mode that NCCL saw.",
            one_of=RECORDS,
        ),
        int64("ts_ns", "When the Inspector wrote it, UTC; NCCL's log has no clock.", nullable=True),
        text("host", "Host name.", nullable=True, sensitive=True),
        text("process_id", "Process, as text.", nullable=True),
        text("thread_id", "Thread, as text.", nullable=True),
        int64("device_id", "GPU, as the log numbers it.", nullable=True),
        int32("rank", "Rank in its communicator.", nullable=True, minimum=0),
        int64("group_size", "Ranks of the communicator.", nullable=True),
        text("communicator_id", "Communicator, as the source names it.", nullable=True),
        text("collective_name", "Operation, as the source spells it.", nullable=True),
        int64(
            "collective_sequence",
            "Place in the communicator: coll_sn, or opCount (hexadecimal in the log).",
            nullable=True,
        ),
        int64("payload_bytes", "Message size.", nullable=True),
        int64("elements_count", "Elements of the message.", nullable=True),
        text("dtype", "Number format: a name, or NCCL's number of it.", nullable=True),
        text("reduction", "Reduction: a name, or NCCL's number of it.", nullable=True),
        text("root", "Root rank as the source writes it; -1 where there is none.", nullable=True),
        int64("duration_ns", "How long it took; of a benchmark: out of place.", nullable=True),
        int64("in_place_duration_ns", "How long it took in place.", nullable=True),
        text("timing_source", "What the Inspector timed: kernel_gpu, kernel_cpu or collective_cpu.", nullable=True),
        text("algorithm", "Algorithm that NCCL chose.", nullable=True),
        text("protocol", "Protocol that NCCL chose.", nullable=True),
        text("cc_state", "Confidential computing, as NCCL saw it: On or Off.", nullable=True),
        text(
            "args",
            "Everything that no column carries exactly, as compact JSON text (bandwidths, buffers, channels, …).",
            nullable=True,
            repeats=False,
        ),
    ),
)
