"""What Python and Arrow add to a command: garbage collection while it imports, pandas, and a slow shutdown."""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

# How many new objects start a garbage collection; Python's own threshold is 700. The libraries that a launch imports
# make a million objects, and nearly all stay.
_NEW_OBJECTS = 10_000
_FAILED = 1


def collect_garbage_rarely() -> None:
    """Let more objects be made between two garbage collections, each of which looks at all new ones."""
    _, older, oldest = gc.get_threshold()
    gc.set_threshold(_NEW_OBJECTS, older, oldest)


@contextmanager
def keep_objects() -> Iterator[None]:
    """Collect no garbage meanwhile, and never look again at the objects that are there afterwards: for imports.

    Only where `collect_garbage_rarely` was called: another's process may wait for its own objects to go.
    """
    if gc.get_threshold()[0] != _NEW_OBJECTS or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


class _Hidden(MetaPathFinder):
    """Lets nobody find a module."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:  # noqa: ARG002 - as Python calls it
        """Nothing is found of that module; all else is for the others to find."""
        if fullname == self._name:
            raise ModuleNotFoundError(fullname)


@contextmanager
def hide_module(name: str) -> Iterator[None]:
    """Have whoever could do without a module do without it; one that is imported already stays."""
    hidden = _Hidden(name)
    sys.meta_path.insert(0, hidden)
    try:
        yield
    finally:
        sys.meta_path.remove(hidden)


def start_without_pandas() -> None:
    """Keep Arrow from importing pandas, which takes it half a second: for a process that hands it no pandas values.

    At its first value, Arrow imports pandas to recognise `pandas.NA` and `NaT`; here it looks once while pandas is
    hidden. Other code can import pandas afterwards as usual.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa

    with hide_module("pandas"):
        pa.scalar(0)


def end_process(code: object) -> NoReturn:
    """Exit with a code of `SystemExit`, as Python would, but without freeing every object first.

    Threads are joined, `atexit` handlers run and streams are flushed; what Python does beyond that takes a second
    after a launch.
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
