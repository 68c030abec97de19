"""A recording: trace, step times, device samples and manifest of a training loop, landed whole or not at all."""

from __future__ import annotations

import csv
import gzip
import os
import shutil
import statistics
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self

import torch
import torch.distributed as dist
from torch.profiler import ProfilerActivity, profile, schedule

from . import device as machine
from .errors import RecordingRefused
from .landing import Landing
from .live import LiveLanding
from .manifest import to_toml
from .node import identify
from .signing import find_key, make_nonce
from .window import SETTLING_STEPS, Window

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from .manifest import Value
    from .ring import SealedRing


@dataclass(frozen=True)
class Step:
    """One step by the wall clock."""

    number: int
    phase: str
    began_ns: int
    duration_ns: int


@dataclass
class Recording:
    """What `record` gives: call `step()` at the end of each training step."""

    landing: Landing
    run_id: str
    rank: int
    ranks: int
    window: Window
    claims: dict[str, Any]
    extra: dict[str, Any]
    device: torch.device | None
    is_traced: bool
    signing_key: Ed25519PrivateKey | None = None
    steps: list[Step] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._stack = ExitStack()
        self._sampler: machine.Sampler | None = None
        if self.rank == 0:
            self.landing.open(self._manifest)
            self._sampler = machine.Sampler(self.landing.log_folder / "device_samples.csv")
            self._stack.enter_context(self._sampler)
        self._traces: list[Path] = []
        self._profiler = self._profile() if self.is_traced else None
        if self._profiler is not None:
            self._profiler.start()
        self._mark = time.perf_counter_ns()
        return self

    def step(self) -> None:
        """A training step has ended."""
        now, number = time.perf_counter_ns(), len(self.steps)
        duration = now - self._mark
        self.steps.append(Step(number, self.window.phase(number), time.time_ns() - duration, duration))
        if self._profiler is not None:
            self._profiler.step()
        # What the profiler does between steps (it may write a trace) belongs to none of them.
        self._mark = time.perf_counter_ns()

    def median_s(self, phase: str) -> float | None:
        """Median duration of the steps of a phase."""
        found = [step.duration_ns for step in self.steps if step.phase == phase]
        return statistics.median(found) / 1e9 if found else None

    @property
    def slowdown_ratio(self) -> float | None:
        """Median recorded step over the median bare one, on this rank: what recording itself cost."""
        bare, recorded = self.median_s("bare"), self.median_s("recorded")
        return recorded / bare if bare and recorded and self.is_traced else None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._stack:
                if self._profiler is not None:
                    self._profiler.stop()
            if kind is None:
                self._write()
        except BaseException:
            self._fail()
            raise
        if kind is not None:
            self._fail()

    def _fail(self) -> None:
        """End without what the loop had still to show; of the device all that was read, where the run is seen."""
        with suppress(OSError, RecordingRefused):
            if self._sampler is not None and self._sampler.has_table:
                self.landing.publish(self._sampler.path)
        self.landing.fail()

    def _profile(self) -> profile:
        activities = [ProfilerActivity.CPU]
        if self.device is not None and self.device.type == "cuda":
            activities.append(ProfilerActivity.CUDA)
        plan = schedule(
            skip_first=self.window.warmup_steps,
            wait=self.window.bare_steps,
            warmup=SETTLING_STEPS,
            active=self.window.recorded_steps,
            repeat=self.window.cycles,
        )

        # Without this only threads of the loop and of autograd are seen: not those that seal and send.
        threads = torch._C._profiler._ExperimentalConfig(profile_all_threads=True)  # noqa: SLF001 - no public way
        return profile(activities=activities, schedule=plan, on_trace_ready=self._export, experimental_config=threads)

    def _export(self, profiler: profile) -> None:
        cycle = f"-c{len(self._traces)}" if self.window.cycles > 1 else ""
        trace = self.landing.workspace / f"{self.run_id}{cycle}-r{self.rank}.json"
        profiler.export_chrome_trace(str(trace))
        self._traces.append(trace)
        if self.is_live:
            self.landing.publish(_pack(trace, compresslevel=1))  # the loop waits for it
            self.landing.publish_log(self._write_steps())
            self._publish_samples()

    def _publish_samples(self) -> None:
        if self._sampler is not None and self._sampler.has_table:
            self.landing.publish_log(self._sampler.path)

    def _write(self) -> None:
        if self.is_traced and not self._traces:
            needed = self.window.warmup_steps + self.window.bare_steps + SETTLING_STEPS
            raise RecordingRefused(
                f"the loop ended after {len(self.steps)} steps and recording begins after {needed}: "
                f"{self._loss}; run more steps or ask for fewer before the recording"
            )
        bare = self._count("bare")
        if not self.window.recorded_steps and bare < self.window.bare_steps:
            raise RecordingRefused(
                f"the loop ended after {len(self.steps)} steps, {bare} of them after warm-up, and "
                f"{self.window.bare_steps} were asked for: {self._loss}; run more steps or ask for fewer"
            )
        if not self.is_live:
            for trace in self._traces:
                _pack(trace, compresslevel=9)
        self._write_steps()
        self.landing.finish(self._manifest() if self.rank == 0 else None, self.signing_key)

    def _write_steps(self) -> Path:
        """All steps so far; written aside and renamed, so that nobody reads half of it."""
        path = self.landing.workspace / f"steps-r{self.rank}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            rows = csv.writer(file)
            rows.writerow(["rank", "step", "phase", "began_epoch_s", "duration_s"])
            for step in self.steps:
                rows.writerow([self.rank, step.number, step.phase, _seconds(step.began_ns), _seconds(step.duration_ns)])
        return path

    @property
    def is_live(self) -> bool:
        """Whether each cycle is seen as soon as it is recorded."""
        return isinstance(self.landing, LiveLanding)

    @property
    def _loss(self) -> str:
        return self.landing.loss.removeprefix("so ")

    def _count(self, phase: str) -> int:
        return sum(step.phase == phase for step in self.steps)

    def _manifest(self) -> str:
        mode, said = machine.confidential()
        if said is not None:
            (self.landing.workspace / "conf_compute.txt").write_text(said, "utf-8")
        nonce = None if self.signing_key is None else make_nonce(self.signing_key, self.run_id)
        if mode in {"on", "devtools"} and (evidence := machine.fetch_attestation(nonce)) is not None:
            (self.landing.workspace / "attestation.json").write_text(evidence, "utf-8")
        processor = machine.processor()
        began_ns = self.steps[0].began_ns if self.steps else time.time_ns()
        found = {
            "cc_mode": mode,
            "attestation_nonce": nonce,
            "world_size": self.ranks,
            **machine.gpu(self.device),
            **machine.software(),
            "host_cpu": processor.pop("host_cpu"),
            "warmup_steps_count": 0 if self.is_traced else None,
            "recording_slowdown_ratio": self.slowdown_ratio,
            "clock_zone": "UTC",
            "recorded_at": datetime.fromtimestamp(began_ns / 1e9, UTC).isoformat(timespec="seconds"),
        }
        claims = dict(self.claims)
        if mode in {"on", "devtools"} and claims.get("regime") == "cc_off":
            # The driver contradicts it, and which of the regimes this is, it does not say.
            claims["regime"] = None
        timed = {f"median_{phase}_step_s": self.median_s(phase) for phase in ("bare", "recorded")}
        counted = {f"{phase}_steps_count": self._count(phase) for phase in ("bare", "recorded")}
        return to_toml({**found, **claims}, {**processor, **identify(), **timed, **counted, **self.extra})


