"""A hop of the ring held against `cryptography` alone: no training, no trace, one row a way of sealing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .device import processor
from .errors import CollectorError
from .tables import markdown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .ring import SealedRing

_PATIENCE_S = 180.0
_HEADER = (
    "ranks",
    "transport",
    "mode",
    "chunk KiB",
    "chains",
    "hop GB/s",
    "alone GB/s",
    "hop / alone",
    "all-reduce / alone",
    "spans / alone",
    "seal GB/s",
    "open GB/s",
    "alone seal GB/s",
    "alone open GB/s",
)
_RATES = ("seal_bytes_per_s", "open_bytes_per_s", "alone_seal_bytes_per_s", "alone_open_bytes_per_s")


@dataclass(frozen=True)
class Hops:
    """What is measured; every row on one bucket size."""

    chains: list[int]
    chunks_kib: list[int]
    transports: list[str]
    bucket_mib: int
    seconds: float

    def rows(self) -> Iterator[dict[str, Any]]:
        """Settings of `SealedRing`: plain, sealed whole, sealed in chunks."""
        for transport in self.transports:
            yield {"mode": "plain", "transport": transport}
            yield {"mode": "plain", "transport": transport, "pipelined": True}
            for chains in self.chains:
                yield {"chains": chains, "transport": transport}
                for chunk in self.chunks_kib:
                    yield {"chains": chains, "transport": transport, "pipelined": True, "chunk_bytes": chunk << 10}

    def table(self, world: int) -> str:
        """Measure on so many ranks of this host."""
        if world < 2:
            raise CollectorError(f"worlds: a hop needs at least 2 ranks, found {world}")
        with tempfile.TemporaryDirectory(prefix="collector-") as folder:
            path = Path(folder) / "plan.json"
            path.write_text(json.dumps({"world": world, "folder": folder, **asdict(self)}), "utf-8")
            environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
            environment["PYTHONPATH"] = os.pathsep.join(part for part in sys.path if part)
            ranks = [
                subprocess.Popen([sys.executable, "-m", __package__, "hop-rank", str(path), str(rank)], env=environment)
                for rank in range(world)
            ]
            try:
                codes = [rank.wait(_PATIENCE_S) for rank in ranks]
            finally:
                for rank in ranks:
                    rank.kill()
                    rank.wait()
            if any(codes):
                raise CollectorError(f"hop: the ranks ended with {codes}")
            return (Path(folder) / "table.md").read_text("utf-8")


def run_hops(plan_path: Path, rank: int) -> None:
    """One rank: every row in turn; rank 0 writes the table."""
    import torch
    import torch.distributed as dist

    from .ring import CHUNK_BYTES, SealedRing
    from .sealing_rates import hops

    plan: dict[str, Any] = json.loads(plan_path.read_text("utf-8"))
    world, folder = plan.pop("world"), Path(plan.pop("folder"))
    asked = Hops(**plan)
    torch.set_num_threads(max(1, int(processor()["cores_count"]) // (2 * world)))
    timeout = timedelta(seconds=_PATIENCE_S)
    dist.init_process_group("gloo", f"file://{folder / 'rendezvous'}", rank=rank, world_size=world, timeout=timeout)
    rows = []
    for settings in asked.rows():
        chunk = settings.get("chunk_bytes", CHUNK_BYTES) if settings.get("pipelined") else None
        with SealedRing(**settings) as ring:
            found = hops(ring, asked.bucket_mib << 20, chunk, asked.seconds)
            rows.append(_row(world, ring, chunk, found))
            dist.barrier()
    if rank == 0:
        (folder / "table.md").write_text(markdown(_HEADER, rows) + "\n", "utf-8")
    dist.barrier()
    os._exit(0)


def _row(world: int, ring: SealedRing, chunk: int | None, found: dict[str, float]) -> list[str]:
    def gb(name: str) -> str:
        return f"{found[name] / 1e9:.2f}" if name in found else "-"

    def share(name: str) -> str:
        return f"{found[name]:.0%}" if name in found else "-"

    return [
        str(world),
        str(ring.settings()["ring_transport"]),
        ring.mode,
        str(chunk >> 10) if chunk else "whole",
        str(ring.chains),
        gb("hop_bytes_per_s"),
        gb("alone_bytes_per_s"),
        share("hop_fraction"),
        share("all_reduce_fraction"),
        share("span_fraction"),
        *map(gb, _RATES),
    ]
