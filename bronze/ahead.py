"""Doing the next bit of work while the last is being used: a bounded number of bytes ahead, in a thread beside."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_BLOCKS_AHEAD = 4


def ahead(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The same blocks, made in another thread; at most a few wait, and an error arrives where it would have."""
    waiting: queue.Queue[bytes | BaseException | None] = queue.Queue(_BLOCKS_AHEAD)
    is_abandoned = threading.Event()

    def put(item: bytes | BaseException | None) -> bool:
        while not is_abandoned.is_set():
            try:
                waiting.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for block in blocks:
                if not put(block):
                    return
        except BaseException as error:  # noqa: BLE001 - handed over to the thread that uses the blocks
            put(error)
        else:
            put(None)

    worker = threading.Thread(target=work, name="inflate-ahead", daemon=True)
    worker.start()
    try:
        while (item := waiting.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        is_abandoned.set()
        worker.join()
