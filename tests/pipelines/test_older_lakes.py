"""A lake that the version before wrote: a launch builds what changed its columns, and names what nobody reads."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest
from click.testing import CliRunner

from gold import kernel_breakdown, overhead_breakdown, scaling
from lake.store import Lake
from lake.tables import RUN_ID, Scope, Table
from pipelines.cli.main import main
from pipelines.settings import settings
from tests.support.small_runs import OFF, TEE, trace

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

# As they were: another name, another column, another partition.
OLD = (
    replace(overhead_breakdown.TABLE, name="toll_breakdown"),
    replace(kernel_breakdown.TABLE, columns=kernel_breakdown.TABLE.columns[:-1]),
    replace(scaling.TABLE, columns=(RUN_ID, *scaling.TABLE.columns[1:]), partition_by=("run_id",), scope=Scope.RUN),
)


def rewrite(lake: Lake, table: Table, rows: pl.DataFrame) -> None:
    """Store a table as the version before declared it."""
    for path in sorted(lake.root(table).directory.rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    for (name,), part in rows.group_by(table.partition_key):
        lake.replace(table, str(name), part, "0" * 64)


@pytest.mark.usefixtures("records_at_hand")
def test_a_lake_of_the_version_before_is_built_again_and_what_is_left_over_is_named(tmp_path: Path) -> None:
    def teetotal(*words: str) -> Result:
        places = ["--lake", str(tmp_path / "lake"), "--landing", str(tmp_path / "landing")]
        return CliRunner().invoke(main, [*places, *words], catch_exceptions=False)

    for run_id, manifest, step_us in (("off", OFF, 100), ("tee", TEE, 120)):
        directory = tmp_path / "landing" / run_id
        directory.mkdir(parents=True)
        (directory / "rank0.json").write_bytes(trace(step_us))
        (directory / "run.toml").write_text(manifest)
    assert teetotal("run", "--no-check").exit_code == 0
    chosen = settings(str(tmp_path / "lake"), environment={})
    lake = Lake(chosen.lake, chosen.keyring)
    tables = (overhead_breakdown.TABLE, kernel_breakdown.TABLE, scaling.TABLE)
    before = [lake.scan(table).sort(table.row_key).collect() for table in tables]
    assert all(rows.height for rows in before)
    for old, table, rows in zip(OLD, tables, before, strict=True):
        renamed = rows.rename({"family_id": "run_id"}) if table is scaling.TABLE else rows
        rewrite(lake, old, renamed.select(old.column_names))

    left_over = f"gold.toll_breakdown is left over from another version and nothing reads it: delete {lake.place}"
    answer = teetotal("status")
    assert answer.exit_code == 0
    assert left_over in answer.output
    assert (
        "off: stale: gold.kernel_breakdown was written by another version, with other columns: reason" in answer.output
    )
    assert "tee: stale: gold.kernel_breakdown was written" in answer.output
    refused = teetotal("show", "gold.scaling")
    assert refused.exit_code == 1
    assert "`teetotal run` builds it again" in refused.stderr

    again = teetotal("run", "--no-check")
    assert again.exit_code == 0, again.output
    assert left_over in again.stderr
    after = [lake.scan(table).sort(table.row_key).collect() for table in tables]
    assert all(one.equals(two) for one, two in zip(before, after, strict=True))
    assert "up to date, nothing to do" in teetotal("run", "--no-check").output
