"""How often a launch looks at the landing zone: to decide, when a run's files are to be read, and when they were."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from lake.landing_zone import LandingMarks, LandingZone
from pipelines.cli.main import main
from tests.support.small_runs import OFF, trace

if TYPE_CHECKING:
    from pathlib import Path

    from lake.landed_files import LandedFile
    from tests.support.deployment import Deployment


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each run's directory was listed, and under `run_ids` the whole zone."""
    counted: Counter[str] = Counter()
    files, marks, run_ids = LandingZone.files, LandingZone.list_marks, LandingZone.run_ids

    def list_files(self: LandingZone, run_id: str) -> list[LandedFile]:
        counted[run_id] += 1
        return files(self, run_id)

    def list_marks(self: LandingZone, run_id: str) -> LandingMarks:
        counted[run_id] += 1
        return marks(self, run_id)

    def list_runs(self: LandingZone) -> tuple[list[str], list[str]]:
        counted["run_ids"] += 1
        return run_ids(self)

    monkeypatch.setattr(LandingZone, "files", list_files)
    monkeypatch.setattr(LandingZone, "list_marks", list_marks)
    monkeypatch.setattr(LandingZone, "run_ids", list_runs)
    return counted


def test_a_launch_lists_a_run_to_decide_and_before_and_after_it_is_read(
    deployment: Deployment, looks: Counter[str]
) -> None:
    for run_id in ("a", "b"):
        deployment.land(run_id)
    assert deployment.launch(["a", "b"]).success
    assert looks == {"a": 3, "b": 3, "run_ids": 1}
    looks.clear()
    assert deployment.launch(["a", "b"]).success
    assert looks == {"a": 1, "b": 1, "run_ids": 1}, "nothing was read"


@pytest.mark.usefixtures("records_at_hand")
def test_a_command_lists_once_to_choose_what_to_launch(tmp_path: Path, looks: Counter[str]) -> None:
    for run_id in ("a", "b"):
        directory = tmp_path / "landing" / run_id
        directory.mkdir(parents=True)
        (directory / "rank0.json").write_bytes(trace(100))
        (directory / "run.toml").write_text(OFF)
    places = ["--lake", str(tmp_path / "lake"), "--landing", str(tmp_path / "landing")]
    assert CliRunner().invoke(main, [*places, "run", "--no-check"]).exit_code == 0
    assert looks == {"a": 4, "b": 4, "run_ids": 2}
    looks.clear()
    assert CliRunner().invoke(main, [*places, "run", "--no-check"]).exit_code == 0
    assert looks == {"a": 1, "b": 1, "run_ids": 1}, "up to date: nothing is launched"
