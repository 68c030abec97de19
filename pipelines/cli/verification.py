"""All tables verified, for the command and for maintenance: which files are damaged, and what to type next."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from assets.build.catalogue import TABLES
from assets.checks import outcomes
from lake.compaction import COPIES
from lake.datafiles import Damage
from lake.lineage.audit import Audit, audit_chain, audit_sources, audit_table
from lake.lineage.history import History, read_history
from lake.lineage.notes import list_cosigners
from lake.log_recovery import unreadable_entries
from lake.verification import Verified, verify_table
from pipelines.cli.session import require_runs

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from datetime import date

    from lake.landing_zone import LandingZone
    from lake.lineage.keys import Trust
    from lake.lineage.statements import Statement
    from lake.store import Lake

_HEX_DIGITS = 16
# Whatever a launch commits to.
SIGNED_TABLES = (*TABLES.values(), outcomes.TABLE)
_ACROSS_RUNS = {name for name, table in TABLES.items() if table.partition_key != "run_id"}


@dataclass(frozen=True)
class AuditedLake:
    """What was found of a lake's data files, of its statements, and of the log that holds them."""

    verified: Verified
    audit: Audit
    history: History

    @property
    def damages(self) -> list[Damage]:
        """All partitions and files that are not what was written or signed."""
        return [*self.verified.damages, *self.audit.damages]

    @property
    def has_failed(self) -> bool:
        """Whether anything is wrong with the lake."""
        return bool(self.damages or self.history.faults)


def verify_lake(
    lake: Lake,
    run_ids: Sequence[str] = (),
    day: date | None = None,
    signed: Mapping[tuple[str, str], Statement] = MappingProxyType({}),
) -> Verified:
    """Verify the data files of all tables, or of some runs; `day`: only a sixteenth of them, another one each day."""
    require_runs(lake, run_ids, TABLES.values())
    found = [
        verify_table(
            lake,
            table,
            run_ids or None,
            pick_due(day),
            {run_id: one.files for (name, run_id), one in signed.items() if name == table.full_name},
        )
        # How checks ended is verified where it is signed; without that, `run` checks again.
        for table in (SIGNED_TABLES if signed else TABLES.values())
    ]
    damages = [damage for one in found for damage in one.damages]
    return Verified(sum(one.files for one in found), sum(one.bytes for one in found), damages)


def audit_lake(
    lake: Lake,
    zone: LandingZone | None,
    trust: Trust,
    run_ids: Sequence[str] = (),
    since: tuple[str, str] | None = None,
) -> AuditedLake:
    """Verify the data files of a lake, or of some runs, against signed statements, and those against the log.

    With a landing zone, source files are read too. What no statement speaks of is verified as before.
    """
    require_runs(lake, run_ids, TABLES.values())
    history, audit = audit_statements(lake, trust, run_ids, since)
    audit_chain(history, audit)
    if zone is not None:
        audit_sources(zone, audit, lambda data: hashlib.sha256(data).hexdigest())
    return AuditedLake(verify_lake(lake, run_ids, signed=audit.signed), audit, history)


def audit_statements(
    lake: Lake, trust: Trust, run_ids: Sequence[str] = (), since: tuple[str, str] | None = None
) -> tuple[History, Audit]:
    """Compare what the tables hold with what was signed, by their logs alone: no data file is opened."""
    history = read_history(lake.place, trust, [table.full_name for table in SIGNED_TABLES], since)
    audit = Audit()
    for table in SIGNED_TABLES:
        if lake.place.is_local and unreadable_entries(lake.log(table)):
            continue  # it is named when the files are verified
        snapshot = lake.snapshot(table)
        if not snapshot.outdated:  # another version wrote it: `run` makes it again
            audit_table(history, snapshot, set(run_ids) or None, audit)
    return history, audit


