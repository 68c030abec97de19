"""Locks between processes of one machine: the kernel frees them when their holder ends, however it ends."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from lake.errors import SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PATIENCE_S = 600.0
_SILENCE_S = 1.0

log = logging.getLogger(__name__)


@contextmanager
def hold_lock(path: Path, what: str) -> Iterator[None]:
    """Hold the lock of a file; who waits for longer than a second says so, and a signal ends the wait."""
    lock = _lock(path)
    try:
        lock.acquire(timeout=_SILENCE_S)
    except Timeout:
        log.warning("%s is being written by another process; waiting for it (lock %s)", what, path)
        try:
            lock.acquire(timeout=_PATIENCE_S)
        except Timeout:
            raise SourceUnavailable(f"{what} is being written by another process", "wait for it to end") from None
    try:
        yield
    finally:
        lock.release()


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock of a file if nobody else does; give whether it is held. The file goes when the lock does."""
    lock = _lock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        yield False
        return
    try:
        yield True
    finally:
        path.unlink(missing_ok=True)  # before the release: whoever waits for the file then makes a new one
        lock.release()


def _lock(path: Path) -> FileLock:
    path.parent.mkdir(parents=True, exist_ok=True)
    # A file system without such locks must say so: the file that stands in for one would outlive its maker.
    return FileLock(path, mode=0o600, fallback_to_soft=False)
