"""The real web server in a thread, requests to it as anybody could write them, and a change that can be seen."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import uvicorn
from dagster._core.workspace.context import WorkspaceProcessContext
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from pipelines.hosts import HOST
from pipelines.web_server import GuardedWebserver
from tests.support.web_interface import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import dagster as dg

JSON = "application/json"
Headers = dict[str, str]


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    text: str
    headers: Headers


@dataclass(frozen=True)
class Site:
    """A web server, and the records that it may change."""

    port: int
    records: dg.DagsterInstance

    @property
    def host(self) -> str:
        return f"{HOST}:{self.port}"

    def send(self, method: str, path: str, headers: Sequence[tuple[str, str]] = (), body: str | None = None) -> Answer:
        """Send one request with these headers, in this order, and no others; Host is ours unless it is among them."""
        connection = http.client.HTTPConnection(HOST, self.port, timeout=30)
        with contextlib.closing(connection):
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            if not any(name == "Host" for name, _ in headers):
                connection.putheader("Host", self.host)
            for name, value in headers:
                if value:
                    connection.putheader(name, value)
            data = (body or "").encode()
            if data:
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data or None)
            found = connection.getresponse()
            return Answer(
                found.status,
                found.read().decode(errors="replace"),
                {name.lower(): text for name, text in found.getheaders()},
            )

    def change(self, key: str, *headers: tuple[str, str]) -> Answer:
        """Ask for a change as the interface's own pages do, with these headers beside or instead of theirs."""
        named = {name for name, _ in headers}
        own = [("Content-Type", JSON), ("Origin", f"http://{self.host}"), ("Sec-Fetch-Site", "same-origin")]
        kept = [(name, value) for name, value in own if name not in named]
        return self.send("POST", "/graphql", [*kept, *headers], as_body(key))

    def is_changed(self, key: str) -> bool:
        """Whether a mutation with this key was executed."""
        return key in self.records.event_log_storage.get_concurrency_keys()

    def subscribe(self, query: str, origin: str | None) -> dict[str, object]:
        """Give the first answer to a document that is sent over a WebSocket."""
        named = None if origin is None else Origin(origin)
        with connect(f"ws://{self.host}/graphql", origin=named, subprotocols=[Subprotocol("graphql-ws")]) as socket:
            socket.send(json.dumps({"type": "connection_init"}))
            assert json.loads(socket.recv(30)) == {"type": "connection_ack"}
            socket.send(json.dumps({"type": "start", "id": "1", "payload": {"query": query}}))
            found: dict[str, object] = json.loads(socket.recv(30))
            return found


def as_mutation(key: str) -> str:
    """A GraphQL document that leaves a trace under a key."""
    return f'mutation Change {{ setConcurrencyLimit(concurrencyKey: "{key}", limit: 3) }}'


def as_body(key: str) -> str:
    return json.dumps({"query": as_mutation(key)})


def as_path(*documents: str, **others: str) -> str:
    """The address that carries documents, as a link or a picture of another website would."""
    given = [*(("query", document) for document in documents), *others.items()]
    return "/graphql?" + "&".join(f"{name}={quote(value)}" for name, value in given)


@contextlib.contextmanager
def serve(records: dg.DagsterInstance, *hosts: str, docs: Path = Path("no-docs")) -> Iterator[Site]:
    """Serve the real application, with no definitions in it, until the block ends."""
    with WorkspaceProcessContext(records, None) as context, socket.socket() as listening:
        listening.bind((HOST, 0))
        app = GuardedWebserver(context, hosts, docs).create_asgi_app()
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            eventually(lambda: server.started, "the web server answers", 60)
            yield Site(listening.getsockname()[1], records)
        finally:
            server.should_exit = True
            thread.join(30)
