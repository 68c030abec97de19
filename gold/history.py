"""One row per run of a workload, in the order of recording: its step, its versions, and where the level changed."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gold.change_points import FEWEST_VALUES, find_change_points
from gold.comparison import P_VALUE
from gold.inference import RunValue, compare_runs
from gold.pairs import is_tee_overhead, read_fields
from gold.run_differences import SOFTWARE, list_differences
from gold.step_times import SOURCES
from gold.step_times import TABLE as STEP_TIMES
from lake.tables import Scope, Table, boolean, float64, int64, text
from silver.ring_settings import OPTIONS
from silver.steps import EVIDENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gold.change_points import ChangePoint

    Row = dict[str, Any]

NOTHING_CHANGED = "nothing recorded changed"

TABLE = Table(
    tier="gold",
    name="history",
    grain="One row per workload (software versions aside), regime and run, in the order of recording.",
    key=("run_id",),
    inputs=("silver.runs", "silver.attestations", "gold.step_times", "gold.step_overhead"),
    scope=Scope.WORKLOAD,
    partition_by=("workload_id",),
    columns=(
        text("workload_id", "Name of the workload and its regime, such as `workload-0123456789abcdef`."),
        text(
            "workload",
            "What the runs have in common, as `field=value` parts: the workload of a pair without its software "
            "versions, with the options of the ring.",
        ),
        text("regime", "Regime of all of them; null where they claim none.", nullable=True),
        text("run_id", "The run."),
        text("recorded_at", "When it was recorded, ISO 8601; null where its manifest does not say.", nullable=True),
        int64(
            "session_number",
            "Which day of recording of the workload it belongs to, from 1: runs of one UTC day share what that day was "
            "like, and count once. Null where nothing says when it was recorded.",
            nullable=True,
            minimum=1,
        ),
        text("source", "What the steps of the history are taken from.", nullable=True, one_of=SOURCES),
        STEP_TIMES.column("step_ns"),
        text("baseline_run_id", "Its baseline without a TEE, where it leads a pair.", nullable=True),
        int64("overhead_ns", "What its regime adds to the step, where it leads a pair.", nullable=True),
        float64("slowdown_ratio", "Its step over that of its baseline.", nullable=True, minimum=0),
        text("driver_version", "GPU driver.", nullable=True),
        text("vbios_version", "Firmware of the GPU, as attestation tokens say it.", nullable=True),
        text("cuda_version", "CUDA runtime.", nullable=True),
        text("torch_version", "PyTorch.", nullable=True),
        text("nccl_version", "NCCL.", nullable=True),
        boolean("is_change_point", "Whether the step changed its level with the session that begins with this run."),
        float64("change_ratio", "Level after the change over the one before it.", nullable=True, minimum=0),
        float64("change_low_ratio", "Lower end of its 95 % interval over sessions.", nullable=True, minimum=0),
        float64("change_high_ratio", "Upper end.", nullable=True, minimum=0),
        float64(
            "change_p_value",
            "Chance of so clear a change in a series without one (rank scan, by permutation).",
            nullable=True,
            minimum=0,
            maximum=P_VALUE.maximum,
        ),
        text("changed", "What else changed there, or that nothing recorded did.", nullable=True),
        text("verdict", "What is concluded at this run, as a sentence."),
        text(
            "evidence",
            "measured: its step was; modelled: the bounds of its steps were inferred; unobservable: it has none.",
            one_of=EVIDENCE,
        ),
        text("reason", "Why the run does not count in the search for changes, as a sentence.", nullable=True),
    ),
)


@dataclass(frozen=True)
class RecordedRun:
    """What a history needs of a run: rows of silver.runs, gold.step_times and gold.step_overhead, and its firmware."""

    run: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]
    overhead: Mapping[str, Any] | None = None
    vbios_version: str | None = None

    @property
    def run_id(self) -> str:
        """The run."""
        return str(self.run["run_id"])

    @property
    def at(self) -> datetime | None:
        """When it was recorded, in UTC; a time without a zone is taken as UTC."""
        try:
            found = datetime.fromisoformat(self.run["recorded_at"])
        except (TypeError, ValueError):
            return None
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)

    def find_step(self, kind: tuple[str, str] | None) -> Mapping[str, Any] | None:
        """Its step by one source and period."""
        return next((one for one in self.steps if (one["source"], one["period"]) == kind), None)


def describe_workload(run: Mapping[str, str | None]) -> str | None:
    """The workload of a run over time: as for pairs, but versions of software may change; None where none is named."""
    if run["workload"] is None:
        return None
    fields = {name: value for name, value in read_fields(run["workload"]).items() if name not in SOFTWARE}
    family = read_fields(run["family"])
    return "|".join(
        f"{name}={value}" for name, value in (fields | {one: family.get(one, "") for one in OPTIONS}).items()
    )


def partition(workload: str, regime: str | None) -> str:
    """The id under which the rows of a workload lie in the lake; no run's id is taken for it."""
    return f"workload-{hashlib.sha256(f'{regime}|{workload}'.encode()).hexdigest()[:16]}"


