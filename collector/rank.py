"""One rank of the benchmark: trains each configuration in turn, records it, and tells the parent what it saw."""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .models import build
from .parent import end_with_parent
from .plan import BUCKET_CAP_MIB, Configuration
from .recording import record
from .ring import CHUNK_BYTES, SealedRing
from .sealing_rates import hops, single_core
from .window import Window

_TIMEOUT = timedelta(seconds=120)
_NOTE = {
    "native": "All-reduce by gloo.",
    "plain": "Ring all-reduce through host memory, no crypto.",
    "sealed": "The ring of the plain baseline with AES-256-GCM at every hop, in software: an emulation, not a TEE.",
}


def run(plan_path: Path, rank: int) -> None:
    """All configurations of the plan, one after the other."""
    end_with_parent()
    plan: dict[str, Any] = json.loads(plan_path.read_text("utf-8"))
    world = plan["world"]
    device = torch.device("cuda", 0) if plan["device"] == "cuda" else torch.device("cpu")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    torch.set_num_threads(plan["threads"])
    dist.init_process_group("gloo", f"file://{plan['rendezvous']}", rank=rank, world_size=world, timeout=_TIMEOUT)
    # Rates take time of their own: a run of a pair is there for its steps alone.
    core = single_core() if plan["hop_s"] else None
    for fields in plan["configurations"]:
        configuration = Configuration(**fields)
        if not _has_time(plan["deadline_epoch_s"]):
            _tell(rank, event="skipped", run_id=configuration.run_id)
            continue
        _tell(rank, event="started", run_id=configuration.run_id)
        began = time.monotonic()
        found = _train(configuration, device, plan, rank)
        dist.barrier()
        _tell(
            rank,
            event="done",
            run_id=configuration.run_id,
            took_s=time.monotonic() - began,
            core_seal_bytes_per_s=core.seal if core else None,
            core_open_bytes_per_s=core.open if core else None,
            **found,
        )
        gc.collect()
        if device.type == "cuda":
            torch.cuda.empty_cache()
    # Peers may still be busy with the group: nobody tears it down under them.
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)


def _train(configuration: Configuration, device: torch.device, plan: dict[str, Any], rank: int) -> dict[str, Any]:
    torch.manual_seed(rank)
    workload = build(configuration.model, device, plan["batch_size"])
    ring = None
    if configuration.mode == "native":
        wrapped = DistributedDataParallel(workload.model, broadcast_buffers=workload.has_running_buffers)
    else:
        ring = SealedRing(timeout_s=_TIMEOUT.total_seconds() / 2, **configuration.ring)
        wrapped = ring.wrap(workload.model, broadcast_buffers=workload.has_running_buffers)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.001)
    window = Window(**plan["window"])
    shared = f" {configuration.world} ranks share one {'GPU' if device.type == 'cuda' else 'host'} over gloo."
    cap = (ring.bucket_cap_mib if ring else None) or BUCKET_CAP_MIB
    claims = {
        "regime": ring.regime if ring else "cc_off",
        **workload.claims,
        "dtype": "float32",
        "nodes_count": 1,
        "parallelism": "ddp",
        "bucket_cap_mib": cap,
        "baseline": configuration.baseline,
        "repeat_of": configuration.repeat_of,
        "note": _NOTE[configuration.mode]
        + (f" Variant {configuration.variant}." * bool(configuration.variant))
        + shared,
        **plan.get("claims", {}),
    }
    traced = plan["traced_ranks"]
    with record(
        plan["landing"],
        configuration.run_id,
        window=window,
        module=workload.model,
        ring=ring,
        is_traced=rank in traced if traced else True,
        extra=plan.get("extra"),
        **{name: value for name, value in claims.items() if value is not None},
    ) as recording:
        for _ in range(window.total_steps):
            optimizer.zero_grad()
            workload.loss(wrapped).backward()
            optimizer.step()
            if device.type == "cuda":
                torch.cuda.synchronize(device)  # so that a step's time is its own
            recording.step()
    found: dict[str, Any] = {
        "bare_step_s": recording.median_s("bare"),
        "recorded_step_s": recording.median_s("recorded"),
        "slowdown_ratio": recording.slowdown_ratio,
    }
    if ring is not None:
        if configuration.mode == "sealed" and configuration.world > 1 and plan["hop_s"]:
            chunk = CHUNK_BYTES if ring.is_pipelined else None
            # No bucket is larger than all gradients together.
            gradients = sum(parameter.nbytes for parameter in workload.model.parameters())
            found["hops"] = hops(ring, min(int(min(cap, 64) * (1 << 20)), gradients), chunk, plan["hop_s"])
        dist.barrier()
        ring.close()
    return found


def _has_time(deadline_epoch_s: float) -> bool:
    """Whether there is time for another configuration, as rank 0 sees it."""
    shared = [time.time() < deadline_epoch_s]
    dist.broadcast_object_list(shared, src=0)
    return shared[0]


def _tell(rank: int, **event: Any) -> None:
    if rank == 0:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()
