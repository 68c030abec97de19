from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from lake.landed_files import LandedFile
from lake.locations import Location
from pipelines.cli import run as running
from pipelines.cli.main import main
from pipelines.cli.memory_advice import advise_memory, find_memory
from tests.support.small_runs import OFF, trace

if TYPE_CHECKING:
    from pathlib import Path


def make_file(name: str, size_bytes: int | None) -> LandedFile:
    return LandedFile(Location.of("landing"), "run", name, size_bytes, "")


def test_a_run_that_needs_more_than_half_of_the_memory_is_told_of() -> None:
    runs = {"small": [make_file("r0.json", 10**6)], "large": [make_file(f"r{n}.json.gz", 2 * 10**9) for n in range(4)]}
    answer = advise_memory(runs, 16 * 10**9)
    assert answer is not None
    assert "large may need 12.7 GB of memory (modelled), and this machine has 16.0 GB" in answer
    assert "--engine spark" in answer


def test_runs_that_fit_are_not_told_of() -> None:
    assert advise_memory({"small": [make_file("r0.json.gz", 10**8), make_file("broken", None)]}, 16 * 10**9) is None
    assert advise_memory({}, 0) is None


def test_the_memory_of_this_machine_is_known() -> None:
    assert find_memory() > 10**8


@pytest.mark.parametrize(("engine", "is_told"), [("polars", True), ("spark", False)])
def test_the_command_hints_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, is_told: bool
) -> None:
    (tmp_path / "landing" / "a").mkdir(parents=True)
    (tmp_path / "landing" / "a" / "rank0.json").write_bytes(trace(100))
    (tmp_path / "landing" / "a" / "run.toml").write_text(OFF)
    monkeypatch.setattr(running, "find_memory", lambda: 10**9)
    monkeypatch.setattr(running, "_launch", lambda *_, **__: None)  # what comes after the hint is not asked here
    places = ["--lake", str(tmp_path / "lake"), "--landing", str(tmp_path / "landing")]
    done = CliRunner().invoke(main, [*places, "run", "--engine", engine])
    assert ("hint: a may need" in done.stderr) is is_told