def measure(workload: str, regime: str | None, recorded: Sequence[RecordedRun]) -> pa.Table:
    """Order runs by time, take the days as the unit of evidence, and find where the level of their step changed."""
    kind = _choose_kind(recorded)
    ordered = sorted(recorded, key=lambda one: (one.at is None, one.at or datetime.min.replace(tzinfo=UTC), one.run_id))
    days = sorted({one.at.date() for one in ordered if one.at is not None})
    numbers = {day: place for place, day in enumerate(days, 1)}
    counted: dict[int, list[RecordedRun]] = {}
    rows = []
    for one in ordered:
        step = one.find_step(kind)
        reason = _explain_uncounted(one, step, kind)
        number = None if one.at is None else numbers[one.at.date()]
        if reason is None and number is not None:
            counted.setdefault(number, []).append(one)
        named = {"workload_id": partition(workload, regime), "workload": workload, "regime": regime}
        rows.append({**named, **_describe_run(one, step, number), "source": kind and kind[0], "reason": reason})
    sessions = [counted[number] for number in sorted(counted)]
    levels = [_find_level(runs, kind) for runs in sessions]
    found = find_change_points([level.value for level in levels])
    at = {sessions[one.place][0].run_id: one for one in found}
    bounds = [0, *(one.place for one in found), len(levels)]
    quiet = _tell_quiet(len(levels))
    changes = {name: _describe_change(point, levels, bounds, sessions) for name, point in at.items()}
    whole = [row | changes.get(row["run_id"], _describe_no_change(quiet)) for row in rows]
    return pa.Table.from_pylist(whole, schema=TABLE.arrow_schema)


def _choose_kind(recorded: Sequence[RecordedRun]) -> tuple[str, str] | None:
    """The source and period that most runs have, logs first: the profiler slows what it times."""
    kinds = Counter(
        (step["source"], step["period"]) for one in recorded for step in one.steps if step["step_ns"] is not None
    )
    return min(kinds, key=lambda kind: (-kinds[kind], SOURCES.index(kind[0]), kind[1]), default=None)


def _explain_uncounted(one: RecordedRun, step: Mapping[str, Any] | None, kind: tuple[str, str] | None) -> str | None:
    if kind is None or step is None or not step["step_ns"]:
        of = "" if kind is None else f" by its {kind[0]}, which this history goes by"
        return f"it has no {'step' if kind is None else kind[1]} time{of}"
    if step["evidence"] != "measured":
        return "the bounds of its steps were inferred"
    if one.at is None:
        return "its manifest does not say when it was recorded (recorded_at)"
    return None


