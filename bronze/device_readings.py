"""The readers of device counters: nvidia-smi CSV, DCGM exporter text, and the conf-compute query."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from bronze import json_text
from bronze.csv_records import MOST_CELLS, MOST_RECORD_BYTES, describe_width, header_cells, records
from bronze.dates import parse_date
from bronze.decimals import fit_nanoseconds, parse_integer, parse_nanoseconds, parse_number, scale_decimal
from bronze.device_samples import TABLE
from bronze.lines import as_text, split_lines
from bronze.records import RecordReader
from bronze.tolerant_parser import UnreadableRange, make_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.csv_records import Record
    from bronze.limits import Limits

VERSION = 2
_BEYOND = "its time lies outside the years 1823 to 2116, beyond which times are not computed with"
_FIELD = re.compile(r"([a-z][a-z0-9_.]{0,80})(?:\s*\[([^\[\]]{1,16})\])?")
_COUNTERS = re.compile(r"(?:utilization|memory|power|temperature|clocks|pcie|ecc|enforced|fan|encoder)\.")
_CELL = re.compile(r"([+-]?[0-9]+(?:\.[0-9]+)?)(?:\s+([^\s0-9][^\s]{0,15}))?")
_NOTHING = re.compile(r"\[(.{1,60})\]|N/A")
_IDENTITY = {
    "timestamp": "wall_ns",
    "index": "device_id",
    "uuid": "device_uuid",
    "gpu_uuid": "device_uuid",
    "name": "device_name",
    "gpu_name": "device_name",
}
_METRIC = re.compile(
    r"(DCGM_[A-Za-z0-9_]{1,120})(?:\{((?:[^{}\"\\]|\"(?:[^\"\\]|\\.)*\")*)\})?\s+(\S{1,64})(?:\s+(-?\d{1,19}))?\s*"
)
_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*,?')
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
# What DCGM prints where it has nothing: the last values of 64 bits and of 32 bits, and 2 to the 47th.
_BLANKS = (0x7FFFFFFFFFFFFFF0, 0x7FFFFFF0, 1 << 47)
_WHY = ("it is blank", "it was not found", "it is not supported", "it is not permitted")
_CC_FACTS = re.compile(
    rb"^\s*(?:CC State|CC status|Multi-GPU Mode|Confidential Compute GPUs Ready state)\s*:", re.MULTILINE
)


# -- nvidia-smi -----------------------------------------------------------------------------------------------------


def is_smi_header(header: list[str]) -> bool:
    """Whether every cell is a query field, and at least one is a counter."""
    fields = [_FIELD.fullmatch(cell) for cell in header]
    return bool(fields) and all(fields) and any(field and _COUNTERS.match(field[1]) for field in fields)


def is_nvidia_smi(head: bytes) -> bool:
    """Whether the first line is the header of a query."""
    first = next((line for line in head.splitlines() if line.strip()), b"")
    cells_found = header_cells(first) or [as_text(first[:256]).strip()]
    return is_smi_header(cells_found)


class NvidiaSmiReader(RecordReader):
    """One pass over one `nvidia-smi --query-gpu=… --format=csv`."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(TABLE)
        self._records = records(split_lines(blocks, min(MOST_RECORD_BYTES, limits.max_event_bytes)))
        self._fields: list[tuple[str, str | None]] | None = None

    def _read(self) -> Iterator[None]:
        for found in self._records:
            if isinstance(found, UnreadableRange):
                self.report(found)
                yield
                continue
            for record in found:
                if record.is_blank or self._begins(record):
                    self.passed_count += 1
                elif self._fields is None or len(record.cells) != len(self._fields):
                    self.report(describe_width(record, len(self._fields or ())))
                else:
                    self._take(record, self._fields)
                yield

    def _begins(self, record: Record) -> bool:
        """Whether the record is a header; a query in a loop may be started again into the same file."""
        header = [cell.strip() for cell in record.cells[: MOST_CELLS + 1]]
        if len(header) > MOST_CELLS or not is_smi_header(header):
            return False
        found = [_FIELD.fullmatch(cell) for cell in header]
        self._fields = [(field[1], field[2]) for field in found if field is not None]
        return True

    def _take(self, record: Record, fields: list[tuple[str, str | None]]) -> None:
        stripped = [cell.strip() for cell in record.cells]
        if any(name == "timestamp" and _is_beyond(cell) for (name, _), cell in zip(fields, stripped, strict=True)):
            self.report(make_range(record.offset, len(record.data), _BEYOND, record.data))
            return
        identity: dict[str, Any] = {"offset_bytes": record.offset, "tool": "nvidia_smi"}
        readings = []
        for (name, unit), cell in zip(fields, stripped, strict=True):
            column = _IDENTITY.get(name)
            value = _identity(column, cell) if column is not None and column not in identity else None
            if column is not None and value is not None:
                identity[column] = value
            else:
                readings.append((name, unit, cell))
        for name, unit, cell in readings:
            self.add(TABLE, {**identity, "metric": name, **_reading(cell, unit)}, 128 + len(cell))


