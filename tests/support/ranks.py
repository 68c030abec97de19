"""Ranks of a job, as real processes: what each does is named on its command line, what it saw is left in a file."""

from __future__ import annotations

import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.torch_forks import Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from tests.support.tampered_links import Frame
    from tests.support.torch_forks import TorchForks

ROOT = Path(__file__).parent.parent.parent
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {"mode": "plain"},
    "plain-pipelined": {"mode": "plain", "pipelined": True},
    "sealed": {},
    "chains": {"chains": 3},
    "pipelined": {"pipelined": True},
    "direct": {"direct": True},
    "all-three": {"chains": 2, "pipelined": True, "direct": True},
    "plain-tcp": {"mode": "plain", "transport": "tcp"},
    "tcp": {"transport": "tcp"},
    "all-three-tcp": {"chains": 2, "pipelined": True, "direct": True, "transport": "tcp"},
}
_CHUNK_BYTES = 4096
_MEDDLED = 3  # the frame that somebody meddles with
_ROUNDS = 4


def spawn_ranks(forks: TorchForks, scenario: str, world: int, folder: Path, **environment: str) -> list[dict[str, Any]]:
    """Run a scenario on `world` processes; give what each rank saw. A rank that left nothing gives its exit status."""
    settings = {"GLOO_SOCKET_IFNAME": "lo", **environment}
    words = [[scenario, str(rank), str(world), str(folder)] for rank in range(world)]
    statuses = forks.run([Job(__name__, some, str(folder / f"said-{some[1]}"), settings) for some in words])
    files = [folder / f"seen-{rank}.json" for rank in range(world)]
    return [
        json.loads(file.read_text("utf-8"))
        if file.exists()
        else {"status": status, "said": (folder / f"said-{rank}").read_text("utf-8")}
        for rank, (status, file) in enumerate(zip(statuses, files, strict=True))
    ]


# -- what a rank does ---------------------------------------------------------------------------------------------


