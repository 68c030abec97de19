"""What makes a commit survive a power cut: files and directories are forced to the disk, in the order of their need."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# A disk answers many requests in the time of a few.
_SIDE_BY_SIDE = 8
# Linux writes back what is older than half a minute; an entry of another process may be younger, and not synced yet.
_WRITTEN_BACK_S = 600
_LAST_CHECKPOINT = "_last_checkpoint"


class Disk:
    """The disk below a local lake; remembers which directories it has made durable, so that each is synced once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        # Directories whose own entry in their parent is on the disk.
        self._known: set[Path] = {root.parent}
        # The last entry of each log that is on the disk, with all before it.
        self._durable: dict[Path, int] = {}

    def sync_files(self, paths: Sequence[Path]) -> None:
        """Force the content of files to the disk, side by side."""
        if len(paths) < 2:
            for path in paths:
                _sync(path)
            return
        with ThreadPoolExecutor(min(len(paths), _SIDE_BY_SIDE), thread_name_prefix="sync") as pool:
            list(pool.map(_sync, paths))

    def sync_folders(self, folders: Iterable[Path]) -> None:
        """Force the entries of directories to the disk, and their own entries in the directories above them."""
        due = set(folders)
        fresh: set[Path] = set()
        for folder in list(due):
            above = folder
            while above not in self._known and above != above.parent:
                fresh.add(above)
                above = above.parent
                due.add(above)
        for folder in sorted(due, reverse=True):
            if folder == self._root.parent:
                with suppress(PermissionError):  # a directory that holds the lake need not be ours to read
                    _sync(folder)
            else:
                _sync(folder)
        self._known |= fresh

    def sync_log(self, log: Path, before: int, now: int) -> None:
        """Force log entries to the disk: those after a version, and young ones before it, which others may have added.

        When this returns, every entry up to `now` is on the disk: a commit never outlives one that it builds upon.
        """
        young = time.time() - _WRITTEN_BACK_S
        due = {log / _LAST_CHECKPOINT, _checkpoint(log, now)}
        known = self._durable.get(log, -1)
        for version in range(now, known if known <= before else -1, -1):
            entry = log / f"{version:020}.json"
            try:
                is_due = version > before or entry.stat().st_mtime > young
            except FileNotFoundError:
                break  # maintenance has deleted it: a checkpoint stands in for it
            if not is_due:
                break
            due |= {entry, _checkpoint(log, version)}
        self.sync_files([path for path in sorted(due) if path.exists()])
        self.sync_folders([log])
        self._durable[log] = now


def _checkpoint(log: Path, version: int) -> Path:
    return log / f"{version:020}.checkpoint.parquet"


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