def _identity(column: str, cell: str) -> Any:
    if column == "wall_ns":
        return _wall_ns(cell)
    return parse_integer(cell) if column == "device_id" else cell or None


def _is_beyond(cell: str) -> bool:
    """Whether it is a date that no column can hold."""
    moment = _wall_ns(cell)
    return moment is not None and fit_nanoseconds(moment) is None


def _wall_ns(cell: str) -> int | None:
    found = parse_date(cell)
    return None if found is None else found[0]


def _reading(cell: str, unit: str | None) -> dict[str, Any]:
    """A cell with its unit taken off; one in brackets says why there is no number."""
    nothing = _NOTHING.fullmatch(cell)
    if nothing is not None:
        return {"unit": unit, "value": cell, "missing_reason": f"nvidia-smi prints {cell}"}
    found = _CELL.fullmatch(cell)
    if found is None or (unit and found[2] and found[2] != unit):
        return {"unit": unit, "value": cell or None}
    return {"unit": unit or found[2], "value": found[1], "value_number": parse_number(found[1])[0]}


# -- DCGM -----------------------------------------------------------------------------------------------------------


def is_dcgm(head: bytes) -> bool:
    """Whether one of the lines is a reading of DCGM's exporter."""
    return any(_METRIC.fullmatch(as_text(line)) for line in head.splitlines()[:4096] if line.startswith(b"DCGM_"))


class DcgmReader(RecordReader):
    """One pass over one scrape, or several one after another."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(TABLE)
        self._lines = split_lines(blocks, min(MOST_RECORD_BYTES, limits.max_event_bytes))

    def _read(self) -> Iterator[None]:
        for line in self._lines:
            if isinstance(line, UnreadableRange):
                self.report(line)
            elif not line[1].strip() or line[1].startswith(b"#"):
                self.passed_count += 1
            else:
                self._take(*line)
            yield

    def _take(self, offset: int, data: bytes) -> None:
        found = _METRIC.fullmatch(as_text(data))
        labels = {} if found is None else {key: _unescape(text) for key, text in _LABEL.findall(found[2] or "")}
        if found is None or _LABEL.sub("", found[2] or "").strip():
            self.report(make_range(offset, len(data), "it is no reading of the DCGM exporter", data))
            return
        ts_ns = parse_nanoseconds(found[4], 1_000_000)[0] if found[4] else None
        if found[4] and ts_ns is None:
            self.report(make_range(offset, len(data), _BEYOND, data))
            return
        value, reason = parse_number(found[3])[0], _is_blank_value(found[3])
        self.add(
            TABLE,
            {
                "offset_bytes": offset,
                "tool": "dcgm",
                "ts_ns": ts_ns,
                "device_id": parse_integer(labels.get("gpu", "")),
                "device_uuid": labels.get("UUID"),
                "device_name": labels.get("modelName"),
                "metric": found[1],
                "value": found[3],
                "value_number": None if reason else value,
                "missing_reason": reason,
                "labels": json_text.compact_json(labels),
            },
            len(data) + 128,
        )


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text)


def _is_blank_value(value: str) -> str | None:
    """Why a value stands for none."""
    exact, is_whole = scale_decimal(value, 1)
    if exact is None or not is_whole:
        return None
    why = next((_WHY[exact - blank] for blank in _BLANKS if 0 <= exact - blank < len(_WHY)), None)
    return why and f"DCGM prints {value}, which stands for: {why}"


# -- conf-compute ---------------------------------------------------------------------------------------------------


def is_conf_compute(head: bytes) -> bool:
    """Whether it is what `nvidia-smi conf-compute` prints."""
    return b"CONF-COMPUTE LOG" in head[:4096] or _CC_FACTS.search(head[:4096]) is not None


class ConfComputeReader(RecordReader):
    """One pass over one answer: a reading for every `name : value` line."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(TABLE)
        self._lines = split_lines(blocks, min(MOST_RECORD_BYTES, limits.max_event_bytes))

    def _read(self) -> Iterator[None]:
        for line in self._lines:
            if isinstance(line, UnreadableRange):
                self.report(line)
                yield
                continue
            offset, data = line
            name, colon, value = as_text(data).partition(":")
            if colon and name.strip():
                row = {
                    "offset_bytes": offset,
                    "tool": "conf_compute",
                    "metric": name.strip(),
                    "value": value.strip() or None,
                }
                self.add(TABLE, row, len(data) + 128)
            else:
                self.passed_count += 1
            yield
