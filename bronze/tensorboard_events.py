"""The reader of TensorBoard's event files: TFRecords of protobuf messages, of which scalars are taken."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from bronze import training_log
from bronze.decimals import fit_int64, parse_nanoseconds
from bronze.protobuf_wire import BYTES, FIXED32, FIXED64, VARINT, pick_field, split_fields
from bronze.records import RecordReader
from bronze.scalars import make_scalar
from bronze.tolerant_parser import make_range

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bronze.limits import Limits

VERSION = 1
_MARK = b"brain.Event:"
_HEADER = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_SECOND_NS = 1_000_000_000
# Scalars are small; what is larger (pictures, graphs, histograms) is passed by, and its checksum is not computed.
_MOST_SCALAR_BYTES = 1 << 16
_FLOAT, _DOUBLE = 1, 2
_POLYNOMIAL = 0x82F63B78


def _make_table() -> list[int]:
    table = []
    for number in range(256):
        value = number
        for _ in range(8):
            value = (value >> 1) ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _make_table()


def mask_crc(data: bytes) -> int:
    """The checksum that a TFRecord keeps: CRC-32C, rotated and shifted."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def is_events(head: bytes) -> bool:
    """Whether the first record says which version of the format follows."""
    return len(head) > _HEADER.size and _MARK in head[_HEADER.size : _HEADER.size + 64] and _is_header(head)


def _is_header(data: bytes) -> bool:
    return bool(mask_crc(data[:8]) == _HEADER.unpack_from(data)[1])


class TensorBoardReader(RecordReader):
    """One pass over one event file; a record whose checksum is wrong is reported, and the next one is read."""

    def __init__(self, blocks: Iterator[bytes], limits: Limits) -> None:
        super().__init__(training_log.TABLE)
        self._blocks = blocks
        self._most_bytes = min(_MOST_SCALAR_BYTES, limits.max_event_bytes)
        self._held = bytearray()
        self._offset = 0

    def _read(self) -> Iterator[None]:
        while self._fill(_HEADER.size):
            if not _is_header(bytes(self._held[: _HEADER.size])):
                self._report_rest("the length of a record is damaged, so that nobody knows where the next one begins")
                return
            length, _ = _HEADER.unpack_from(self._held)
            if not (self._take(length) if length <= self._most_bytes else self._pass_by(length)):
                return
            yield
        if self._held:
            self._report_rest("the file ends within a record")

    def _take(self, length: int) -> bool:
        whole = _HEADER.size + length + _CRC.size
        if not self._fill(whole):
            self._report_rest("the file ends within a record")
            return False
        data = bytes(self._held[_HEADER.size : _HEADER.size + length])
        rows = None
        if _CRC.unpack_from(self._held, _HEADER.size + length)[0] == mask_crc(data):
            rows = list_scalars(data)
        if rows is None:
            self.report(make_range(self._offset, whole, "the checksum or the form of an event is wrong", data))
        elif not rows:
            self.passed_count += 1
        for row in rows or ():
            self.add(training_log.TABLE, {"offset_bytes": self._offset, **row}, 256)
        self._drop(whole)
        return True

    def _pass_by(self, length: int) -> bool:
        left = _HEADER.size + length + _CRC.size
        while left:
            if not self._fill(1):
                self._report_rest("the file ends within a record")
                return False
            step = min(left, len(self._held))
            self._drop(step)
            left -= step
        self.passed_count += 1
        return True

    def _fill(self, count: int) -> bool:
        while len(self._held) < count:
            block = next(self._blocks, None)
            if block is None:
                return False
            self._held += block
        return True

    def _drop(self, count: int) -> None:
        del self._held[:count]
        self._offset += count

    def _report_rest(self, reason: str) -> None:
        begins, start = bytes(self._held[:64]), self._offset
        self._drop(len(self._held))
        for block in self._blocks:
            self._offset += len(block)
        self.cut_short(make_range(start, self._offset - start, reason, begins))


def list_scalars(event: bytes) -> list[dict[str, Any]] | None:
    """The scalars of one event, each with its time, step and tag; none where the message is not well formed."""
    try:
        fields = list(split_fields(event))
        wall, step = pick_field(fields, 1, FIXED64), pick_field(fields, 2, VARINT)
        seconds = struct.unpack("<d", wall)[0] if isinstance(wall, bytes) else 0.0
        ts_ns = parse_nanoseconds(repr(seconds), _SECOND_NS)[0] if isinstance(wall, bytes) else None
        number = fit_int64(step - (1 << 64) if isinstance(step, int) and step >> 63 else step or 0)
        rows = []
        for message in (value for place, _, value in fields if place == 5 and isinstance(value, bytes)):
            for value in (inner for place, kind, inner in split_fields(message) if (place, kind) == (1, BYTES)):
                found = _read_value(list(split_fields(value)))
                if found is not None:
                    rows.append(make_scalar(ts_ns, number, *found))
    except (ValueError, IndexError, struct.error):
        return None
    return rows


def _read_value(fields: list[tuple[int, int, Any]]) -> tuple[str, float] | None:
    """The tag and number of a value: as a plain float, or as a tensor of one."""
    tag, simple, tensor = pick_field(fields, 1, BYTES), pick_field(fields, 2, FIXED32), pick_field(fields, 8, BYTES)
    if tag is None:
        return None
    name = tag.decode("utf-8", "backslashreplace")
    if simple is not None:
        return name, struct.unpack("<f", simple)[0]
    inner = [] if tensor is None else list(split_fields(tensor))
    kind = pick_field(inner, 1, VARINT)
    for place, code, wanted in ((5, "<f", _FLOAT), (6, "<d", _DOUBLE), (4, "<f" if kind == _FLOAT else "<d", kind)):
        data = next((value for at, _, value in inner if at == place), None)
        if kind == wanted and kind in {_FLOAT, _DOUBLE} and data is not None and len(data) == struct.calcsize(code):
            return name, struct.unpack(code, data)[0]
    return None
