"""How a command ends that cannot go on: one line, the next step and a status; a traceback only for who asks for it."""

from __future__ import annotations

import os
import resource
import sys
import traceback
from contextlib import suppress

from lake.errors import ContractBroken, EvidenceRejected, LakeError
from lake.scarcity import next_step, require_address_space
from pipelines.cli import session

FAILED = 1
WRONG_USAGE = 2
_MOST_TEXT = 300
_FILES = 1024
_FEWEST_FILES = 128
# A launch that makes no figure reserves 3.3 GB.
_LEAST_BYTES = 4 << 30


def require_resources() -> None:
    """Refuse limits under which engines do not fail but crash: they open files and start threads as they need them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < _FILES:
        soft = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        if soft < _FEWEST_FILES:
            raise ContractBroken(
                f"this process may open {soft} files, teetotal needs {_FEWEST_FILES}",
                "allow more with `ulimit -Hn 4096`",
            )
    require_address_space(_LEAST_BYTES, "teetotal")


def tell_failure(error: BaseException) -> int:
    """Print what happened as one line; give the exit status."""
    _drop_output()
    if _is_traced():
        traceback.print_exception(error)
    session.print_lines(f"teetotal: {_describe(error)}", err=True)
    return WRONG_USAGE if isinstance(error, EvidenceRejected) else FAILED


def _describe(error: BaseException) -> str:
    if isinstance(error, LakeError):
        return str(error)
    said = str(error).strip().partition("\n")[0] or type(error).__name__
    said = f"{said[:_MOST_TEXT]}…" if len(said) > _MOST_TEXT else said
    step = next_step(error)
    if step is not None:
        return f"{said} ({step})"
    if _is_of_a_reader(error):
        # Without its message, which may hold a value of a row.
        return (
            f"the tables could not be read: {type(error).__name__} "
            "(`teetotal verify` finds damaged data files; if there are none, please report it)"
        )
    if isinstance(error, OSError):
        return f"{said} (check that it is there and that you may use it, then run again)"
    return (
        f"{type(error).__name__}: {said} (this is a fault of teetotal: please report it with what "
        "TEETOTAL_DEBUG=1 prints)"
    )


def _is_of_a_reader(error: BaseException) -> bool:
    """Whether an engine gave up on a file: told by its module, because importing every engine takes a second."""
    return type(error).__module__.partition(".")[0] in {"polars", "pyo3_runtime", "duckdb", "_duckdb", "pyarrow"}


def _is_traced() -> bool:
    from pipelines.settings import is_debug

    return is_debug()


def _drop_output() -> None:
    """Forget what cannot be printed: a full disk or a closed pipe would be told a second time when Python ends."""
    try:
        sys.stdout.flush()
    except OSError:
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
