"""A communication hook of DDP: each bucket is reduced around a ring of ranks, sealed at every hop or plain."""

import queue
import threading
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from .errors import CollectorError, RingBroken
from .handshake import Member, Via, connect_neighbours, share_keys
from .links import Chains, Identity, make_pool
from .rotation import Keys, Rotation, Tally, Work, parts_of
from .spans import span
from .staging import HostMemory, InPlace, Pinned, Staged

# DDP looks at the annotations of a hook itself and wants types, not texts: no `from __future__ import annotations`.
Gradients = torch.futures.Future[torch.Tensor]
Mode = Literal["plain", "sealed"]
Transport = Literal["auto", "tcp"]
CHUNK_BYTES = 2 << 20


@dataclass(frozen=True)
class Job:
    """A bucket that waits for the ring."""

    bucket: torch.Tensor
    ready: torch.cuda.Event | None
    index: int
    step: int
    future: Gradients


class SealedRing:
    """Reduce gradients by a ring of send and receive through host memory.

    `mode="sealed"` seals every hop with AES-256-GCM; `mode="plain"` is its baseline, the same path without crypto.
    `chains` cuts a message into pieces that are sealed at once, each under a key of its own; `pipelined` lets a
    message travel in chunks, so that transfer, sealing and copies overlap; `direct` forwards finished parts as they
    came, sealed for the whole group, instead of opening and sealing them again at every hop.

    `identity` is this rank's signing key and `identities` the public keys by which it knows others; without them
    fresh ones are made and told over the process group, which is then what must be trusted.

    Ranks of one host share memory with their neighbours; `transport="tcp"` makes them take the way that ranks of
    several hosts take.
    """

    def __init__(
        self,
        *,
        mode: Mode = "sealed",
        chains: int = 1,
        pipelined: bool = False,
        direct: bool = False,
        bucket_cap_mib: float | None = None,
        chunk_bytes: int = CHUNK_BYTES,
        timeout_s: float = 60.0,
        group: dist.ProcessGroup | None = None,
        identity: Identity | None = None,
        identities: dict[int, bytes] | None = None,
        via: Via | None = None,
        transport: Transport = "auto",
    ) -> None:
        if mode not in {"plain", "sealed"}:
            raise CollectorError(f"mode: expected 'plain' or 'sealed', found {mode!r}")
        if not 1 <= chains <= 64:
            raise CollectorError(f"chains: expected 1 to 64, found {chains}")
        if chunk_bytes < 1024:
            raise CollectorError(f"chunk_bytes: expected at least 1024, found {chunk_bytes}")
        if transport not in {"auto", "tcp"}:
            raise CollectorError(f"transport: expected 'auto' or 'tcp', found {transport!r}")
        self.mode: Mode = mode
        self.chains = chains
        self.is_pipelined = pipelined
        self.is_direct = direct
        self.bucket_cap_mib = bucket_cap_mib
        self.chunk_bytes = chunk_bytes if pipelined else None
        self._member = Member(dist.get_rank(group), dist.get_world_size(group), group, timeout_s)
        self._memory = HostMemory()
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._pool = make_pool(chains, "ring-seal") if mode == "sealed" else None
        self._fault: RingBroken | None = None
        self._steps = 0
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._rotation: Rotation | None = None
        if self._member.ranks > 1:
            self._begin(identity, identities, via, transport)

    @property
    def regime(self) -> str:
        """The regime that a run with this hook may claim: an emulation in software, whatever the hardware is."""
        return "sw_per_hop_aesgcm" if self.mode == "sealed" else "cc_off"

    @property
    def tally(self) -> Tally:
        """What the ring has done so far."""
        return self._rotation.tally if self._rotation else Tally()

    def settings(self) -> dict[str, str | int | bool | None]:
        """How the ring works, for the manifest's `[extra]`."""
        return {
            "ring_mode": self.mode,
            "ring_chains": self.chains,
            "ring_pipelined": self.is_pipelined,
            "ring_direct": self.is_direct,
            "ring_chunk_bytes": self.chunk_bytes,
            "ring_transport": self._link.transport if self._rotation else "none",
        }

    def wrap(self, model: torch.nn.Module, **settings: Any) -> DistributedDataParallel:
        """The model under DDP, with this hook and its bucket cap."""
        if self.bucket_cap_mib is not None:
            settings["bucket_cap_mb"] = self.bucket_cap_mib
        wrapped = DistributedDataParallel(model, process_group=self._member.group, **settings)
        wrapped.register_comm_hook(None, self.hook)
        return wrapped

    def hook(self, state: object, bucket: GradBucket) -> Gradients:  # noqa: ARG002 - DDP hands it over
        """Queue the bucket and return at once: backward goes on while the ring works."""
        self.check()
        buffer, step = bucket.buffer(), self._steps
        if bucket.is_last():
            self._steps += 1
        return self._reduce(buffer, bucket.index(), step)

    def reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Replace a flat tensor by its mean over all ranks, and wait for it."""
        self.check()
        try:
            return self._reduce(tensor, 0, self._steps).wait()
        except RuntimeError:
            self.check()  # says it better
            raise

    def check(self) -> None:
        """Raise if the ring is broken."""
        if self._fault is not None:
            raise self._fault

    def close(self) -> None:
        """Finish what is queued and hang up."""
        if self._rotation is not None:
            self._jobs.put(None)
            self._thread.join()
            self._link.close()
            self._rotation = None
        if self._pool is not None:
            self._pool.shutdown()

    def __enter__(self) -> "SealedRing":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(
        self,
        identity: Identity | None,
        identities: dict[int, bytes] | None,
        via: Via | None,
        transport: Transport,
    ) -> None:
        is_sealed = self.mode == "sealed"
        me = (identity or Identity()) if is_sealed else None
        self._link, onward, inward = connect_neighbours(self._member, me, identities, self.chains, via, transport)
        keys = None
        if is_sealed:
            keys = Keys(Chains(onward, self._pool), Chains(inward, self._pool))
            if self.is_direct:
                keys = share_keys(self._member, self._link, keys, self.chains, self._pool)
        self._rotation = Rotation(self._member.rank, self._member.ranks, self._link, keys, self.chunk_bytes)
        self._thread = threading.Thread(target=self._work, args=(self._rotation,), name="ring", daemon=True)
        self._thread.start()

    def _reduce(self, buffer: torch.Tensor, index: int, step: int) -> Gradients:
        is_cuda = buffer.device.type == "cuda"
        future: Gradients = torch.futures.Future(devices=[buffer.device] if is_cuda else None)
        if self._rotation is None:
            future.set_result(buffer)
            return future
        ready = None
        if is_cuda:
            # The autograd thread's current stream is the one that filled the bucket.
            ready = torch.cuda.Event()
            ready.record(torch.cuda.current_stream(buffer.device))
        self._jobs.put(Job(buffer, ready, index, step, future))
        # DDP asks a future for its value in C++, where only an error of a callback shows as an error.
        return future.then(self._check_result)

    def _check_result(self, future: Gradients) -> torch.Tensor:
        self.check()
        return future.value()

    def _work(self, rotation: Rotation) -> None:
        """The ring's own thread: one bucket after the other."""
        collective = 0
        while (job := self._jobs.get()) is not None:
            staged: Staged = InPlace(job.bucket)
            if self._fault is None:
                try:
                    with span("tee::all_reduce", job.bucket.numel() * job.bucket.element_size()):
                        parts = parts_of(job.bucket.numel(), self._member.ranks)
                        staged = self._stage(job, parts)
                        rotation.run(Work(staged, parts, job.step, job.index, collective))
                        staged.finish()
                    collective += 1
                except Exception as error:  # noqa: BLE001 - whatever it was, no rank may train on
                    self._break(error)
            staged.deliver(job.future)

    def _break(self, error: Exception) -> None:
        reason = str(error) if isinstance(error, RingBroken) else f"{type(error).__name__}: {error}"
        self._fault = error if isinstance(error, RingBroken) else RingBroken(f"rank {self._member.rank}: {reason}")
        self._link.abort(reason)

    def _stage(self, job: Job, parts: list[tuple[int, int]]) -> Staged:
        if job.ready is None:
            return InPlace(job.bucket)
        device = job.bucket.device
        torch.cuda.set_device(device)
        if device not in self._streams:
            self._streams[device] = torch.cuda.Stream(device)
        host = self._memory.like(job.bucket)
        return Pinned(
            job.bucket,
            job.ready,
            self._streams[device],
            host,
            parts,
            first=self._member.rank,
            parts_apart=self.is_pipelined,
        )
