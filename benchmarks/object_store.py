"""An object store on loopback, and a proxy before it that counts requests and bytes, and may fail some."""

from __future__ import annotations

import http.client
import json
import random
import re
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from benchmarks.measuring import ROOT
from benchmarks.standalone import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_REGION = "eu-central-1"
_SLOW_DOWN = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
_INTERNAL = b"<Error><Code>InternalError</Code><Message>We encountered an internal error.</Message></Error>"
_EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
# What may happen to a request: refused; cut off before the store or after it has done what was asked; or cut off in the
# middle of its body, or of the answer's.
FAULTS = ("slow down", "internal error", "reset", "reset after", "cut request", "cut answer")
# What takes as long as the client waits: no answer ever, before the store or after it has done what was asked.
HANGS = ("hang", "hang after")
_REFUSED = {"slow down": (503, _SLOW_DOWN), "internal error": (500, _INTERNAL)}
_INJECTED = "/-/injected"
_GOOD_FOR = "/-/good-for/"
_HOP_BY_HOP = {"content-length", "transfer-encoding", "connection", "server", "date"}


@dataclass(frozen=True)
class Emulator:
    """A store that runs on this machine: how it is started, how a client finds it, how it is given a bucket."""

    serve: Callable[[], AbstractContextManager[int]]
    options_for: Callable[[int], dict[str, str]]
    make_bucket: Callable[[int, str], str]
    # What stands in those options and may stand in no message.
    secret: str
    # What the store answers to credentials that have expired.
    expired: tuple[int, bytes]


def options_for(port: int) -> dict[str, str]:
    """The variables that name such a server."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "teetotal",
        "AWS_SECRET_ACCESS_KEY": "of-no-worth",
        "AWS_REGION": _REGION,
    }


@contextmanager
def serve_s3() -> Iterator[int]:
    """Moto's server, in a process of its own; gives its port."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.moto_s3", str(port)]
    server = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        await_answer(f"http://127.0.0.1:{port}/")
        yield port
    finally:
        server.terminate()
        server.wait()


def make_bucket(port: int, name: str) -> str:
    """An empty bucket; gives its URL."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    body = (
        "<CreateBucketConfiguration xmlns='http://s3.amazonaws.com/doc/2006-03-01/'>"
        f"<LocationConstraint>{_REGION}</LocationConstraint></CreateBucketConfiguration>"
    )
    # moto asks for no signature, only for the region that a signature would name.
    key = f"AWS4-HMAC-SHA256 Credential=teetotal/20260101/{_REGION}/s3/aws4_request"
    connection.request("PUT", f"/{name}", body, {"Authorization": key})
    answer = connection.getresponse()
    if answer.status != http.client.OK:
        raise AssertionError(f"no bucket was made: {answer.status} {answer.read()[:300]!r}")
    connection.close()
    return f"s3://{name}"


S3 = Emulator(serve_s3, options_for, make_bucket, options_for(0)["AWS_SECRET_ACCESS_KEY"], (400, _EXPIRED))


class StoreProxy(ThreadingHTTPServer):
    """Passes requests on to a store; a share of them, drawn by a seed, fails in one of the ways that stores fail."""

    daemon_threads = True

    def __init__(self, beyond: int, seed: int = 0, emulator: Emulator = S3) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.beyond = beyond
        self._emulator = emulator
        # The share of requests that fail, and in which ways.
        self.fails = 0.0
        self.faults: tuple[str, ...] = FAULTS
        # Only requests whose method and path fit this.
        self.only: str | None = None
        # Requests whose method and path fit this are refused for good.
        self.refuses: str | None = None
        self.refused_count = 0
        # Requests whose method and path fit this are done and never answered; the paths of those are named here.
        self.holds: str | None = None
        self.held: set[str] = set()
        # For how many more requests the credentials are good; none where they do not expire.
        self.good_for: int | None = None
        self.requests: Counter[str] = Counter()
        self.injected: Counter[str] = Counter()
        self.sent_bytes = 0
        self.received_bytes = 0
        self._chance = random.Random(seed)
        self._guard = threading.Lock()

    @property
    def options(self) -> dict[str, str]:
        """The variables that name the store behind this proxy."""
        return self._emulator.options_for(self.server_port)

    def draw_fault(self) -> str | None:
        """What happens to the next request."""
        with self._guard:
            if self._chance.random() >= self.fails:
                return None
            fault = self._chance.choice(self.faults)
            self.injected[fault] += 1
            return fault

    def take_held(self, method: str, path: str) -> bool:
        """Whether this is a request that is never answered."""
        if self.holds is None or not re.search(self.holds, f"{method} {path}"):
            return False
        with self._guard:
            self.held.add(path.partition("?")[0])
        return True

    def find_expired(self) -> tuple[int, bytes] | None:
        """What the next request is answered where its credentials have expired."""
        with self._guard:
            if self.good_for is None:
                return None
            self.good_for -= 1
            return self._emulator.expired if self.good_for < 0 else None

    def complete_answer(self, _path: str, body: bytes) -> bytes:
        """What the store would have answered, where an emulator leaves something out."""
        return body

    def count(self, method: str, sent: int, received: int) -> None:
        """Take one request into account."""
        with self._guard:
            self.requests[method] += 1
            self.sent_bytes += sent
            self.received_bytes += received

    def reset_counts(self) -> None:
        """Count from here."""
        with self._guard:
            self.requests.clear()
            self.injected.clear()
            self.sent_bytes = self.received_bytes = 0

    @contextmanager
    def serving(self) -> Iterator[StoreProxy]:
        """Serve in a thread."""
        worker = threading.Thread(target=self.serve_forever, args=(0.05,))
        worker.start()
        try:
            yield self
        finally:
            self.shutdown()
            worker.join()
            self.server_close()

    def handle_error(self, *_: object) -> None:
        """Say nothing of clients that went away."""


@contextmanager
def serve_proxy(beyond: int, seed: int, fails: float) -> Iterator[int]:
    """The same in a process of its own, for a client that keeps Python's lock while it waits; gives its port."""
    with run_proxy("benchmarks.object_store", beyond, seed, fails) as port:
        yield port


