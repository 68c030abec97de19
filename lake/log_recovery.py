"""A Delta log after a power cut or a kill: entries that were never wholly written, and what killed writers left."""

from __future__ import annotations

import fcntl
import json
import logging
import re
import time
from enum import Enum, auto
from functools import lru_cache
from typing import TYPE_CHECKING

from lake.commits import LINES

if TYPE_CHECKING:
    from pathlib import Path

_LOGGER = logging.getLogger("teetotal")
_PARQUET = b"PAR1"
_LAST_CHECKPOINT = "_last_checkpoint"
_FIRST = f"{0:020}.json"
_LINES = re.compile(rb'"' + re.escape(LINES.encode()) + rb'":"([0-9]+)"')
# What delta-rs writes before it gives a file its name: `00….json#1`, `_last_checkpoint#1`, `_commit_<id>.json.tmp`.
_TEMPORARY = re.compile(r".+#\d+|_commit_.+\.tmp")
# No writer holds an unnamed log entry for longer than this.
_LEFT_BEHIND_S = 3600


def set_aside_cut_entries(log: Path, aside: Path, table: str) -> None:
    """Move log entries that a power cut left empty, filled with zeros or cut short out of a table's log, and say so.

    Every entry after such a one goes too: a commit is reported only when all entries up to it are on the disk, so no
    later one was. What they would have committed is stale, and is built again.
    """
    if not _cut_entries(log):
        return
    aside.mkdir(parents=True, exist_ok=True)
    with (aside / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for path in _cut_entries(log):  # looked at again: another process may have been first
            target = aside / f"{path.name}.{time.time_ns()}"
            path.rename(target)
            _LOGGER.warning(
                "%s: %s was not wholly written (a power cut?) and is set aside as %s; what it held is built again",
                table,
                path.name,
                target,
            )


def mark_entry(log: Path, version: int) -> object:
    """What stands for one entry of a table's log; unlike any other mark where it is not there."""
    try:
        entry = (log / f"{version:020}.json").stat()
    except FileNotFoundError:
        return object()
    return entry.st_ino, entry.st_mtime_ns, entry.st_size


def is_last_entry(log: Path, version: int) -> bool:
    """Whether no entry follows this one."""
    return not (log / f"{version + 1:020}.json").exists()


def remove_leftovers(log: Path, older_than_s: float = _LEFT_BEHIND_S) -> list[str]:
    """Delete what writers that were killed had not yet named in a table's log; gives the names."""
    if not log.is_dir():
        return []
    old = time.time() - older_than_s
    found = [path for path in log.iterdir() if _TEMPORARY.fullmatch(path.name) and path.stat().st_mtime < old]
    for path in found:
        path.unlink(missing_ok=True)
    return sorted(path.name for path in found)


def unreadable_entries(log: Path) -> list[str]:
    """The log entries since the last checkpoint that are no JSON, and a checkpoint that is no Parquet file."""
    version, bad = _checkpoint(log)
    return [path.name for path in (*bad, *(entry for entry in _entries(log, version) if not _is_json(entry)))]


def _cut_entries(log: Path) -> list[Path]:
    version, bad = _checkpoint(log)
    entries = _entries(log, version)
    for place, entry in enumerate(entries):
        if _is_cut(entry, is_last=place == len(entries) - 1):
            # From the last to the first: a log that is read meanwhile has no gap.
            return [*bad, *reversed(entries[place:])]
    return bad


def _checkpoint(log: Path) -> tuple[int, list[Path]]:
    """The version of the last checkpoint, or -1; and the files of it that are not whole."""
    hint = log / _LAST_CHECKPOINT
    try:
        version = int(json.loads(hint.read_bytes())["version"])
    except FileNotFoundError:
        return -1, []
    except (ValueError, KeyError, TypeError):
        # Readers go without it; but which checkpoint it meant is unknown, so all are looked at.
        return -1, [hint, *(path for path in log.glob("*.checkpoint.parquet") if not _is_parquet(path))]
    checkpoint = log / f"{version:020}.checkpoint.parquet"
    if checkpoint.exists() and not _is_parquet(checkpoint):
        return -1, [hint, checkpoint]
    return version, []


def _entries(log: Path, checkpoint: int) -> list[Path]:
    """The entries after a checkpoint, without a gap; a look at each name is cheaper than a listing of a long log."""
    found = []
    version = checkpoint + 1
    while (entry := log / f"{version:020}.json").exists():
        found.append(entry)
        version += 1
    return found


def _is_cut(path: Path, *, is_last: bool) -> bool:
    """Whether an entry is empty, holds zero bytes or ends too early: within a line, or with fewer lines than it says.

    Bytes that are merely wrong do not come from a power cut, but of the last entry nothing that follows is lost.
    """
    try:
        status = path.stat()
    except FileNotFoundError:
        return False  # another process has just set it aside
    end = _look_at(path, status.st_size, status.st_mtime_ns)
    return end is _End.CUT or (is_last and end is _End.STRANGE)


class _End(Enum):
    """How an entry ends."""

    WHOLE = auto()
    CUT = auto()
    # In a line that is no JSON, and not for being cut short.
    STRANGE = auto()


@lru_cache(maxsize=4096)
def _look_at(path: Path, _size: int, _mtime_ns: int) -> _End:
    """How an entry ends. It never changes, so one look is enough."""
    data = path.read_bytes().rstrip()
    if not data or b"\0" in data:
        return _End.CUT
    if not data.startswith(b"{"):
        return _End.WHOLE  # no commit begins so: other bytes are not what a power cut leaves
    if path.name == _FIRST and b'"metaData"' not in data:
        return _End.CUT  # at the end of a line: a table begins with what it is, and without that nobody can open it
    lines = data.splitlines()
    stated = _LINES.search(lines[0])
    if not data.endswith(b"}") or (stated and len(lines) < int(stated[1])) or _breaks_off(lines[-1]):
        return _End.CUT
    return _End.WHOLE if _parses(lines[-1]) else _End.STRANGE


def _is_json(path: Path) -> bool:
    data = path.read_bytes().strip()
    return bool(data) and all(map(_parses, data.splitlines()))


def _parses(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _breaks_off(line: bytes) -> bool:
    """Whether a line is the beginning of a JSON object: what is wrong with it is that it ends."""
    try:
        json.loads(line)
    except json.JSONDecodeError as error:
        return error.pos >= len(error.doc) or error.msg.startswith("Unterminated string")
    except ValueError:
        return False  # no UTF-8
    return False


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(len(_PARQUET))
        file.seek(0, 2)
        if file.tell() < 3 * len(_PARQUET):
            return False
        file.seek(-len(_PARQUET), 2)
        return head == file.read() == _PARQUET
