"""What a table promised, as asset checks: one a rule, told once a launch for all of its runs, blocking run by run."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.expectations import checks, hold
from assets.specs import asset_key
from lake.errors import ContractBroken

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence
    from pathlib import Path

    from assets.expectations import Check, Held
    from assets.workplace import Workplace
    from lake.errors import LakeError
    from lake.tables import Table

_SEVERITY = {"critical": dg.AssetCheckSeverity.ERROR, "warning": dg.AssetCheckSeverity.WARN}
_RUNS_NAMED = 20


def check_specs(tables: Iterable[Table]) -> Iterator[dg.AssetCheckSpec]:
    """One check for each rule of each table."""
    for table in tables:
        for check in checks(table):
            yield dg.AssetCheckSpec(
                check.name, asset=asset_key(table.full_name), description=check.sentence, blocking=check.is_blocking
            )


@dataclass
class _Sum:
    """What one rule came to over all runs of a launch."""

    check: Check
    rows: int = 0
    broken: int = 0
    runs: list[str] = field(default_factory=list)
    samples: list[dict[str, Any]] = field(default_factory=list)
    page: Path | None = None

    def add(self, held: Held) -> None:
        self.rows += held.rows_count
        self.broken += held.broken_count
        self.samples += held.samples
        self.page = held.page or self.page


class Checking:
    """Holds tables to their word, a tier of some runs at a time, and sums up."""

    def __init__(self, workplace: Workplace, selected: Collection[dg.AssetCheckKey]) -> None:
        self._workplace = workplace
        self._selected = selected
        self._sums: dict[dg.AssetCheckKey, _Sum] = {}

    def hold(self, tables: Sequence[Table], run_ids: Sequence[str] | None) -> dict[str, LakeError]:
        """Check some runs, or all; gives the runs that broke a rule on which a number downstream depends."""
        broken: dict[str, LakeError] = {}
        for table in tables:
            wanted = {
                check.name: dg.AssetCheckKey(asset_key(table.full_name), check.name)
                for check in checks(table)
                if dg.AssetCheckKey(asset_key(table.full_name), check.name) in self._selected
            }
            if not wanted or (run_ids is not None and not run_ids):
                continue
            for held in self._held(table, run_ids):
                if held.check.name not in wanted:
                    continue
                summed = self._sums.setdefault(wanted[held.check.name], _Sum(held.check))
                summed.add(held)
                if held.is_held:
                    continue
                for run_id in self._blamed(table, held, run_ids):
                    summed.runs.append(run_id)
                    if held.check.is_blocking:
                        broken.setdefault(
                            run_id,
                            ContractBroken(
                                f"{table.full_name} breaks its word: {held.check.sentence}",
                                f"the check {held.check.name} on its asset page shows the rows; nothing downstream "
                                "is made from them",
                            ),
                        )
        return broken

    def results(self) -> Iterator[dg.AssetCheckResult]:
        """One result a check that was asked for."""
        for key, summed in self._sums.items():
            yield dg.AssetCheckResult(
                asset_key=key.asset_key,
                check_name=key.name,
                passed=not summed.runs and not summed.broken,
                severity=_SEVERITY[summed.check.severity],
                description=summed.check.sentence,
                metadata={
                    "rows": summed.rows,
                    "broken_rows": summed.broken,
                    "runs": dg.MetadataValue.json(sorted(summed.runs)[:_RUNS_NAMED]),
                    "samples": dg.MetadataValue.json(summed.samples[:5]),
                    **({"data_docs": dg.MetadataValue.url(summed.page.as_uri())} if summed.page else {}),
                },
            )

    def _held(self, table: Table, run_ids: Sequence[str] | None) -> list[Held]:
        return hold(self._workplace.lake, table, run_ids, self._workplace.docs)

    def _blamed(self, table: Table, held: Held, run_ids: Sequence[str] | None) -> list[str]:
        """The runs that broke a rule: each by itself, where there were several."""
        asked = self._workplace.lake.snapshot(table).run_ids if run_ids is None else run_ids
        if len(asked) == 1:
            return list(asked)
        return [
            run_id
            for run_id in asked
            for one in hold(self._workplace.lake, table, [run_id], None)
            if one.check.name == held.check.name and not one.is_held
        ]
