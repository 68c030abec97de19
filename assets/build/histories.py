"""Workloads over time: which runs each history is made of, and the rows of those that are stale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assets.build.freshness import Look, explain_stale, fingerprint
from gold import history, step_overhead, step_times
from lake.errors import naming
from silver import attestations, runs

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assets.build.freshness import Snapshots
    from lake.snapshot import Written
    from lake.store import Lake
    from lake.tables import Table


@dataclass(frozen=True)
class StaleHistory:
    """A partition of `gold.history` that must be made, and why; without members where its last run is gone."""

    partition: str
    workload: str
    regime: str | None
    members: tuple[str, ...]
    made_from: str
    why: str


def build_histories(lake: Lake, *, full: bool = False) -> list[Written]:
    """Bring every history up to date; gives the partitions of those that were not."""
    return [make_history(lake, one) for one in stale_histories(lake, full=full)]


def stale_histories(lake: Snapshots, *, full: bool = False) -> list[StaleHistory]:
    """The workloads of which a run or its pair is new; all of them if `full`."""
    look = lake if isinstance(lake, Look) else Look(lake)
    found: dict[tuple[str, str | None], list[str]] = {}
    for run_id, run in sorted(look.measured_runs.items()):
        workload = history.describe_workload(run)
        if workload is not None:
            found.setdefault((workload, run["regime"]), []).append(run_id)
    stale, table = [], history.TABLE
    for (workload, regime), members in found.items():
        partition = history.partition(workload, regime)
        made_from = fingerprint(table, [[name, *look.list_marks(table, name)] for name in members])
        why = explain_stale(look, table, partition, made_from, "a run of its workload, or a pair of one, changed")
        if full or why is not None:
            why = why or f"{table.full_name} is to be made again"
            stale.append(StaleHistory(partition, workload, regime, tuple(members), made_from, why))
    known = {history.partition(*one) for one in found}
    for partition in sorted(set(look.snapshot(table).run_ids) - known):
        nothing = fingerprint(table, partition, "no workload")
        why = f"{table.full_name} is stale: the last run of a workload is gone"
        stale.append(StaleHistory(partition, "", None, (), nothing, why))
    return stale


def make_history(lake: Lake, stale: StaleHistory) -> Written:
    """The partition of one workload; empty where its last run is gone."""
    rows = history.TABLE.arrow_schema.empty_table()
    if stale.members:
        with naming(f"ordering {', '.join(stale.members)} by time"):
            rows = history.measure(stale.workload, stale.regime, _read_runs(lake, stale.members))
    return lake.replace(history.TABLE, stale.partition, rows, stale.made_from)


def _read_runs(lake: Lake, names: Sequence[str]) -> list[history.RecordedRun]:
    said, steps, overheads, tokens = (
        _read_rows(lake, table, names)
        for table in (runs.TABLE, step_times.TABLE, step_overhead.TABLE, attestations.TABLE)
    )
    return [
        history.RecordedRun(
            said[name][0],
            steps.get(name, []),
            next(iter(overheads.get(name, [])), None),
            ", ".join(sorted({row["vbios_version"] for row in tokens.get(name, []) if row["vbios_version"]})) or None,
        )
        for name in names
    ]


def _read_rows(lake: Lake, table: Table, names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in lake.scan(table, names).collect().iter_rows(named=True):
        found.setdefault(row["run_id"], []).append(row)
    return found
