"""Which process a launch runs in, as a tag of it: so that one whose process is gone can be told from one at work."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import dagster as dg

PROCESS_TAG = "teetotal/process"


def process() -> str:
    """This process."""
    return f"{socket.gethostname()}/{os.getpid()}"


def tag(instance: dg.DagsterInstance, run_id: str, **tags: str) -> None:
    """Write this process, and what else is told of it, onto a launch."""
    instance.add_run_tags(run_id, {PROCESS_TAG: process(), **{f"teetotal/{name}": text for name, text in tags.items()}})
