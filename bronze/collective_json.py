"""The readers of collectives in JSON: NCCL Inspector's lines, and the document of nccl-tests."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from bronze import json_text
from bronze.collective_records import TABLE
from bronze.decimals import fit_int64, parse_nanoseconds
from bronze.lines import as_text, split_lines
from bronze.records import RecordReader
from bronze.tolerant_parser import UnreadableRange, make_range
from lake.errors import EvidenceRejected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.limits import Limits

VERSION = 1
_MICROSECOND_NS = 1_000
_MOST_DOCUMENT_BYTES = 16 << 20


def is_inspector(head: bytes) -> bool:
    """Whether one of the first lines is an object with the Inspector's members."""
    return any(
        line.lstrip().startswith(b"{") and b'"coll_perf"' in line and b'"header"' in line
        for line in head.splitlines()[:64]
    )


def is_nccl_tests(head: bytes) -> bool:
    """Whether it is a document with the results of nccl-tests."""
    return head.lstrip().startswith(b"{") and b'"results"' in head and b'"out_of_place"' in head


class InspectorReader(RecordReader):
    """One pass over one file of the Inspector: an object a line."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(TABLE)
        self._lines = split_lines(blocks, limits.max_event_bytes)

    def _read(self) -> Iterator[None]:
        for line in self._lines:
            if isinstance(line, UnreadableRange):
                self.report(line)
            elif not line[1].strip():
                self.passed_count += 1
            else:
                self._take(*line)
            yield

    def _take(self, offset: int, data: bytes) -> None:
        said = json_text.parse_object(as_text(data))
        parts = {name: said.pop(name, None) for name in ("header", "metadata", "coll_perf")} if said is not None else {}
        if said is None or not isinstance(parts["coll_perf"], dict):
            why = "it is no JSON object" if said is None else "it says nothing of a collective"
            self.report(make_range(offset, len(data), why, data))
            return
        header, metadata, perf = (_members(said, name, part) for name, part in parts.items())
        rank = fit_int64(header.get("rank"))
        row: dict[str, Any] = {"offset_bytes": offset, "record": "inspector"}
        row["rank"] = header.pop("rank") if rank is not None and 0 <= rank < 1 << 31 else None
        row["group_size"] = _pop_integer(header, "n_ranks")
        row["communicator_id"] = _pop_text(header, "id")
        row["host"] = _pop_text(metadata, "hostname")
        process = _pop_integer(metadata, "pid")
        row["process_id"] = None if process is None else str(process)
        row["ts_ns"] = _pop_time(metadata, "dump_timestamp_us")
        row["collective_name"] = _pop_text(perf, "coll")
        row["collective_sequence"] = _pop_integer(perf, "coll_sn")
        row["payload_bytes"] = _pop_integer(perf, "coll_msg_size_bytes")
        row["duration_ns"] = _pop_time(perf, "coll_exec_time_us")
        row["timing_source"] = _pop_text(perf, "coll_timing_source")
        row["algorithm"] = _pop_text(perf, "coll_algo")
        row["protocol"] = _pop_text(perf, "coll_proto")
        left = {"header": header, "metadata": metadata, "coll_perf": perf}
        row["args"] = json_text.compact_json(said | {name: part for name, part in left.items() if part})
        self.add(TABLE, row, len(data) + 256)


class NcclTestsReader(RecordReader):
    """One document, read whole: a benchmark has a few dozen sizes."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(TABLE)
        self._blocks = blocks
        self._most_bytes = min(_MOST_DOCUMENT_BYTES, limits.max_event_bytes)

    def _read(self) -> Iterator[None]:
        data = read_document(self._blocks, self._most_bytes)
        document = json_text.parse_object(as_text(data))
        if document is None or not isinstance(document.get("results"), list):
            raise EvidenceRejected("it looks like a document of nccl-tests, and is no JSON with a list of results")
        for number, result in enumerate(document.pop("results")):
            if isinstance(result, dict):
                self._take(number, dict(result), len(data))
            else:
                self.report(make_range(number, 0, f"result {number} is no object", b""))
            yield
        for key, value in document.items():
            text = json_text.write_json(value)
            if not self.envelope.keep(json.dumps(key)[1:-1], text):
                self.report(make_range(0, 0, f"the member {key[:80]!r} of the document is too large to be kept", b""))

    def _take(self, number: int, left: dict[str, Any], size: int) -> None:
        row: dict[str, Any] = {"offset_bytes": number, "record": "nccl_tests"}
        row["payload_bytes"], row["elements_count"] = _pop_integer(left, "size"), _pop_integer(left, "count")
        row["dtype"], row["reduction"] = _pop_text(left, "type"), _pop_text(left, "redop")
        root = left.pop("root", None)
        row["root"] = None if root is None else str(root).strip()
        for name, column in (("out_of_place", "duration_ns"), ("in_place", "in_place_duration_ns")):
            part = left.get(name)
            if isinstance(part, dict):
                row[column] = _pop_time(dict(part), "time")
        row["args"] = json_text.compact_json(left)
        self.add(TABLE, row, min(size, 4096))


def read_document(blocks: Iterator[bytes], most_bytes: int) -> bytes:
    """All bytes of a small document; a large one is refused."""
    found: list[bytes] = []
    size = 0
    for block in blocks:
        size += len(block)
        if size > most_bytes:
            raise EvidenceRejected(
                f"it is one JSON document of more than {most_bytes:,} bytes, and would have to be read whole"
            )
        found.append(block)
    return b"".join(found)


def _members(said: dict[str, Any], name: str, part: Any) -> dict[str, Any]:
    """The members of a part; one that is no object stays where it was."""
    if isinstance(part, dict):
        return dict(part)
    if part is not None:
        said[name] = part
    return {}


def _pop_integer(left: dict[str, Any], key: str) -> int | None:
    """A whole number out of what is left; anything else stays there."""
    value = fit_int64(left.get(key))
    if value is not None:
        del left[key]
    return value


def _pop_text(left: dict[str, Any], key: str) -> str | None:
    value = left.get(key)
    return left.pop(key) if isinstance(value, str) else None


def _pop_time(left: dict[str, Any], key: str) -> int | None:
    """Microseconds as nanoseconds, taken out where that is exact."""
    value = left.get(key)
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    found, is_exact = parse_nanoseconds(str(value), _MICROSECOND_NS)
    if is_exact:
        del left[key]
    return found
