"""Where a rank writes before it lands: the run's own directory, or memory alone where nothing may lie in the clear."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from .errors import RecordingRefused

_MEMORY = Path("/dev/shm")  # noqa: S108 - the one directory that every Linux keeps in memory
_PREFIX = "teetotal-recording-"
_MOUNTS = Path("/proc/self/mounts")


class MemoryFolder:
    """A directory in memory that its owner alone may enter; what a killed recording left is removed by the next."""

    def __init__(self) -> None:
        if not _is_in_memory(_MEMORY):
            raise RecordingRefused(
                f"--seal-for needs a directory in memory, because the profiler writes its trace to a file: expected "
                f"{_MEMORY} to be a tmpfs; in a container, mount one there"
            )
        _remove_abandoned()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=_MEMORY))
        self._handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._handle, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Leave nothing of it; may be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


def _is_in_memory(folder: Path) -> bool:
    try:
        mounts = [line.split() for line in _MOUNTS.read_text("utf-8").splitlines()]
    except OSError:
        return False
    return any(words[1] == str(folder) and words[2] in {"tmpfs", "ramfs"} for words in mounts if len(words) > 2)


def _remove_abandoned() -> None:
    """Remove directories whose maker is gone: the kernel frees the lock of a killed one."""
    for folder in _MEMORY.glob(f"{_PREFIX}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # it has just gone
            continue
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue
        else:
            shutil.rmtree(folder, ignore_errors=True)
        finally:
            os.close(handle)
