"""A run is forgotten: nothing on the disk holds its rows or its name, and everything else is as it was."""

from __future__ import annotations

import itertools
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import dagster as dg
import polars as pl
import pytest
from click.testing import CliRunner

from assets.build.catalogue import TABLES
from assets.build.state import assess_comparisons, assess_gone
from assets.checks import outcomes
from assets.specs import asset_key
from lake.identity import MANIFEST
from pipelines.cli import forget as forgetting
from pipelines.cli.main import main
from pipelines.definitions import build_context
from pipelines.partitions import list_known
from tests.support.build_runs import build_runs
from tests.support.campaigns import is_soak, pick_size
from tests.support.small_runs import OFF, TEE, trace
from tests.support.web_interface import ROOT, House

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType

    from click.testing import Result

    from lake.store import Lake

RUNS = {"calm-off": (100, OFF), "unwanted-run-x": (140, TEE), "tee-kept": (120, f'{TEE}baseline = "calm-off"\n')}
DOOMED = "unwanted-run-x"


def teetotal(root: Path, *words: str) -> Result:
    return CliRunner().invoke(main, [*House(root).places, *words], catch_exceptions=False)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs from landing to gold; the records know launches of some of the tables, with their checks."""
    root = tmp_path_factory.mktemp("forget")
    for run_id, (step_us, manifest) in RUNS.items():
        directory = root / "landing" / run_id
        directory.mkdir(parents=True)
        (directory / "rank0.json").write_bytes(trace(step_us))
        (directory / MANIFEST).write_text(manifest)
    place = build_context(House(root).settings)
    build_runs(place.lake, place.zone, list(RUNS))
    assert teetotal(root, "run", "--to", "gold.scaling").exit_code == 0
    return root


def copy_place(source: Path, target: Path) -> Path:
    """The same lake, landing zone and records in another place, which may be spoiled."""
    shutil.copytree(source, target, dirs_exist_ok=True)
    for path in target.rglob("dagster.yaml"):
        path.write_text(path.read_text().replace(str(source), str(target)))
    return target


def test_what_is_measured_across_runs_is_no_run_to_forget(built: Path) -> None:
    across = set(House(built).lake.snapshot(outcomes.TABLE).run_ids) - RUNS.keys()
    assert across
    for name in across:
        done = teetotal(built, "forget", name, "--yes")
        assert done.exit_code == 2, done.output
        assert f"no run {name!r} in " in done.stderr
        assert across.isdisjoint(re.findall(r"[\w.-]+", done.stderr.partition("(")[2]))


@pytest.fixture
def root(built: Path, tmp_path: Path) -> Path:
    """A copy of them, which a test may spoil."""
    return copy_place(built, tmp_path)


@dataclass(frozen=True)
class Gone:
    """A place where one run was forgotten, and what the command said."""

    root: Path
    said: str


def forget(root: Path, run_id: str) -> Gone:
    done = teetotal(root, "forget", run_id, "--yes")
    assert done.exit_code == 0, done.output
    return Gone(root, done.output)


@pytest.fixture(scope="module")
def forgotten(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Gone:
    """A place where a run was forgotten that a baseline was named for; a checkpoint was kept, and its files aside."""
    root = copy_place(built, tmp_path_factory.mktemp("forgotten") / "place")
    (root.parent / "checkpoint.txt").write_text(teetotal(root, "anchor").output)
    shutil.copytree(root / "landing" / DOOMED, root.parent / "aside")
    assert teetotal(root, "baseline", "set", "main", DOOMED).exit_code == 0
    return forget(root, DOOMED)


@pytest.fixture(scope="module")
def unpaired(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Gone:
    """A place where the baseline of another run was forgotten."""
    return forget(copy_place(built, tmp_path_factory.mktemp("unpaired")), "calm-off")


def digests(lake: Lake, run_ids: tuple[str, ...] = ("calm-off", "tee-kept")) -> dict[tuple[str, str], str]:
    return {
        (name, run_id): lake.snapshot(table).content_sha256(run_id)
        for name, table in TABLES.items()
        for run_id in run_ids
    }


def list_naming(directory: Path, word: str) -> list[str]:
    """The files whose name, bytes or unpacked columns hold a word; compressed Parquet is read, not searched."""
    found = []
    for path in directory.rglob("*"):
        if not path.is_file():
            continue
        held = path.read_bytes()
        if path.suffix == ".parquet":
            held += str(pl.read_parquet(path, hive_partitioning=False).to_dicts()).encode()
        if word.encode() in held or word in str(path.relative_to(directory)):
            found.append(str(path.relative_to(directory)))
    return found


def test_no_file_of_the_lake_the_landing_zone_or_the_records_holds_a_forgotten_run(
    built: Path, forgotten: Gone
) -> None:
    house = House(forgotten.root)
    assert len(list_naming(built, DOOMED)) > len(TABLES)
    assert re.search(r"bronze\.trace_events: 6 rows removed, 1 data files \(\d", forgotten.said), forgotten.said
    assert "forgotten: 2 landed files" in forgotten.said
    assert list_naming(forgotten.root, DOOMED) == []
    assert digests(house.lake) == digests(House(built).lake)
    with house.records() as records:
        assert list_known(records) == ["calm-off", "tee-kept"]
        key = asset_key("silver.spans")
        assert set(records.get_materialized_partitions(key)) == {"calm-off", "tee-kept"}
        assert records.get_latest_materialization_event(key) is not None


def test_statements_say_that_a_forgotten_run_is_empty_and_the_rest_is_as_signed(forgotten: Gone) -> None:
    checkpoint = forgotten.root.parent / "checkpoint.txt"
    done = teetotal(forgotten.root, "verify", "--since", str(checkpoint), "--require-signed")
    assert done.exit_code == 0, done.output
    assert "0 damaged" in done.output


def test_a_baseline_that_stood_for_a_forgotten_run_is_no_longer_named(forgotten: Gone) -> None:
    assert "baselines: main" in forgotten.said
    assert DOOMED not in (forgotten.root / "baselines.json").read_text()


def test_a_forgotten_run_that_lands_again_is_new_and_gets_the_rows_that_it_had(
    built: Path, forgotten: Gone, tmp_path: Path
) -> None:
    root = copy_place(forgotten.root, tmp_path)
    shutil.copytree(forgotten.root.parent / "aside", root / "landing" / DOOMED)
    assert re.search(rf"{DOOMED} +new ", teetotal(root, "status").output)
    assert teetotal(root, "run", "--no-check").exit_code == 0
    assert digests(House(root).lake, (DOOMED,)) == digests(House(built).lake, (DOOMED,))


def test_pairs_and_comparisons_are_computed_without_the_forgotten_run(unpaired: Gone) -> None:
    house = House(unpaired.root)
    assert "tee-kept: its manifest still names calm-off (baseline)" in unpaired.said
    assert house.lake.scan(TABLES["gold.step_overhead"]).collect().is_empty()
    assert "calm-off" not in house.lake.scan(TABLES["gold.pairs"]).collect()["baseline_run_id"].to_list()
    assert assess_gone(house.lake, [DOOMED, "tee-kept"]) == {}
    assert {state.word for state in assess_comparisons(house.lake).values()} == {"up-to-date"}


def test_without_a_terminal_and_without_yes_nothing_is_removed(root: Path) -> None:
    before = digests(House(root).lake, tuple(RUNS))
    asked = teetotal(root, "forget", DOOMED)
    assert (asked.exit_code, asked.stderr.count("\n")) == (2, 1), asked.output
    assert f"{DOOMED}: 2 files in" in asked.output
    assert f"teetotal forget {DOOMED} --yes" in asked.stderr
    assert digests(House(root).lake, tuple(RUNS)) == before
    assert (root / "landing" / DOOMED / MANIFEST).is_file()


def test_an_unknown_run_is_refused_with_the_nearest_name(root: Path) -> None:
    asked = teetotal(root, "forget", "unwanted-run-y", "--yes")
    assert asked.exit_code == 2
    assert f"did you mean '{DOOMED}'?" in asked.stderr


_KILLED = """
import os, signal, sys
from pipelines.cli.main import main
from tests.pipelines.test_forget import doom
doom(setattr, int(sys.argv[1]), lambda: os.kill(os.getpid(), signal.SIGKILL))
sys.argv[1:] = sys.argv[2:]
main()
"""


class Stopped(BaseException):
    """Ends a command in this process where a kill would end it."""


def doom(put: Callable[[ModuleType, str, object], None], after: int, end: Callable[[], None]) -> None:
    """Have the command end after so many of its steps."""
    steps = itertools.count(1)

    def follow(function: Callable[..., object]) -> Callable[..., object]:
        def call(*words: object, **named: object) -> object:
            answer = function(*words, **named)
            if next(steps) == after:
                end()
            return answer

        return call

    for name in ("set_pending", "_remove_landed", "drop_runs", "compare_again", "purge_history"):
        put(forgetting, name, follow(getattr(forgetting, name)))


def kill(house: House, after: int) -> None:
    """Forget the run in a process that is killed after so many steps: its claim to the lake is never given back."""
    command = [sys.executable, "-c", _KILLED, str(after), *house.places, "forget", DOOMED, "--yes"]
    killed = subprocess.run(command, cwd=ROOT, env=house.environment, capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr


def stop(house: House, after: int) -> None:
    """Forget the run in this process, which ends with an error after so many steps; tables at work are finished."""

    def end() -> None:
        raise Stopped

    with pytest.MonkeyPatch.context() as patch:
        doom(patch.setattr, after, end)
        with pytest.raises(Stopped):
            forgetting.forget_runs(house.settings, [DOOMED], lambda _: None)


def test_a_forget_that_is_killed_is_named_by_status_and_finished_when_it_is_repeated(root: Path) -> None:
    house = House(root)
    before = digests(house.lake)
    tables = sum(1 for _ in (root / "lake").glob("*/*/_delta_log"))
    # After the landing zone, between tables, between purges; in the soak also after the note and around the pairs, and
    # every time by a kill.
    for after in (2, 9, 9 + tables, 1, 2 + tables, 3 + tables)[: pick_size(3, 6)]:
        if after == 9 or is_soak():
            kill(house, after)
        else:
            stop(house, after)
        assert f"`teetotal forget {DOOMED} --yes` finishes" in teetotal(root, "status").output
    done = teetotal(root, "forget", DOOMED, "--yes")
    assert done.exit_code == 0, done.output
    assert list_naming(root, DOOMED) == []
    assert digests(house.lake) == before


def test_a_launch_of_several_runs_keeps_what_it_says_of_the_others(built: Path, unpaired: Gone) -> None:
    with House(built).records() as records:
        launches = len(records.get_runs())
    with House(unpaired.root).records() as records:
        runs = records.get_runs()
        # The launches of all three stay, and one for pairs and one for comparisons are new.
        assert len(runs) >= launches
        tags = {value for run in runs for value in run.tags.values()}
        assert "calm-off" not in tags
        assert records.get_latest_data_version_record(asset_key("silver.spans"), False, "tee-kept") is not None
    for path in (unpaired.root / ".dagster").rglob("*.db"):
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert dg.DagsterRunStatus.FAILURE not in {run.status for run in runs}
