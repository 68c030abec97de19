"""What a collector leaves, taken on by the pipeline: sealed up to gold, and left open where its process was killed."""

from __future__ import annotations

import logging
import signal
from functools import partial
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from assets.build import bronze, landing_memory
from assets.build.catalogue import TABLES
from bronze import runs
from bronze.limits import Limits
from lake.identity import OPEN
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.sealed_files import MAGIC, find_recipient
from lake.store import Lake
from pipelines.cli.main import main
from tests.support.planted_texts import finds
from tests.support.torch_forks import Job

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import LandFiles
    from tests.support.torch_forks import TorchForks

ANNOTATION, OWNER, MODULE = "planted-annotation-merger", "planted-owner-erika", "PlantedModuleErika"
SCRIPT = f"""
import torch

class {MODULE}(torch.nn.Linear):
    pass

model = {MODULE}(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number in range(6):
    with torch.profiler.record_function("{ANNOTATION}"):
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
"""


def test_what_a_collector_sealed_is_in_the_clear_nowhere_up_to_gold(
    torch_forks: TorchForks, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, script = tmp_path / "home", tmp_path / "train.py"
    (home / "tmp").mkdir(parents=True)
    script.write_text(SCRIPT, "utf-8")
    keyring = KeyringFile(home / "data/keyring.json", is_made_on_first_use=True)
    (home / "lake.pem").write_text(find_recipient(keyring()).to_pem(), "utf-8")
    words = ["run", "--landing", str(home / "data/landing"), "--run-id", "job-1", "--set", f"owner={OWNER}"]
    words += ["--set", "regime=cc_off", "--seal-for", str(home / "lake.pem"), "--warmup", "1", "--bare", "1"]
    job = Job(
        "collector.__main__", [*words, "--steps", "2", str(script)], str(home / "said"), {"TMPDIR": str(home / "tmp")}
    )
    assert torch_forks.run([job]) == [0], (home / "said").read_text("utf-8")
    landed = [path.read_bytes() for path in (home / "data/landing/job-1").iterdir()]
    assert len(landed) == 3
    assert all(data.startswith(MAGIC) for data in landed)
    looks: list[list[str]] = []
    commit = Lake.commit

    def look_and_commit(self: Lake, *given: object, **named: object) -> object:
        looks.append(finds(home, ANNOTATION, OWNER, MODULE, is_written_to=True))
        return commit(self, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(Lake, "commit", look_and_commit)
    for name in ("TEETOTAL_KEYRING", "TEETOTAL_KEYRING_SECRET", "DAGSTER_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name in ("TEETOTAL_SEAL_BRONZE", "TEETOTAL_ACCEPT_ONLY_SEALED"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setenv("TMPDIR", str(home / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    log = logging.FileHandler(home / "debug.log")
    logging.getLogger().addHandler(log)
    places = ["--lake", str(home / "data/lake"), "--landing", str(home / "data/landing")]
    ask = partial(CliRunner().invoke, main, catch_exceptions=False)
    done = ask([*places, "run", "--no-check", "--to", "gold.step_times"])
    logging.getLogger().removeHandler(log)
    log.close()
    assert done.exit_code == 0, done.output
    (home / "said.txt").write_text(done.output, "utf-8")
    assert len(looks) > len(bronze.TABLES)
    assert [found for found in looks if found] == []
    assert finds(home, ANNOTATION, OWNER, MODULE) == []
    assert (home / "data/.dagster").is_dir(), "Dagster's records are looked at as well"
    lake = Lake(Location.of(home / "data/lake"), keyring)
    assert lake.scan(TABLES["gold.step_times"], ["job-1"]).collect().height
    shown = ask([*places, "show", "silver.spans", "--reveal", "--format", "csv", "--limit", "0"]).stdout
    assert ANNOTATION in shown, "it is there, for who holds the key"


def test_a_run_whose_collector_is_killed_stays_open_and_is_read_and_closed_by_hand(
    torch_forks: TorchForks, tmp_path: Path, land_files: LandFiles
) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    job = Job("tests.support.training_loops", [str(landing), "live kill"], str(tmp_path / "said"))
    assert torch_forks.run([job]) == [-signal.SIGKILL]
    names = {OPEN, "run.toml", "run-1-c0-r0.json.gz", "steps-r0.csv"}
    assert {path.name for path in (landing / "run-1").iterdir()} == names
    zone = LandingZone(Location.of(landing))
    assert zone.run_ids()[0] == ["run-1"]
    bronze.materialise(land_files.lake, zone, "run-1", Limits())
    (row,) = land_files.lake.scan(runs.TABLE).collect().to_dicts()
    assert (row["is_open"], row["cycles_count"], row["files_count"]) == (True, 1, 2)
    assert landing_memory.list_held_back(land_files.lake.read_landing_note("run-1")) == []
    places = ["--lake", str(land_files.lake.place), "--landing", str(landing)]
    assert CliRunner().invoke(main, [*places, "close", "run-1"]).exit_code == 0
    bronze.materialise(land_files.lake, zone, "run-1", Limits())
    (row,) = land_files.lake.scan(runs.TABLE).collect().to_dicts()
    assert (row["is_open"], row["cycles_count"], row["files_count"]) == (False, 1, 2)
