"""Allocators that give back what was freed: told before the libraries that bring them are loaded.

What a run holds at once is about two thirds of what its process keeps otherwise: Polars has an arena for each thread,
Arrow a pool of its own, and the system keeps the rest (docs/performance.md).
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

# glibc's own number of M_TRIM_THRESHOLD, and how much it may keep at the top of the heap.
_M_TRIM_THRESHOLD = -1
_TRIM_BYTES = 131_072
_SPARING = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "_RJEM_MALLOC_CONF": "narenas:1",  # jemalloc, as Polars has it inside
    "MALLOC_TRIM_THRESHOLD_": str(_TRIM_BYTES),  # for processes that we start
}


def spare_memory() -> None:
    """Tell allocators of this process and of those that it starts to be sparing; what somebody has set stays."""
    is_chosen = "MALLOC_TRIM_THRESHOLD_" in os.environ  # read when this process started
    for name, value in _SPARING.items():
        os.environ.setdefault(name, value)
    if not is_chosen:
        with suppress(OSError, AttributeError):  # another system's library has no such setting
            ctypes.CDLL(None).mallopt(_M_TRIM_THRESHOLD, _TRIM_BYTES)
