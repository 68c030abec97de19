"""Ctrl-C: the first one stops the work in order, a second one at once; both say how to go on, and end with 130."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

# What a shell says of a process that Ctrl-C has ended.
INTERRUPTED = 130
_NEXT = {
    "run": "`teetotal run` continues where it stopped",
    "demo": "`teetotal demo` continues where it stopped",
    "forget": "the same command finishes what it began",
    "keys": "`teetotal keys rotate --resume` finishes what it began",
    "land": "nothing was landed",
    "query": "nothing was changed",
    "show": "nothing was changed",
    "watch": "the run goes on; the same command shows it again",
}
_PATIENCE_S = 1.0


class _Stop:
    """What is known of Ctrl-C in this process."""

    def __init__(self) -> None:
        self.count = 0
        self.command = ""
        self.must_wait = False
        self.is_stop_told = False
        self.lock = threading.Lock()
        # Standard error as it was at first: Dagster turns that of a step into a file.
        self.screen = 2


_stop = _Stop()


def name_command(command: str) -> None:
    """Remember what is at work, for the sentence that says how to go on."""
    _stop.command = command


def wait_for_children() -> None:
    """For a command that stops processes of its own and must not end before they do: no Ctrl-C ends it at once."""
    _stop.must_wait = True


def is_stopped() -> bool:
    """Whether Ctrl-C was pressed, also where a library took the signal and let it go."""
    return _stop.count > 0


def tell_stop() -> None:
    """Say that the work has stopped; nothing is said of stopping after it."""
    with _stop.lock:
        _stop.is_stop_told = True
        click.echo(_describe_stop(), err=True)


@contextmanager
def watch_interrupts() -> Iterator[None]:
    """Hear every Ctrl-C, whichever library handles signals meanwhile: Dagster keeps some back while it writes records.

    What a signal leaves is what a kill leaves: the next command goes on from there, so the second one may end it all.
    """
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler or not _is_main_thread():
        yield
        return
    _stop.count, _stop.must_wait, _stop.is_stop_told, _stop.screen = 0, False, False, os.dup(2)
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, _hear)
    threading.Thread(target=_count, args=(reader,), daemon=True).start()
    try:
        yield
    finally:
        if not _stop.count:  # else threads may still work while Python ends, and must not outlive a second one
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.set_wakeup_fd(-1)
            os.close(writer)
            os.close(_stop.screen)


def _hear(_number: int, _frame: FrameType | None) -> None:
    _stop.count += 1
    if _stop.count > 1 and not _stop.must_wait:
        _end_at_once()
    raise KeyboardInterrupt


def _count(reader: int) -> None:
    """Count what the kernel tells, in a thread: a handler of ours runs only where no library has put its own."""
    heard = 0
    while received := os.read(reader, 1):
        if received[0] != signal.SIGINT:
            continue
        heard += 1
        _stop.count = max(_stop.count, heard)
        if heard > 1 and not _stop.must_wait:
            _end_at_once()
        if heard == 1 and not _stop.must_wait:
            late = threading.Timer(_PATIENCE_S, _tell_stopping)
            late.daemon = True
            late.start()
    os.close(reader)


def _tell_stopping() -> None:
    with _stop.lock:
        if not _stop.is_stop_told:
            _say("teetotal: stopping (Ctrl-C again stops at once)")


def _end_at_once() -> None:
    # Without the lock, which the main thread may hold: this may be a signal in the middle of `tell_stop`.
    _say(_describe_stop())
    os._exit(INTERRUPTED)


def _describe_stop() -> str:
    return f"teetotal: stopped; {_NEXT.get(_stop.command, 'no file was left half-written')}"


def _say(text: str) -> None:
    with suppress(OSError):
        os.write(_stop.screen, f"{text}\n".encode())


def _is_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
