"""Whether partitions are what was last said of them, and whether what they were made from leads to source files."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake.datafiles import Damage
from lake.digest import combine
from lake.errors import LakeError
from lake.lineage.history import NOTHING
from lake.lineage.statements import LANDING, ROWS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from lake.landing_zone import LandingZone
    from lake.lineage.history import Entry, History
    from lake.lineage.statements import Material, Statement
    from lake.snapshot import Snapshot

_PARTITION = "the partition"
_SOURCES = "bronze.source_files"


@dataclass
class Audit:
    """What a look at the statements of some partitions found."""

    damages: list[Damage] = field(default_factory=list)
    # Partitions of which no statement says anything: made before lakes were signed, or by an unsigned writer.
    unsigned: list[tuple[str, str]] = field(default_factory=list)
    # Partitions that hold what was signed, with the statement.
    signed: dict[tuple[str, str], Statement] = field(default_factory=dict)
    # Partitions that are made from rows which were replaced since.
    stale: set[tuple[str, str]] = field(default_factory=set)
    # Runs whose source files are all where they landed, and runs that are not in the landing zone.
    traced: list[str] = field(default_factory=list)
    untraced: list[str] = field(default_factory=list)


def audit_table(history: History, snapshot: Snapshot, run_ids: Collection[str] | None, audit: Audit) -> None:
    """Compare the rows of a table's partitions with what was last said of them; no file is opened."""
    table = snapshot.table.full_name
    said = {partition for name, partition in (*history.partitions, *history.inventory) if name == table}
    for partition in sorted(said | set(snapshot.run_ids)):
        if run_ids is not None and partition not in run_ids:
            continue
        latest, found = history.find_latest(table, partition), snapshot.content_sha256(partition)
        if latest is None:
            past = history.inventory.get((table, partition))
            if past == found or not history.leaves.lines:
                audit.unsigned.append((table, partition))
                continue
            why = "appeared without a statement, in a lake whose commits are signed"
            if past is not None:
                expected = f"expected rows {past[:16]}…, found {found[:16]}…"
                why = f"was unsigned when signing began, and changed since: {expected}"
            audit.damages.append(Damage(table, partition, _PARTITION, why))
        elif latest.statement.content_sha256 != found:
            audit.damages.append(Damage(table, partition, _PARTITION, _explain(history, latest, found)))
        elif found != NOTHING:
            audit.signed[table, partition] = latest.statement


def _explain(history: History, latest: Entry, found: str) -> str:
    table, partition = latest.statement.name
    expected = f"expected rows {latest.statement.content_sha256[:16]}… of {latest}"
    if found == NOTHING:
        return f"is gone: {expected}, found none"
    older = history.find_said(table, partition, found)
    if older is not None:
        return f"was put back to an older version: {expected}, found {found[:16]}… of {older}"
    return f"holds rows that nobody signed: {expected}, found {found[:16]}…"


def audit_chain(history: History, audit: Audit) -> None:
    """Follow what signed partitions were made from, to statements of source files; each link must be signed too."""
    waiting, seen = list(audit.signed.values()), set[tuple[str, str, str]]()
    while waiting:
        one = waiting.pop()
        if (*one.name, one.content_sha256) in seen:
            continue
        seen.add((*one.name, one.content_sha256))
        for material in one.materials:
            why, upstream = _follow(history, one, material)
            if why is not None:
                audit.damages.append(Damage(*one.name, _PARTITION, why))
            if upstream is not None:
                waiting.append(upstream)
                latest = history.find_latest(*upstream.name)
                is_own = upstream.name == one.name  # sealed again
                if not is_own and latest is not None and latest.statement.content_sha256 != upstream.content_sha256:
                    audit.stale.add(one.name)


def _follow(history: History, one: Statement, material: Material) -> tuple[str | None, Statement | None]:
    """What is wrong with a link, and the statement at its other end."""
    table, _, partition = material.name.partition("/")
    if material.algorithm == ROWS:
        entry = history.find_said(table, partition, material.digest)
        if entry is not None:
            return None, entry.statement
        is_past = history.inventory.get((table, partition)) == material.digest
        if is_past or not history.list_said(table, partition):
            return None, None  # unsigned, which is told by itself
        return f"was made from {table}, run {partition}, with rows {material.digest[:16]}…, which nobody signed", None
    if material.name == f"{LANDING}/{one.partition}":
        said = history.list_said(_SOURCES, one.partition)
        if one.table == _SOURCES:
            is_whole = combine(list_sources(one)) == material.digest
            return (None if is_whole else "does not list the files that it says it was made from"), None
        if said and all(_find_whole(entry.statement) != material.digest for entry in said):
            return f"was made from files {material.digest[:16]}…, which {_SOURCES} does not list", None
    return None, None


def list_sources(statement: Statement) -> list[str]:
    """The digests of the source files that a statement names one by one."""
    start = f"{LANDING}/{statement.partition}/"
    return [material.digest for material in statement.materials if material.name.startswith(start)]


def _find_whole(statement: Statement) -> str | None:
    name = f"{LANDING}/{statement.partition}"
    return next((material.digest for material in statement.materials if material.name == name), None)


def audit_sources(zone: LandingZone, audit: Audit, digest: Callable[[bytes], str]) -> None:
    """Compare the files of the landing zone with those that signed runs were made from; read, not only listed."""
    complete, _ = zone.run_ids()
    for (table, run_id), statement in audit.signed.items():
        if table != _SOURCES:
            continue
        if run_id not in complete:
            audit.untraced.append(run_id)
            continue
        missing = sorted(
            set(list_sources(statement)) - {digest(zone.landed_manifest(run_id)), *_digest_files(zone, run_id)}
        )
        audit.damages += [
            Damage(table, run_id, f"source file {sha256}", f"is not in {zone.place}/{run_id} any more, or was changed")
            for sha256 in missing
        ]
        audit.traced += [] if missing else [run_id]


def _digest_files(zone: LandingZone, run_id: str) -> Iterable[str]:
    for file in zone.files(run_id):
        if file.problem is None:
            try:
                yield asyncio.run(file.digest())
            except LakeError:  # what cannot be read is missing
                continue
