"""One notification to a web address: a POST of JSON, with a token that no error, log or record repeats."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lake.errors import ContractBroken, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from http.client import HTTPConnection

_TIMEOUT_S = 10
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_EXPECTED = "expected https://host/path without a user or password in it; http:// for this machine alone"


@dataclass(frozen=True)
class Webhook:
    """Where notifications go; the token is sent as `Authorization: Bearer …` and shown nowhere."""

    host: str
    port: int | None
    is_secure: bool
    # May hold a secret of its own, as those of chat services do.
    path: str = field(repr=False)
    token: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str, token: str | None, variable: str) -> Webhook:
        """A webhook from its address; what is wrong is said without repeating it."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            raise ContractBroken(f"{variable} is no web address", _EXPECTED) from None
        is_secure = parts.scheme == "https"
        is_allowed = is_secure or (parts.scheme == "http" and host in _LOOPBACK)
        if not host or not is_allowed or "@" in parts.netloc or any(ord(char) < 33 for char in url):
            raise ContractBroken(f"{variable} is no address to send notifications to", _EXPECTED)
        if token is not None and (not token.isascii() or not token.isprintable()):
            raise ContractBroken(f"the token for {variable} holds characters that no header takes", "set it again")
        path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        return cls(host, port, is_secure, path, token)

    def send(self, message: Mapping[str, Any]) -> None:
        """Post one message; redirects are not followed, because they could carry the token elsewhere."""
        from http.client import HTTPException  # here, because every command reads the settings

        headers = {"Content-Type": "application/json", "User-Agent": "teetotal"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = self._connect()
        try:
            connection.request("POST", self.path, json.dumps(message).encode(), headers)
            status = connection.getresponse().status
        except (OSError, HTTPException) as error:
            raise SourceUnavailable(
                f"the webhook at {self.host} could not be reached ({type(error).__name__})", "it is tried again"
            ) from None
        finally:
            connection.close()
        if not 200 <= status < 300:
            raise SourceUnavailable(f"the webhook at {self.host} answered {status}", "it is tried again")

    def _connect(self) -> HTTPConnection:
        import ssl
        from http.client import HTTPConnection, HTTPSConnection

        if self.is_secure:
            return HTTPSConnection(self.host, self.port, timeout=_TIMEOUT_S, context=ssl.create_default_context())
        return HTTPConnection(self.host, self.port, timeout=_TIMEOUT_S)
