"""What every request to the web interface must satisfy, so that no page of another website can have it do anything."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse

from pipelines.hosts import LOOPBACK, Authority, parse_authority

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOG = logging.getLogger("teetotal.ui")
_DEFAULT_PORTS = {"http": "80", "https": "443"}
_READING = ("GET", "HEAD")
_JSON = "application/json"
# A page elsewhere can neither show the interface in a frame, where a click may be lured, nor use its files.
_ANSWERED = {"X-Frame-Options": "SAMEORIGIN", "Cross-Origin-Resource-Policy": "same-origin"}
_LONGEST = 200


class Refusal(Exception):
    """Why a request is not served, in one sentence for whoever sent it."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def quote(text: str) -> str:
    """Show what a stranger sent on one line of a log: short, and with no control characters."""
    return ascii(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}...")


class RequestGuard:
    """An ASGI middleware: a request that another website may have caused is refused, and a log line says so."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...] = ()) -> None:
        self._app = app
        self._hosts = {parse_authority(host) for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve the request, or say why not."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        is_websocket = scope["type"] == "websocket"
        try:
            headers = Headers(scope=scope)
            self._require_own_name(headers)
            if not is_websocket:  # for one a browser always names the origin, which is enough
                _require_own_request(scope["method"], headers)
        except Refusal as refusal:
            asked = "WebSocket" if is_websocket else scope["method"]
            LOG.warning("refused %s %s: %s", asked, quote(scope["path"]), refusal.reason)
            if is_websocket:
                # The server answers 403. No page could read a sentence in it, and uvicorn would log an error.
                await send({"type": "websocket.close", "code": 1008, "reason": refusal.reason})
            else:
                await PlainTextResponse(f"{refusal.reason}\n", refusal.status)(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(_ANSWERED)
            await send(message)

        await self._app(scope, receive, send_with_headers)

    def _require_own_name(self, headers: Headers) -> None:
        """Refuse a name that is not ours, and a page that has another name than it asked for."""
        host = _get_one(headers, "Host") or ""
        own = parse_authority(host)
        if own is None or not (own.name in LOOPBACK or {own, Authority(own.name, None)} & self._hosts):
            raise Refusal(421, f"Host {quote(host)} is not a name of this server; TEETOTAL_UI_HOSTS adds names")
        origin = _get_one(headers, "Origin")
        if origin is not None and not _is_own_origin(origin, own):
            raise Refusal(
                403, f"Origin {quote(origin)} is not {quote(host)}: only the interface's own pages may ask for this"
            )


def _require_own_request(method: str, headers: Headers) -> None:
    """Refuse what another website may have caused; a client that is no browser sends no Sec-Fetch-Site."""
    site = _get_one(headers, "Sec-Fetch-Site")
    if site not in (None, "same-origin", "none") and not _is_followed_link(method, headers):
        raise Refusal(403, f"Sec-Fetch-Site is {quote(str(site))}: only the interface's own pages may ask for this")
    if method not in _READING and not _is_json(headers):
        # A page elsewhere may send a form or plain text unasked, but for JSON a browser asks the server first.
        raise Refusal(403, f"{method} needs Content-Type: {_JSON}")


def _get_one(headers: Headers, name: str) -> str | None:
    """Get a header that may be there once: of two, one reader might take the first and another the last."""
    found = headers.getlist(name)
    if len(found) > 1:
        raise Refusal(403, f"the header {name} is there {len(found)} times")
    return found[0] if found else None


def _is_own_origin(origin: str, own: Authority) -> bool:
    """Whether a page's origin is the host that was asked; behind a proxy with TLS the scheme is another."""
    scheme, _, authority = origin.partition("://")
    found, default = parse_authority(authority), _DEFAULT_PORTS.get(scheme)
    if found is None or default is None:
        return False
    return (found.name, found.port or default) == (own.name, own.port or default)


def _is_followed_link(method: str, headers: Headers) -> bool:
    """Whether a person followed a link here: the page that had it cannot see what comes back."""
    return (
        method in _READING
        and _get_one(headers, "Sec-Fetch-Mode") == "navigate"
        and _get_one(headers, "Sec-Fetch-Dest") == "document"
    )


def _is_json(headers: Headers) -> bool:
    """Whether the body is declared as JSON; `text/plain; x=application/json` is not."""
    return (_get_one(headers, "Content-Type") or "").partition(";")[0].strip().lower() == _JSON
