"""Large traces made from a recording: its real events again and again, shifted in time, ids kept apart."""

from __future__ import annotations

import gzip
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_OPEN = re.compile(r'"traceEvents": \[')
_NUMBERS = re.compile(r'("ts": |"correlation": |"External id": |"id": |ProfilerStep#)(\d+)')
_TIMES = re.compile(r'"ts": (\d+)(?:\.\d+)?(?:, "dur": (\d+))?')
_RANK = re.compile(r'("rank": )\d+(, "world_size": )\d+')
_BASE = re.compile(r'"baseTimeNanoseconds": (\d+)')
_ID_STRIDE = 1_000_000
_STEP_STRIDE = 1_000


def events_in(text: str) -> int:
    """How many events a trace in Kineto's own layout has."""
    return text.count('\n    "ph": ') + text.count(', "ph": ')


def enlarge(recording: Path, target: Path, events: int) -> tuple[int, int]:
    """Write at least so many events, made from a recording; give the number of events and of plain bytes."""
    head, body, tail = _split_trace(recording)
    each = events_in(body)
    copies = -(-events // each)
    times = [(int(ts), int(dur or 0)) for ts, dur in _TIMES.findall(body)]
    period = max(ts + dur for ts, dur in times) - min(ts for ts, _ in times) + 1_000
    size = 0
    with gzip.open(target, "wt", encoding="utf-8", compresslevel=6) as file:
        for part in (head, *(_shift_events(body, copy, period) for copy in range(copies)), tail):
            size += file.write(part)
    return each * copies, size


def many_ranks(recording: Path, folder: Path, ranks: int, events: int) -> tuple[int, int]:
    """Write a trace a rank, each of at least so many real events and a microsecond after the last.

    Only the head of a file differs from rank to rank: its rank, the size of its world and its base time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    whole = folder / "whole.json.gz"
    count, size = enlarge(recording, whole, events)
    head, body, tail = _split_trace(whole)
    whole.unlink()
    _write_ranks(folder, "", ranks, (head, body, tail))
    return count * ranks, size * ranks


def write_cycle(recording: Path, folder: Path, ranks: int, cycle: int) -> int:
    """Write one cycle of a profiler: a trace a rank, the recording's own events, later by so many cycles."""
    folder.mkdir(parents=True, exist_ok=True)
    head, body, tail = _split_trace(recording)
    times = [(int(ts), int(dur or 0)) for ts, dur in _TIMES.findall(body)]
    period = max(ts + dur for ts, dur in times) - min(ts for ts, _ in times) + 1_000_000
    moved = _shift_events(body, cycle, period).removeprefix(",")
    _write_ranks(folder, f"c{cycle}-", ranks, (head, moved, tail))
    return events_in(body) * ranks


def _write_ranks(folder: Path, prefix: str, ranks: int, parts: tuple[str, str, str]) -> None:
    """Write a trace a rank, each a microsecond after the last."""
    head, *rest = parts
    for rank in range(ranks):
        header = _RANK.sub(rf"\g<1>{rank}\g<2>{ranks}", head)
        for found in _BASE.findall(header):
            header = header.replace(found, str(int(found) + rank * 1_000))
        with gzip.open(folder / f"{prefix}r{rank}.json.gz", "wt", encoding="utf-8", compresslevel=1) as file:
            file.writelines((header, *rest))


def _split_trace(recording: Path) -> tuple[str, str, str]:
    """What comes before a trace's events, the events, and what comes after."""
    with gzip.open(recording, "rt", encoding="utf-8") as file:
        text = file.read()
    opening = _OPEN.search(text)
    if opening is None:
        raise SystemExit(f"{recording} has no traceEvents array in Kineto's own layout")
    start, end = opening.end(), text.rindex("\n  ]")
    return text[:start], text[start:end], text[end:]


def _shift_events(body: str, copy: int, period: int) -> str:
    """The events once more, `copy` periods later, with ids of their own."""
    strides = {'"ts": ': period, "ProfilerStep#": _STEP_STRIDE}

    def later(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[2]) + copy * strides.get(match[1], _ID_STRIDE)}"

    moved = _NUMBERS.sub(later, body)
    return moved if copy == 0 else f",{moved}"
