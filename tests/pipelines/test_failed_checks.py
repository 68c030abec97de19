"""A failed check as a person meets it: `run`, `status` and `report` say so, each time, until rows or rules change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest
from click.testing import CliRunner

from bronze import source_files
from lake.store import Lake
from pipelines.cli.main import main
from pipelines.settings import settings
from tests.support.small_runs import OFF, trace
from tests.support.tampered_tables import change

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result


@pytest.mark.usefixtures("records_at_hand")
def test_a_failed_check_is_told_by_every_command_until_it_passes(tmp_path: Path) -> None:
    def teetotal(*words: str) -> Result:
        places = ["--lake", str(tmp_path / "lake"), "--landing", str(tmp_path / "landing")]
        return CliRunner().invoke(main, [*places, *words], catch_exceptions=False)

    directory = tmp_path / "landing" / "ill"
    directory.mkdir(parents=True)
    (directory / "rank0.json").write_bytes(trace(100))
    (directory / "run.toml").write_text(OFF)
    out = tmp_path / "report.html"
    assert teetotal("run", "--no-check").exit_code == 0
    answer = teetotal("status")
    assert (answer.exit_code, "ill: not checked since it was built" in answer.output) == (0, True)
    written = teetotal("report", "--out", str(out))
    assert (written.exit_code, "Not checked since they were built: ill." in written.stderr) == (0, True)

    chosen = settings(str(tmp_path / "lake"), environment={})
    lake = Lake(chosen.lake, chosen.keyring)
    change(lake, source_files.TABLE, "ill", lambda rows: pl.concat([rows, rows[:1]]))
    versions = lake.snapshot(source_files.TABLE).version
    first = teetotal("run")
    assert first.exit_code == 1
    assert "ill: failed: bronze.source_files breaks its word: no two rows have the same" in first.stderr
    for again in (teetotal("run"), teetotal("run", "--no-check")):
        assert again.exit_code == 1
        assert "ill: failed: check failed: bronze.source_files: no two rows have the same" in again.stderr
    assert lake.snapshot(source_files.TABLE).version == versions, "nothing was made again"
    answer = teetotal("status")
    assert answer.exit_code == 1
    assert "ill: check failed: bronze.source_files: no two rows have the same" in answer.output
    written = teetotal("report", "--out", str(out))
    assert written.exit_code == 1
    assert "do not rely on the numbers of ill: bronze.source_files: no two rows have the same" in written.stderr
    page = out.read_text("utf-8")
    assert page.index("do not rely on the numbers of ill") < page.index('id="main"'), "before any number"