def record(
    landing: str | Path,
    run_id: str,
    *,
    window: Window | None = None,
    module: torch.nn.Module | None = None,
    ring: SealedRing | None = None,
    device: torch.device | str | None = None,
    is_traced: bool = True,
    is_live: bool = False,
    timeout_s: float = 300.0,
    signing_key: str | Path | None = None,
    seal_for: str | Path | None = None,
    extra: dict[str, Value] | None = None,
    **claims: Value,
) -> Recording:
    """Record the training loop inside this context into `<landing>/<run_id>/`; `claims` are fields of `run.toml`.

    Rank and world size come from the process group, else from the launcher. With `is_traced=False` a rank takes part
    without leaving a trace, so that a recording of many ranks stays small. A window without recorded steps leaves none.
    With a signing key (a PEM file, else the one that TEETOTAL_RECORDING_KEY names) rank 0 signs all files.
    With `is_live` the run is seen from the start, marked as open, and closed at the end (docs/live.md).
    With `seal_for`, the file of a lake's public key, nothing is written to a disk but sealed files (docs/collector.md);
    both together show sealed files while it is recorded.
    """
    rank, ranks = _place()
    key = find_key(signing_key) if rank == 0 else None
    window = window or Window()
    known: dict[str, Any] = {}
    if module is not None:
        known["parameters_count"] = sum(item.numel() for item in module.parameters() if item.requires_grad)
        device = device if device is not None else next(module.parameters()).device
    if dist.is_available() and dist.is_initialized():
        known["backend"] = dist.get_backend()
    if ring is not None:
        known["regime"] = ring.regime
        known["bucket_cap_mib"] = ring.bucket_cap_mib
    kind = LiveLanding if is_live else Landing
    return Recording(
        kind(landing, run_id, rank, ranks, timeout_s, seal_for),
        run_id,
        rank,
        ranks,
        window,
        {**known, **claims},
        {**(ring.settings() if ring else {}), **(extra or {})},
        torch.device(device) if device is not None else None,
        is_traced and window.recorded_steps > 0,
        key,
    )


def _place() -> tuple[int, int]:
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _pack(trace: Path, compresslevel: int) -> Path:
    """The trace as a gzip file in its place."""
    packed = trace.with_name(f"{trace.name}.gz")
    with trace.open("rb") as plain, gzip.open(packed, "wb", compresslevel=compresslevel) as file:
        shutil.copyfileobj(plain, file, 1 << 20)
    trace.unlink()
    return packed


def _seconds(nanoseconds: int) -> str:
    return f"{nanoseconds // 10**9}.{nanoseconds % 10**9:09d}"
