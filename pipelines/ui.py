"""`teetotal ui`: Dagster's web server and daemon as one thing that starts, says where it is, and stops whole."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

from lake.errors import ContractBroken, SourceUnavailable
from pipelines.instance import prepare
from pipelines.settings import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType

    from pipelines.settings import Settings

_HOST = "127.0.0.1"
_MODULE = ("-m", "pipelines.definitions")
_PATIENCE_S = 180.0
_FAREWELL_S = 20.0
_POLL_S = 0.2


def serve(chosen: Settings, port: int, tell: Callable[[str], None], *, only: str | None = None) -> None:
    """Serve until told to stop; nothing that was started stays behind."""
    prepare(chosen.home)
    port = port or _free_port()
    if only != "daemon" and not _is_free(port):
        raise ContractBroken(f"port {port} is in use", "name another with --port (0 picks a free one)")
    commands = {
        "web server": ("-m", "dagster_webserver", "-h", _HOST, "-p", str(port), *_MODULE, "--log-level", "warning"),
        "daemon": ("-m", "dagster._daemon", "run", *_MODULE, "--log-level", "warning"),
    }
    wanted: dict[str, Sequence[str]] = {
        name: command for name, command in commands.items() if only is None or name.endswith(only)
    }
    with _until_told() as is_told, _started(chosen, wanted) as children:
        address = f"http://{_HOST}:{port}"
        if "web server" in wanted:
            _wait(address, children, is_told)
            tell(f"{address} (Ctrl-C stops it)")
        else:
            tell("the daemon runs (Ctrl-C stops it)")
        while not is_told.wait(_POLL_S):
            _require_alive(children)
    tell("stopped")


@contextlib.contextmanager
def _until_told() -> Iterator[threading.Event]:
    """An event that Ctrl-C or a SIGTERM sets, instead of ending this process before its children."""
    told = threading.Event()

    def tell(_number: int, _frame: FrameType | None) -> None:
        told.set()

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield told
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _started(chosen: Settings, commands: dict[str, Sequence[str]]) -> Iterator[dict[str, subprocess.Popen[bytes]]]:
    """Children in groups of their own, so that each is stopped once, with all that it started."""
    children: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name, command in commands.items():
            children[name] = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
                [sys.executable, *command], env=environment(chosen), start_new_session=True
            )
        yield children
    finally:
        _stop(children)


def _stop(children: dict[str, subprocess.Popen[bytes]]) -> None:
    for number, patience in ((signal.SIGTERM, _FAREWELL_S), (signal.SIGKILL, 5.0)):
        for child in children.values():
            with contextlib.suppress(ProcessLookupError):
                if number == signal.SIGKILL:
                    os.killpg(child.pid, number)
                else:
                    child.send_signal(number)
        deadline = time.monotonic() + patience
        for child in children.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(max(0.0, deadline - time.monotonic()))


def _wait(address: str, children: dict[str, subprocess.Popen[bytes]], is_told: threading.Event) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_told.wait(_POLL_S):
        _require_alive(children)
        with contextlib.suppress(urllib.error.URLError, ConnectionError, TimeoutError):
            urllib.request.urlopen(f"{address}/server_info", timeout=2).close()  # noqa: S310 - loopback
            return
        if time.monotonic() > deadline:
            raise SourceUnavailable(f"nothing answers at {address} after {_PATIENCE_S:.0f} s", "see what it printed")


def _require_alive(children: dict[str, subprocess.Popen[bytes]]) -> None:
    for name, child in children.items():
        if child.poll() is not None:
            raise SourceUnavailable(f"the {name} ended with status {child.returncode}", "see what it printed above")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
