"""Somebody on the wire: stands between two ranks, reads their frames and passes on what it likes."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

from collector.frames import HEADER, Place, unpack

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# What the sender of a sealed link says before the first frame: its share, and after the answer its signature.
_HANDSHAKE_BYTES = (32, 64)
Frame = tuple[Place, bytes]


class Meddler:
    """Hands each frame, in its order, to `meddle`, and passes on the frames that this gives back."""

    def __init__(self, meddle: Callable[[int, Frame], Iterable[Frame]]) -> None:
        self._meddle = meddle
        self._server = socket.create_server(("127.0.0.1", 0))
        self._onward = ("", 0)

    def via(self, address: tuple[str, int]) -> tuple[str, int]:
        """Where peers dial instead of `address`."""
        self._onward = address
        threading.Thread(target=self._run, daemon=True).start()
        return "127.0.0.1", self._server.getsockname()[1]

    def _run(self) -> None:
        inward, _ = self._server.accept()
        onward = socket.create_connection(self._onward)
        threading.Thread(target=self._pass_back, args=(onward, inward), daemon=True).start()
        try:
            for count in _HANDSHAKE_BYTES:
                onward.sendall(_read(inward, count))
            number = 0
            while True:
                place = unpack(_read(inward, HEADER.size))
                assert place is not None
                frame = place, _read(inward, place.length)
                for out, content in self._meddle(number, frame):
                    onward.sendall(out.pack() + content)
                number += 1
        except (OSError, EOFError):
            onward.close()
            inward.close()

    @staticmethod
    def _pass_back(source: socket.socket, sink: socket.socket) -> None:
        try:
            while piece := source.recv(1 << 16):
                sink.sendall(piece)
        except OSError:
            pass


def _read(sock: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        piece = sock.recv(count - len(found))
        if not piece:
            raise EOFError
        found += piece
    return bytes(found)
