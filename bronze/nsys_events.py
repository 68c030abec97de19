"""One row per row of an Nsight Systems export: an API call, a GPU operation, a launch and its kernel, an annotation."""

from __future__ import annotations

from lake.tables import RUN_ID, Table, boolean, int64, text

# The reports of `nsys stats` that are read, and the tables of the SQLite export.
REPORTS = (
    "cuda_api_trace",
    "cuda_gpu_trace",
    "cuda_kern_exec_trace",
    "CUPTI_ACTIVITY_KIND_KERNEL",
    "CUPTI_ACTIVITY_KIND_MEMCPY",
    "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "CUPTI_ACTIVITY_KIND_DRIVER",
    "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_OVERHEAD",
    "NVTX_EVENTS",
    "PROFILER_OVERHEAD",
    "OSRT_API",
    "CUDA_UM_CPU_PAGE_FAULT_EVENTS",
    "CUDA_UM_GPU_PAGE_FAULT_EVENTS",
    "GPU_METRICS",
)

# Processes, devices and contexts of one source: no cluster has more.
MOST_PLACES = 1 << 16

TABLE = Table(
    tier="bronze",
    name="nsys_events",
    grain="One row per record of an `nsys stats` CSV or per row of a declared table of an SQLite export.",
    key=("source_sha256", "ordinal"),
    partition_by=("run_id", "source_sha256"),
    columns=(
        RUN_ID,
        text("source_sha256", "The source file, by the digest of its bytes as they landed."),
        int64("ordinal", "Place of the row among the readable rows of its source, from 0.", minimum=0),
        int64(
            "offset_bytes",
            "First byte of the record in the inflated source; null where the source is a database.",
            nullable=True,
            minimum=0,
        ),
        text("report", "The report of `nsys stats`, or the table of the export.", one_of=REPORTS),
        text("name", "API call, kernel, copy or annotation, as the source spells it.", nullable=True),
        int64(
            "start_ns",
            "Start since the session began, exact; of a launch with its kernel: the kernel's.",
            nullable=True,
        ),
        int64("duration_ns", "Duration, exact; negative where the source says so.", nullable=True),
        int64(
            "ts_ns",
            "The same start as UTC, where the export says when the session began; a CSV does not.",
            nullable=True,
        ),
        int64("correlation_id", "What ties a GPU operation to its API call.", nullable=True),
        text(
            "host_id",
            "Host of the process: a digest of its name where the export gives one, else its number in the export.",
            nullable=True,
        ),
        text("process_id", "Process, as text.", nullable=True),
        text("thread_id", "Thread, as text.", nullable=True),
        text("thread_name", "Name of the thread.", nullable=True),
        text("result", "What the API call returned, as the source writes it.", nullable=True),
        text("device_name", "GPU, as the source names it.", nullable=True),
        int64("device_id", "GPU, by the number that stands beside or in its name.", nullable=True),
        int64("context_id", "CUDA context.", nullable=True),
        int64("stream_id", "CUDA stream.", nullable=True),
        int64("payload_bytes", "Bytes that were copied or set.", nullable=True),
        boolean(
            "is_payload_rounded",
            "Whether the source gives the bytes in a larger unit with few decimals, so that small ones are 0.",
            nullable=True,
        ),
        int64("graph_id", "CUDA graph that was launched, or that a node belongs to.", nullable=True),
        int64("graph_node_id", "Node of a CUDA graph that the work is.", nullable=True),
        int64("nccl_rank", "Rank that NCCL's annotation of a new communicator gives its process.", nullable=True),
        int64("nccl_ranks_count", "Ranks of that communicator.", nullable=True),
        text("copy_kind", "Direction of a copy, as the export's own names have it, else its number.", nullable=True),
        text(
            "source_memory",
            "Kind of memory that was read, as the source says it (under CC: not what it is).",
            nullable=True,
        ),
        text("target_memory", "Kind of memory that was written, as the source says it.", nullable=True),
        text("api_name", "API call that launched the kernel.", nullable=True),
        int64("api_start_ns", "Start of that call since the session began.", nullable=True),
        int64("api_duration_ns", "Duration of that call.", nullable=True),
        int64("queue_start_ns", "When the kernel began to wait.", nullable=True),
        int64("queue_duration_ns", "How long it waited.", nullable=True),
        int64("total_duration_ns", "From the call's start to the kernel's end.", nullable=True),
        text(
            "args",
            "Everything that no column carries as the source has it, as compact JSON text: other columns, and cells "
            "of the wrong kind. Empty cells are left out.",
            nullable=True,
            repeats=False,
        ),
    ),
)
