"""A witness as C2SP's tlog-witness describes it, on this machine: it shares no code with what asks it.

No witness that could be installed was found on PyPI, npm or Debian, so this one is written from the specification; its
proofs are checked by the independent verifier.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import re
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from lake.lineage.check_evidence import Keys, is_consistent

if TYPE_CHECKING:
    from collections.abc import Iterator

Answer = tuple[int, str, str]
_PLAIN = "text/plain"


@dataclass
class Witness:
    """A key and a memory: for each log the last checkpoint that it has countersigned."""

    name: str
    logs: Keys
    private: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    seen: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    # What it answers instead, for a witness that does not keep to the protocol.
    instead: Answer | None = None
    url: str = ""

    @property
    def key(self) -> str:
        """Its public key, as a line of a list of keys."""
        typed = b"\x04" + self.private.public_key().public_bytes_raw()
        return f"{self.name}+{self._identify(typed).hex()}+{base64.b64encode(typed).decode()}"

    def answer(self, body: str) -> Answer:
        """What `add-checkpoint` answers: status, content type, body."""
        head, _, checkpoint = body.partition("\n\n")
        old, *proof = head.split("\n")
        found = re.fullmatch(r"old (0|[1-9][0-9]*)", old)
        if found is None or len(proof) > 63:
            return 400, _PLAIN, ""
        origin = checkpoint.partition("\n")[0]
        if origin not in {name for name, _ in self.logs.notes}:
            return 404, _PLAIN, ""
        try:
            size, root = self.logs.read_checkpoint(checkpoint)
        except ValueError:
            return 403, _PLAIN, ""
        before, known = self.seen.get(origin, (0, b""))
        if int(found[1]) > size:
            return 400, _PLAIN, ""
        if int(found[1]) != before or (before == size and known != root):
            return 409, "text/x.tlog.size", f"{before}\n"
        nodes = [base64.b64decode(line) for line in proof]
        if before and not is_consistent(before, size, nodes, known, root):
            return 422, _PLAIN, ""
        self.seen[origin] = size, root
        return 200, _PLAIN, self.cosign(checkpoint.partition("\n\n")[0] + "\n")

    def cosign(self, signed: str) -> str:
        """A line that countersigns a checkpoint now."""
        now = int(time.time())
        signature = self.private.sign(f"cosignature/v1\ntime {now}\n{signed}".encode())
        typed = b"\x04" + self.private.public_key().public_bytes_raw()
        mark = self._identify(typed) + now.to_bytes(8, "big") + signature
        return f"— {self.name} {base64.b64encode(mark).decode()}\n"

    def _identify(self, typed: bytes) -> bytes:
        return hashlib.sha256(self.name.encode() + b"\n" + typed).digest()[:4]


@contextlib.contextmanager
def serve_witness(name: str, logs: str) -> Iterator[Witness]:
    """A witness on a port of its own, for logs that these keys sign."""
    witness = Witness(name, Keys(logs))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            is_known = self.path == "/w/add-checkpoint"
            status, kind, text = witness.instead or (witness.answer(body) if is_known else (404, _PLAIN, ""))
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            with contextlib.suppress(ConnectionError):  # who asked may have read enough
                self.wfile.write(text.encode())

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        witness.url = f"http://127.0.0.1:{server.server_address[1]}/w/"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield witness
        finally:
            server.shutdown()
