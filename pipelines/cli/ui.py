"""`teetotal ui`: Dagster's web server and daemon as one thing that starts, says where it is, and stops whole."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Self

import yaml

from lake.errors import ContractBroken, SourceUnavailable
from pipelines.hosts import HOST
from pipelines.instance import open_instance
from pipelines.settings import environment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from pipelines.settings import Settings

# `pipelines` in a checkout, `teetotal.pipelines` in an installed wheel; Dagster's records know the place by one name.
_PACKAGE = __name__.removesuffix(".cli.ui")
_LOCATION = "pipelines.definitions"
# What our outermost package lies in. Left alone, Dagster would look in the directory where the command was typed.
_ABOVE = Path(__file__).parents[__name__.count(".")]
_QUIET = ("--log-level", "warning")
_PATIENCE_S = 180.0
_FAREWELL_S = 20.0
_POLL_S = 0.2


def serve(chosen: Settings, port: int, tell: Callable[[str], None], *, only: str | None = None) -> None:
    """Serve until told to stop; nothing that was started stays behind."""
    with open_instance(chosen.home):
        pass  # set up, and freed of launches whose process is gone
    port = port or _free_port()
    if only != "daemon" and not _is_free(port):
        raise ContractBroken(f"port {port} is in use", "name another with --port (0 picks a free one)")
    wanted = [name for name in ("web server", "daemon") if only is None or name.endswith(only)]
    with (
        _watch_for_signals() as is_stopping,
        tempfile.TemporaryDirectory(prefix="teetotal-") as own,
        _Children(environment(chosen)) as children,
    ):
        # One process loads the definitions, for all: left alone, the daemon would start another every minute.
        code = Path(own, "code")
        workspace = Path(own, "workspace.yaml")
        where = {"location_name": _LOCATION, "host": "localhost", "socket": str(code)}
        workspace.write_text(yaml.safe_dump({"load_from": [{"grpc_server": where}]}), "utf-8")
        loaded = ("-m", f"{_PACKAGE}.definitions", "-d", str(_ABOVE))
        children.start("code server", "dagster", "api", "grpc", "-s", str(code), *loaded, *_QUIET)
        children.wait(lambda: _answers(code), "the code server", is_stopping)
        if "web server" in wanted:
            words = ("--port", str(port), "--workspace", str(workspace))
            children.start("web server", f"{_PACKAGE}.web_server", *words)
        if "daemon" in wanted:
            children.start("daemon", "dagster._daemon", "run", "-w", str(workspace), *_QUIET)
        address = f"http://{HOST}:{port}"
        if "web server" in wanted:
            children.wait(lambda: _serves(address), address, is_stopping)
        if not is_stopping.is_set():
            tell(f"{address if 'web server' in wanted else 'the daemon runs'} (Ctrl-C stops it)")
        while not is_stopping.wait(_POLL_S):
            children.require_alive()
    tell("stopped")


@contextlib.contextmanager
def _watch_for_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C or a SIGTERM sets, instead of ending this process before its children."""
    is_stopping = threading.Event()

    def tell(_number: int, _frame: FrameType | None) -> None:
        is_stopping.set()

    before = {number: signal.signal(number, tell) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield is_stopping
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Children:
    """Processes in groups of their own: each is stopped once, with all that it started."""

    def __init__(self, variables: dict[str, str]) -> None:
        self._variables = variables
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Tell all at once, launches that still work among them, which say that they were stopped; then insist."""
        for number, patience in ((signal.SIGTERM, _FAREWELL_S), (signal.SIGKILL, _FAREWELL_S)):
            deadline = time.monotonic() + patience
            for child in self._running.values():
                _signal(child, number)
            while any(_lives(child) for child in self._running.values()) and time.monotonic() < deadline:
                time.sleep(_POLL_S)

    def start(self, name: str, *command: str) -> None:
        """Start a module with its arguments."""
        self._running[name] = subprocess.Popen(  # noqa: S603 - our own interpreter and arguments
            [sys.executable, "-m", *command], env=self._variables, start_new_session=True
        )

    def wait(self, is_ready: Callable[[], bool], what: str, is_stopping: threading.Event) -> None:
        """Until it is ready, or someone says stop."""
        deadline = time.monotonic() + _PATIENCE_S
        while not is_ready() and not is_stopping.wait(_POLL_S):
            self.require_alive()
            if time.monotonic() > deadline:
                raise SourceUnavailable(f"{what} does not answer after {_PATIENCE_S:.0f} s", "see what it printed")

    def require_alive(self) -> None:
        """Complain of one that has ended."""
        for name, child in self._running.items():
            if child.poll() is not None:
                raise SourceUnavailable(f"the {name} ended with status {child.returncode}", "see what it printed above")


def _signal(child: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, number)


def _lives(child: subprocess.Popen[bytes]) -> bool:
    """Whether anything of its group is left."""
    child.poll()  # one that has ended counts until it is asked for
    try:
        os.killpg(child.pid, 0)
    except ProcessLookupError:
        return False
    return True


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
    return True


def _serves(address: str) -> bool:
    try:
        urllib.request.urlopen(f"{address}/server_info", timeout=2).close()  # noqa: S310 - loopback
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
