"""How fast `cryptography` alone seals and opens here, and what share of that the ring's hops reach."""

from __future__ import annotations

import os
import statistics
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from .links import KEY_BYTES, NONCE_BYTES, TAG_BYTES
from .rotation import parts_of, slots_for

if TYPE_CHECKING:
    from .ring import SealedRing

_TURNS = 5


@dataclass(frozen=True)
class Rate:
    """Bytes a second of sealing and of opening."""

    seal: float
    open: float


@dataclass(frozen=True)
class Walk:
    """The memory that one all-reduce of a rank walks through: what it seals and opens, in which order, where."""

    message_bytes: int
    messages: int = 1
    ranks: int = 2
    slots: int = 1
    threads: int = 1


def measure_alone(walk: Walk, seconds: float = 0.3) -> Rate:
    """Seal and open what a ring would, buffer for buffer and thread for thread, with nothing else about it.

    Where the ring's buffers lie matters as much as what is done to them: on one buffer that is used again and again,
    `cryptography` is faster than it can be on gradients. Keys are made up, and nobody waits for anybody.
    """
    jobs = [_Job(walk) for _ in range(walk.threads)]
    deadline = time.perf_counter() + seconds
    threads = [threading.Thread(target=job.work, args=(deadline,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Rate(sum(job.done / job.seal_s for job in jobs), sum(job.done / job.open_s for job in jobs))


class _Job:
    """One thread's buffers: a bucket, the slots of a link, and where a message is opened before it is added.

    Two neighbours share the slots of a link, so a rank that seals into its own and opens out of them again touches as
    much memory as a rank of a ring does. It opens what lies there longest.
    """

    def __init__(self, walk: Walk) -> None:
        self._walk = walk
        self._cipher = AESGCM(os.urandom(KEY_BYTES))
        self._length = length = max(1, walk.message_bytes // walk.threads)
        self._bucket = memoryview(bytearray(os.urandom(length)) * (walk.messages * walk.ranks))
        self._scratch = memoryview(bytearray(length))
        self._slots = memoryview(bytearray((length + TAG_BYTES) * walk.slots))
        self._sent = 0
        self.done, self.seal_s, self.open_s = 0, 0.0, 0.0
        for _ in range(walk.slots):
            self._seal(self._scratch)

    def work(self, deadline: float) -> None:
        """Around and around; at least once, since on a busy machine a thread may come to its turn too late."""
        while not self.done or time.perf_counter() < deadline:
            self._around()

    def _around(self) -> None:
        ranks = self._walk.ranks
        for hop in range(2 * (ranks - 1)):
            for message in range(self._walk.messages):
                began = time.perf_counter()
                self._seal(self._plain(-hop, message))
                sealed = time.perf_counter()
                self._open(self._scratch if hop < ranks - 1 else self._plain(-1 - hop, message))
                self.open_s += time.perf_counter() - sealed
                self.seal_s += sealed - began
                self.done += self._length

    def _seal(self, plain: memoryview) -> None:
        self._cipher.encrypt_into(_nonce(self._sent), plain, b"", self._slot(self._sent))
        self._sent += 1

    def _open(self, into: memoryview) -> None:
        oldest = self._sent - self._walk.slots
        self._cipher.decrypt_into(_nonce(oldest), self._slot(oldest), b"", into)

    def _plain(self, part: int, message: int) -> memoryview:
        start = (part % self._walk.ranks * self._walk.messages + message) * self._length
        return self._bucket[start : start + self._length]

    def _slot(self, number: int) -> memoryview:
        start = number % self._walk.slots * (self._length + TAG_BYTES)
        return self._slots[start : start + self._length + TAG_BYTES]


def _nonce(number: int) -> bytes:
    return number.to_bytes(NONCE_BYTES, "big")


def single_core(seconds: float = 0.3) -> Rate:
    """One thread's rate on this machine while the other ranks rest; messages of a size that caches forgive."""
    found = measure_alone(Walk(1 << 20), seconds) if dist.get_rank() == 0 else None
    dist.barrier()
    shared: list[Rate | None] = [found]
    dist.broadcast_object_list(shared, src=0)
    assert shared[0] is not None  # noqa: S101 - rank 0 measured it above
    return shared[0]


def hops(ring: SealedRing, bucket_bytes: int, message_bytes: int | None, seconds: float = 0.5) -> dict[str, float]:
    """Reduce one bucket again and again, with no training around it; hold its time against `cryptography` alone.

    A hop is sealing, transfer, waiting and opening, whatever Python does around them included; the addition between two
    hops is none of it and counts in the all-reduce only.

    All ranks measure at once, in both cases, so that both share the machine with the same neighbours; the two take
    turns, and the median of the turns counts, so that a neighbour who comes and goes does not decide.
    """
    bucket = torch.ones(bucket_bytes // 4)
    part = max(end - start for start, end in parts_of(bucket.numel(), dist.get_world_size())) * 4
    message = min(part, message_bytes or part)
    turns = [_turn(ring, bucket, part, message, seconds / _TURNS) for _ in range(_TURNS)]
    return {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}


def _turn(ring: SealedRing, bucket: torch.Tensor, part: int, message: int, seconds: float) -> dict[str, float]:
    dist.barrier()
    messages = -(-part // message)
    walk = Walk(message, messages, dist.get_world_size(), slots_for(messages, is_direct=ring.is_direct), ring.chains)
    rate = measure_alone(walk, seconds)
    ring.reduce(bucket)
    dist.barrier()
    # All ranks go around equally often, as rank 0 says: a clock or a rate of their own would part them.
    shared = [max(2, int(seconds * rate.seal / (4 * bucket.nbytes)))]
    dist.broadcast_object_list(shared, src=0)
    before, began = _count_bytes(ring), time.perf_counter()
    for _ in range(shared[0]):
        ring.reduce(bucket)
    took = time.perf_counter() - began
    sent, sealed, opened, seal_s, open_s, add_s = (b - a for a, b in zip(before, _count_bytes(ring), strict=True))
    reached = {"hop_bytes_per_s": sent / (took - add_s), "all_reduce_bytes_per_s": sent / took}
    if not sealed:
        return reached
    needed = sealed / rate.seal + opened / rate.open
    return reached | {
        "seal_bytes_per_s": sealed / seal_s,
        "open_bytes_per_s": opened / open_s,
        "alone_seal_bytes_per_s": rate.seal,
        "alone_open_bytes_per_s": rate.open,
        "alone_bytes_per_s": sent / needed,
        "span_fraction": needed / (seal_s + open_s),
        "hop_fraction": needed / (took - add_s),
        "all_reduce_fraction": needed / took,
    }


def _count_bytes(ring: SealedRing) -> tuple[float, ...]:
    tally = ring.tally
    return (
        tally.payload_bytes,
        tally.sealed_bytes,
        tally.opened_bytes,
        tally.seal_ns / 1e9,
        tally.open_ns / 1e9,
        tally.reduce_ns / 1e9,
    )
