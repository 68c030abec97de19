from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from assets.build import comparisons, gold, silver
from assets.build.catalogue import TABLES, list_required
from assets.build.tiers import select_tables
from gold import overhead_breakdown, pairs, scaling, step_overhead, time_breakdown
from lake.engines import engine
from lake.forgetting import drop_runs
from lake.keyring import KeyringFile
from lake.landing_zone import LandingZone
from lake.locations import Location
from lake.store import Lake
from lake.tables import Scope
from pipelines.cli.demo import land_samples
from pipelines.settings import settings
from tests.conftest import LandFiles
from tests.support.build_runs import build_comparisons, build_runs
from tests.support.campaigns import is_soak
from tests.support.small_runs import OFF as CLAIMED_OFF
from tests.support.small_runs import TEE as CLAIMED_TEE
from tests.support.small_runs import trace
from tests.support.up_to_date import find_made

if TYPE_CHECKING:
    from pathlib import Path

    from lake.snapshot import Written

POLARS = engine("polars")
# Runs of one machine, which lend each other their noise.
OFF, TEE = (f'{claims}gpu = "H100"\n' for claims in (CLAIMED_OFF, CLAIMED_TEE))


# What pairs, and what compares them, are made from.
COMPARED = select_tables(
    list_required(table.full_name for table in (*gold.PAIR_TABLES, *comparisons.COMPARISON_TABLES))
)


def land_run(land_files: LandFiles, run_id: str, step_us: int, manifest: str, ranks: int = 2) -> None:
    """A run, from its file to those of its own gold tables that are compared."""
    land_files({"rank0.json": trace(step_us, ranks)}, run_id, manifest)
    silver.materialise(land_files.lake, run_id, POLARS, COMPARED["silver"])
    gold.materialise(land_files.lake, run_id, POLARS, COMPARED["gold"])


