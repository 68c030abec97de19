"""Doing the next bit of work while the last is being used: a bounded number of bits ahead, in a thread beside."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Bit = TypeVar("Bit")


def prefetch(bits: Iterable[Bit], most: int = 4) -> Iterator[Bit]:
    """The same bits, made in another thread; at most a few wait, and an error arrives where it would have."""
    waiting: queue.Queue[Bit | BaseException | None] = queue.Queue(most)
    is_abandoned = threading.Event()

    def put(item: Bit | BaseException | None) -> bool:
        while not is_abandoned.is_set():
            try:
                waiting.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def work() -> None:
        try:
            for bit in bits:
                if not put(bit):
                    return
        except BaseException as error:  # noqa: BLE001 - handed over to the thread that uses the bits
            put(error)
        else:
            put(None)

    worker = threading.Thread(target=work, name="ahead", daemon=True)
    worker.start()
    try:
        while (item := waiting.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        is_abandoned.set()
        worker.join()
