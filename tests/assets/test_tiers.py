"""Many runs at once: in the order asked, each with its own fate."""

from __future__ import annotations

import shutil
import threading
from functools import partial
from typing import TYPE_CHECKING

import pytest

from assets.build import gold, silver
from assets.build.catalogue import list_required
from assets.build.context import BuildContext, BuildListener
from assets.build.state import assess_runs
from assets.build.tiers import TIERS, TierResult, build_tier, select_tables
from bronze.limits import Limits
from gold import stragglers, time_breakdown, trace_summary
from lake.engines import engine
from lake.errors import EvidenceRejected
from tests.conftest import LandFiles
from tests.support.small_runs import OFF, trace
from tests.support.up_to_date import find_made

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from assets.build.tiers import Tables
    from lake.landing_zone import LandingZone
    from lake.store import Lake

POLARS = partial(engine, "polars")
SUMMARY = select_tables(list_required(["gold.trace_summary"]))


def up_to_date(lake: Lake, zone: LandingZone, run_ids: Sequence[str], tables: Tables = TIERS) -> set[str]:
    """Those runs of which none of these tables is stale."""
    states = assess_runs(lake, zone, run_ids, tables=tables, pair_tables=())
    return {run_id for run_id, state in states.items() if state.stale is None}


class Noting(BuildListener):
    """Notes what it is told, and in which thread."""

    def __init__(self) -> None:
        self.answer: list[TierResult] = []
        self.threads: dict[tuple[str, str], str] = {}

    def on_built(self, made: TierResult) -> None:
        self.answer.append(made)
        self.threads[made.tier, made.run_id] = threading.current_thread().name.partition("_")[0]


def test_runs_come_back_in_the_order_asked_and_a_faulty_one_with_its_reason(
    lake: Lake, zone: LandingZone, land_files: LandFiles
) -> None:
    land_files.write({"rank0.json": trace(100)}, "b", OFF)
    land_files.write({"rank0.json": trace(100)}, "a", OFF)
    listener = Noting()
    made = build_tier(BuildContext(lake, zone, Limits(), listener=listener), "bronze", ["b", "gone", "a"], POLARS)
    assert [one.run_id for one in made] == ["b", "gone", "a"]
    assert [type(one.fault) for one in made] == [type(None), EvidenceRejected, type(None)]
    assert {one.run_id for one in listener.answer} == {"a", "b", "gone"}


@pytest.fixture(scope="module")
def built_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[LandFiles, dict[str, TierResult]]:
    """A run with all tables, and what was said when they were made; to be copied, or only looked at."""
    land_files = LandFiles.open(tmp_path_factory.mktemp("built") / "a")
    land_files.write({"rank0.json": trace(100)}, "a", OFF)
    place = BuildContext(land_files.lake, land_files.zone, Limits())
    return land_files, {tier: build_tier(place, tier, ["a"], POLARS)[0] for tier in TIERS}


@pytest.fixture
def whole(built_run: tuple[LandFiles, dict[str, TierResult]], tmp_path: Path) -> LandFiles:
    """A copy of that run and its tables."""
    return LandFiles.open(shutil.copytree(built_run[0].lake.place.directory.parent, tmp_path / "whole"))


def test_what_is_fresh_is_looked_at_and_told_as_it_is(built_run: tuple[LandFiles, dict[str, TierResult]]) -> None:
    land_files, first = built_run
    lake, zone = land_files.lake, land_files.zone
    place = BuildContext(lake, zone, Limits())
    assert up_to_date(lake, zone, ["a"]) == {"a"}
    for tier, before in first.items():
        (again,) = build_tier(place, tier, ["a"], POLARS)
        assert again.is_fresh
        assert not before.is_fresh
        answer = {
            one.table: (one.rows, one.bytes, one.files, one.content_sha256, one.is_changed) for one in again.written
        }
        assert answer == {
            one.table: (one.rows, one.bytes, one.files, one.content_sha256, False) for one in before.written
        }


