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
_ID_STRIDE = 1_000_000
_STEP_STRIDE = 1_000


def events_in(text: str) -> int:
    """How many events a trace in Kineto's own layout has."""
    return text.count('\n    "ph": ') + text.count(', "ph": ')


def enlarge(recording: Path, target: Path, events: int) -> tuple[int, int]:
    """Write at least so many events, made from a recording; give the number of events and of plain bytes."""
    with gzip.open(recording, "rt", encoding="utf-8") as file:
        text = file.read()
    opening = _OPEN.search(text)
    if opening is None:
        raise SystemExit(f"{recording} has no traceEvents array in Kineto's own layout")
    start, end = opening.end(), text.rindex("\n  ]")
    head, body, tail = text[:start], text[start:end], text[end:]
    each = events_in(body)
    copies = -(-events // each)
    times = [(int(ts), int(dur or 0)) for ts, dur in _TIMES.findall(body)]
    period = max(ts + dur for ts, dur in times) - min(ts for ts, _ in times) + 1_000
    size = 0
    with gzip.open(target, "wt", encoding="utf-8", compresslevel=6) as file:
        for part in (head, *(_shifted(body, copy, period) for copy in range(copies)), tail):
            size += file.write(part)
    return each * copies, size


def _shifted(body: str, copy: int, period: int) -> str:
    """The events once more, `copy` periods later, with ids of their own."""
    strides = {'"ts": ': period, "ProfilerStep#": _STEP_STRIDE}

    def later(match: re.Match[str]) -> str:
        return f"{match[1]}{int(match[2]) + copy * strides.get(match[1], _ID_STRIDE)}"

    moved = _NUMBERS.sub(later, body)
    return moved if copy == 0 else f",{moved}"