def _describe_run(one: RecordedRun, step: Mapping[str, Any] | None, number: int | None) -> Row:
    overhead = one.overhead if one.overhead is not None and is_tee_overhead(one.overhead) else {}
    return {
        "run_id": one.run_id,
        "recorded_at": one.run["recorded_at"],
        "session_number": number,
        "step_ns": None if step is None else step["step_ns"],
        **{name: overhead.get(name) for name in ("baseline_run_id", "overhead_ns", "slowdown_ratio")},
        **{name: one.run[name] for name in SOFTWARE},
        "vbios_version": one.vbios_version,
        "evidence": "unobservable" if step is None or step["step_ns"] is None else step["evidence"],
    }


def _find_level(runs: Sequence[RecordedRun], kind: tuple[str, str] | None) -> RunValue:
    """The level of a session, of whose runs each has a step, and how far the rounding of their logs leaves it open."""
    steps = [step for step in (one.find_step(kind) for one in runs) if step is not None]
    rounding = max(step["rounding_fraction"] or 0.0 for step in steps)
    return RunValue(_average([float(step["step_ns"]) for step in steps]), rounding_fraction=rounding)


def _average(steps: Sequence[float]) -> float:
    """The geometric mean, of the runs of a session or the sessions of a level."""
    return math.exp(sum(map(math.log, steps)) / len(steps))


def _tell_quiet(count: int) -> str:
    if count >= FEWEST_VALUES:
        return "no change point"
    days = "1 day" if count == 1 else f"{count} days"
    return f"nothing concluded: {days} of recordings, and a change shows from {FEWEST_VALUES} on"


def _describe_no_change(verdict: str) -> Row:
    empty = dict.fromkeys(("change_ratio", "change_low_ratio", "change_high_ratio", "change_p_value", "changed"))
    return {"is_change_point": False, **empty, "verdict": verdict}


def _describe_change(
    point: ChangePoint, levels: Sequence[RunValue], bounds: Sequence[int], sessions: Sequence[Sequence[RecordedRun]]
) -> Row:
    """The level from this change to the next, over the one since the last."""
    place = bounds.index(point.place)
    before, after = levels[bounds[place - 1] : point.place], levels[point.place : bounds[place + 1]]
    estimate = compare_runs(after, before)
    low, high = (None, None) if estimate is None else (estimate.low, estimate.high)
    ratio = _average([level.value for level in after]) / _average([level.value for level in before])
    interval = "no interval" if low is None or high is None else f"95 % {low:.3f} to {high:.3f}"
    changed = _tell_changes(sessions, point.place)
    return {
        "is_change_point": True,
        "change_ratio": ratio,
        "change_low_ratio": low,
        "change_high_ratio": high,
        "change_p_value": point.p_value,
        "changed": changed,
        "verdict": f"{'slower' if ratio > 1 else 'faster'} from here: {ratio:.3f}x, {interval}, over {len(before)} and "
        f"{len(after)} days; {changed}",
    }


def _tell_changes(sessions: Sequence[Sequence[RecordedRun]], place: int) -> str:
    """What changed with a session; where nothing did, what did a session before or after: the place is an estimate."""
    changes = {at: _list_changes(*pair) for at, pair in enumerate(pairwise(sessions), 1)}
    if changes[place]:
        return ", ".join(changes[place])
    near = [(changes.get(place + step), when) for step, when in ((-1, "earlier"), (1, "later"))]
    told = [f"one day of recordings {when}, {', '.join(found)}" for found, when in near if found]
    return "; ".join([NOTHING_CHANGED, *told])


def _list_changes(before: Sequence[RecordedRun], after: Sequence[RecordedRun]) -> list[str]:
    listed = list_differences([one.run for one in after], [one.run for one in before])
    firmware = [", ".join(sorted({one.vbios_version or "" for one in side} - {""})) for side in (before, after)]
    if firmware[0] != firmware[1]:
        listed.append({"field": "vbios_version", "baseline_value": firmware[0], "value": firmware[1]})
    return [f"{one['field']} {one['baseline_value'] or 'not said'} to {one['value'] or 'not said'}" for one in listed]
