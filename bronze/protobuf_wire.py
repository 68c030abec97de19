"""The wire format of protobuf: a message as its fields, without a schema; what is not well formed raises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def pick_field(fields: list[tuple[int, int, Any]], place: int, kind: int) -> Any:
    """The last value of a field, as protobuf has it; none where it is not there."""
    return next((value for at, found, value in reversed(fields) if (at, found) == (place, kind)), None)


def split_fields(message: bytes) -> Iterator[tuple[int, int, Any]]:
    """The fields of a protobuf message: number, kind and value."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        kind = key & 7
        if kind == VARINT:
            value, at = _read_varint(message, at)
            yield key >> 3, kind, value
            continue
        length, at = _read_varint(message, at) if kind == BYTES else (_count_fixed(kind), at)
        if at + length > len(message):
            raise ValueError("a field ends beyond its message")
        yield key >> 3, kind, message[at : at + length]
        at += length


def _count_fixed(kind: int) -> int:
    if kind not in {FIXED64, FIXED32}:
        raise ValueError(f"no field is of kind {kind}")
    return 8 if kind == FIXED64 else 4


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value & ((1 << 64) - 1), at
        if shift > 63:
            raise ValueError("a number has too many bytes")
