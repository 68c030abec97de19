"""A failed check is known until rows or rules change: kept in the lake, told without being held again."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg
import polars as pl
import pytest

from assets.build.context import BuildContext
from assets.build.freshness import Look
from assets.build.state import assess_runs
from assets.build.tiers import build_tier
from assets.checks import outcomes
from assets.checks.outcomes import asset_checks, read_verdicts
from assets.launch_checks import LaunchChecks, check_specs
from bronze import runs, source_files
from bronze.limits import Limits
from lake.engines import engine
from tests.support.build_runs import record_passed
from tests.support.small_runs import OFF, trace
from tests.support.tampered_tables import change

if TYPE_CHECKING:
    from collections.abc import Sequence

    from assets.checks.outcomes import AssetCheck, Verdict
    from lake.landing_zone import LandingZone
    from lake.store import Lake
    from tests.conftest import LandFiles

TABLE = source_files.TABLE


@pytest.fixture
def place(lake: Lake, zone: LandingZone, land_files: LandFiles) -> BuildContext:
    """Two runs in bronze; `ill` has a file twice, as no writer of ours would put it there."""
    for run_id in ("good", "ill"):
        land_files.write({"rank0.json": trace(100)}, run_id, OFF)
    place = BuildContext(lake, zone, Limits())
    build_tier(place, "bronze", ["good", "ill"], partial(engine, "polars"))
    change(lake, TABLE, "ill", lambda rows: pl.concat([rows, rows[:1]]))
    return place


def check(place: BuildContext, run_ids: Sequence[str] = ("good", "ill")) -> set[str]:
    """Hold a table to its word, and keep how that ended; gives the runs that failed."""
    checking = LaunchChecks(place, {spec.key for spec in check_specs([TABLE])})
    broken = checking.check([TABLE], run_ids)
    checking.record()
    return set(broken)


def verdicts(lake: Lake, checks: Sequence[AssetCheck] | None = None) -> dict[str, Verdict]:
    return read_verdicts(lake, Look(lake), ["good", "ill"], asset_checks([TABLE]) if checks is None else checks)


def test_a_failure_is_known_afterwards_and_written_once(place: BuildContext) -> None:
    assert {name: bool(one.unchecked) for name, one in verdicts(place.lake).items()} == {"good": True, "ill": True}
    assert check(place) == {"ill"}
    known = verdicts(place.lake)
    assert known["good"] == outcomes.Verdict()
    assert known["ill"].unchecked == ()
    assert [(one.table_name, one.check_name, one.is_blocking) for one in known["ill"].failed] == [
        ("bronze.source_files", "rows_are_as_declared", True)
    ]
    version = place.lake.snapshot(outcomes.TABLE).version
    assert check(place) == {"ill"}
    assert place.lake.snapshot(outcomes.TABLE).version == version, "the same is not written again"


def test_a_failed_run_is_told_and_not_launched_again(place: BuildContext) -> None:
    tables = {"bronze": [TABLE]}
    states = assess_runs(place.lake, place.zone, ["good", "ill"], tables=tables, pair_tables=())
    assert [state.word for state in states.values()] == ["unchecked", "unchecked"]
    assert all(state.needs_launch() for state in states.values())
    assert not any(state.needs_launch(check=False) for state in states.values())
    check(place)
    states = assess_runs(place.lake, place.zone, ["good", "ill"], tables=tables, pair_tables=())
    assert [state.word for state in states.values()] == ["up-to-date", "failed"]
    assert not any(state.needs_launch() for state in states.values())
    (reason,) = states["ill"].reasons
    assert reason.startswith("check failed: bronze.source_files: no two rows have the same")
    assert reason.removeprefix("check failed: ") in str(states["ill"].fault)
    assert states["good"].fault is None


def test_other_rows_and_other_rules_ask_for_another_check(place: BuildContext) -> None:
    check(place)
    stricter = [replace(one, rules_sha256="another rule") for one in asset_checks([TABLE])]
    assert {name: (bool(one.unchecked), one.failed) for name, one in verdicts(place.lake, stricter).items()} == {
        "good": (True, ()),
        "ill": (True, ()),
    }
    change(place.lake, TABLE, "ill", lambda rows: rows[:1])
    known = verdicts(place.lake)
    assert known["good"] == outcomes.Verdict()
    assert known["ill"].unchecked
    assert known["ill"].failed == ()
    assert check(place, ["ill"]) == set()
    assert verdicts(place.lake)["ill"] == outcomes.Verdict()


def test_rows_of_a_table_that_a_check_reads_count_as_its_own(place: BuildContext) -> None:
    checks = asset_checks([runs.TABLE])
    record_passed(place.lake, ["good"], [runs.TABLE])
    assert verdicts(place.lake, checks)["good"] == outcomes.Verdict()
    change(place.lake, TABLE, "good", lambda rows: rows[:-1])
    related = tuple(one.key for one in checks if TABLE in one.reads)
    assert len(related) == 1
    assert verdicts(place.lake, checks)["good"].unchecked == related


def test_checks_of_other_tables_are_kept_beside(place: BuildContext) -> None:
    check(place)
    record_passed(place.lake, ["good", "ill"], [runs.TABLE])
    known = verdicts(place.lake, asset_checks([TABLE, runs.TABLE]))
    assert known["good"] == outcomes.Verdict()
    assert [one.check_name for one in known["ill"].failed] == ["rows_are_as_declared"]
    assert known["ill"].unchecked == ()


def test_part_of_the_checks_is_not_all_of_them(place: BuildContext) -> None:
    some = [spec.key for spec in check_specs([TABLE]) if spec.name != "rows_are_as_declared"]
    checking = LaunchChecks(place, some)
    assert checking.check([TABLE], ["good", "ill"]) == {}
    checking.record()
    assert verdicts(place.lake)["ill"].unchecked == (("bronze.source_files", "rows_are_as_declared"),)


def test_a_promise_on_which_nothing_depends_warns_unless_another_one_of_its_check_is_broken_too(
    place: BuildContext,
) -> None:
    for run_id in ("good", "ill"):
        change(place.lake, TABLE, run_id, lambda rows: rows.with_columns(source_sha256=pl.lit("no digest")))
    records = dg.DagsterInstance.ephemeral()
    checking = LaunchChecks(place, {spec.key for spec in check_specs([TABLE])})
    assert set(checking.check([TABLE], ["good"])) == set()
    (warned,) = [one for one in checking.evaluations(records) if not one.passed]
    assert (warned.check_name, warned.severity) == ("rows_are_as_declared", dg.AssetCheckSeverity.WARN)
    assert set(checking.check([TABLE], ["ill"])) == {"ill"}
    (failed,) = [one for one in checking.evaluations(records) if not one.passed]
    assert failed.severity is dg.AssetCheckSeverity.ERROR
    checking.record()
    known = verdicts(place.lake)
    assert [(one.is_blocking, one.failure) for one in known["good"].failed] == [
        (False, "source_sha256 is 64 hexadecimal digits")
    ]
    ((is_blocking, failure),) = [(one.is_blocking, one.failure) for one in known["ill"].failed]
    assert is_blocking
    assert str(failure).startswith("no two rows have the same")
    states = assess_runs(place.lake, place.zone, ["good", "ill"], tables={"bronze": [TABLE]}, pair_tables=())
    assert [state.word for state in states.values()] == ["up-to-date", "failed"]
    assert states["good"].reasons == ["check warns: bronze.source_files: source_sha256 is 64 hexadecimal digits"]
