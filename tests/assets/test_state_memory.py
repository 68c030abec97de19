"""A look that goes on from what was remembered gives the states of one that asks of every run and table."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assets.build import freshness, state
from assets.build.context import BuildContext
from assets.build.freshness import Look
from assets.build.state import assess_runs
from assets.build.state_memory import find_settled, recall
from assets.build.tiers import build_tier
from assets.checks.outcomes import (
    AssetCheck,
    Outcome,
    Verdict,
    asset_checks,
    fingerprint,
    make_passed,
    read_verdicts,
    record_outcomes,
)
from bronze.limits import Limits
from gold import step_times
from lake.attestation_keys import NO_KEYS, load_keys
from lake.engines import engine
from lake.identity import OPEN
from pipelines.cli import status
from pipelines.cli.status import collect_status
from silver import spans
from tests.conftest import LandFiles
from tests.support import good_tokens
from tests.support.build_runs import RUN_TABLES, build_runs, make_own_tables, record_passed
from tests.support.small_runs import OFF, TEE, trace
from tests.support.tokens import Signer

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake.attestation_keys import AttestationKeys
    from lake.landing_zone import LandingZone
    from lake.store import Lake

RUNS = ["alone", "off", "tee"]


@pytest.fixture(scope="module")
def finished_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three runs, two of them a pair, from landing to gold and checked."""
    directory = tmp_path_factory.mktemp("built")
    made = LandFiles.open(directory)
    for run_id, step_us, said in (("alone", 90, 'regime = "cc_off"\n'), ("off", 100, OFF), ("tee", 120, TEE)):
        made.write({"rank0.json": trace(step_us)}, run_id, said)
    build_runs(made.lake, made.zone, RUNS)
    record_passed(made.lake, RUNS)
    return directory


