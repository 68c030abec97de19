"""`teetotal report`: the answers of the lake as one HTML file, written whole or not at all."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from assets.build import gold
from assets.build.run_comparison import compare_runs_of
from assets.build.state import assess_comparisons, find_failures
from assets.build.step_timelines import read_timeline
from bronze import source_files
from gold import pairs
from pipelines.cli.session import require_runs
from pipelines.cli.verification import audit_statements, format_damage
from pipelines.cli.whole_files import open_whole
from report.page import Page, page
from report.sections import find_example
from silver import nonce_budgets, rejects, rule_counts
from silver import runs as conformed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from lake.lineage.keys import Trust
    from lake.store import Lake
    from lake.tables import Table

    Row = dict[str, Any]

# What the page shows of tables below gold; no sealed column, and no file's name, is among it.
_COLUMNS: dict[Table, tuple[str, ...]] = {
    conformed.TABLE: (
        *("run_id", "model", "regime", "world_size", "found_world_size", "ranks_count", "recorded_at"),
        *("gpu", "driver_version", "cuda_version", "torch_version", "backend", "host_cpu"),
    ),
    nonce_budgets.TABLE: tuple(nonce_budgets.TABLE.column_names),
    rejects.TABLE: ("run_id", "level", "reason"),
    rule_counts.TABLE: ("run_id", "effect", "sentence", "events_count"),
    source_files.TABLE: ("run_id", "source_sha256", "format", "outcome", "is_counted", "size_bytes"),
}
_NAMED = 10
_WITH = ("teetotal", "dagster", "deltalake", "duckdb", "narwhals", "polars", "pyarrow", "vl-convert-python")


def build_page(lake: Lake, run_ids: Sequence[str] = (), trust: Trust | None = None) -> Page:
    """The page of some runs and their baselines, or of all; with keys to believe, what is not as signed comes first."""
    require_runs(lake, run_ids, [conformed.TABLE])
    known, wanted = lake.snapshot(conformed.TABLE).run_ids, None
    if run_ids:
        baselines = lake.scan(pairs.TABLE, run_ids).select("baseline_run_id").drop_nulls().collect().to_series()
        wanted = sorted({*run_ids, *baselines})
    tables, (failed, unchecked) = _tables(lake, wanted), _warnings(lake, known if wanted is None else wanted)
    if trust is not None:
        sentence, forged = _describe_signatures(lake, trust, wanted or ())
        tables["signatures"] = [{"sentence": sentence}]
        failed = (*forged, *failed)
    made_on = datetime.now(UTC).date().isoformat()
    return page(tables, read_versions(), failed, unchecked, _read_example(lake, tables), made_on)


def _describe_signatures(lake: Lake, trust: Trust, run_ids: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """By whom the tables are signed, in a sentence; and what of them is not what was signed, by their logs alone."""
    history, audit = audit_statements(lake, trust, run_ids)
    wrong = [*history.faults, *(format_damage(damage) for damage in audit.damages)]
    more = f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else ""
    forged = [f"Not what was signed, so do not rely on these numbers: {'; '.join(wrong[:_NAMED])}{more}."]
    signed, unsigned = len(audit.signed), len(audit.unsigned)
    keys = ", ".join(sorted({one.key_id for one in audit.signed.values()}))
    sentence = f"Unsigned: no statement speaks of its {unsigned} partitions."
    if signed:
        rest = f" {unsigned} partitions are unsigned." if unsigned else ""
        sentence = f"Signed by key {keys}: {signed} partitions.{rest} `teetotal verify` reads their files as well."
    return sentence, tuple(forged if wrong else ())


def _read_example(lake: Lake, tables: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """What the page shows of its first pair alone: one step of both runs, and what changed between them."""
    chosen = find_example(tables)
    if chosen is None:
        return {}
    run_id, baseline = chosen
    compared = compare_runs_of(lake, baseline, run_id)
    timeline = [row for name in (baseline, run_id) for row in read_timeline(lake, name)]
    return {"timeline": timeline, "kernels": compared.kernels, "collectives": compared.collectives}


def _warnings(lake: Lake, run_ids: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the lake knows of the checks of these runs and of what is measured across runs: failed, and not checked."""
    states = find_failures(lake, run_ids)
    failed = [(run_id, one) for run_id, state in states.items() for one in state.failed]
    failed += [(name, one) for (_, name), state in assess_comparisons(lake).items() for one in state.failed]
    unchecked = [run_id for run_id, state in states.items() if not state.is_checked and not state.failed]
    more = f" and {len(unchecked) - _NAMED} more" if len(unchecked) > _NAMED else ""
    return (
        tuple(f"A check failed, so do not rely on the numbers of {run_id}: {one}." for run_id, one in failed),
        (f"Not checked since they were built: {', '.join(unchecked[:_NAMED])}{more}.",) if unchecked else (),
    )


def write_page(out: Path, html: str) -> int:
    """Write a page, and give its size in bytes."""
    with open_whole(out, "the report") as file:
        file.write(html.encode())
    return out.stat().st_size


def _tables(lake: Lake, run_ids: Sequence[str] | None) -> dict[str, list[Row]]:
    """The rows that the page is made of, each table in the order of its key."""
    found = {table.full_name: _rows(lake, table, table.column_names, run_ids) for table in gold.TABLES}
    found |= {table.full_name: _rows(lake, table, columns, run_ids) for table, columns in _COLUMNS.items()}
    return found


def _rows(lake: Lake, table: Table, columns: Sequence[str], run_ids: Sequence[str] | None) -> list[Row]:
    sealed = {column.name for column in table.sealed}
    kept = [name for name in columns if name not in sealed]
    if table.partition_key != "run_id":  # a family of runs, or what others have published
        rows = lake.scan(table).sort(table.row_key).select(kept).collect().to_dicts()
        return [row for row in rows if run_ids is None or _find_run(row, run_ids[0]) in run_ids]
    return lake.scan(table, run_ids).sort(table.row_key).select(kept).collect().to_dicts()


def _find_run(row: Row, otherwise: str) -> str:
    """The run that a row across runs is of; what is of none is shown with any."""
    return str(next((row[name] for name in ("tee_run_id", "predicted_run_id", "run_id") if row.get(name)), otherwise))


def read_versions() -> dict[str, str]:
    """The versions of what made a page."""
    return {**{name: version(name) for name in _WITH}, "Python": platform.python_version()}
