"""Moto's S3 alone, `python -m benchmarks.moto_s3 PORT`: half of the processor time of its own command per request.

Moto's command looks up for every request which of some two hundred services it is for, writes a line on it, and makes
its client connect anew.
"""

from __future__ import annotations

import sys

from moto.moto_server.werkzeug_app import create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class _Handler(WSGIRequestHandler):
    """Keeps a client's connection, and writes no line on a request."""

    protocol_version = "HTTP/1.1"
    # Headers and body go out in two pieces, of which the second would wait 40 ms for the first to be acknowledged.
    disable_nagle_algorithm = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        """Nobody reads it."""


def serve(port: int) -> None:
    """Answer until the process ends."""
    server = make_server("127.0.0.1", port, create_backend_app("s3"), threaded=True, request_handler=_Handler)
    server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