@contextmanager
def run_proxy(module: str, *words: float) -> Iterator[int]:
    """A module that prints its port and serves, in a process of its own; gives that port."""
    command = [sys.executable, "-m", module, *map(str, words)]
    with subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE) as server:
        try:
            yield int(server.stdout.readline() if server.stdout is not None else "")
        finally:
            server.terminate()


def read_injected(port: int) -> dict[str, int]:
    """The faults that such a proxy has had requests meet."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{_INJECTED}", timeout=30) as answer:
        found: dict[str, int] = json.load(answer)
        return found


def renew_credentials(port: int, good_for: int) -> None:
    """Have such a proxy take the credentials for valid, for so many requests."""
    urllib.request.urlopen(f"http://127.0.0.1:{port}{_GOOD_FOR}{good_for}", timeout=30).close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # An answer goes out as one packet; in pieces it would wait 40 ms for each to be acknowledged.
    disable_nagle_algorithm = True
    wbufsize = -1
    server: StoreProxy

    def setup(self) -> None:
        """One connection to the store for each of the client's."""
        super().setup()
        self._store = http.client.HTTPConnection("127.0.0.1", self.server.beyond)

    def finish(self) -> None:
        """The client went away."""
        self._store.close()
        super().finish()

    def handle_any(self) -> None:
        """Pass a request on, or have it fail."""
        length = int(self.headers.get("Content-Length") or 0)
        only = self.server.only
        may_fail = not self.path.startswith("/-/") and (only is None or re.search(only, f"{self.command} {self.path}"))
        fault = self.server.draw_fault() if may_fail else None
        if fault == "cut request":
            self.rfile.read(length // 2)
            self._reset()
            return
        body = self.rfile.read(length)
        if self.path == _INJECTED:
            self._answer(200, {}, json.dumps(self.server.injected).encode())
            return
        if self.path.startswith(_GOOD_FOR):
            self.server.good_for = int(self.path.removeprefix(_GOOD_FOR))
            self._answer(200, {}, b"")
            return
        refuses = self.server.refuses
        if refuses is not None and re.search(refuses, f"{self.command} {self.path}"):
            self.server.refused_count += 1
            self._answer(403, {}, b"<Error><Code>AccessDenied</Code></Error>")
            return
        expired = self.server.find_expired()
        if expired is not None:
            status, text = expired
            self._answer(status, {}, text)
            return
        if fault in _REFUSED:
            status, text = _REFUSED[fault]
            self._answer(status, {}, text)
            return
        if fault == "reset":
            self._reset()
            return
        if fault == "hang":
            self._say_nothing()
            return
        self._store.request(self.command, self.path, body, dict(self.headers))
        response = self._store.getresponse()
        answer = self.server.complete_answer(self.path, response.read())
        self.server.count(_name_request(self.command, self.path), len(body), len(answer))
        if fault == "reset after":
            self._reset()
            return
        if fault == "hang after" or self.server.take_held(self.command, self.path):
            self._say_nothing()
            return
        is_cut = fault == "cut answer"
        self._answer(response.status, dict(response.headers), answer, len(answer) // 2 if is_cut else None)
        if is_cut:  # without a reset, which would take what was sent with it
            self.close_connection = True

    def _answer(self, status: int, headers: dict[str, str], body: bytes, given: int | None = None) -> None:
        """Give an answer of known length, or only so many bytes of its body."""
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in _HOP_BY_HOP:
                self.send_header(name, value)
        stated = {name.lower(): value for name, value in headers.items()}.get("content-length", "0")
        length = stated if self.command == "HEAD" else str(len(body))
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:given])

    def _say_nothing(self) -> None:
        """Hold the connection until the client has had enough of it."""
        self.close_connection = True
        with suppress(OSError):
            self.connection.recv(1)

    def _reset(self) -> None:
        """Cut the connection as a network does: with a reset, and no answer."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815 - names of http.server


def _name_request(method: str, path: str) -> str:
    return "LIST" if method == "GET" and "list-type=2" in path else method


def await_answer(url: str, patience_s: float = 60) -> None:
    """Wait until a server on this machine answers, whatever it says."""
    deadline = time.monotonic() + patience_s
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()  # noqa: S310 - our own server on loopback
        except urllib.error.HTTPError:
            return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            return


def serve_alone(proxy: StoreProxy) -> None:
    """Print the port, and serve until the process ends."""
    print(proxy.server_port, flush=True)
    proxy.serve_forever()


if __name__ == "__main__":
    proxy = StoreProxy(int(sys.argv[1]), int(sys.argv[2]))
    proxy.fails = float(sys.argv[3])
    serve_alone(proxy)
