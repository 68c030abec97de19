"""A damaged lake as a person meets it: `status`, `show`, `verify`, `run` and the nightly maintenance."""

from __future__ import annotations

import random
import shutil
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING

import polars as pl
import pytest
from click.testing import CliRunner

from assets.build.catalogue import TABLES
from assets.build.context import BuildContext
from assets.build.state import assess_runs
from assets.build.tiers import TIERS, build_tier
from bronze.limits import Limits
from gold import published, step_overhead, step_times
from lake.engines import engine
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from pipelines.cli.main import main
from pipelines.cli.verification import pick_due, verify_lake
from silver import spans
from tests.support.build_runs import build_comparisons, build_runs
from tests.support.campaigns import pick_size
from tests.support.small_runs import OFF, TEE, trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from lake.tables import Table
    from tests.support.deployment import Deployment

RUNS = ["plain", "tee"]


def open_lake(root: Path) -> tuple[Lake, LandingZone]:
    """The lake there, and the landing zone that all of them share: a copy of it would be another one."""
    keyring = KeyringFile(root / "keyring.json", is_made_on_first_use=True)
    return Lake(Location.of(root / "lake"), keyring), LandingZone(Location.of(root / "landing"))


@pytest.fixture(scope="module")
def intact_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pair of runs, from landing to gold."""
    root = tmp_path_factory.mktemp("undisturbed")
    for run_id, step_us, manifest in (("plain", 100, OFF), ("tee", 130, f'{TEE}baseline = "plain"\n')):
        directory = root / "landing" / run_id
        directory.mkdir(parents=True)
        (directory / "rank0.json").write_bytes(trace(step_us))
        (directory / "run.toml").write_text(manifest)
    build_runs(*open_lake(root), RUNS)
    return root


def copy(intact_lake: Path, target: Path) -> Path:
    shutil.copytree(intact_lake, target, ignore=lambda *_: ["landing"])
    (target / "landing").symlink_to(intact_lake / "landing")
    return target


@pytest.fixture
def root(intact_lake: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    return copy(intact_lake, tmp_path / "copy")


def teetotal(root: Path, *words: str) -> Result:
    arguments = ["--lake", str(root / "lake"), "--landing", str(root / "landing"), *words]
    return CliRunner().invoke(main, arguments, catch_exceptions=False)


def data_files(lake: Lake, table: Table | None = None) -> list[Path]:
    tables = TABLES.values() if table is None else [table]
    found = [(lake.place.directory / each.path, lake.snapshot(each)) for each in tables]
    return [place / path for place, snapshot in found for run in snapshot.run_ids for path in snapshot.files(run)]


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def delete(path: Path) -> None:
    path.unlink()


def rebuild(root: Path, *, full: bool) -> None:
    """What `teetotal run` does, without the orchestrator."""
    lake, zone = open_lake(root)
    for tier in TIERS:
        made = build_tier(BuildContext(lake, zone, Limits()), tier, RUNS, partial(engine, "polars"), full=full)
        assert [one.fault for one in made if one.fault] == []
    build_comparisons(lake.rewriting() if full else lake)


def stale_runs(lake: Lake, zone: LandingZone) -> set[str]:
    return {run_id for run_id, state in assess_runs(lake, zone, RUNS).items() if state.stale is not None}


def rows(root: Path) -> dict[str, object]:
    lake, _ = open_lake(root)
    return {name: lake.scan(table).sort(table.row_key).collect().to_dicts() for name, table in TABLES.items()}


@pytest.mark.parametrize("damage", [truncate, delete])
def test_a_missing_or_truncated_file_is_noticed_without_reading_and_an_ordinary_run_rebuilds_it(
    root: Path, intact_lake: Path, damage: Callable[[Path], None]
) -> None:
    lake, zone = open_lake(root)
    (path, _) = data_files(lake, spans.TABLE)
    damage(path)
    assert stale_runs(lake, zone) == set(RUNS) - {"tee"}
    answer = teetotal(root, "status").stdout
    assert [line.split()[1] for line in answer.splitlines()[1:3]] == ["stale", "unchecked"]
    assert f"silver.spans, run plain: run_id=plain/rank=0/{path.name} " in answer
    assert "`teetotal run plain` builds it again" in answer
    shown = teetotal(root, "show", "silver.spans")
    assert (shown.exit_code, shown.stdout) == (1, "")
    (line,) = shown.stderr.splitlines()
    assert path.name in line
    assert "`teetotal run --full` builds it again" in line
    assert teetotal(root, "show", "silver.spans", "--run", "tee").exit_code == 0
    rebuild(root, full=False)
    assert stale_runs(lake, zone) == set()
    assert rows(root) == rows(intact_lake)


def test_verify_lists_what_is_damaged_and_says_what_to_type(root: Path) -> None:
    lake, _ = open_lake(root)
    assert teetotal(root, "verify").exit_code == 0
    plain, tee = data_files(lake, spans.TABLE)
    flip(plain, 8 * (plain.stat().st_size // 3))
    found = teetotal(root, "verify")
    assert found.exit_code == 1
    first, advice = found.stderr.splitlines()
    assert first.startswith(f"silver.spans, run plain: run_id=plain/rank=0/{plain.name} ")
    assert advice == "next: teetotal run --full plain"
    assert found.stdout.endswith(" 1 damaged\n")
    delete(tee)
    delete(data_files(lake, published.TABLE)[0])
    assert teetotal(root, "verify").stderr.splitlines()[-1] == "next: teetotal run --full plain tee"
    assert teetotal(root, "verify", "--run", "tee").stderr.splitlines() == [
        f"silver.spans, run tee: run_id=tee/rank=0/{tee.name} is missing",
        "next: teetotal run --full tee",
    ]
    assert teetotal(root, "verify", "--run", "plane").exit_code == 2


def test_verify_names_a_log_entry_that_cannot_be_read(root: Path) -> None:
    entry = root / "lake" / step_overhead.TABLE.path / "_delta_log" / f"{1:020}.json"
    entry.write_bytes(entry.read_bytes().replace(b'"', b"'", 3))
    found = teetotal(root, "verify")
    assert found.exit_code == 1
    assert f"gold.step_overhead: _delta_log/{entry.name} is not readable" in found.stderr
    assert "restore the log of gold.step_overhead" in found.stderr


def test_an_engine_that_gives_up_on_a_damaged_file_is_one_line_and_not_a_traceback(root: Path) -> None:
    lake, _ = open_lake(root)
    path = data_files(lake, spans.TABLE)[0]
    data = path.read_bytes()
    path.write_bytes(data[:-200] + bytes(192) + data[-8:])
    found = teetotal(root, "show", "silver.spans")
    assert found.exit_code == 1
    (line,) = found.stderr.splitlines()
    assert "`teetotal verify` finds damaged data files" in line
    assert teetotal(root, "status").exit_code == 0, "it reads no spans"


def test_every_partition_is_due_on_one_of_any_sixteen_days() -> None:
    for digit in "0123456789abcdef":
        due = [pick_due(date(2026, 11, 16) + timedelta(number))(digit * 64) for number in range(16)]
        assert due.count(True) == 1


def test_maintenance_fails_and_says_why_when_a_file_that_is_due_is_damaged(deployment: Deployment) -> None:
    deployment.land("a")
    lake = deployment.build_context.lake
    build_runs(lake, deployment.build_context.zone, ["a"])
    job = deployment.definitions.resolve_job_def("maintenance")
    path = data_files(lake, spans.TABLE)[0]
    flip(path, 8 * (path.stat().st_size // 3))
    everything = {"ops": {"tidy_tables": {"config": {"verify_all": True}}}}
    result = job.execute_in_process(instance=deployment.records, run_config=everything, raise_on_error=False)
    assert not result.success
    (failure,) = (event for event in result.all_node_events if event.is_step_failure)
    said = failure.step_failure_data.user_failure_data
    answer = "" if said is None else str(said.description)
    assert answer.startswith("1 damaged files: silver.spans, run a: ")
    assert answer.endswith("next: teetotal run --full a")


def test_maintenance_fails_where_rows_are_not_what_was_signed(deployment: Deployment) -> None:
    deployment.land("a")
    deployment.launch(["a"])
    lake = deployment.build_context.lake
    forger = Lake(lake.place, deployment.chosen.keyring)  # who has no key to sign with
    rows = forger.scan(step_times.TABLE, ["a"]).with_columns(pl.col("step_ns") // 2).collect().to_arrow()
    forger.replace(step_times.TABLE, "a", rows.cast(step_times.TABLE.arrow_schema), "0" * 64)
    job = deployment.definitions.resolve_job_def("maintenance")
    result = job.execute_in_process(instance=deployment.records, raise_on_error=False)
    assert not result.success
    (failure,) = (event for event in result.all_node_events if event.is_step_failure)
    said = failure.step_failure_data.user_failure_data
    assert said is not None
    assert "gold.step_times, run a: " in str(said.description)
    assert "signed" in str(said.description)


def test_flipped_bits_anywhere_are_found_and_a_full_rebuild_makes_every_table_what_it_was(
    intact_lake: Path, tmp_path: Path
) -> None:
    chance = random.Random(29)
    want = rows(intact_lake)
    for number in range(pick_size(1, 40)):
        root = copy(intact_lake, tmp_path / str(number))
        lake, _ = open_lake(root)
        damaged = chance.sample(data_files(lake), pick_size(12, 20))
        for place, path in enumerate(damaged):
            (truncate, delete)[place % 2](path) if place < 4 else flip(path, chance.randrange(8 * path.stat().st_size))
        found = {root / "lake" / TABLES[damage.table].path / damage.path for damage in verify_lake(lake).damages}
        assert found == set(damaged)
        rebuild(root, full=True)
        assert verify_lake(lake).damages == []
        assert rows(root) == want
        shutil.rmtree(root)
