"""What `teetotal watch` does and shows: a launch whenever files have come, then where the run stands."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from assets.build import gold
from assets.build.freshness import mark_landing
from assets.build.landing_memory import list_held_back
from assets.build.tiers import TIERS
from bronze import runs as landed
from gold import step_overhead, step_times
from lake.errors import EvidenceRejected, LakeError, nearest
from lake.landing_zone import LandingZone
from pipelines.cli import gating
from pipelines.cli.session import open_lake
from report.units import format_count, format_duration
from silver import runs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lake.attestation_keys import AttestationKeys
    from lake.store import Lake
    from pipelines.settings import Settings

FAILED = 1
# A look that takes longer than a laptop is to take for a cycle: its user should know how to bound it.
_LONG_LOOK_S = 30.0
# What a run has of its own, and with its baseline: what spans runs waits until it is closed.
_OWN_TABLES = tuple(table.full_name for some in (*TIERS.values(), gold.PAIR_TABLES) for table in some)


@dataclass(frozen=True)
class Standing:
    """Where a run stands: what its tables say now, and what went wrong on the way."""

    run_id: str
    is_open: bool
    so_far: str | None = None
    files_count: int = 0
    cycles_count: int = 0
    # How many of the last cycles count while the run is open; none where all do.
    open_cycles_count: int | None = None
    # Of the source that leads: the training log, or the trace.
    step_ns: int | None = None
    steps_count: int = 0
    step_source: str | None = None
    slowdown_ratio: float | None = None
    slowdown_low_ratio: float | None = None
    slowdown_high_ratio: float | None = None
    baseline_run_id: str | None = None
    verdict: str | None = None
    violations_count: int = 0
    contradictions: str | None = None
    waiting_files: tuple[str, ...] = ()
    fault: str | None = None
    # From the look that found new files to the answers.
    seconds: float = 0.0
    max_slowdown_ratio: float | None = None
    gate: str | None = None

    def describe(self) -> dict[str, Any]:
        """The same for programs."""
        return asdict(self)


@dataclass(frozen=True)
class Limit:
    """The gate that ends the watch: the largest slowdown, and the baseline where it is named."""

    max_slowdown: float
    against: str | None = None


@dataclass(frozen=True)
class Watch:
    """One run to be watched; `launch` brings it up to date and gives the fault, if it fails."""

    chosen: Settings
    run_id: str
    keys: AttestationKeys
    launch: Callable[[bool], LakeError | None]
    interval_s: float = 1.0
    limit: Limit | None = None
    # Told when a launch begins (True) and when it has ended.
    note_launch: Callable[[bool], None] = lambda _: None

    def follow(self) -> Iterator[Standing]:
        """Launch and look whenever the run's directory has changed, until it is closed or a limit is exceeded."""
        zone = LandingZone(self.chosen.landing, self.chosen.seals)
        self._require_run(zone)
        seen, shown = None, None
        while True:
            is_open, mark = zone.is_open(self.run_id), mark_landing(zone, self.run_id, self.keys)
            if (is_open, mark) == seen:
                time.sleep(self.interval_s)
                continue
            began = time.monotonic()
            self.note_launch(True)
            fault = self.launch(is_open)
            self.note_launch(False)
            found = read_standing(open_lake(self.chosen), self.run_id, is_open=is_open)
            found = replace(found, seconds=time.monotonic() - began, fault=None if fault is None else str(fault))
            refusal = None
            if self.limit is not None and fault is None:
                found = replace(found, max_slowdown_ratio=self.limit.max_slowdown)
                try:
                    found = replace(found, gate=self._decide(self.limit))
                except EvidenceRejected as error:  # no baseline that it can be compared with, or no timed step so far
                    found, refusal = replace(found, gate="undecided" if is_open else None), error
            if shown != (told := replace(found, seconds=0.0)):
                yield found
            shown = told
            if refusal is not None and not is_open:
                raise refusal
            if not is_open or found.gate == "exceeded":
                return
            # What failed for a moment is tried again, though no file changes.
            seen = None if fault is not None and fault.is_transient else (is_open, mark)

    def _require_run(self, zone: LandingZone) -> None:
        complete, _ = zone.run_ids()
        if self.run_id not in complete:
            raise EvidenceRejected(
                f"no run {self.run_id[:160]!r} in {zone.place}", nearest(self.run_id[:160], complete)
            )

    def _decide(self, limit: Limit) -> str:
        """The gate's outcome by what is known now."""
        lake = open_lake(self.chosen)
        sides = gating.choose_sides(lake, self.run_id, limit.against)
        return gating.decide_gate(lake, *sides, limit.max_slowdown, {}, self.chosen.margin).outcome