@pytest.fixture(scope="module")
def compared_pair(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without a TEE, one with it, and all that compares them; to be copied."""
    land_files = LandFiles.open(tmp_path_factory.mktemp("compared"))
    land_run(land_files, "off", 100, OFF)
    land_run(land_files, "tee", 120, TEE)
    build_comparisons(land_files.lake)
    return land_files.lake.place.directory.parent


@pytest.fixture
def pair_copy(compared_pair: Path, tmp_path: Path) -> LandFiles:
    """A copy of it, to be changed."""
    return LandFiles.open(shutil.copytree(compared_pair, tmp_path / "compared"))


def list_changed(written: list[Written]) -> set[tuple[str, str]]:
    return {(each.table, each.run_id) for each in written if each.is_changed}


def test_a_baseline_that_lands_later_completes_the_pair_and_touches_no_other(lake: Lake, land_files: LandFiles) -> None:
    land_run(land_files, "tee", 120, TEE)
    land_run(land_files, "other", 300, TEE.replace('"m"', '"n"'))
    build_comparisons(lake)
    assert lake.scan(pairs.TABLE).select("run_id", "baseline_run_id").sort("run_id").collect().rows() == [
        ("other", None),
        ("tee", None),
    ]
    land_run(land_files, "off", 100, OFF)
    written = list_changed(build_comparisons(lake))
    pair_tables = {table.full_name for table in gold.PAIR_TABLES}
    assert {run_id for name, run_id in written if name in pair_tables} == {"tee", "other"}
    assert ("gold.step_overhead", "tee") in written
    assert ("gold.step_overhead", "other") not in written, "only the reason why it has no baseline is another"
    row = lake.scan(step_overhead.TABLE).collect().to_dicts()[0]
    assert (row["run_id"], row["baseline_run_id"], row["slowdown_ratio"]) == ("tee", "off", pytest.approx(1.2))


def test_what_is_fresh_is_not_written_again(pair_copy: LandFiles) -> None:
    lake = pair_copy.lake
    assert find_made(lake, ["off", "tee"], COMPARED["gold"]) == {"off", "tee"}
    versions = {table.full_name: lake.snapshot(table).version for table in gold.TABLES}
    assert list_changed(build_comparisons(lake)) == set()
    gold.materialise(lake, "tee", POLARS, COMPARED["gold"])
    assert {table.full_name: lake.snapshot(table).version for table in gold.TABLES} == versions


def test_a_baseline_recorded_again_changes_the_answer(pair_copy: LandFiles) -> None:
    land_files, lake = pair_copy, pair_copy.lake
    land_run(land_files, "off", 60, OFF)
    assert ("gold.overhead_breakdown", "tee") in list_changed(build_comparisons(lake))
    assert lake.scan(step_overhead.TABLE).select("slowdown_ratio").collect().item() == pytest.approx(2.0)


def test_a_pair_made_between_two_parts_of_a_run_is_stale_once_the_run_is_whole(
    pair_copy: LandFiles,
) -> None:
    land_files, lake = pair_copy, pair_copy.lake
    land_files({"rank0.json": trace(150, 2)}, "tee", TEE)
    silver.materialise(lake, "tee", POLARS, select_tables(list_required(["silver.spans"]))["silver"])
    gold.materialise(lake, "tee", POLARS, [time_breakdown.TABLE])
    build_comparisons(lake)  # with the new steps, beside the old rows of all else
    between = lake.snapshot(pairs.TABLE).mark("tee"), lake.snapshot(scaling.TABLE).version
    silver.materialise(lake, "tee", POLARS, COMPARED["silver"])
    gold.materialise(lake, "tee", POLARS, COMPARED["gold"])
    build_comparisons(lake)
    whole = lake.snapshot(pairs.TABLE).mark("tee"), lake.snapshot(scaling.TABLE).version
    assert whole[0] != between[0]
    assert whole[1] != between[1]


def land_repeats(land_files: LandFiles, name: str, manifest: str, *step_us: int) -> None:
    """Repeats of a run that has landed, after those that it has."""
    held = sum(path.name.startswith(f"{name}-") for path in land_files.zone.place.directory.iterdir())
    for at, length in enumerate(step_us, 2 + held):
        land_run(land_files, f"{name}-{at}", length, f'{manifest}repeat_of = "{name}"\n')


@pytest.fixture(scope="module")
def repeated_pair(compared_pair: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pair with two repeats of its baseline and one of its own, compared; to be copied."""
    home = shutil.copytree(compared_pair, tmp_path_factory.mktemp("repeats") / "repeated")
    land_files = LandFiles.open(home)
    land_repeats(land_files, "off", OFF, 102, 98)
    land_repeats(land_files, "tee", TEE, 121)
    build_comparisons(land_files.lake)
    return home


@pytest.fixture
def repeats_copy(repeated_pair: Path, tmp_path: Path) -> LandFiles:
    """A copy of it, to be changed."""
    return LandFiles.open(shutil.copytree(repeated_pair, tmp_path / "repeated"))


def test_repeats_of_either_side_make_the_pair_stale_and_three_per_side_conclude(repeats_copy: LandFiles) -> None:
    lake = repeats_copy.lake
    row = lake.scan(step_overhead.TABLE).collect().to_dicts()[0]
    assert (row["runs_count"], row["baseline_runs_count"], row["verdict_class"]) == (2, 3, "inconclusive")
    land_repeats(repeats_copy, "tee", TEE, 119)
    (stale, member) = comparisons.stale_pairs(lake)
    assert (stale.run_id, stale.pair and stale.pair.repeats) == ("tee", ("tee-2", "tee-3"))
    assert (member.run_id, member.why) == ("tee-3", "its pair was never made")
    build_comparisons(lake)
    row = lake.scan(step_overhead.TABLE).collect().to_dicts()[0]
    assert (row["run_id"], row["runs_count"], row["verdict_class"]) == ("tee", 3, "slower")
    assert row["slowdown_ratio"] == pytest.approx(1.2, abs=0.01)
    land_repeats(repeats_copy, "off", OFF, 99)
    assert [one.run_id for one in comparisons.stale_pairs(lake)] == ["tee"]
    build_comparisons(lake)
    assert comparisons.stale_pairs(lake) == []
    assert lake.scan(step_overhead.TABLE).select("baseline_runs_count").collect().item() == 4


def test_another_margin_makes_pairs_stale_and_changes_what_counts_as_none(repeats_copy: LandFiles) -> None:
    lake = repeats_copy.lake
    land_repeats(repeats_copy, "tee", TEE, 119)
    build_comparisons(lake, margin=0.3)
    verdict = lake.scan(step_overhead.TABLE).select("verdict_class")
    assert verdict.collect().item() == "no_difference"
    assert [one.run_id for one in comparisons.stale_pairs(lake)] == ["tee", "tee-2", "tee-3"]
    build_comparisons(lake)
    assert lake.scan(step_overhead.TABLE).select("verdict_class").collect().item() == "slower"
    assert comparisons.stale_pairs(lake) == []
    assert [one.run_id for one in comparisons.stale_pairs(lake, margin=0.3)] == ["tee", "tee-2", "tee-3"]


def test_repeats_on_the_same_machine_lend_their_noise_and_a_new_one_makes_the_pair_stale(pair_copy: LandFiles) -> None:
    lake, other = pair_copy.lake, OFF.replace('"m"', '"n"')
    land_run(pair_copy, "other", 100, other)
    build_comparisons(lake)
    assert lake.scan(step_overhead.TABLE).select("run_noise_fraction").collect().item() is None
    land_repeats(pair_copy, "other", other, 104)
    assert [one.run_id for one in comparisons.stale_pairs(lake)] == ["tee"]
    build_comparisons(lake)
    row = lake.scan(step_overhead.TABLE).collect().to_dicts()[0]
    assert row["run_noise_fraction"] == pytest.approx(0.028, abs=0.001)
    assert (row["verdict_class"], row["noise_runs_count"]) == ("inconclusive", 2)


def test_a_run_that_turns_out_to_be_without_a_tee_is_no_pair_any_more(pair_copy: LandFiles) -> None:
    land_files, lake = pair_copy, pair_copy.lake
    land_run(land_files, "tee", 120, OFF)
    build_comparisons(lake)
    for table in (pairs.TABLE, step_overhead.TABLE, overhead_breakdown.TABLE):
        assert lake.scan(table).collect().height == 0
    assert lake.scan(scaling.TABLE).collect().height == 0
    assert lake.scan(time_breakdown.TABLE, ["tee"]).collect().height == 3


def test_runs_with_other_bucket_caps_are_no_baselines(lake: Lake, land_files: LandFiles) -> None:
    land_run(land_files, "off", 100, OFF + "bucket_cap_mib = 25\n")
    land_run(land_files, "tee", 120, TEE + "bucket_cap_mib = 100.5\n")
    build_comparisons(lake)
    (row,) = lake.scan(pairs.TABLE).collect().to_dicts()
    assert row["reason"] == ("no run with regime cc_off has its workload; the nearest, off, differs in bucket_cap_mib")


def test_runs_that_differ_in_ranks_alone_are_a_family(pair_copy: LandFiles) -> None:
    for ranks, step_us in ((4, 140), (8, 180)):
        land_run(pair_copy, f"off-{ranks}", 100, OFF, ranks)
        land_run(pair_copy, f"tee-{ranks}", step_us, TEE, ranks)
    build_comparisons(pair_copy.lake)
    rows = pair_copy.lake.scan(scaling.TABLE).filter(axis="world_size").sort("axis_number").collect()
    assert rows["tee_run_id"].to_list() == ["tee", "tee-4", "tee-8"]
    assert rows["slope_ns"].unique().to_list() == [10_000]


def test_duckdb_writes_the_gold_that_polars_writes(recorded_lake: Lake, tmp_path: Path, zone: LandingZone) -> None:
    pair = ("resnet50-plain-w2", "resnet50-sealed-w2")
    # The sealed run has rows in more tables; DuckDB plans every table anew for each run. In the soak it makes both.
    by_duckdb = pair if is_soak() else pair[1:]
    home = recorded_lake.place.directory.parent
    shutil.copy(home / "keyring.json", tmp_path)
    keyring = KeyringFile(tmp_path / "keyring.json")
    # The runs beside it, with repeats, are there already: a pair is made from all runs of both sides.
    lake = Lake(Location.of(shutil.copytree(home / "lake", tmp_path / "lake", copy_function=os.link)), keyring)
    run_ids = land_samples(zone, pair)
    for table in TABLES.values():
        if table.scope in {Scope.RUN, Scope.PAIR}:
            drop_runs(lake.place, table.full_name, by_duckdb)
            assert lake.snapshot(table).mark(by_duckdb[0]) is None
    build_runs(lake, zone, by_duckdb, "duckdb")
    for table in (*gold.RUN_TABLES, *gold.PAIR_TABLES):
        for run_id in run_ids:
            ours, theirs = (place.scan(table, [run_id]).sort(table.key).collect() for place in (lake, recorded_lake))
            assert ours.equals(theirs), table.full_name


@pytest.mark.usefixtures("spark")
def test_spark_writes_what_polars_writes(tmp_path: Path, land_files: LandFiles) -> None:
    files = {"rank0.json": trace(120), "again.json": trace(120), "rank1.json": b"no trace", "metrics.txt": b"\xff"}
    for run_id in ("tee", "part"):
        land_files.write(files, run_id, TEE)
    lakes = []
    for name in ("polars", "spark"):
        chosen = settings(str(tmp_path / name), str(tmp_path / "landing"), environment={})
        lakes.append(Lake(chosen.lake, chosen.keyring))
        zone = LandingZone(chosen.landing)
        build_runs(lakes[-1], zone, ["tee"], name, chosen.spark)
        build_runs(lakes[-1], zone, ["part"], name, chosen.spark, select_tables(list_required(["gold.trace_summary"])))
    for table in TABLES.values():
        ours, theirs = (lake.snapshot(table) for lake in lakes)
        for run_id in ("tee", "part"):
            assert ours.content_sha256(run_id) == theirs.content_sha256(run_id), table.full_name
            assert ours.mark(run_id) == theirs.mark(run_id), table.full_name
