"""File systems of a test's own, where this process may mount: not without root, and not in most containers."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def run(program: str, *arguments: str | Path) -> None:
    """Run a program of the system, which must succeed."""
    subprocess.run([str(shutil.which(program)), *arguments], check=True)


def may_mount(folder: Path) -> bool:
    """Whether this process may mount."""
    mounting = subprocess.run(["mount", "-t", "tmpfs", "none", folder], check=False, capture_output=True)  # noqa: S607 - of the system
    if mounting.returncode == 0:
        run("umount", folder)
    return mounting.returncode == 0


@contextmanager
def mount_memory(mounted: Path, size: str) -> Iterator[Path]:
    """A small disk in memory, mounted there."""
    mounted.mkdir()
    run("mount", "-t", "tmpfs", "-o", f"size={size}", "none", mounted)
    try:
        yield mounted
    finally:
        run("umount", mounted)
