"""The process that answers one query: it may use so much memory, write no file, and ends with its parent.

`pipelines.cli.query` starts it as `python -m pipelines.cli.query_child DESCRIPTOR PARENT`. It imports the engines after
it has tied itself to its parent, because that takes a second.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.cli.sandbox import Answer

_MIB = 1 << 20
# Beside what a statement holds: what one thread of an engine maps (8 MiB of stack, 64 MiB of glibc's arena) and the
# reserves of allocators, which count although most of it is never touched.
_PER_THREAD_BYTES = 72 * _MIB
_RESERVED_BYTES = 1024 * _MIB
# Our parent kills us when the time is up; this is for a parent that is stopped itself.
_GRACE_S = 5
_STATM = Path("/proc/self/statm")
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl


def main(descriptor: int, parent: int) -> None:
    """Answer the one request that comes in."""
    _end_with(parent)
    _be_quiet()
    with Connection(descriptor) as connection:
        from lake.errors import LakeError
        from lake.locations import Location
        from lake.store import Lake
        from pipelines.cli.sandbox import ask

        connection.send_bytes(b"ready")
        request = json.loads(connection.recv_bytes())
        _limit(request["memory_bytes"], request["timeout_s"])
        lake = Lake(Location(request["lake"], request["options"]))
        try:
            with ask(lake, request["sql"], request["values"], request["memory_bytes"]) as answer:
                _reply(connection, b"plan", {"sealed": answer.sealed})
                _serve(connection, answer)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return  # nobody wants the rest
        except (LakeError, MemoryError) as error:
            kind = type(error).__name__
            _reply(connection, b"error", {"kind": kind, "what": getattr(error, "what", ""), "hint": _hint(error)})
            _wait_for_end(connection)


def _serve(connection: Connection, answer: Answer) -> None:
    """Do what is asked of the answer until nothing more is."""
    while True:
        asked = json.loads(connection.recv_bytes())
        if asked["what"] == "count":
            _reply(connection, b"count", answer.count())
            continue
        rows = answer.rows(asked["limit"])
        connection.send_bytes(b"schema " + rows.schema.serialize().to_pybytes())
        for batch in rows:
            connection.send_bytes(b"batch " + memoryview(batch.serialize()))
        connection.send_bytes(b"end")


def _reply(connection: Connection, kind: bytes, content: Any) -> None:
    connection.send_bytes(kind + b" " + json.dumps(content).encode())


def _hint(error: Exception) -> str:
    return str(getattr(error, "hint", ""))


def _wait_for_end(connection: Connection) -> None:
    """Keep the last word readable until the parent has read it and hangs up."""
    try:
        connection.recv_bytes()
    except (EOFError, OSError):
        return


def _end_with(parent: int) -> None:
    """Have the kernel end this process when its parent ends, however that comes about."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(1)


def _be_quiet() -> None:
    """Leave Ctrl-C to the parent, which says what is to be said; a crash leaves no image of the memory behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.dont_write_bytecode = True


def _limit(memory_bytes: int, timeout_s: float | None) -> None:
    """From here on: so much address space, so much time, and no byte in any file."""
    threads = os.cpu_count() or 1
    most = _mapped_bytes() + memory_bytes + _RESERVED_BYTES + threads * _PER_THREAD_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    if timeout_s is not None:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, timeout_s + _GRACE_S)


def _mapped_bytes() -> int:
    """What this process maps already: libraries, and the reserves of their allocators."""
    try:
        return int(_STATM.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except FileNotFoundError:  # not Linux
        return _RESERVED_BYTES


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
