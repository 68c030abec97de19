"""What stands around the events of an Nsight Systems export: hosts, GPU names, metrics, layouts of payloads."""

from __future__ import annotations

import hashlib
import sqlite3
from typing import TYPE_CHECKING, Any

from bronze import json_text, untrusted_sqlite
from bronze.decimals import fit_int64

if TYPE_CHECKING:
    from collections.abc import Callable

# A few rows each; written out, because a query is a literal.
QUERIES = {
    "TARGET_INFO_SESSION_START_TIME": "SELECT * FROM TARGET_INFO_SESSION_START_TIME LIMIT 100",
    "TARGET_INFO_SYSTEM_ENV": "SELECT * FROM TARGET_INFO_SYSTEM_ENV LIMIT 1000",
    "TARGET_INFO_GPU": "SELECT * FROM TARGET_INFO_GPU LIMIT 100",
    "TARGET_INFO_CUDA_DEVICE": "SELECT * FROM TARGET_INFO_CUDA_DEVICE LIMIT 1000",
    "META_DATA_EXPORT": "SELECT * FROM META_DATA_EXPORT LIMIT 100",
    "TARGET_INFO_GPU_METRICS": "SELECT typeId, metricId, metricName FROM TARGET_INFO_GPU_METRICS LIMIT 10000",
    "NVTX_PAYLOAD_SCHEMA_ENTRIES": (
        "SELECT domainId, schemaId, name, type, offset FROM NVTX_PAYLOAD_SCHEMA_ENTRIES LIMIT 100000"
    ),
}
# Those that only events need: the others are kept in the envelope as they are.
_USED = ("TARGET_INFO_GPU_METRICS", "NVTX_PAYLOAD_SCHEMA_ENTRIES")
KEPT = tuple(name for name in QUERIES if name not in _USED)
# A global id holds the host in its upper, the process in its middle and the thread in its lower bits.
ID_BITS, HOST_BITS = 24, 48
ID_MASK = (1 << ID_BITS) - 1
_HEADER_BYTES, _INT_BYTES = 32, 4
_INT = 5
_NCCL = {"Rank": "nccl_rank", "No. of ranks": "nccl_ranks_count"}
_MOST_RANKS = 1 << 24


class Around:
    """What a database says beside its events, as far as events need it."""

    def __init__(self) -> None:
        self.session_ns: int | None = None
        self._hosts: dict[int, str] = {}
        self._gpus: dict[tuple[int, int], str] = {}
        self._metrics: dict[tuple[int, int], str] = {}
        self._offsets: dict[tuple[int, int], dict[str, int]] = {}

    def take(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Learn from the rows of one small table."""
        learn: dict[str, Callable[[dict[str, Any]], None]] = {
            "TARGET_INFO_SYSTEM_ENV": self._learn_host,
            "TARGET_INFO_GPU": self._learn_gpu,
            "TARGET_INFO_GPU_METRICS": self._learn_metric,
            "NVTX_PAYLOAD_SCHEMA_ENTRIES": self._learn_entry,
        }
        for row in rows:
            if name in learn:
                learn[name](row)

    def _learn_host(self, row: dict[str, Any]) -> None:
        vid, value = fit_int64(row.get("globalVid")), row.get("value")
        if vid is not None and row.get("name") == "Hostname" and isinstance(value, str) and value:
            self._hosts[vid >> HOST_BITS] = hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()[:16]

    def _learn_gpu(self, row: dict[str, Any]) -> None:
        vid, number, name = fit_int64(row.get("vmId")), fit_int64(row.get("cuDevice", row.get("id"))), row.get("name")
        if vid is not None and number is not None and isinstance(name, str):
            self._gpus[vid >> HOST_BITS, number] = name

    def _learn_metric(self, row: dict[str, Any]) -> None:
        kind, number, name = fit_int64(row.get("typeId")), fit_int64(row.get("metricId")), row.get("metricName")
        if kind is not None and number is not None and isinstance(name, str):
            self._metrics[kind, number] = name

    def _learn_entry(self, row: dict[str, Any]) -> None:
        domain, schema = fit_int64(row.get("domainId")), fit_int64(row.get("schemaId"))
        offset = fit_int64(row.get("offset")) or 0
        if domain is not None and schema is not None and row.get("name") in _NCCL and row.get("type") == _INT:
            self._offsets.setdefault((domain, schema), {})[_NCCL[row["name"]]] = offset

    def place(self, row: dict[str, Any], left: dict[str, Any]) -> None:
        """Take host, process and thread out of the global id, which stays as it is beside them."""
        thread, process = fit_int64(left.get("globalTid")), fit_int64(left.get("globalPid"))
        if thread is not None:
            row["thread_id"] = str(thread & ID_MASK)
        both = thread if thread is not None else process
        if both is not None:
            row["process_id"] = str(both >> ID_BITS & ID_MASK)
            row["host_id"] = self._hosts.get(both >> HOST_BITS, f"host {both >> HOST_BITS}")
            row["device_name"] = self._gpus.get((both >> HOST_BITS, row.get("device_id") or 0))
            row["device_name"] = None if row.get("device_id") is None else row["device_name"]

    def metric(self, left: dict[str, Any]) -> str | None:
        """The name of a GPU metric."""
        return self._metrics.get((fit_int64(left.get("typeId")) or 0, fit_int64(left.get("metricId")) or 0))

    def nccl(self, left: dict[str, Any]) -> dict[str, int]:
        """The rank that NCCL's annotation gives its process: from its JSON text, else from its payload's bytes."""
        found: dict[str, Any] = {}
        said = left.get("jsonText")
        if isinstance(said, str):
            members = json_text.parse_object(said) or {}
            found = {column: members.get(name) for name, column in _NCCL.items()}
        payload = left.get("binaryData")
        if isinstance(payload, bytes) and len(payload) > _HEADER_BYTES:
            domain, schema, _, start = (int.from_bytes(payload[at : at + 8], "little") for at in range(0, 32, 8))
            for column, offset in self._offsets.get((domain, schema), {}).items():
                value = payload[start + offset : start + offset + _INT_BYTES]
                found[column] = int.from_bytes(value, "little", signed=True) if len(value) == _INT_BYTES else None
        whole = {column: fit_int64(value) for column, value in found.items()}
        numbers = {column: value for column, value in whole.items() if value is not None and 0 <= value < _MOST_RANKS}
        return numbers if len(numbers) == len(_NCCL) and numbers["nccl_rank"] < numbers["nccl_ranks_count"] else {}


def read_small(database: sqlite3.Connection, name: str) -> list[dict[str, Any]]:
    """The rows of a small table, by column."""
    cursor = database.execute(QUERIES[name])
    headers = [column[0] for column in cursor.description]
    return [{h: untrusted_sqlite.to_json_value(v) for h, v in zip(headers, row, strict=True)} for row in cursor]
