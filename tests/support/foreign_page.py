"""A page of another website that tries all that a browser lets it send to the web interface."""

from __future__ import annotations

import contextlib
import http.server
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

# Each leaves its own key in Dagster's records if it succeeds.
ATTEMPTS = (
    *("picture", "form-get", "form-text", "form-address", "fetch-text", "fetch-disguised", "fetch-json", "beacon"),
    *("websocket", "frame"),
)
# Resolved when every attempt has come to its end, whatever that is.
TRY_ALL = """async (target) => {
  const mutation = (key) => `mutation { setConcurrencyLimit(concurrencyKey: "foreign-${key}", limit: 3) }`;
  const address = (key) => `${target}/graphql?query=${encodeURIComponent(mutation(key))}`;
  const body = (key) => JSON.stringify({query: mutation(key)});
  const ended = (element, place) => new Promise((resolve) => {
    element.onload = element.onerror = () => resolve();
    place.append(element);
  });
  const submit = (key, method, action, enctype, fields) => {
    const frame = document.createElement('iframe');
    frame.name = key;
    const form = document.createElement('form');
    Object.assign(form, {method, action, enctype, target: key});
    for (const [name, value] of Object.entries(fields)) {
      const input = document.createElement('input');
      Object.assign(input, {type: 'hidden', name, value});
      form.append(input);
    }
    document.body.append(form, frame);
    return new Promise((resolve) => { frame.onload = resolve; form.submit(); });
  };
  const send = (key, mode, type) => {
    const headers = {'Content-Type': type};
    return fetch(`${target}/graphql`, {method: 'POST', mode, headers, body: body(key)}).catch(() => {});
  };
  await ended(Object.assign(new Image(), {src: address('picture')}), document.body);
  await submit('form-get', 'get', `${target}/graphql`, '', {query: mutation('form-get')});
  const [before, after] = JSON.stringify({query: mutation('form-text'), x: '='}).split('=');
  await submit('form-text', 'post', `${target}/graphql`, 'text/plain', {[before]: after});
  await submit('form-address', 'post', address('form-address'), '', {a: 'b'});
  await send('fetch-text', 'no-cors', 'text/plain');
  await send('fetch-disguised', 'no-cors', 'text/plain; x=application/json');
  await send('fetch-json', 'cors', 'application/json');
  navigator.sendBeacon(address('beacon'), new Blob(['{}'], {type: 'text/plain'}));
  const opened = await new Promise((resolve) => {
    const socket = new WebSocket(`${target.replace('http', 'ws')}/graphql`, 'graphql-ws');
    socket.onopen = () => resolve(true);
    socket.onerror = () => resolve(false);
  });
  await ended(Object.assign(document.createElement('iframe'), {src: target}), document.body);
  return opened;
}"""


@contextlib.contextmanager
def serve_elsewhere() -> Iterator[str]:
    """Serve an empty page as another site than 127.0.0.1, and near enough for a browser to let it through."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<title>elsewhere</title><p>A page of another website.")

        def log_request(self, *_: object) -> None:
            """Say nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://localhost:{server.server_address[1]}/"
        finally:
            server.shutdown()
            thread.join()
