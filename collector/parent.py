"""Ranks end with the process that started them: what it no longer waits for must not train on, nor land."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

_DESCRIPTOR = "COLLECTOR_PARENT_FD"


@contextmanager
def start_processes(
    commands: Sequence[tuple[Sequence[str], Mapping[str, str]]], log: Path | None
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes, each in a group of its own; at the end of the context none of their groups is left.

    With a log they write there what they say; without one they say it themselves.
    """
    ours, theirs = os.pipe()
    processes: list[subprocess.Popen[bytes]] = []
    said = log.open("ab") if log is not None else None
    try:
        for words, environment in commands:
            processes.append(
                subprocess.Popen(
                    words,
                    env={**environment, _DESCRIPTOR: str(ours)},
                    pass_fds=(ours,),
                    process_group=0,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                )
            )
        yield processes
    finally:
        for process in processes:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if said is not None:
            said.close()
        os.close(theirs)
        os.close(ours)


def end_with_parent() -> None:
    """End this process and its group once the one that started it is gone; nothing where nobody asked for it."""
    descriptor = os.environ.pop(_DESCRIPTOR, None)
    if descriptor is not None:
        threading.Thread(target=_watch, args=(int(descriptor),), name="parent", daemon=True).start()


def _watch(descriptor: int) -> None:
    # Nothing is ever written to it: it ends when the last writer, the parent, has ended.
    os.read(descriptor, 1)
    os.killpg(0, signal.SIGKILL)
