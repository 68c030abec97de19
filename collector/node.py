"""Which host, boot and process a run was recorded in, so that runs of different processes can be told apart."""

from __future__ import annotations

import hashlib
import os
import platform
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

_STAT, _BOOT_ID = Path("/proc/self/stat"), Path("/proc/sys/kernel/random/boot_id")
_MACHINE_ID = Path("/etc/machine-id")


def identify() -> dict[str, str | int | float | None]:
    """The host and its boot by digests, which name no machine; how long after the boot; the process and its start."""
    return {
        "node_id": _digest("node", _text(_MACHINE_ID) or platform.node()),
        "boot_id": _digest("boot", _text(_BOOT_ID)),
        "boot_age_s": round(_boot_age_s(), 3),
        "process_id": os.getpid(),
        "process_started_at": datetime.fromtimestamp(_started_epoch_s(), UTC).isoformat(timespec="milliseconds"),
    }


@cache
def _started_epoch_s() -> float:
    """When this process started, by the kernel where it tells, else by when it was asked first."""
    stat = _text(_STAT)
    if not stat:
        return time.time()
    # The name of the program, in parentheses, may itself hold blanks and parentheses.
    started_ticks = int(stat.rpartition(")")[2].split()[19])
    return time.time() - _boot_age_s() + started_ticks / os.sysconf("SC_CLK_TCK")


def _boot_age_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _digest(what: str, text: str) -> str | None:
    return hashlib.sha256(f"{what}:{text}".encode()).hexdigest()[:16] if text else None


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""
