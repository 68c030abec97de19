"""What a table promised, as asset checks: its declaration is one check, told once a launch, blocking run by run.

A result costs Dagster 10 to 20 ms of CPU on SQLite, and the tables make about a thousand promises: one check for each
would take longer than to make the tables. Each promise by itself is on the page of the Data Docs; a broken one is in
the result, which is a warning where nothing downstream depends on it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import dagster as dg
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData

from assets.addresses import DATA_DOCS
from assets.build.comparisons import COMPARISON_TABLES
from assets.build.freshness import Look
from assets.checks import outcomes
from assets.checks.expectations import check_name, check_tables, group_by_check, tables_read
from assets.specs import asset_key
from bronze import runs as landed
from lake.errors import ContractBroken, explain, is_stop

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from assets.build.context import BuildContext
    from assets.checks.expectations import CheckResult
    from assets.checks.outcomes import Outcome
    from lake.errors import LakeError
    from lake.tables import Table

_RUNS_NAMED = 20
_SAMPLES = 5


def check_specs(tables: Iterable[Table]) -> Iterator[dg.AssetCheckSpec]:
    """One check for what a table declares, one for its sealed columns, and one for each relation to other tables."""
    for table in tables:
        for name, promises in group_by_check(table).items():
            yield dg.AssetCheckSpec(
                name,
                asset=asset_key(table.full_name),
                description="; ".join(promise.sentence for promise in promises),
                blocking=promises[0].is_blocking,
            )


@dataclass
class _Sum:
    """What one check came to over all runs of a launch."""

    engine: str
    is_blocking: bool
    # The gravest of what is broken.
    severity: dg.AssetCheckSeverity = dg.AssetCheckSeverity.WARN
    rows: int = 0
    broken: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    runs: set[str] = field(default_factory=set)
    samples: list[dict[str, Any]] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)
    page: Path | None = None

    def add(self, one: CheckResult) -> None:
        self.broken[one.check.sentence] += one.broken_count
        if one.check.is_blocking:
            self.severity = dg.AssetCheckSeverity.ERROR
        self.samples += one.samples
        self.reasons |= {one.reason} if one.reason else set()

    def evaluation(
        self, key: dg.AssetCheckKey, target: AssetCheckEvaluationTargetMaterializationData | None
    ) -> dg.AssetCheckEvaluation:
        metadata: dict[str, Any] = {
            "engine": self.engine,
            "rows": self.rows,
            "broken_rows": dg.MetadataValue.json(dict(self.broken)),
            "runs": dg.MetadataValue.json(sorted(self.runs)[:_RUNS_NAMED]),
            "samples": dg.MetadataValue.json([_to_json_sample(sample) for sample in self.samples[:_SAMPLES]]),
        }
        if self.reasons:
            metadata["reasons"] = dg.MetadataValue.json(sorted(self.reasons))
        if self.page is not None:
            metadata["data_docs"] = dg.MetadataValue.url("/".join((DATA_DOCS, *self.page.parts[-3:])))
            metadata["data_docs_file"] = dg.MetadataValue.path(str(self.page))
        return dg.AssetCheckEvaluation(
            asset_key=key.asset_key,
            check_name=key.name,
            passed=not self.broken,
            severity=self.severity,
            description="; ".join(self.broken) or None,
            metadata=metadata,
            target_materialization_data=target,
            blocking=self.is_blocking,
        )


class LaunchChecks:
    """Holds tables to their word, a tier of some runs at a time, and sums up."""

    def __init__(
        self,
        build_context: BuildContext,
        selected: Collection[dg.AssetCheckKey],
        left_out: frozenset[Table] = frozenset(),
    ) -> None:
        """`left_out` are tables of which a launch makes others of the same tier: nothing can be held against them."""
        self._left_out = left_out
        self._build_context = build_context
        self._selected = selected
        self._spark = build_context.spark if build_context.checks == "spark" else None
        self._sums: dict[dg.AssetCheckKey, _Sum] = {}
        self._ended: dict[str, list[Outcome]] = defaultdict(list)

    def check(self, tables: Sequence[Table], run_ids: Sequence[str] | None) -> dict[str, LakeError]:
        """Check some runs, or all; gives the runs that broke a promise on which a number downstream depends."""
        look = Look(self._build_context.lake)
        broken: dict[str, LakeError] = {}
        for table in tables:
            wanted = {
                name: key
                for name, key in _keys(table).items()
                if key in self._selected and self._left_out.isdisjoint(tables_read(group_by_check(table)[name]))
            }
            if not wanted or (run_ids is not None and not run_ids):
                continue
            asked = _partitions(look, table) if run_ids is None else run_ids
            # Before rows are read: what is read may be newer than what is then recorded of it, never older.
            ended = {
                (run_id, check.name): outcomes.make_passed(check, outcomes.fingerprint(look, check, run_id))
                for check in outcomes.asset_checks([table])
                for run_id in (asked if check.name in wanted else ())
            }
            held, unheld = self._check_tables(table, run_ids)
            broken = unheld | broken
            asked = [run_id for run_id in asked if run_id not in unheld]
            for run_id, one in self._sum_up(table, wanted, held, asked) if held else ():
                failed, is_blocking = ended[run_id, check_name(one.check)], one.check.is_blocking
                if failed.failure is None or (is_blocking and not failed.is_blocking):
                    why = one.reason or one.check.sentence
                    ended[run_id, check_name(one.check)] = replace(failed, failure=why, is_blocking=is_blocking)
                if is_blocking:
                    broken.setdefault(run_id, _fault(table, one))
            for (run_id, _), one_ended in ended.items():
                if run_id not in unheld:
                    self._ended[run_id].append(one_ended)
        return broken

    def record(self) -> None:
        """Keep how the checks ended so far, run by run: a failure is known until rows or rules change."""
        for run_id, ended in self._ended.items():
            outcomes.record_outcomes(self._build_context.lake, run_id, ended)
        self._ended.clear()

    def evaluations(self, records: dg.DagsterInstance) -> Iterator[dg.AssetCheckEvaluation]:
        """One evaluation for each check that was asked for, of its asset as the records have it last.

        A launch tells of evaluations and not of results: for every result, Dagster asks its records for the asset and
        stores an output of the step beside it.
        """
        targets = _find_targets(records, {key.asset_key for key in self._sums})
        for key, summed in self._sums.items():
            yield summed.evaluation(key, targets.get(key.asset_key))

    def _check_tables(
        self, table: Table, run_ids: Sequence[str] | None
    ) -> tuple[list[CheckResult], dict[str, LakeError]]:
        """Check some runs at once; where one of them cannot be checked, each by itself, and that one fails alone."""
        lake = self._build_context.lake
        try:
            return check_tables(lake, table, run_ids, self._build_context.docs, self._spark), {}
        except BaseException as error:
            if run_ids is None or is_stop(error):
                raise
            if len(run_ids) == 1:
                return [], {run_ids[0]: explain(error, run_ids[0])}
        unheld: dict[str, LakeError] = {}
        for run_id in run_ids:
            unheld |= self._check_tables(table, [run_id])[1]
        rest = [run_id for run_id in run_ids if run_id not in unheld]
        return check_tables(lake, table, rest, self._build_context.docs, self._spark) if rest else [], unheld

    def _sum_up(
        self, table: Table, wanted: Mapping[str, dg.AssetCheckKey], held: Sequence[CheckResult], asked: Sequence[str]
    ) -> list[tuple[str, CheckResult]]:
        """Add to what each check came to; gives the runs that broke a promise, with the promise."""
        named = {check_name(one.check): one for one in held}
        for name, key in wanted.items():
            is_blocking = group_by_check(table)[name][0].is_blocking
            summed = self._sums.setdefault(key, _Sum(named[name].engine, is_blocking))
            summed.rows += held[0].rows_count
            summed.page = held[0].page
        failed = []
        for one in held:
            if one.is_held or check_name(one.check) not in wanted:
                continue
            summed = self._sums[wanted[check_name(one.check)]]
            summed.add(one)
            for run_id in self._find_failing_runs(table, one, asked):
                summed.runs.add(run_id)
                failed.append((run_id, one))
        return failed

    def _find_failing_runs(self, table: Table, one: CheckResult, asked: Sequence[str]) -> list[str]:
        """The runs that broke a promise: each is asked by itself, where there were several."""
        if len(asked) <= 1:
            return list(asked)
        return [
            run_id
            for run_id in asked
            if any(
                not again.is_held and again.check == one.check
                for again in check_tables(self._build_context.lake, table, [run_id], spark=self._spark)
            )
        ]


def _find_targets(
    records: dg.DagsterInstance, keys: Collection[dg.AssetKey]
) -> dict[dg.AssetKey, AssetCheckEvaluationTargetMaterializationData]:
    """What was told last of some assets, asked for all of them at once."""
    entries = [record.asset_entry for record in records.get_asset_records(sorted(keys))]
    return {
        entry.asset_key: AssetCheckEvaluationTargetMaterializationData(
            storage_id=told.storage_id, run_id=told.run_id, timestamp=told.timestamp
        )
        for entry in entries
        if (told := entry.last_materialization_record) is not None
    }


def _partitions(look: Look, table: Table) -> list[str]:
    """The runs that a table is of, also those of which it has no rows; a comparison has partitions of its own."""
    return look.snapshot(table if table in COMPARISON_TABLES else landed.TABLE).run_ids


def _fault(table: Table, one: CheckResult) -> ContractBroken:
    return ContractBroken(
        f"{table.full_name} breaks its word: {one.check.sentence}",
        f"see the check {check_name(one.check)} of that asset; nothing is made from those rows",
    )


def _keys(table: Table) -> dict[str, dg.AssetCheckKey]:
    return {name: dg.AssetCheckKey(asset_key(table.full_name), name) for name in group_by_check(table)}


def _to_json_sample(sample: dict[str, Any]) -> dict[str, Any]:
    """A sample that JSON can say."""
    return {
        name: str(value) if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in sample.items()
    }
