"""What a table promised, as asset checks: promises of one kind are one check, told once a launch, blocking run by run.

A result costs Dagster about 20 ms of CPU on SQLite, and the tables make about a thousand promises: one check for each
would take longer than to make the tables. Each promise by itself is on the page of the Data Docs; a broken one is in
the result.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.expectations import checks, hold
from assets.relations import Relation
from assets.rules import Must, Rule
from assets.specs import asset_key
from lake.errors import ContractBroken

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from assets.expectations import Check, Held
    from assets.workplace import Workplace
    from lake.errors import LakeError
    from lake.tables import Table

_KINDS = {
    (Must.BE_DECLARED, True): "rows_are_as_declared",
    (Must.BE_PRESENT, True): "rows_are_as_declared",
    (Must.BE_ONE_OF, True): "rows_are_as_declared",
    (Must.BE_WITHIN, True): "rows_are_as_declared",
    (Must.BE_FINITE, True): "rows_are_as_declared",
    (Must.BE_UNIQUE, True): "key_is_unique",
    (Must.BE_SHAPED, True): "secrets_are_sealed",
    (Must.BE_SHAPED, False): "ids_and_digests_are_well_formed",
}
_SEVERITY = {"critical": dg.AssetCheckSeverity.ERROR, "warning": dg.AssetCheckSeverity.WARN}
_RUNS_NAMED = 20
_SAMPLES = 5


def check_name(check: Check) -> str:
    """The asset check that a promise belongs to: its kind's, or its own where it relates tables."""
    return _KINDS[check.must, check.is_blocking] if isinstance(check, Rule) else check.name


def check_specs(tables: Iterable[Table]) -> Iterator[dg.AssetCheckSpec]:
    """One check for each kind of promise that a table makes, and for each relation to other tables."""
    for table in tables:
        for name, promises in _by_check(table).items():
            yield dg.AssetCheckSpec(
                name,
                asset=asset_key(table.full_name),
                description="; ".join(promise.sentence for promise in promises),
                blocking=promises[0].is_blocking,
            )


@dataclass
class _Sum:
    """What one check came to over all runs of a launch."""

    severity: str
    engine: str
    rows: int = 0
    broken: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    runs: set[str] = field(default_factory=set)
    samples: list[dict[str, Any]] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)
    page: Path | None = None

    def add(self, one: Held) -> None:
        self.broken[one.check.sentence] += one.broken_count
        self.samples += one.samples
        self.reasons |= {one.reason} if one.reason else set()

    def result(self, key: dg.AssetCheckKey) -> dg.AssetCheckResult:
        told: dict[str, Any] = {
            "engine": self.engine,
            "rows": self.rows,
            "broken_rows": dg.MetadataValue.json(dict(self.broken)),
            "runs": dg.MetadataValue.json(sorted(self.runs)[:_RUNS_NAMED]),
            "samples": dg.MetadataValue.json([_plain(sample) for sample in self.samples[:_SAMPLES]]),
        }
        if self.reasons:
            told["reasons"] = dg.MetadataValue.json(sorted(self.reasons))
        if self.page is not None:
            told["data_docs"] = dg.MetadataValue.url(self.page.as_uri())
        return dg.AssetCheckResult(
            asset_key=key.asset_key,
            check_name=key.name,
            passed=not self.broken,
            severity=_SEVERITY[self.severity],
            description="; ".join(self.broken) or None,
            metadata=told,
        )


class Checking:
    """Holds tables to their word, a tier of some runs at a time, and sums up."""

    def __init__(
        self, workplace: Workplace, selected: Collection[dg.AssetCheckKey], left_out: frozenset[Table] = frozenset()
    ) -> None:
        """`left_out` are tables of which a launch makes others of the same tier: nothing can be held against them."""
        self._left_out = left_out
        self._workplace = workplace
        self._selected = selected
        self._spark = workplace.spark if workplace.checks == "spark" else None
        self._sums: dict[dg.AssetCheckKey, _Sum] = {}

    def hold(self, tables: Sequence[Table], run_ids: Sequence[str] | None) -> dict[str, LakeError]:
        """Check some runs, or all; gives the runs that broke a promise on which a number downstream depends."""
        broken: dict[str, LakeError] = {}
        for table in tables:
            wanted = {
                name: key
                for name, key in _keys(table).items()
                if key in self._selected and self._left_out.isdisjoint(_reads(table, name))
            }
            if not wanted or (run_ids is not None and not run_ids):
                continue
            held = hold(self._workplace.lake, table, run_ids, self._workplace.docs, self._spark)
            named = {check_name(one.check): one for one in held}
            for name, key in wanted.items():
                summed = self._sums.setdefault(key, _Sum(named[name].check.severity, named[name].engine))
                summed.rows += held[0].rows_count
                summed.page = held[0].page
            for one in held:
                if one.is_held or check_name(one.check) not in wanted:
                    continue
                summed = self._sums[wanted[check_name(one.check)]]
                summed.add(one)
                for run_id, fault in self._blamed(table, one, run_ids).items():
                    summed.runs.add(run_id)
                    if one.check.is_blocking:
                        broken.setdefault(run_id, fault)
        return broken

    def results(self) -> Iterator[dg.AssetCheckResult]:
        """One result for each check that was asked for."""
        for key, summed in self._sums.items():
            yield summed.result(key)

    def _blamed(self, table: Table, one: Held, run_ids: Sequence[str] | None) -> dict[str, LakeError]:
        """The runs that broke a promise: each is asked by itself, where there were several."""
        lake = self._workplace.lake
        asked = lake.snapshot(table).run_ids if run_ids is None else list(run_ids)
        if len(asked) > 1:
            asked = [
                run_id
                for run_id in asked
                if any(
                    not again.is_held and again.check == one.check
                    for again in hold(lake, table, [run_id], spark=self._spark)
                )
            ]
        fault = ContractBroken(
            f"{table.full_name} breaks its word: {one.check.sentence}",
            f"see the check {check_name(one.check)} of that asset; nothing is made from those rows",
        )
        return dict.fromkeys(asked, fault)


def _by_check(table: Table) -> dict[str, list[Check]]:
    found: dict[str, list[Check]] = defaultdict(list)
    for check in checks(table):
        found[check_name(check)].append(check)
    return found


def _reads(table: Table, name: str) -> set[Table]:
    """The other tables that a check reads."""
    return {read for check in _by_check(table)[name] if isinstance(check, Relation) for read in check.reads}


def _keys(table: Table) -> dict[str, dg.AssetCheckKey]:
    return {name: dg.AssetCheckKey(asset_key(table.full_name), name) for name in _by_check(table)}


def _plain(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample that JSON can say."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in sample.items()
    }
