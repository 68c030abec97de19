"""`teetotal status`: which runs have landed, which are up to date or stale, and what was kept, merged and rejected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assets.build.freshness import Look
from assets.build.landing_memory import list_held_back
from assets.build.state import State, add_comparisons, assess_comparisons, assess_gone, assess_runs, list_left_over
from assets.build.state_memory import MANY_RUNS, recall
from bronze import manifest, runs
from gold.margin import MARGIN
from lake.attestation_keys import NO_KEYS, AttestationKeys
from lake.errors import EvidenceRejected, LakeError, nearest
from lake.forgetting import list_pending
from lake.identity import MANIFEST
from pipelines.cli.run_notes import list_notes
from pipelines.cli.verification import find_damages, format_damage
from silver import runs as conformed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake.datafiles import Damage
    from lake.landing_zone import LandingZone
    from lake.settled_runs import SettledRuns
    from lake.store import Lake

_COUNTS = {
    "kept": "kept_files_count",
    "merged": "merged_files_count",
    "rejected": "rejected_files_count",
    "events": "events_count",
    "records": "records_count",
    "unreadable": "unreadable_count",
}
_FOUND = {"spans": "found_spans_count", "crossings": "found_crossings_count", "violations": "found_violations_count"}

_COLUMNS = ("run", "state", "regime", *_COUNTS, *_FOUND)

_RULE = f"it needs a name of letters, digits, '_', '.', '-' and a {MANIFEST} inside"


@dataclass(frozen=True)
class Status:
    """One line per run, and one sentence per thing that a person should know."""

    lines: list[dict[str, str]]
    notes: list[str]
    has_faults: bool


def collect_status(
    lake: Lake,
    zone: LandingZone,
    keys: AttestationKeys = NO_KEYS,
    margin: float = MARGIN,
    run_ids: Sequence[str] = (),
    *,
    all_notes: bool = False,
) -> Status:
    """Compare the landing zone with the lake, of all runs or some; nothing is read that the lake knows already.

    In a lake of many runs, those that were up to date and are untouched since get their line from memory; how many
    notes they have is said in one, unless `all_notes` are asked for.
    """
    zone, overview = zone.listed_once(), lake.skipping_damaged()
    complete, incomplete = zone.run_ids()
    look = Look(overview, zone, keys)
    memory = recall(look) if not run_ids and len(complete) >= MANY_RUNS else None
    landed = look.snapshot(runs.TABLE).run_ids
    there = {*landed, *complete}
    for run_id in run_ids:
        if run_id not in there:
            raise EvidenceRejected(f"no run {run_id[:160]!r}", nearest(run_id[:160], sorted(there)))
    asked = set(run_ids) or there
    here = [run_id for run_id in complete if run_id in asked]
    states = assess_runs(overview, zone, here, keys, margin=margin, memory=memory, look=look)
    states = add_comparisons(look, states)
    known = {} if memory is None else {run_id: memory.find_text(run_id) for run_id in here if states[run_id] == State()}
    settled = {run_id: text for run_id, text in known.items() if text is not None}
    looked_at = sorted(asked if all_notes else asked - settled.keys())
    described = _describe_runs(lake, zone, states, looked_at, margin)
    if memory is not None:
        _remember(memory, described, states)
    lines = [
        described[run_id].line if run_id in described else dict(zip(_COLUMNS, settled[run_id][0], strict=True))
        for run_id in sorted(asked)
    ]
    notes = [note for one in described.values() for note in one.notes]
    hidden = [settled[run_id][1] for run_id in settled if run_id not in described and settled[run_id][1]]
    if hidden:
        notes.append(
            f"{len(hidden):,} runs that are up to date have {sum(hidden):,} notes: `teetotal status RUN` says those of "
            "a run, `teetotal status --notes` all"
        )
    has_faults = any(one.has_faults for one in described.values())
    if not run_ids:
        found, is_failed = _describe_lake(lake, look, incomplete, has_rows=bool(landed))
        notes, has_faults = notes + found, has_faults or is_failed
    return Status(lines, notes, has_faults)


def remember_lines(
    lake: Lake, zone: LandingZone, memory: SettledRuns, states: Mapping[str, State], margin: float
) -> None:
    """Keep the lines of runs that were just built, so that the next `status` need not look at them."""
    clean = [run_id for run_id, state in states.items() if state == State()]
    _remember(memory, _describe_runs(lake, zone, states, clean, margin), states)


@dataclass(frozen=True)
class _DescribedRun:
    line: dict[str, str]
    notes: list[str]
    has_faults: bool


def _describe_runs(
    lake: Lake, zone: LandingZone, states: Mapping[str, State], run_ids: Sequence[str], margin: float
) -> dict[str, _DescribedRun]:
    """The line of each run, and what is to be known of it."""
    if not run_ids:
        return {}
    damages: dict[str | None, list[Damage]] = {}
    # What is up to date has been looked at already.
    for damage in find_damages(lake, [run_id for run_id in run_ids if states.get(run_id) != State()]):
        damages.setdefault(damage.run_id, []).append(damage)
    lake = lake.skipping_damaged()
    landed = {row["run_id"]: row for row in lake.scan(runs.TABLE, run_ids).collect().to_dicts()}
    meant = {row["run_id"]: row for row in lake.scan(conformed.TABLE, run_ids).collect().to_dicts()}
    gone = assess_gone(lake, landed.keys() - states.keys(), margin)
    found = {}
    more = list_notes(lake, run_ids)
    for run_id in run_ids:
        state, reasons, notes = "gone", [f"stale: {gone[run_id]}"] if run_id in gone else [], []
        is_failed = False
        if run_id in states:
            state, reasons = ("new", []) if run_id not in landed else (states[run_id].word, states[run_id].reasons)
            is_failed = state == "failed"
            try:
                manifest.parse(zone.manifest(run_id), f"{run_id}/{MANIFEST}")
            except EvidenceRejected as error:
                state, is_failed = "invalid", True
                notes.append(f"{run_id}: {error}")
        row = landed.get(run_id, {})
        counts = {name: f"{row[column]:,}" if row else "" for name, column in _COUNTS.items()}
        said = meant.get(run_id, {})
        counts |= {name: f"{said[column]:,}" if said else "" for name, column in _FOUND.items()}
        if run_id in states and zone.is_open(run_id):
            notes += _describe_open(lake, run_id, said.get("so_far"))
        notes += [f"{run_id}: {text}" for text in (*reasons, row.get("conflicts"), said.get("contradictions")) if text]
        how = f"teetotal run {run_id}" if run_id in states else "teetotal run --full"
        notes += [f"{format_damage(damage)}: `{how}` builds it again" for damage in damages.get(run_id, ())]
        notes += more.get(run_id, [])
        line = dict(zip(_COLUMNS, (run_id, state, row.get("regime") or "", *counts.values()), strict=True))
        found[run_id] = _DescribedRun(line, notes, is_failed)
    return found


def _remember(memory: SettledRuns, described: Mapping[str, _DescribedRun], states: Mapping[str, State]) -> None:
    clean = {run_id: one for run_id, one in described.items() if states.get(run_id) == State()}
    memory.add_texts({run_id: [[*one.line.values()], len(one.notes)] for run_id, one in clean.items()})
    memory.write()


def _describe_lake(lake: Lake, look: Look, incomplete: Sequence[str], *, has_rows: bool) -> tuple[list[str], bool]:
    """What is to be known of no single run, and whether a check across runs has failed."""
    across = find_damages(lake, None)
    lake = lake.skipping_damaged()
    notes = [f"{format_damage(damage)}: `teetotal run --full` builds it again" for damage in across]
    notes += list_left_over(lake)
    notes += [
        f"{run_id}: forgetting it was stopped halfway: `teetotal forget {run_id} --yes` finishes"
        for run_id in list_pending(lake.place)
    ]
    notes += [f"{name}: not a run yet: {_RULE}" for name in incomplete]
    compared = assess_comparisons(lake, look=look) if has_rows else {}
    notes += [f"{name}: {reason}" for (name, _), state in compared.items() for reason in state.reasons]
    return notes, any(state.failed for state in compared.values())


def _describe_open(lake: Lake, run_id: str, so_far: str | None) -> list[str]:
    """That a run is open, how far it has come, and which of its files are still being written."""
    try:
        waiting = list_held_back(lake.read_landing_note(run_id))
    except LakeError:  # without the keyring nobody knows; the rest of the status needs none
        waiting = []
    closing = f"`teetotal close {run_id}` when its last file is there"
    return [
        f"{run_id}: open, {so_far or 'nothing read yet'}: {closing}",
        *(
            f"{run_id}: {name} is not complete yet: it is read when it is, or when the run is closed"
            for name in waiting
        ),
    ]