def format_audit(found: AuditedLake) -> list[str]:
    """What was found of statements, in a few lines."""
    audit, history = found.audit, found.history
    signed, unsigned = len(audit.signed), len(audit.unsigned)
    if not history.leaves.lines and not history.unlogged:
        return [f"unsigned: no commit of this lake carries a statement ({unsigned:,} partitions)"]
    keys = ", ".join(f"{key_id} ({count:,})" for key_id, count in history.keys.most_common())
    lines = [f"{signed:,} partitions hold what was signed; {len(history.leaves.lines):,} statements by key {keys}"]
    if history.unlogged:
        lines.append(f"{history.unlogged:,} statements are not in the log yet: the next `teetotal run` adds them")
    if unsigned:
        table, run_id = audit.unsigned[0]
        more = f" and {unsigned - 1:,} more" if unsigned > 1 else ""
        lines.append(f"unsigned past: {table}, run {run_id}{more}; `teetotal run --full` makes and signs them again")
    if audit.stale:
        table, run_id = min(audit.stale)
        lines.append(f"{len(audit.stale):,} partitions are made from rows replaced since, first {table}, run {run_id}")
    if audit.traced:
        lines.append(f"{len(audit.traced):,} runs traced to the bytes of their source files")
    if audit.untraced:
        lines.append(f"{len(audit.untraced):,} runs are not in the landing zone: traced to the digests of their files")
    return lines


def find_cosigners(kept: tuple[str, str] | None, trust: Trust, least: int) -> tuple[list[str], list[str]]:
    """Who has countersigned a kept checkpoint, a line each; and what is wrong where they are too few."""
    text, where = kept or ("", "no checkpoint was given with --since")
    found = list_cosigners(text, trust.witnesses)
    lines = [f"{where}: countersigned by {one.name} on {when:%Y-%m-%d %H:%M:%S} UTC" for one, when in found.items()]
    names = {one.name for one in found}  # a witness with an old and a new key is one
    if len(names) >= least:
        return lines, []
    listed = f"{trust.place} lists {len({one.name for one in trust.witnesses}):,}"
    return lines, [f"{where}: {len(names):,} believed witnesses countersigned it, not {least:,} ({listed})"]


def pick_due(day: date | None) -> Callable[[str], bool]:
    """Whether a partition is verified that day, by its content digest; without a day every one is."""
    first = "" if day is None else f"{day.toordinal() % _HEX_DIGITS:x}"
    return lambda digest: digest.startswith(first)


def find_damages(lake: Lake, run_ids: Collection[str] | None) -> list[Damage]:
    """The data files of some runs, or of what is measured across runs, that are missing or truncated; by size alone."""
    if run_ids is not None and not run_ids:
        return []
    tables = [table for table in TABLES.values() if (table.full_name in _ACROSS_RUNS) == (run_ids is None)]
    return [
        Damage(table.full_name, name, path, reason)
        for table, snapshot in ((table, lake.snapshot(table)) for table in tables)
        for name in (snapshot.run_ids if run_ids is None else run_ids)
        for path, reason in snapshot.damages(name).items()
    ]


def format_damage(damage: Damage) -> str:
    """One damaged file in a line."""
    where = damage.table if damage.run_id is None else f"{damage.table}, run {damage.run_id}"
    return f"{where}: {damage.path} {damage.reason}"


def advise(damages: Sequence[Damage]) -> list[str]:
    """What to type next."""
    copies = [damage for damage in damages if damage.path.startswith(f"{COPIES}/")]
    logs = sorted({damage.table for damage in damages if damage.run_id is None and damage not in copies})
    # What is measured across runs has no run of its own: it is built again with any of them.
    is_across = any(damage.table in _ACROSS_RUNS and damage.run_id is not None for damage in damages)
    mine = (damage.run_id for damage in damages if damage.table not in _ACROSS_RUNS)
    run_ids = sorted({run_id for run_id in mine if run_id is not None})
    lines = [f"next: teetotal run --full {' '.join(run_ids)}".rstrip()] if run_ids or is_across else []
    lines += [
        f"next: restore the log of {table} from a backup, or move the table's directory away and run "
        "`teetotal run --full`: what still lies in the landing zone is built again"
        for table in logs
    ]
    return lines + [
        f"next: delete {copy.path} of {copy.table}: it is a copy of rows, and maintenance makes another"
        for copy in copies
    ]
