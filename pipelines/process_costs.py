"""What Python itself adds to a command of ours: searches for cycles while it imports, and a long end."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn

# How many objects are made between two searches for cycles among the young; Python's own number is 700. The libraries
# that a launch imports make a million that stay.
_YOUNG_OBJECTS = 10_000
_FAILED = 1


def search_cycles_rarely() -> None:
    """Look for cycles among young objects less often: their count, not their size, decides what a search costs."""
    _, older, oldest = gc.get_threshold()
    gc.set_threshold(_YOUNG_OBJECTS, older, oldest)


def end_process(code: object) -> NoReturn:
    """End with an exit code of `SystemExit`, as Python would, but without taking down each object first.

    Threads are waited for, what was registered for the end is called and streams are flushed; after a launch, what
    Python does beyond that takes a second.
    """
    with suppress(KeyboardInterrupt):  # somebody who will not wait
        threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001 - Python's own first step
        atexit._run_exitfuncs()  # noqa: SLF001 - its second
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
    number = code if isinstance(code, int) else 0 if code is None else _FAILED
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # nobody reads any more, or the disk is full: as Python says it
        number = number or _FAILED
    with suppress(OSError, ValueError):
        sys.stderr.flush()
    os._exit(number)