def sums(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """Reduce the same tensors by every variant: equal to the plain ring's bit for bit, to gloo's within rounding."""
    import torch
    import torch.distributed as dist

    from collector import SealedRing

    inputs = [_gradients(rank, size, dtype) for size, dtype in _shapes()]
    gloo = []
    for tensor in inputs:
        reduced = tensor.clone()
        dist.all_reduce(reduced)
        gloo.append(reduced / world)
    seen: dict[str, Any] = {}
    plain: list[torch.Tensor] = []
    for name, settings in VARIANTS.items():
        with SealedRing(timeout_s=20, chunk_bytes=_CHUNK_BYTES, **settings) as ring:
            outputs = [ring.reduce(tensor.clone()) for tensor in inputs]
            tally = ring.tally
        plain = plain or outputs
        seen[name] = {
            "equals_plain": [torch.equal(one, other) for one, other in zip(outputs, plain, strict=True)],
            "is_near_gloo": [
                torch.allclose(one.float(), other.float(), rtol=_tolerance(one), atol=_tolerance(one))
                for one, other in zip(outputs, gloo, strict=True)
            ],
            "messages": tally.messages,
            "payload_bytes": tally.payload_bytes,
            "sealed_bytes": tally.sealed_bytes,
            "opened_bytes": tally.opened_bytes,
            "relayed_bytes": tally.relayed_bytes,
        }
    seen["training"] = _train(rank)
    return seen


def _shapes() -> list[tuple[int, Any]]:
    import torch

    return [
        (1, torch.float32),
        (3, torch.float64),
        (4099, torch.float32),
        (50_001, torch.float32),
        (777, torch.bfloat16),
    ]


def _tolerance(tensor: torch.Tensor) -> float:
    import torch

    return {torch.bfloat16: 0.05}.get(tensor.dtype, 1e-6)


def _gradients(rank: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    import torch

    return torch.randn(size, generator=torch.Generator().manual_seed(100 * rank + size), dtype=torch.float32).to(dtype)


def _train(rank: int) -> dict[str, list[float]]:
    """The same model trained with gloo's all-reduce and with two rings: the losses of each."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from collector import SealedRing

    found = {}
    for name in ("gloo", "plain", "all-three"):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(40, 300), torch.nn.ReLU(), torch.nn.Linear(300, 7))
        ring = None
        if name == "gloo":
            wrapped = DistributedDataParallel(model, bucket_cap_mb=0.01)
        else:
            ring = SealedRing(timeout_s=20, bucket_cap_mib=0.01, chunk_bytes=_CHUNK_BYTES, **VARIANTS[name])
            wrapped = ring.wrap(model)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1)
        data = torch.randn(16, 40, generator=torch.Generator().manual_seed(rank))
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = wrapped(data).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found[name] = losses
        if ring is not None:
            ring.close()
    return found


def faults(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """Meddle with the link into rank 1 in every way; each rank says what it was told, and how long that took."""
    import torch
    import torch.distributed as dist

    from collector import RingBroken, SealedRing
    from tests.support.tampered_links import Meddler

    seen = {}
    for name, (meddle, settings) in _meddlings().items():
        dist.barrier()
        began = time.monotonic()
        meddler = Meddler(meddle) if rank == 1 else None
        answer = "nothing was noticed"
        try:
            with SealedRing(
                timeout_s=2, chunk_bytes=_CHUNK_BYTES, via=meddler.via if meddler else None, **settings
            ) as ring:
                began = time.monotonic()
                for _ in range(_ROUNDS):
                    ring.reduce(torch.full((30_000,), float(rank)))
        except RingBroken as error:
            answer = str(error)
        seen[name] = {"answer": answer, "seconds": time.monotonic() - began}
    seen["wrong key"] = _wrongly_known(rank, world)
    return seen


def _tamper(number: int, frame: Frame) -> Iterable[Frame]:
    place, content = frame
    return [(place, bytes([content[0] ^ 1]) + content[1:] if number == _MEDDLED else content)]


def _tamper_with_header(number: int, frame: Frame) -> Iterable[Frame]:
    return [(frame[0]._replace(chunk=number), frame[1])]


def _tamper_at_relay(_: int, frame: Frame) -> Iterable[Frame]:
    """The last of four hops: what travels there was sealed two hops before."""
    place, content = frame
    return [(place, content[:-1] + bytes([content[-1] ^ 128]) if place.hop == 3 else content)]


def _replay(number: int, frame: Frame) -> Iterable[Frame]:
    return [frame, frame] if number == _MEDDLED else [frame]


class _Keeping:
    """Remembers what went by."""

    def __init__(self) -> None:
        self._held: list[Frame] = []

    def splice(self, number: int, frame: Frame) -> Iterable[Frame]:
        """An older message under the header of the one that is due."""
        self._held.append(frame)
        return [(frame[0], self._held[-2][1])] if number == _MEDDLED else [frame]

    def reorder(self, number: int, frame: Frame) -> Iterable[Frame]:
        """Two messages change places."""
        self._held.append(frame)
        if number == _MEDDLED:
            return []
        return [frame, self._held[-2]] if number == _MEDDLED + 1 else [frame]


def _drop(number: int, frame: Frame) -> Iterable[Frame]:
    return [] if number == _MEDDLED else [frame]


def _silence(number: int, frame: Frame) -> Iterable[Frame]:
    """Nothing comes after it that could give it away."""
    return [] if number >= _MEDDLED else [frame]


def _cut(number: int, frame: Frame) -> Iterable[Frame]:
    if number == _MEDDLED:
        raise OSError
    return [frame]


def _meddlings() -> dict[str, tuple[Callable[[int, Frame], Iterable[Frame]], dict[str, Any]]]:
    return {
        "passing": (lambda _, frame: [frame], {}),
        "tamper": (_tamper, {}),
        "tamper with the header": (_tamper_with_header, {}),
        "tamper with chains": (_tamper, {"chains": 2}),
        "tamper with what is relayed": (_tamper_at_relay, {"direct": True}),
        "replay": (_replay, {"pipelined": True}),
        "splice": (_Keeping().splice, {}),
        "reorder": (_Keeping().reorder, {"pipelined": True}),
        "drop": (_drop, {}),
        "silence": (_silence, {}),
        "drop one of many": (_drop, {"pipelined": True}),
        "cut": (_cut, {}),
    }


def _wrongly_known(rank: int, world: int) -> dict[str, Any]:
    """Rank 0 knows rank 1 by another key than the one it has."""
    from collector import Identity, RingBroken, SealedRing

    began = time.monotonic()
    try:
        SealedRing(timeout_s=2, identities={1: Identity().public} if rank == 0 else None)
    except RingBroken as error:
        return {"answer": str(error), "seconds": time.monotonic() - began}
    return {"answer": "nothing was noticed", "seconds": 0}


def death(rank: int, world: int, folder: Path) -> dict[str, Any]:
    """Rank 1 dies in the middle of training; the others say what they were told in backward."""
    import torch

    from collector import SealedRing

    transport: Any = os.environ["RING_TRANSPORT"]
    ring = SealedRing(timeout_s=10, transport=transport)
    model = ring.wrap(torch.nn.Linear(1000, 100))
    step, began = 0, time.monotonic()
    try:
        for step in range(50):
            began = time.monotonic()
            loss = model(torch.ones(4, 1000)).sum()
            if rank == 1 and step == 3:
                os._exit(9)
            loss.backward()
    except RuntimeError as error:
        return {"answer": str(error), "seconds": time.monotonic() - began, "step": step}
    return {"answer": "nothing was noticed", "seconds": time.monotonic() - began, "step": step}


def main() -> None:
    """Do what the command line names, then leave without waiting for anybody."""
    scenario, rank, world, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    import torch.distributed as dist

    rendezvous = f"file://{folder / f'rendezvous-{scenario}'}"
    dist.init_process_group("gloo", rendezvous, rank=rank, world_size=world, timeout=timedelta(seconds=30))
    seen = globals()[scenario](rank, world, folder)
    (folder / f"seen-{rank}.json").write_text(json.dumps(seen), "utf-8")
    sys.stdout.flush()
    os._exit(0)  # a peer that died would keep gloo waiting


if __name__ == "__main__":
    main()
