"""The way of a bucket between device and host, with a device that only remembers what it was asked."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch

from collector.rotation import parts_of
from collector.staging import InPlace, Pinned, memory_of


class Remembering:
    """Stands for CUDA's stream and events; a copy is done at once, and that it was waited for is written down."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.events = 0

    def wait_event(self, event: object) -> None:
        self.asked.append(f"wait for {event}")

    def event(self, **_: object) -> RememberingEvent:
        self.events += 1
        return RememberingEvent(self, self.events)


class RememberingEvent:
    def __init__(self, stream: Remembering, number: int) -> None:
        self._stream = stream
        self._number = number

    def record(self, _: object) -> None:
        self._stream.asked.append(f"mark {self._number}")

    def synchronize(self) -> None:
        self._stream.asked.append(f"until {self._number}")


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Remembering:
    """A stream in whose place nothing runs."""
    found = Remembering()
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    monkeypatch.setattr(torch.cuda, "Event", found.event)
    return found


def stage_bucket(stream: Any, bucket: torch.Tensor, *, parts_apart: bool) -> Pinned:
    host = torch.zeros_like(bucket)
    ready: Any = "ready"
    return Pinned(bucket, ready, stream, host, parts_of(len(bucket), 3), first=1, parts_apart=parts_apart)


def test_a_whole_bucket_is_waited_for_before_anything_reads_it(stream: Remembering) -> None:
    found = stage_bucket(stream, torch.arange(7.0), parts_apart=False)
    assert stream.asked == ["wait for ready", "mark 1", "until 1"]
    assert found.host.tolist() == list(range(7))


def test_parts_come_in_the_order_in_which_the_ring_needs_them_and_each_is_waited_for_once(stream: Remembering) -> None:
    found = stage_bucket(stream, torch.arange(7.0), parts_apart=True)
    assert stream.asked == ["wait for ready", "mark 1", "mark 2", "mark 3"]
    for part in (1, 0, 2, 1):
        found.need(part)
    assert stream.asked[4:] == ["until 1", "until 2", "until 3"]
    assert found.host.tolist() == list(range(7))


@pytest.mark.parametrize("parts_apart", [False, True])
def test_what_the_ring_gives_is_on_the_device_when_it_is_finished(stream: Remembering, parts_apart: bool) -> None:
    bucket = torch.arange(7.0)
    found = stage_bucket(stream, bucket, parts_apart=parts_apart)
    found.host.mul_(10)
    for part in range(3):
        found.give(part)
    found.finish()
    assert bucket.tolist() == [10.0 * number for number in range(7)]
    assert stream.asked[-2:] == [f"mark {stream.events}", f"until {stream.events}"]


def test_a_bucket_in_host_memory_is_reduced_where_it_lies() -> None:
    bucket = torch.zeros(4)
    memory_of(InPlace(bucket).host)[:4] = torch.tensor([1.5]).numpy().tobytes()
    assert bucket.tolist() == [1.5, 0, 0, 0]


def test_parts_cover_a_bucket_however_small() -> None:
    assert parts_of(7, 3) == [(0, 2), (2, 4), (4, 7)]
    assert parts_of(1, 4) == [(0, 0), (0, 0), (0, 0), (0, 1)]
