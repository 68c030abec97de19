"""Gradients in host memory: the bucket itself on a CPU; on a GPU a pinned copy, read only after it has arrived."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Protocol

import torch

from .spans import span

if TYPE_CHECKING:
    from collections.abc import Sequence

Part = tuple[int, int]


def memory_of(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous host tensor, without a copy; the tensor must outlive the view."""
    length = tensor.numel() * tensor.element_size()
    return memoryview((ctypes.c_char * length).from_address(tensor.data_ptr())).cast("B")


def tensor_of(view: memoryview, dtype: torch.dtype = torch.uint8) -> torch.Tensor:
    """A buffer as a tensor, without a copy."""
    return torch.frombuffer(view, dtype=dtype) if len(view) else torch.empty(0, dtype=dtype)


def copy_bytes(source: memoryview, sink: memoryview) -> None:
    """Copy without holding up other threads, which an assignment of views would."""
    tensor_of(sink).copy_(tensor_of(source))


class Staged(Protocol):
    """One bucket on its way through host memory."""

    host: torch.Tensor

    def need(self, part: int) -> None:
        """Until this part of the gradients is in host memory."""

    def give(self, part: int) -> None:
        """This part is final: it may go back to the device."""

    def finish(self) -> None:
        """Until all parts are back where the optimizer looks for them."""

    def deliver(self, future: torch.futures.Future[torch.Tensor]) -> None:
        """Hand the bucket to whoever waits for it."""


class InPlace:
    """A bucket in host memory is reduced where it lies."""

    def __init__(self, bucket: torch.Tensor) -> None:
        self.host = bucket

    def need(self, part: int) -> None:
        """It is there."""

    def give(self, part: int) -> None:
        """It is there."""

    def finish(self) -> None:
        """It is there."""

    def deliver(self, future: torch.futures.Future[torch.Tensor]) -> None:
        """Hand the bucket to whoever waits for it."""
        future.set_result(self.host)


class Pinned:
    """A bucket on a GPU, copied to pinned memory and back on a stream of its own.

    The copy waits for `ready`, which the autograd thread recorded on the stream that fills the bucket. With
    `parts_apart` each part has its own copy and event, so that the first can be sent while the last is still coming.
    """

    def __init__(
        self,
        bucket: torch.Tensor,
        ready: torch.cuda.Event,
        stream: torch.cuda.Stream,
        host: torch.Tensor,
        parts: Sequence[Part],
        *,
        first: int,
        parts_apart: bool,
    ) -> None:
        self.host = host
        self._bucket = bucket
        self._stream = stream
        self._parts = parts
        self._is_apart = parts_apart
        self._arrived: dict[int, torch.cuda.Event] = {}
        stream.wait_event(ready)
        with span("tee::d2h"), torch.cuda.stream(stream):
            if parts_apart:
                # In the order in which the ring needs them: its own part first, then backwards around the ring.
                for place in ((first - step) % len(parts) for step in range(len(parts))):
                    start, end = parts[place]
                    host[start:end].copy_(bucket[start:end], non_blocking=True)
                    self._arrived[place] = self._mark()
                return
            host.copy_(bucket, non_blocking=True)
            whole = self._mark()
            whole.synchronize()  # inside the span, so that it shows how long the copy took

    def need(self, part: int) -> None:
        """Until this part of the gradients is in host memory."""
        event = self._arrived.pop(part, None)
        if event is not None:
            with span("tee::d2h_wait"):
                event.synchronize()

    def give(self, part: int) -> None:
        """This part is final: with parts apart it goes back to the device at once."""
        if self._is_apart:
            start, end = self._parts[part]
            with span("tee::h2d"), torch.cuda.stream(self._stream):
                self._bucket[start:end].copy_(self.host[start:end], non_blocking=True)

    def finish(self) -> None:
        """Until all parts are back on the device; the pinned memory is free for the next bucket after this."""
        with span("tee::h2d"), torch.cuda.stream(self._stream):
            if not self._is_apart:
                self._bucket.copy_(self.host, non_blocking=True)
            self._mark().synchronize()

    def deliver(self, future: torch.futures.Future[torch.Tensor]) -> None:
        """Complete the future on our stream, so that streams of those who wait for it come after it."""
        with torch.cuda.stream(self._stream):
            future.set_result(self._bucket)

    def _mark(self) -> torch.cuda.Event:
        # A blocking event lets the thread sleep: ranks share the host's cores with their own sealing.
        event = torch.cuda.Event(blocking=True)
        event.record(self._stream)
        return event


class HostMemory:
    """Pinned memory that is kept from bucket to bucket and grows to the largest."""

    def __init__(self) -> None:
        self._bytes = torch.empty(0, dtype=torch.uint8)

    def like(self, bucket: torch.Tensor) -> torch.Tensor:
        """Room for a bucket, as its type."""
        needed = bucket.numel() * bucket.element_size()
        if self._bytes.numel() < needed:
            self._bytes = torch.empty(needed, dtype=torch.uint8, pin_memory=True)
        return self._bytes[:needed].view(bucket.dtype)
