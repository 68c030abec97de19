"""A pair: baseline and candidate recorded in turns, each run in fresh processes, as often as the question needs."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import socket
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import device as machine
from .errors import CollectorError
from .manifest import MANIFEST
from .pair_plan import Attempt, PairPlan, Side, Slot, save_plan
from .pair_size import LEAST_REPEATS, read_step_s, size_pair
from .parent import start_processes
from .plan import Configuration

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator, Sequence

_MOST_FAILURES = 3
_POLL_S = 0.1
_TOLD_LINES = 40
# A run takes as long as the longest of its pair so far, and some more.
_MARGIN = 1.2


@dataclass
class PairRecorder:
    """Records what a plan asks for and this machine can do now, then says what is to be done next."""

    path: Path
    plan: PairPlan
    only: str | None = None
    time_limit_s: float | None = None
    patience_s: float = 600.0
    _began: float = field(default_factory=time.monotonic)
    _failures: int = 0

    def run(self) -> int:
        """Record until the plan is done, another side's turn has come, or there is no time for one more run."""
        with _lock(self.path):
            self._settle()
            possible = self._possible()
            while True:
                self._extend()
                slot = self.plan.next_slot(possible)
                if slot is None or not self._has_time(slot):
                    break
                self._record(slot)
            self._say_next(slot is not None)
        return 0

    # -- what is left of an earlier process ------------------------------------------------------------------------

    def _settle(self) -> None:
        """Decide what became of a run that was on its way when the process before this one ended."""
        for slot in self.plan.slots:
            for attempt in slot.attempts:
                if attempt.state == "started":
                    self._close_attempt(slot, attempt)
        save_plan(self.path, self.plan)

    def _close_attempt(self, slot: Slot, attempt: Attempt) -> None:
        landing = Path(self.plan.definition.landing)
        folder = landing / attempt.run_id
        if (folder / MANIFEST).exists():
            # It landed whole; only the plan had no time to say so.
            attempt.state, attempt.step_s = "landed", read_step_s(folder)
            return
        attempt.state, attempt.reason = "interrupted", "the process that recorded it ended before it landed"
        _remove_unfinished(landing, attempt.run_id)
        _say(f"{attempt.run_id}: interrupted; it will be recorded again as {slot.next_run_id()}")

    # -- what can be recorded now ----------------------------------------------------------------------------------

    def _possible(self) -> set[int]:
        """Sides that the machine's mode, or the person, lets us record now."""
        sides = self.plan.definition.sides
        asked = {number for number, side in enumerate(sides) if self.only in {None, side.role}}
        if all(sides[number].cc_mode is None for number in asked):
            return asked
        mode, _ = machine.confidential()
        if mode is None:
            if self.only is None:
                raise CollectorError(
                    "the driver does not say which CC mode the GPU is in: say what can run now with --side baseline or "
                    "--side candidate"
                )
            return asked
        able = {number for number in asked if sides[number].cc_mode in {None, mode}}
        if not able:
            needed = sides[min(asked)].cc_mode
            raise CollectorError(
                f"the {self.only} needs CC mode {needed}, and the driver says {mode}: reboot into it first"
            )
        return able

    def _extend(self) -> None:
        """Plan further blocks: as many as were asked for, or as the noise seen so far demands."""
        definition, plan = self.plan.definition, self.plan
        if plan.pending():
            return
        done = min(sum(slot.side == number for slot in plan.slots) for number in range(len(definition.sides)))
        if definition.detect_fraction is None:
            wanted, why = definition.repeats or LEAST_REPEATS, None
        else:
            wanted, why = self._size(definition.detect_fraction, done)
        if why and plan.slots:
            _say(why)
        if done < min(wanted, definition.most_repeats):
            plan.add_block()
            # With a number that is known from the start, the whole plan is there to be read.
            while definition.detect_fraction is None and len(plan.slots) < wanted * len(definition.sides):
                plan.add_block()
            save_plan(self.path, plan)

    def _size(self, detect_fraction: float, done: int) -> tuple[int, str | None]:
        if done < LEAST_REPEATS:
            return LEAST_REPEATS, None
        size = size_pair(self.plan.step_s(), detect_fraction)
        if size is None:
            return LEAST_REPEATS, None
        most = self.plan.definition.most_repeats
        why = (
            f"noise between runs {size.noise_fraction:.1%} ({size.degrees} degrees of freedom): to detect "
            f"{detect_fraction:.1%}, {size.repeats} runs a side are needed, {done} are there"
        )
        if size.repeats > most:
            why += f", and {most} is the maximum: the pair will not detect it"
        return size.repeats, why

    def _has_time(self, slot: Slot) -> bool:
        if self.time_limit_s is None:
            return True
        took = [attempt.took_s or 0.0 for other in self.plan.slots for attempt in other.attempts]
        longest = max(took, default=0.0) * (_MARGIN if slot.attempts or took else 0)
        return time.monotonic() - self._began + longest < self.time_limit_s

    # -- one run ---------------------------------------------------------------------------------------------------

    def _record(self, slot: Slot) -> None:
        attempt = Attempt(slot.next_run_id(), "started", datetime.now(UTC).isoformat(timespec="seconds"))
        slot.attempts.append(attempt)
        save_plan(self.path, self.plan)
        began = time.monotonic()
        fault = self._launch(slot, attempt.run_id)
        attempt.took_s = round(time.monotonic() - began, 3)
        folder = Path(self.plan.definition.landing) / attempt.run_id
        if fault is None and not (folder / MANIFEST).exists():
            fault = "its processes ended without landing it"
        if fault is None:
            attempt.state, attempt.step_s = "landed", read_step_s(folder)
            step = f"{attempt.step_s * 1000:.1f} ms per step" if attempt.step_s else "no bare step"
            _say(f"{attempt.run_id}: {step}, took {attempt.took_s:.1f} s ({self._left()} left)")
        else:
            attempt.state, attempt.reason = "failed", fault
            _remove_unfinished(folder.parent, attempt.run_id)
            _say(f"{attempt.run_id} FAILED: {fault}")
        save_plan(self.path, self.plan)
        # A person who types the command again has mended something: only what failed since then counts.
        self._failures = self._failures + 1 if fault else 0
        if self._failures >= _MOST_FAILURES:
            raise CollectorError(f"{slot.run_id} failed {self._failures} times, last because {fault}")

    def _launch(self, slot: Slot, run_id: str) -> str | None:
        """Start fresh processes for one run and wait for them; give why it failed, if it did."""
        with tempfile.TemporaryDirectory(prefix="collector-") as folder:
            is_script, log = "script" in self.plan.definition.workload, Path(folder) / "log"
            make = self._script_commands if is_script else self._model_commands
            # Of a model only what went wrong is of interest; a script may say what it likes.
            with start_processes(make(slot, run_id, Path(folder)), None if is_script else log) as processes:
                fault = _await(processes, self.patience_s)
            if fault and log.exists():
                sys.stderr.write("".join(log.read_text("utf-8", "replace").splitlines(keepends=True)[-_TOLD_LINES:]))
            return fault

    def _model_commands(self, slot: Slot, run_id: str, folder: Path) -> list[tuple[list[str], dict[str, str]]]:
        definition = self.plan.definition
        side, workload = definition.sides[slot.side], definition.workload
        world = workload["world"]
        configuration = Configuration(
            run_id,
            workload["model"],
            world,
            side.mode,
            side.variant,
            {} if side.mode == "native" else side.ring,
        )
        rank_plan = {
            "world": world,
            "device": workload["device"],
            "threads": max(1, int(machine.processor()["cores_count"]) // (2 * world)),
            "rendezvous": str(folder / "rendezvous"),
            "landing": definition.landing,
            "window": self._window(slot),
            "traced_ranks": definition.traced_ranks,
            "batch_size": workload["batch_size"],
            "hop_s": 0,
            "deadline_epoch_s": time.time() + self.patience_s,
            "configurations": [configuration.to_json()],
            "claims": self._claims(slot),
            "extra": self._extra(slot),
        }
        path = folder / "plan.json"
        path.write_text(json.dumps(rank_plan), "utf-8")
        environment = {**_environment(), "GLOO_SOCKET_IFNAME": "lo", "TOKENIZERS_PARALLELISM": "false"}
        return [
            ([sys.executable, "-m", __package__, "rank", str(path), str(rank)], environment) for rank in range(world)
        ]

    def _script_commands(self, slot: Slot, run_id: str, _: Path) -> list[tuple[list[str], dict[str, str]]]:
        definition = self.plan.definition
        side, workload = definition.sides[slot.side], definition.workload
        window = self._window(slot)
        words = [sys.executable, "-m", __package__, "run", "--landing", definition.landing, "--run-id", run_id]
        words += ["--warmup", str(window["warmup_steps"]), "--bare", str(window["bare_steps"])]
        words += ["--steps", str(window["recorded_steps"]), "--extra", json.dumps(self._extra(slot))]
        for rank in definition.traced_ranks:
            words += ["--trace-rank", str(rank)]
        for name, value in self._claims(slot).items():
            words += ["--set", f"{name}={value}"]
        words += [workload["script"], *workload["arguments"], *side.arguments]
        environment, world = _environment(), workload["world"]
        if world == 1:
            return [(words, environment)]
        environment |= {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port())}
        return [
            (words, {**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)}) for rank in range(workload["world"])
        ]

    def _window(self, slot: Slot) -> dict[str, int]:
        window = self.plan.definition.window
        return window if slot.is_traced else {**window, "recorded_steps": 0}

    def _claims(self, slot: Slot) -> dict[str, Any]:
        """What `run.toml` says of the pair: which run is repeated, and which one is the baseline."""
        sides = self.plan.definition.sides
        side = sides[slot.side]
        is_null = side.run_id == sides[0].run_id
        found = {
            "repeat_of": self.plan.reference(slot.side),
            "baseline": None if is_null else self.plan.reference(0),
            "regime": side.regime,
        }
        return {**self.plan.definition.claims, **{name: value for name, value in found.items() if value is not None}}

    def _extra(self, slot: Slot) -> dict[str, Any]:
        return {
            "pair_side": self.plan.definition.sides[slot.side].role,
            "pair_block": slot.block,
            "pair_order": self.plan.slots.index(slot),
            "pair_seed": self.plan.definition.seed,
        }

    # -- what is said ----------------------------------------------------------------------------------------------

    def _left(self) -> int:
        return len(self.plan.pending())

    def _say_next(self, is_out_of_time: bool) -> None:
        pending = self.plan.pending()
        again = f"python -m {__package__} pair --plan {shlex.quote(str(self.path))}"
        if not pending:
            landing = shlex.quote(self.plan.definition.landing)
            _say(f"all {len(self.plan.slots)} runs have landed. Next: teetotal --landing {landing} run")
        elif is_out_of_time:
            _say(f"the time limit was reached with {len(pending)} runs left. Next: {again}")
        else:
            side = self.plan.definition.sides[self._waiting().side]
            _say(f"{len(pending)} runs are left. Next: {_reboot(side)}{again} --side {side.role}")

    def _waiting(self) -> Slot:
        """The run that keeps the others waiting."""
        pending = self.plan.pending()
        has_baseline = any(slot.side == 0 and slot.landed for slot in self.plan.slots)
        return pending[0] if has_baseline else next(slot for slot in pending if slot.side == 0)


def _remove_unfinished(landing: Path, run_id: str) -> None:
    """Remove what ranks that were killed left behind; its name is no run's, but it takes room."""
    unfinished = re.compile(rf"\.{re.escape(run_id)}\.[0-9a-f]{{8}}\.partial")
    for path in landing.iterdir() if landing.is_dir() else ():
        if unfinished.fullmatch(path.name):
            shutil.rmtree(path)


def _reboot(side: Side) -> str:
    return f"reboot into CC mode {side.cc_mode} and type " if side.cc_mode else "type "


def _await(processes: Sequence[subprocess.Popen[bytes]], patience_s: float) -> str | None:
    deadline = time.monotonic() + patience_s
    while True:
        codes = [process.poll() for process in processes]
        for rank, code in enumerate(codes):
            if code:
                return f"rank {rank} ended with {code}"
        if all(code == 0 for code in codes):
            return None
        if time.monotonic() > deadline:
            return f"it was not done in {patience_s:g} s"
        time.sleep(_POLL_S)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One process a plan."""
    with path.with_name(f".{path.name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise CollectorError(f"{path}: another process is recording this plan; wait for it") from error
        yield


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
