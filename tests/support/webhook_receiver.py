"""A web server on loopback that webhooks are sent to, and secrets that must not be found again."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN, SECRET_PATH = "tok-5cf0b7d2e1a94", "hook-e1a7c93b/room-b81d"


class Receiver(HTTPServer):
    """Keeps what it is sent, and answers as it is told to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.received: list[tuple[dict[str, str], dict[str, Any]]] = []

    @property
    def variables(self) -> dict[str, str]:
        """What sets it as the webhook of alerts."""
        address = f"http://127.0.0.1:{self.server_port}/{SECRET_PATH}?room=7"
        return {"TEETOTAL_ALERT_WEBHOOK": address, "TEETOTAL_ALERT_TOKEN": TOKEN}


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(({"path": self.path, **dict(self.headers)}, json.loads(body)))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serve_receiver() -> Iterator[Receiver]:
    """The server, until the end of the block."""
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def find_secrets(*texts: str, below: Path) -> list[str]:
    """Where the secrets of the webhook stand: in one of these texts, or in a file below a directory."""
    secrets = (TOKEN, *SECRET_PATH.split("/"), "room=7")
    held = {f"text {place}": text.encode() for place, text in enumerate(texts)}
    held |= {str(path): path.read_bytes() for path in below.rglob("*") if path.is_file()}
    return [f"{where}: {secret}" for where, data in held.items() for secret in secrets if secret.encode() in data]