@pytest.fixture
def runs(finished_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LandFiles:
    """The same runs, which one may change, and a memory of that they are up to date and checked."""
    monkeypatch.setattr(state, "MANY_RUNS", 1)
    monkeypatch.setattr(status, "MANY_RUNS", 1)
    copied = shutil.copytree(finished_folder, tmp_path / "copied")
    land = LandFiles.open(copied)
    lake, zone = land.lake, land.zone
    made = build_tier(BuildContext(lake, zone, Limits()), "bronze", RUNS, partial(engine, "polars"))  # files are new
    assert [one.fault for one in made if one.fault] == []
    assert {one.word for one in assess_runs(lake, zone, RUNS).values()} == {"up-to-date"}
    assert list_settled(lake, zone) == set(RUNS)
    return land


def list_settled(lake: Lake, zone: LandingZone, keys: AttestationKeys = NO_KEYS) -> set[str]:
    look = Look(lake, zone, keys)
    return find_settled(recall(look), look, zone.run_ids()[0])


def assess_both_ways(
    lake: Lake, zone: LandingZone, monkeypatch: pytest.MonkeyPatch, keys: AttestationKeys = NO_KEYS
) -> dict[str, state.State]:
    """The states of all runs, from memory and without one."""
    run_ids = zone.run_ids()[0]
    from_memory = assess_runs(lake, zone, run_ids, keys=keys)
    with monkeypatch.context() as patch:
        patch.setattr(state, "MANY_RUNS", 10_000)
        assert from_memory == assess_runs(lake, zone, run_ids, keys=keys)
    return from_memory


def change_a_file(land: LandFiles) -> None:
    land.write({"rank0.json": trace(60)}, "off", OFF)


def add_a_file(land: LandFiles) -> None:
    (land.zone.place.directory / "off" / "rank1.json").write_bytes(trace(61))


def change_the_manifest(land: LandFiles) -> None:
    (land.zone.place.directory / "off" / "run.toml").write_text(OFF + "# another\n")


def open_a_run(land: LandFiles) -> None:
    (land.zone.place.directory / "off" / OPEN).touch()


def rebuild_the_baseline(land: LandFiles) -> None:
    """Its own tables alone: the pair of the other run is stale by that."""
    change_a_file(land)
    make_own_tables(land.lake, land.zone, ["off"])
    record_passed(land.lake, ["off"])


def lose_a_data_file(land: LandFiles) -> None:
    snapshot = land.lake.snapshot(spans.TABLE)
    (land.lake.root(spans.TABLE).directory / snapshot.files("off")[0]).unlink()


def cut_a_data_file(land: LandFiles) -> None:
    snapshot = land.lake.snapshot(step_times.TABLE)
    path = land.lake.root(step_times.TABLE).directory / snapshot.files("off")[0]
    path.write_bytes(path.read_bytes()[:-1])


def fail_a_check(land: LandFiles) -> None:
    check = next(one for one in asset_checks(RUN_TABLES) if one.is_blocking)
    passed = make_passed(check, fingerprint(Look(land.lake), check, "off"))
    failed = Outcome(passed.table_name, passed.check_name, passed.checked_sha256, is_blocking=True, failure="broken")
    record_outcomes(land.lake, "off", [failed])


def change_nothing(_: LandFiles) -> None:
    pass


CHANGES: dict[str, tuple[Callable[[LandFiles], None], set[str], dict[str, str]]] = {
    "nothing": (change_nothing, set(RUNS), {}),
    "a file": (change_a_file, {"alone", "tee"}, {"off": "stale"}),
    "a new file": (add_a_file, {"alone", "tee"}, {"off": "stale"}),
    "the manifest": (change_the_manifest, {"alone", "tee"}, {"off": "stale"}),
    "a run that is open": (open_a_run, {"alone", "tee"}, {"off": "stale"}),
    "a baseline": (rebuild_the_baseline, {"alone", "off", "tee"}, {"tee": "stale"}),
    "a lost data file": (lose_a_data_file, {"alone", "tee"}, {"off": "stale"}),
    "a cut data file": (cut_a_data_file, {"alone", "tee"}, {"off": "stale", "tee": "stale"}),
    "a failed check": (fail_a_check, {"alone", "tee"}, {"off": "failed"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_after_the_last_look_is_seen_and_what_does_not_is_not_asked_again(
    runs: LandFiles, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    change, left, expected = CHANGES[what]
    change(runs)
    words = dict.fromkeys(RUNS, "up-to-date") | expected
    assert {name: one.word for name, one in assess_both_ways(runs.lake, runs.zone, monkeypatch).items()} == words
    assert list_settled(runs.lake, runs.zone) == left
    # And again, from what this look has remembered.
    assert {name: one.word for name, one in assess_both_ways(runs.lake, runs.zone, monkeypatch).items()} == words


def test_other_code_makes_every_run_stale(runs: LandFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freshness, "MEASURES_VERSION", freshness.MEASURES_VERSION + 1)
    assert list_settled(runs.lake, runs.zone) == set()
    assert {one.word for one in assess_both_ways(runs.lake, runs.zone, monkeypatch).values()} == {"stale"}


def test_a_new_run_is_asked_of_alone(runs: LandFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.write({"rank0.json": trace(80)}, "new", 'regime = "cc_off"\n')
    asked: list[list[str]] = []

    def read_some(lake: Lake, look: Look, run_ids: list[str], checks: list[AssetCheck]) -> dict[str, Verdict]:
        asked.append(run_ids)
        return read_verdicts(lake, look, run_ids, checks)

    monkeypatch.setattr(state, "read_verdicts", read_some)
    assert assess_runs(runs.lake, runs.zone, [*RUNS, "new"])["new"].word == "stale"
    assert asked == [["new"]]


def test_of_a_part_of_the_tables_nothing_is_remembered(runs: LandFiles) -> None:
    change_a_file(runs)
    build_runs(runs.lake, runs.zone, ["off"])
    some = [table for table in RUN_TABLES if table.tier == "bronze"]
    record_passed(runs.lake, ["off"], some)
    names, memory = [table.full_name for table in some], recall(Look(runs.lake))
    found = assess_runs(runs.lake, runs.zone, RUNS, names=names, pair_tables=(), memory=memory)
    assert found["off"].word == "up-to-date"
    assert list_settled(runs.lake, runs.zone) == {"alone"}


def test_a_run_that_is_open_is_never_settled(runs: LandFiles) -> None:
    """What is to be said of it, such as how far it has come, is said anew at each look."""
    open_a_run(runs)
    build_runs(runs.lake, runs.zone, ["off"])
    record_passed(runs.lake, RUNS)
    assert {one.word for one in assess_runs(runs.lake, runs.zone, RUNS).values()} == {"up-to-date"}
    assert list_settled(runs.lake, runs.zone) == {"alone", "tee"}


def test_runs_that_share_a_token_are_looked_at_again(
    runs: LandFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is said of them depends on who else holds it, whom no commit to their own tables names."""
    signer = Signer()
    (tmp_path / "keys.pem").write_bytes(signer.pem)
    keys, token = load_keys(tmp_path / "keys.pem"), {"token.json": good_tokens.bundle(signer)}
    runs.write(token, "off", OFF)
    build_runs(runs.lake, runs.zone, RUNS, keys=keys)
    record_passed(runs.lake, RUNS)
    assert {one.word for one in assess_runs(runs.lake, runs.zone, RUNS, keys=keys).values()} == {"up-to-date"}
    assert list_settled(runs.lake, runs.zone, keys) == set(RUNS)
    runs.write({"rank0.json": trace(70), **token}, "second", 'regime = "cc_off"\n')
    make_own_tables(runs.lake, runs.zone, ["second"], keys)
    record_passed(runs.lake, ["second"])
    assert list_settled(runs.lake, runs.zone, keys) == {"alone", "tee"}
    words = {name: one.word for name, one in assess_both_ways(runs.lake, runs.zone, monkeypatch, keys).items()}
    assert words == {"alone": "up-to-date", "off": "stale", "second": "up-to-date", "tee": "up-to-date"}


def test_status_says_the_same_from_memory_but_for_notes_of_runs_that_are_up_to_date(
    runs: LandFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = collect_status(runs.lake, runs.zone)
    again = collect_status(runs.lake, runs.zone)
    named = collect_status(runs.lake, runs.zone, run_ids=["tee"])
    everything = collect_status(runs.lake, runs.zone, all_notes=True)
    assert (again.lines, everything.lines) == (first.lines, first.lines)
    assert everything.notes == first.notes
    of_runs = [note for note in first.notes if note.partition(":")[0] in RUNS]
    assert [note for note in again.notes if note.partition(":")[0] in RUNS] == []
    assert any(f"have {len(of_runs):,} notes" in note for note in again.notes)
    assert named.lines == [line for line in first.lines if line["run"] == "tee"]
    assert named.notes == [note for note in of_runs if note.startswith("tee:")]
    with monkeypatch.context() as patch:
        patch.setattr(state, "MANY_RUNS", 10_000)
        patch.setattr(status, "MANY_RUNS", 10_000)
        assert collect_status(runs.lake, runs.zone) == first


def test_what_is_remembered_holds_numbers_and_names_that_the_lake_shows_anyway(runs: LandFiles) -> None:
    """Notes may quote what a source wrote, which may be sealed in the lake: only their number is kept."""
    (runs.zone.place.directory / "off" / "very secret name.json").write_text("no trace")
    build_runs(runs.lake, runs.zone, ["off"])
    record_passed(runs.lake, RUNS)
    found = collect_status(runs.lake, runs.zone)
    assert any("very secret name" in note for note in found.notes)
    assert list_settled(runs.lake, runs.zone) == set(RUNS)
    kept = (runs.lake.place.directory / "_staging" / "settled_runs.parquet").read_bytes()
    assert b"very secret name" not in kept
    assert json.dumps("alone").encode() in kept
