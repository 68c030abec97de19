"""The tables of an Nsight Systems export that no reader takes: counted, so that what is left out is known."""

from __future__ import annotations

import sqlite3

# Written out: a query is a literal. A table that stands neither here nor among the events is listed without a count.
_COUNT = {
    "CUPTI_ACTIVITY_KIND_CUDA_EVENT": "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_CUDA_EVENT",
    "CUPTI_ACTIVITY_KIND_MEMORY2": "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_MEMORY2",
    "CUDA_GPU_MEMORY_USAGE_EVENTS": "SELECT count(*) FROM CUDA_GPU_MEMORY_USAGE_EVENTS",
    "CUDA_GRAPH_EVENTS": "SELECT count(*) FROM CUDA_GRAPH_EVENTS",
    "CUDA_GRAPH_NODE_EVENTS": "SELECT count(*) FROM CUDA_GRAPH_NODE_EVENTS",
    "CUDA_GRAPH_EXEC_EVENTS": "SELECT count(*) FROM CUDA_GRAPH_EXEC_EVENTS",
    "CUDA_CALLCHAINS": "SELECT count(*) FROM CUDA_CALLCHAINS",
    "OSRT_CALLCHAINS": "SELECT count(*) FROM OSRT_CALLCHAINS",
    "SAMPLING_CALLCHAINS": "SELECT count(*) FROM SAMPLING_CALLCHAINS",
    "SCHED_EVENTS": "SELECT count(*) FROM SCHED_EVENTS",
    "COMPOSITE_EVENTS": "SELECT count(*) FROM COMPOSITE_EVENTS",
    "GENERIC_EVENTS": "SELECT count(*) FROM GENERIC_EVENTS",
    "DIAGNOSTIC_EVENT": "SELECT count(*) FROM DIAGNOSTIC_EVENT",
    "GPU_CONTEXT_SWITCH_EVENTS": "SELECT count(*) FROM GPU_CONTEXT_SWITCH_EVENTS",
    "GPU_VIDEO_ENGINE_WORKLOAD": "SELECT count(*) FROM GPU_VIDEO_ENGINE_WORKLOAD",
    "MPI_RANKS": "SELECT count(*) FROM MPI_RANKS",
    "MPI_P2P_EVENTS": "SELECT count(*) FROM MPI_P2P_EVENTS",
    "MPI_START_WAIT_EVENTS": "SELECT count(*) FROM MPI_START_WAIT_EVENTS",
    "MPI_COLLECTIVES_EVENTS": "SELECT count(*) FROM MPI_COLLECTIVES_EVENTS",
    "MPI_OTHER_EVENTS": "SELECT count(*) FROM MPI_OTHER_EVENTS",
    "UCP_WORKERS": "SELECT count(*) FROM UCP_WORKERS",
    "UCP_EVENTS": "SELECT count(*) FROM UCP_EVENTS",
    "OPENACC_DATA_EVENTS": "SELECT count(*) FROM OPENACC_DATA_EVENTS",
    "OPENACC_LAUNCH_EVENTS": "SELECT count(*) FROM OPENACC_LAUNCH_EVENTS",
    "OPENACC_OTHER_EVENTS": "SELECT count(*) FROM OPENACC_OTHER_EVENTS",
    "OMPT": "SELECT count(*) FROM OMPT",
    "CUBLAS_EVENTS": "SELECT count(*) FROM CUBLAS_EVENTS",
    "CUDNN_EVENTS": "SELECT count(*) FROM CUDNN_EVENTS",
    "NET_NIC_METRIC": "SELECT count(*) FROM NET_NIC_METRIC",
    "NET_IB_SWITCH_METRIC": "SELECT count(*) FROM NET_IB_SWITCH_METRIC",
    "POWER_RATE": "SELECT count(*) FROM POWER_RATE",
    "FECS_EVENTS": "SELECT count(*) FROM FECS_EVENTS",
    "ETW_EVENTS": "SELECT count(*) FROM ETW_EVENTS",
    "PERF_EVENT_CPU_CORE": "SELECT count(*) FROM PERF_EVENT_CPU_CORE",
    "PERF_EVENT_SOC_OR_CPU": "SELECT count(*) FROM PERF_EVENT_SOC_OR_CPU",
}
# What describes events and holds none: not counted as ignored.
_AROUND = ("ENUM_", "TARGET_INFO_", "META_DATA_", "sqlite_")
_NAMES = {
    "StringIds",
    "ThreadNames",
    "PROCESSES",
    "ProcessStreams",
    "ANALYSIS_FILE",
    "ANALYSIS_DETAILS",
    "NVTX_PAYLOAD_SCHEMAS",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES",
}
DECLARED = tuple(_COUNT)


def count_ignored(database: sqlite3.Connection, present: dict[str, str]) -> dict[str, int | None]:
    """How many rows each table has that is not read; none where it is not known well enough to be asked."""
    found: dict[str, int | None] = {}
    for name in sorted(present):
        if name.startswith(_AROUND) or name in _NAMES:
            continue
        count = None
        if name in _COUNT and present[name] == "table":
            try:
                count = int(database.execute(_COUNT[name]).fetchone()[0])
            except sqlite3.Error:
                count = None
        if count != 0:
            found[name] = count
    return found
