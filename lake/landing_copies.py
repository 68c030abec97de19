"""The hidden directories in which runs are copied: locked by their process, and removed after it was killed.

They hold telemetry in the clear, so only their owner may read them.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = ".landing-"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def copying(landing: Path) -> Iterator[Path]:
    """A new hidden directory of the landing zone; it is gone afterwards, unless it was renamed."""
    while True:
        staged = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=landing))
        handle = os.open(staged, _DIRECTORY)
        try:
            with suppress(OSError):  # a file system without locks: then nobody removes it but us
                fcntl.flock(handle, fcntl.LOCK_EX)
            if not _is_at(handle, staged):
                continue  # taken for abandoned before we could lock it
            yield staged
            return
        finally:
            if _is_at(handle, staged):
                shutil.rmtree(staged, ignore_errors=True)
            os.close(handle)


def remove_abandoned(landing: Path) -> list[str]:
    """Remove the directories that killed processes have left, and name them; those of living ones are locked."""
    removed = []
    for staged in sorted(landing.glob(f"{_PREFIX}*")) if landing.is_dir() else ():
        try:
            handle = os.open(staged, _DIRECTORY)
        except OSError:  # gone, or no directory, or not ours
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_at(handle, staged):
                shutil.rmtree(staged, ignore_errors=True)
                removed += [] if staged.exists() else [staged.name]
        except OSError:  # its process lives, or there are no locks to tell
            continue
        finally:
            os.close(handle)
    return removed


def _is_at(handle: int, path: Path) -> bool:
    """Whether an open directory still has this name."""
    try:
        return os.path.samestat(os.fstat(handle), path.lstat())
    except FileNotFoundError:
        return False
