"""Cutting a shard where events are parted as the first two were, and believing it only if no key is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from bronze.event_rows import argument_bytes, colons_in_labels, count_carried_keys
from bronze.window import BETWEEN

if TYPE_CHECKING:
    from bronze.event_rows import EventRows
    from bronze.window import Window

_SCAN_BYTES = 1 << 18
_COLON = np.uint16(ord(":") << 8)
_Bytes = np.ndarray[Any, np.dtype[np.uint8]]


def parse_shard(window: Window, rows: EventRows, length: int, parted: bytes) -> pa.RecordBatch | None:
    """The rows of the window's first bytes; none where the cut, the JSON or the count of keys is not right."""
    data = np.frombuffer(window.view(length), np.uint8)
    lead = window.match(BETWEEN)
    start = 0 if lead is None else lead[1]
    has_escapes = window.has(b"\\", length)
    if data[start] != ord("{") or (has_escapes and window.has(b"\\u00", length)):
        return None
    colons = _count_colons(data)
    marks = _find_separators(data, parted)
    starts = np.concatenate((np.array([start]), marks + 1 + len(parted)))
    edges = np.append(starts, length).astype(np.int32)
    texts = pa.StringArray.from_buffers(len(starts), pa.py_buffer(edges), pa.py_buffer(data))
    commas = marks + 1 + parted.index(b",")
    data[commas] = ord(" ")  # so that each event is one JSON document, with blanks behind it
    try:
        texts.validate(full=True)
        decoded = rows.decode(texts)
    except (duckdb.Error, UnicodeDecodeError, pa.ArrowInvalid):
        return None
    finally:
        data[commas] = ord(",")
    missing = colons - count_carried_keys(decoded) - sum(map(_count_colons, argument_bytes(decoded)))
    # A name may hold a colon that looks like a key's; with escapes about, that is for the careful cut to say.
    if missing and (has_escapes or missing != colons_in_labels(decoded)):
        return None
    return rows.rows(decoded, starts.astype(np.int64) + window.offset, None)


def _find_separators(data: _Bytes, parted: bytes) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Where a closing brace is followed by the parting and an opening brace."""
    pattern = b"}" + parted + b"{"
    last = len(data) - len(pattern) + 1
    found = []
    for start in range(0, last, _SCAN_BYTES):
        marks = np.flatnonzero(data[start : min(start + _SCAN_BYTES, last)] == pattern[0]) + start
        for place in range(1, len(pattern)):
            marks = marks[data[marks + place] == pattern[place]]
        found.append(marks)
    return np.concatenate(found) if found else np.zeros(0, np.intp)


def _count_colons(region: Any) -> int:
    """How many colons follow a quote, white space or a control character: each key has one, texts may add some."""
    if not len(region):
        return 0
    data = np.frombuffer(region, np.uint8)
    count = 0
    # Two bytes at a time, once from an even and once from an odd place: one comparison finds a pair.
    for first in (0, 1):
        pairs = data[first : first + (len(data) - first) // 2 * 2].view("<u2")
        for start in range(0, len(pairs), _SCAN_BYTES):
            count += int(np.count_nonzero(pairs[start : start + _SCAN_BYTES] - _COLON <= ord('"')))
    return count