def read_standing(lake: Lake, run_id: str, *, is_open: bool) -> Standing:
    """Where a run stands by the tables that the lake holds of it now."""
    (bronze,) = lake.scan(landed.TABLE, [run_id]).collect().to_dicts() or [{}]
    (run,) = lake.scan(runs.TABLE, [run_id]).collect().to_dicts() or [{}]
    timed = [row for row in lake.scan(step_times.TABLE, [run_id]).collect().to_dicts() if row["step_ns"]]
    (pair,) = lake.scan(step_overhead.TABLE, [run_id]).collect().to_dicts() or [{}]
    source = pair.get("source") or (min(row["source"] for row in timed) if timed else None)
    step = next((row for row in timed if row["source"] == source), {})
    try:
        waiting = list_held_back(lake.read_landing_note(run_id))
    except LakeError:  # the tables can be read without the keyring
        waiting = []
    return Standing(
        run_id,
        is_open and bronze.get("is_open", True),
        so_far=run.get("so_far"),
        files_count=bronze.get("files_count", 0),
        cycles_count=bronze.get("cycles_count", 0),
        open_cycles_count=bronze.get("open_cycles_count"),
        step_ns=step.get("step_ns"),
        steps_count=step.get("steps_count", 0),
        step_source=source,
        slowdown_ratio=pair.get("slowdown_ratio"),
        slowdown_low_ratio=pair.get("slowdown_low_ratio"),
        slowdown_high_ratio=pair.get("slowdown_high_ratio"),
        baseline_run_id=pair.get("baseline_run_id"),
        verdict=pair.get("verdict"),
        violations_count=run.get("found_violations_count", 0),
        contradictions=run.get("contradictions"),
        waiting_files=tuple(waiting),
    )


def list_cells(found: Standing) -> dict[str, str]:
    """What a person reads of a standing, by the heading of its column."""
    overhead = "no baseline"
    if found.baseline_run_id is not None:
        overhead = "not known yet" if found.slowdown_ratio is None else f"{found.slowdown_ratio:.3f}x"
        if found.slowdown_low_ratio is not None and found.slowdown_high_ratio is not None:
            overhead += f" ({found.slowdown_low_ratio:.3f} to {found.slowdown_high_ratio:.3f})"
    return {
        "so far": (found.so_far or ("open" if found.is_open else "closed")).removeprefix("so far, "),
        "files": f"{found.files_count:,}",
        "step": "none yet" if found.step_ns is None else format_duration(found.step_ns),
        "steps": f"{found.steps_count:,}"
        if found.step_source is None
        else f"{found.steps_count:,} {found.step_source}",
        "slowdown": overhead,
        "violations": f"{found.violations_count:,}",
    }


def format_line(found: Standing) -> str:
    """A standing in one line."""
    cells = list_cells(found)
    step = "step none timed yet"
    if found.step_ns is not None:
        step = f"step {cells['step']} ({found.steps_count:,} steps, {found.step_source})"
    parts = [
        found.so_far or cells["so far"],
        format_count(found.files_count, "file"),
        step,
        "no baseline" if found.baseline_run_id is None else f"slowdown {cells['slowdown']}",
        format_count(found.violations_count, "violation"),
        f"took {found.seconds:.1f} s",
    ]
    return f"{time.strftime('%H:%M:%S')} {found.run_id}: {'; '.join(parts)}"


def list_warnings(found: Standing) -> Iterator[str]:
    """What a person should know beside the numbers."""
    if found.fault is not None:
        yield f"failed: {found.fault}"
    if found.contradictions is not None:
        yield f"its claim is contradicted: {found.contradictions}"
    if found.waiting_files:
        yield f"not complete yet: {', '.join(found.waiting_files)}"
    counts_all = found.open_cycles_count is None and found.cycles_count > 1
    if found.is_open and counts_all and found.seconds > _LONG_LOOK_S:
        yield "its answers take longer with every cycle: `open_cycles_count` in run.toml has them count its last cycles"
    if found.gate is not None:
        yield f"gate: {found.gate}, --max-slowdown {found.max_slowdown_ratio}"


def make_launch(chosen: Settings, run_id: str, tell: Callable[[str], None]) -> Callable[[bool], LakeError | None]:
    """What brings the run up to date: the path of `teetotal run`; checks, and what spans runs, when it is closed."""
    return partial(_launch, chosen, run_id, tell)


def _launch(chosen: Settings, run_id: str, tell: Callable[[str], None], is_open: bool) -> LakeError | None:
    from pipelines.cli.progress import ProgressListener, show_warnings
    from pipelines.cli.run import run

    with show_warnings():
        outcomes = run(
            chosen,
            ProgressListener(is_quiet=True),
            [run_id],
            check=not is_open,
            to=_OWN_TABLES if is_open else (),
            tell=tell,
        )
    return next((outcome.fault for outcome in outcomes if outcome.run_id == run_id), None)


def find_exit(found: Standing, limit: Limit | None) -> int:
    """The exit status of a watch that has ended: the gate's where a limit was given."""
    if found.fault is not None:
        return FAILED
    return 0 if limit is None or found.gate is None else gating.EXITS[found.gate]
