"""Small runs to be compared: traced steps of a few kernels, a log of ten steps, and repeats that differ a little."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from lake.identity import MANIFEST
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from pipelines.settings import settings
from tests.support.build_runs import build_runs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    Events = list[dict[str, Any]]

STEP_US = 100_000
STEPS = 3
MACHINE = 'model = "m"\nworld_size = 2\nbatch_size = 8\ngpu = "H200"\nhost_cpu = "x"\n'
OFF = f'regime = "cc_off"\n{MACHINE}'
NOISE = (1.0, 1.004, 0.997)


def make_trace(kernels: Mapping[str, float], step_us: float = STEP_US, *, shape: str | None = None) -> bytes:
    """Steps that launch each kernel once, with its duration in µs; their operators may have a shape."""
    events: Events = []
    for number in range(STEPS):
        at = 1000 + number * step_us
        step = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{number}", "ts": at, "dur": step_us}
        events.append({**step, "tid": 1, "pid": 1})
        for place, (name, duration_us) in enumerate(kernels.items()):
            events += _launch(name, at + 10 + place * 1000, duration_us, number * 100 + place, shape)
    answer = {"distributedInfo": {"rank": 0, "world_size": 2}, "baseTimeNanoseconds": 10**18}
    return json.dumps({**answer, "traceEvents": events}).encode()


def _launch(name: str, at: float, duration_us: float, correlation: int, shape: str | None) -> Events:
    ids = {"correlation": correlation, "External id": correlation}
    operator = {"External id": correlation, **({"Input Dims": json.loads(shape)} if shape else {})}
    return [
        {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": at, "dur": 9, "tid": 1, "pid": 1, "args": operator},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": at + 1, "dur": 5, "tid": 1, "args": ids},
        {"ph": "X", "cat": "kernel", "name": name, "ts": at + 20, "dur": duration_us, "tid": 7, "pid": 0, "args": ids},
    ]


def make_log(step_s: float, count: int = 10) -> bytes:
    """A log of steps that differ by a thousandth or two."""
    rows = [f"0,{step},bare,{step},{step_s * (1 + 0.001 * (step * 7 % 5 - 2)):.9f}" for step in range(count)]
    return "\n".join(["rank,step,phase,began_epoch_s,duration_s", *rows]).encode()


def land_group(
    landing: Path,
    name: str,
    kernels: Mapping[str, float],
    *,
    manifest: str = OFF,
    slowdown: float = 1.0,
    noise: Sequence[float] = NOISE,
    shape: str | None = None,
) -> list[str]:
    """A run and its repeats, each with a trace and a log, as slow as said."""
    names = []
    for place, factor in enumerate(noise):
        run_id = name if place == 0 else f"{name}-again{place}"
        directory = landing / run_id
        directory.mkdir(parents=True)
        repeat = f'repeat_of = "{name}"\n' if place else ""
        (directory / MANIFEST).write_text(manifest + repeat, "utf-8")
        times = {kernel: duration * factor for kernel, duration in kernels.items()}
        (directory / "rank0.json").write_bytes(make_trace(times, STEP_US * slowdown * factor, shape=shape))
        (directory / "steps-r0.csv").write_bytes(make_log(STEP_US / 1e6 * slowdown * factor))
        names.append(run_id)
    return names


def open_lake(place: Path) -> tuple[Lake, LandingZone]:
    """The lake of a place, to be written, and its landing zone."""
    chosen = settings(str(place / "lake"), environment={})
    return Lake(chosen.lake, chosen.keyring), LandingZone(Location.of(place / "landing"))


def build_lake(place: Path) -> Lake:
    """All runs of the landing zone of a place, built."""
    lake, zone = open_lake(place)
    build_runs(lake, zone, zone.run_ids()[0])
    return lake


BEFORE = {"gemm": 20_000, "relu": 5_000, "old_add": 900}
AFTER = {"gemm": 26_000, "relu": 5_000, "fused_add": 400}


def build_compared(place: Path) -> Lake:
    """Before and after a change of software, a sealed run of the former, two shapes at another batch size, a misfit."""
    landing = place / "landing"
    sealed = f'regime = "sw_per_hop_aesgcm"\nbaseline = "before"\ntorch_version = "2.11"\n{MACHINE}'
    wider = OFF.replace("batch_size = 8", "batch_size = 16")
    land_group(landing, "before", BEFORE, manifest=f'{OFF}torch_version = "2.11"\n')
    changed = f'{OFF}torch_version = "2.12"\nbaseline = "before"\n'
    land_group(landing, "after", AFTER, manifest=changed, slowdown=1.2, noise=(1, 0.995, 1.002))
    land_group(landing, "sealed", BEFORE, manifest=sealed, slowdown=1.5, noise=(1,))
    land_group(landing, "small", {"gemm": 90}, manifest=wider, noise=(1,), shape="[[8, 64], [64, 10]]")
    land_group(
        landing, "wide", {"gemm": 95}, manifest=f'{wider}baseline = "small"\n', noise=(1,), shape="[[8, 64], [64, 99]]"
    )
    land_group(landing, "misfit", {"gemm": 95}, manifest=f'{wider}baseline = "before"\n', noise=(1,))
    return build_lake(place)
