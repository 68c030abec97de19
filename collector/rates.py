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

from collector.links import KEY_BYTES, NONCE_BYTES, TAG_BYTES
from collector.rotation import parts_of, slots_for

if TYPE_CHECKING:
    from collector.ring import SealedRing

_TURNS = 5


@dataclass(frozen=True)
class Rate:
    """Bytes a second of sealing and of opening."""

    seal: float
    open: float


def alone(message_bytes: int, threads: int, seconds: float = 0.3, plain: int = 1, slots: int = 1) -> Rate:
    """Seal and open messages of this size on so many threads, with nothing else about it; keys are made up.

    Messages walk through as much memory as the ring's do, `plain` messages of gradients and `slots` sealed ones: on one
    buffer, used again and again, `cryptography` would be faster than it can be on gradients.
    """
    piece = max(1, message_bytes // threads)
    jobs = [_Job(piece, plain, slots) for _ in range(threads)]
    return Rate(*(_timed(jobs, is_sealing, seconds) for is_sealing in (True, False)))


class _Job:
    """One thread's buffers."""

    def __init__(self, length: int, plain: int, slots: int) -> None:
        self._cipher = AESGCM(os.urandom(KEY_BYTES))
        self.length, self._plain_count, self._slots = length, plain, slots
        self._plain = memoryview(bytearray(os.urandom(length)) * plain)
        self._sealed = memoryview(bytearray((length + TAG_BYTES) * slots))
        self._nonces = [b""] * slots
        self._turn = 0
        for _ in range(slots):
            self.seal()

    def seal(self) -> None:
        plain, sealed, slot = self._next()
        self._nonces[slot] = self._turn.to_bytes(NONCE_BYTES, "big")
        self._cipher.encrypt_into(self._nonces[slot], plain, b"", sealed)

    def open(self) -> None:
        plain, sealed, slot = self._next()
        self._cipher.decrypt_into(self._nonces[slot], sealed, b"", plain)

    def _next(self) -> tuple[memoryview, memoryview, int]:
        self._turn += 1
        slot, sealed_length = self._turn % self._slots, self.length + TAG_BYTES
        start, sealed_start = self._turn % self._plain_count * self.length, slot * sealed_length
        return self._plain[start : start + self.length], self._sealed[sealed_start : sealed_start + sealed_length], slot


def _timed(jobs: list[_Job], is_sealing: bool, seconds: float) -> float:
    done = [0] * len(jobs)

    def work(index: int) -> None:
        once = jobs[index].seal if is_sealing else jobs[index].open
        # At least once: on a busy machine a thread may come to its turn only after the deadline.
        while not done[index] or time.perf_counter() < deadline:
            once()
            done[index] += jobs[index].length

    began = time.perf_counter()
    deadline = began + seconds
    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(jobs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done) / (time.perf_counter() - began)


def single_core(seconds: float = 0.3) -> Rate:
    """One thread's rate on this machine while the other ranks rest; messages of a size that caches forgive."""
    found = alone(4 << 20, 1, seconds) if dist.get_rank() == 0 else None
    dist.barrier()
    told: list[Rate | None] = [found]
    dist.broadcast_object_list(told, src=0)
    assert told[0] is not None  # noqa: S101 - rank 0 measured it above
    return told[0]


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
    rate = alone(message, ring.chains, seconds, bucket.nbytes // message, slots_for(-(-part // message)) + 1)
    ring.reduce(bucket)
    dist.barrier()
    # All ranks go around equally often, as rank 0 says: a clock or a rate of their own would part them.
    told = [max(2, int(seconds * rate.seal / (4 * bucket.nbytes)))]
    dist.broadcast_object_list(told, src=0)
    before, began = _counted(ring), time.perf_counter()
    for _ in range(told[0]):
        ring.reduce(bucket)
    took = time.perf_counter() - began
    sent, sealed, opened, seal_s, open_s, add_s = (b - a for a, b in zip(before, _counted(ring), strict=True))
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


def _counted(ring: SealedRing) -> tuple[float, ...]:
    tally = ring.tally
    return (
        tally.payload_bytes,
        tally.sealed_bytes,
        tally.opened_bytes,
        tally.seal_ns / 1e9,
        tally.open_ns / 1e9,
        tally.reduce_ns / 1e9,
    )