def test_large_runs_go_alone(
    lake: Lake, zone: LandingZone, land_files: LandFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run_id in ("a", "b", "c"):
        land_files.write({"rank0.json": trace(100)}, run_id, OFF)
    listener = Noting()
    place = BuildContext(lake, zone, Limits(), listener=listener)
    build_tier(place, "bronze", ["a", "b", "c"], POLARS)
    monkeypatch.setattr("assets.build.chunking.CHUNK_EVENTS", 5)
    build_tier(place, "silver", ["a", "b", "c"], POLARS, tables=SUMMARY)
    assert all(one.fault is None for one in listener.answer)
    assert {listener.threads["bronze", run_id] for run_id in "abc"} == {"bronze"}, "side by side"
    assert {listener.threads["silver", run_id] for run_id in "abc"} == {"MainThread"}, "one after another"


def test_a_part_is_what_a_table_needs_and_the_count_that_nothing_was_lost() -> None:
    names = {tier: [table.name for table in tables] for tier, tables in SUMMARY.items()}
    assert names["silver"] == ["nsys_ranks", "clock_offsets", "rejects", "steps", "spans", "rule_counts"]
    assert names["gold"] == ["trace_summary"]
    assert SUMMARY["bronze"] == TIERS["bronze"], "a file is read once for all tables"
    assert list(select_tables(["silver.steps"])) == ["silver"], "no other tier than was asked for"
    assert select_tables(list_required(table.full_name for tables in TIERS.values() for table in tables)) == {
        tier: tables if tier == "bronze" else list(tables) for tier, tables in TIERS.items()
    }


def test_a_part_holds_what_the_whole_holds_and_the_whole_completes_it(whole: LandFiles) -> None:
    lake, zone = whole.lake, whole.zone
    whole.write({"rank0.json": trace(100)}, "part", OFF)
    place = BuildContext(lake, zone, Limits())
    build_tier(place, "bronze", ["a"], POLARS)  # copied files are new, and hold the same
    for tier in TIERS:
        build_tier(place, tier, ["part"], POLARS, tables=SUMMARY)
    assert up_to_date(lake, zone, ["part", "a"], tables=SUMMARY) == {"part", "a"}
    assert up_to_date(lake, zone, ["part", "a"]) == {"a"}
    rows = [lake.scan(trace_summary.TABLE, [run_id]).drop("run_id").collect() for run_id in ("part", "a")]
    assert rows[0].height == 1
    assert rows[0].equals(rows[1])
    others = [table for tier in ("silver", "gold") for table in TIERS[tier] if table not in SUMMARY[tier]]
    assert {lake.snapshot(table).mark("part") for table in others} == {None}
    version = lake.snapshot(trace_summary.TABLE).version
    for tier in TIERS:
        build_tier(place, tier, ["part"], POLARS)
    assert up_to_date(lake, zone, ["part"]) == {"part"}
    assert lake.snapshot(trace_summary.TABLE).version == version, "what was made stays"


def test_a_part_made_anew_leaves_the_rest_stale(whole: LandFiles) -> None:
    lake, zone = whole.lake, whole.zone
    place = BuildContext(lake, zone, Limits())
    whole.write({"rank0.json": trace(120)}, "a", OFF)
    assert up_to_date(lake, zone, ["a"], tables=SUMMARY) == set()
    for tier in TIERS:
        build_tier(place, tier, ["a"], POLARS, tables=SUMMARY)
    assert up_to_date(lake, zone, ["a"], tables=SUMMARY) == {"a"}
    assert find_made(lake, ["a"], [time_breakdown.TABLE]) == set(), "its spans are others now"
    assert up_to_date(lake, zone, ["a"]) == set()


def test_what_was_made_from_an_old_and_a_new_table_is_stale_once_both_are_new(whole: LandFiles) -> None:
    lake = whole.lake
    place = BuildContext(lake, whole.zone, Limits())
    whole.write({"rank0.json": trace(120)}, "a", OFF)
    for tier in ("bronze", "silver"):
        build_tier(place, tier, ["a"], POLARS, tables=SUMMARY)
    # Clock offsets are new here, collectives are not.
    gold.materialise(lake, "a", POLARS(), [stragglers.TABLE])
    silver.materialise(lake, "a", POLARS())
    assert find_made(lake, ["a"], [stragglers.TABLE]) == set()


def test_gold_of_a_part_names_the_silver_that_it_lacks(lake: Lake, zone: LandingZone, land_files: LandFiles) -> None:
    place = BuildContext(lake, zone, Limits())
    land_files.write({"rank0.json": trace(100)}, "a", OFF)
    for tier in ("bronze", "silver"):
        build_tier(place, tier, ["a"], POLARS, tables=SUMMARY)
    (made,) = build_tier(place, "gold", ["a"], POLARS)
    assert "run a has no silver.collectives, silver.crossings" in str(made.fault)
