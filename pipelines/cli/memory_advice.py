"""Whether a run fits this machine: modelled from what tiers were measured to need (docs/engines.md)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lake.landed_files import LandedFile

# Measured on one rank (docs/performance.md): 544, 587 and 836 MB at 237, 1,173 and 4,683 MB of JSON, a tenth more where
# Arrow's allocator is its own; the line lies well above all three.
_START_BYTES = 650_000_000
_PER_PLAIN_BYTE = 0.1
# Measured on the recordings: what gzip and zstd make of a trace.
_INFLATED = 15
_PACKED = (".gz", ".zst")
# The rest is for whoever else is on the machine, and for the disk's cache.
_SHARE = 0.5
_LIMIT = Path("/sys/fs/cgroup/memory.max")


def advise_memory(files: Mapping[str, Iterable[LandedFile]], memory_bytes: int) -> str | None:
    """What to tell of the largest run where it needs more than half of the memory; nothing where all fit."""
    needs = {run_id: _estimate_need(listed) for run_id, listed in files.items()}
    largest = max(needs, key=lambda run_id: needs[run_id], default=None)
    if largest is None or needs[largest] <= memory_bytes * _SHARE:
        return None
    return (
        f"hint: {largest} may need {needs[largest] / 1e9:.1f} GB of memory (modelled), and this machine has "
        f"{memory_bytes / 1e9:.1f} GB: with TEETOTAL_SPARK and --engine spark its ranks are spread over machines "
        "(docs/engines.md)"
    )


def find_memory() -> int:
    """The memory of this machine, or of the container that we are in."""
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limit = _LIMIT.read_text().strip() if _LIMIT.is_file() else ""
    return min(whole, int(limit)) if limit.isdecimal() else whole


def _estimate_need(files: Iterable[LandedFile]) -> float:
    plain = sum((file.size_bytes or 0) * (_INFLATED if file.name.endswith(_PACKED) else 1) for file in files)
    return _START_BYTES + _PER_PLAIN_BYTE * plain
