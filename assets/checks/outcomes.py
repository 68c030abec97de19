"""How the checks of each run ended, kept in the lake and bound to the rows and the rules that were checked.

A check that failed stays failed until its rows or its rules change, whoever asks and however often a process was killed
in between (docs/decisions/0017). Whoever made the rows, no record means: not checked.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from assets.build.catalogue import TABLES
from assets.checks.expectations import group_by_check, tables_read
from assets.checks.relation import Relation
from lake.tables import RUN_ID, Table, boolean, text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from assets.build.freshness import Look
    from assets.checks.rules import Check
    from lake.snapshot import Written
    from lake.store import Lake

TABLE = Table(
    tier="checks",
    name="outcomes",
    grain="One row per run, table and asset check: how it ended, and for which rows and rules.",
    key=("table_name", "check_name"),
    columns=(
        RUN_ID,
        text("table_name", "The table that was checked, such as `silver.spans`."),
        text("check_name", "The asset check, as Dagster shows it."),
        text("checked_sha256", "Fingerprint of the rows that were checked, and of the rules."),
        boolean("is_blocking", "Whether a failure keeps what lies downstream from being made."),
        text("failure", "What does not hold, as a sentence; null where the check passed.", nullable=True),
    ),
)
_FACTS = TABLE.column_names[1:]


@dataclass(frozen=True)
class Outcome:
    """How one asset check of one run ended."""

    table_name: str
    check_name: str
    checked_sha256: str
    is_blocking: bool
    failure: str | None = None

    def __str__(self) -> str:
        return f"{self.table_name}: {self.failure or 'passed'}"


@dataclass(frozen=True)
class Verdict:
    """What is known of a run's checks: those that were not held against its rows as they are, and those that failed."""

    unchecked: tuple[tuple[str, str], ...] = ()
    failed: tuple[Outcome, ...] = ()


@dataclass(frozen=True)
class AssetCheck:
    """One asset check of a table."""

    table: Table
    name: str
    reads: tuple[Table, ...]
    rules_sha256: str
    is_blocking: bool

    @property
    def key(self) -> tuple[str, str]:
        """Table and check, by name."""
        return self.table.full_name, self.name


def asset_checks(tables: Iterable[Table], left_out: Collection[Table] = ()) -> list[AssetCheck]:
    """The asset checks of some tables, less those that read a table which is left out."""
    found = (check for table in tables for check in _list_checks(table.full_name))
    return [check for check in found if not any(read in left_out for read in check.reads)] if left_out else list(found)


@cache
def _list_checks(full_name: str) -> tuple[AssetCheck, ...]:
    table = TABLES[full_name]
    return tuple(
        AssetCheck(table, name, tables_read(promises), _digest(map(_describe_check, promises)), promises[0].is_blocking)
        for name, promises in group_by_check(table).items()
    )


def fingerprint(look: Look, check: AssetCheck, run_id: str) -> str:
    """What stands for all that decides how a check ends: the rules, and the rows that it reads.

    A pair also reads its partners' rows: the mark of its own partition stands for those.
    """
    contents = [look.snapshot(table).content_sha256(run_id) for table in (check.table, *check.reads)]
    return _digest([check.rules_sha256, look.snapshot(check.table).mark(run_id), *contents])


def make_passed(check: AssetCheck, checked_sha256: str) -> Outcome:
    """The outcome of a check that found nothing."""
    return Outcome(*check.key, checked_sha256, check.is_blocking)


def read_verdicts(lake: Lake, look: Look, run_ids: Iterable[str], checks: Sequence[AssetCheck]) -> dict[str, Verdict]:
    """What the lake knows of these checks; rows are read only of runs of which not all were recorded as passed."""
    snapshot = look.snapshot(TABLE)
    found, unclear = {}, {}
    for run_id in run_ids:
        wanted = {check.key: fingerprint(look, check, run_id) for check in checks}
        if snapshot.is_made_from(
            run_id, _fingerprint_outcomes(make_passed(check, wanted[check.key]) for check in checks)
        ):
            found[run_id] = Verdict()
        else:
            unclear[run_id] = wanted
    known = _read(lake, list(unclear)) if unclear else {}
    for run_id, wanted in unclear.items():
        valid = {
            key: known[run_id][key]
            for key, checked_sha256 in wanted.items()
            if key in known[run_id] and known[run_id][key].checked_sha256 == checked_sha256
        }
        unchecked = tuple(key for key in wanted if key not in valid)
        found[run_id] = Verdict(unchecked, tuple(one for one in valid.values() if one.failure is not None))
    return found


def record_outcomes(lake: Lake, run_id: str, outcomes: Iterable[Outcome]) -> Written:
    """Keep how checks of a run ended, in one commit; other checks stay, and what is known is not written again."""
    with lake.stage(TABLE, run_id) as stage:  # it holds a lock: nobody writes between our read and our commit
        rows = {key: one for key, one in _read(lake, [run_id])[run_id].items() if key in _all_keys()}
        rows |= {(one.table_name, one.check_name): one for one in outcomes}
        frame = [{"run_id": run_id, **dict(zip(_FACTS, _facts(one), strict=True))} for one in rows.values()]
        lake.add(stage, pa.Table.from_pylist(frame, schema=TABLE.arrow_schema))
        return lake.commit(stage, _fingerprint_outcomes(rows.values()))


@cache
def _all_keys() -> frozenset[tuple[str, str]]:
    """The checks that there are: what an earlier version checked besides is forgotten."""
    return frozenset(check.key for check in asset_checks(TABLES.values()))


def _read(lake: Lake, run_ids: list[str]) -> Mapping[str, dict[tuple[str, str], Outcome]]:
    known: dict[str, dict[tuple[str, str], Outcome]] = defaultdict(dict)
    for row in lake.scan(TABLE, run_ids).collect().iter_rows(named=True):
        one = Outcome(*(row[name] for name in _FACTS))
        known[row["run_id"]][one.table_name, one.check_name] = one
    return known


def _facts(one: Outcome) -> tuple[str, str, str, bool, str | None]:
    return one.table_name, one.check_name, one.checked_sha256, one.is_blocking, one.failure


def _fingerprint_outcomes(outcomes: Iterable[Outcome]) -> str:
    return _digest(sorted(map(_facts, outcomes), key=lambda facts: facts[:2]))


def _describe_check(check: Check) -> list[Any]:
    """All of a promise that decides which rows break it."""
    identity: list[Any] = [check.name, check.sentence, check.is_blocking]
    if isinstance(check, Relation):
        read = [table.full_name for table in check.reads]
        return [*identity, check.query, read, list(check.partners)]
    return [*identity, *(getattr(check, name) for name in ("must", "columns", "arguments"))]


def _digest(parts: Iterable[Any]) -> str:
    return hashlib.sha256(json.dumps(list(parts)).encode()).hexdigest()
