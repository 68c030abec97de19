"""A web address that something is posted to: encrypted, or on this machine; no redirect is followed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lake.errors import ContractBroken, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from http.client import HTTPConnection

_TIMEOUT_S = 10
# No answer that is read is longer: a few lines of signatures.
_MOST_BYTES = 65_536
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_EXPECTED = "expected https://host/path without a user or password in it; http:// for this machine alone"


@dataclass(frozen=True)
class Answer:
    """What a server said; of the body as much as an answer may have."""

    status: int
    kind: str
    body: str


@dataclass(frozen=True)
class WebAddress:
    """Where something is posted to."""

    host: str
    port: int | None
    is_secure: bool
    # May hold a secret of its own, as those of chat services do.
    path: str = field(repr=False)

    @classmethod
    def parse(cls, url: str, whose: str) -> WebAddress:
        """An address from its text; what is wrong is said without repeating it."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ContractBroken(f"{whose} is no web address", _EXPECTED) from None
        is_secure = parts.scheme == "https"
        is_allowed = is_secure or (parts.scheme == "http" and host in _LOOPBACK)
        if not host or not is_allowed or "@" in parts.netloc or any(ord(char) < 33 for char in url):
            raise ContractBroken(f"{whose} is no address to post to", _EXPECTED)
        return cls(host, port, is_secure, f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}")

    def post(self, what: str, body: bytes, headers: Mapping[str, str], suffix: str = "") -> Answer:
        """Post some bytes; redirects are not followed, because they could carry a secret elsewhere."""
        from http.client import HTTPException  # here, because every command reads the settings

        connection = self._connect()
        try:
            path = f"{self.path.rstrip('/')}{suffix}" if suffix else self.path
            connection.request("POST", path, body, {"User-Agent": "teetotal", **headers})
            answer = connection.getresponse()
            text = answer.read(_MOST_BYTES).decode("utf-8", "replace")
            return Answer(answer.status, answer.getheader("Content-Type", "").partition(";")[0].strip(), text)
        except (OSError, HTTPException) as error:
            raise SourceUnavailable(
                f"{what} at {self.host} could not be reached ({type(error).__name__})",
                "see whether it runs and can be reached from this machine",
            ) from None
        finally:
            connection.close()

    def _connect(self) -> HTTPConnection:
        import ssl
        from http.client import HTTPConnection, HTTPSConnection

        if self.is_secure:
            return HTTPSConnection(self.host, self.port, timeout=_TIMEOUT_S, context=ssl.create_default_context())
        return HTTPConnection(self.host, self.port, timeout=_TIMEOUT_S)
