"""A run is up to date when its own tables, its pair, its comparisons and its checks are; else `status` says why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from assets.build import comparisons, forecasts, histories
from pipelines.cli.status import collect_status
from tests.support.build_runs import build_comparisons, build_pairs, make_own_tables
from tests.support.small_runs import OFF, TEE, trace

if TYPE_CHECKING:
    from lake.landing_zone import LandingZone
    from lake.store import Lake
    from tests.conftest import LandFiles


def land_pair(land_files: LandFiles) -> None:
    land_files.write({"rank0.json": trace(100)}, "off", OFF)
    land_files.write({"rank0.json": trace(120)}, "tee", TEE)


def read_status(lake: Lake, zone: LandingZone) -> tuple[dict[str, str], list[str]]:
    """The state of each run, and the sentences beside them."""
    found = collect_status(lake, zone)
    return {line["run"]: line["state"] for line in found.lines}, found.notes


def test_a_run_without_its_pair_is_stale_and_says_so(lake: Lake, zone: LandingZone, land_files: LandFiles) -> None:
    land_pair(land_files)
    make_own_tables(lake, zone, ["off", "tee"])
    states, notes = read_status(lake, zone)
    assert states["tee"] == "stale"
    assert "tee: stale: its pair was never made" in notes


def test_a_pair_is_stale_once_its_baseline_changed(lake: Lake, zone: LandingZone, land_files: LandFiles) -> None:
    land_pair(land_files)
    make_own_tables(lake, zone, ["off", "tee"])
    build_comparisons(lake)
    land_files.write({"rank0.json": trace(60)}, "off", OFF)
    make_own_tables(lake, zone, ["off"])
    states, notes = read_status(lake, zone)
    assert states["tee"] == "stale"
    assert (
        "tee: stale: gold.energy_overhead is stale: the run, its baseline off, a repeat or the margin changed" in notes
    )
    build_pairs(lake)
    states, notes = read_status(lake, zone)
    assert states["tee"] == "stale", "the pair is new, the family that it is a point of is not"
    assert "tee: stale: gold.scaling is stale: a pair of its family changed" in notes
    comparisons.build_families(lake)
    states, notes = read_status(lake, zone)
    assert states["tee"] == "stale", "the forecasts of its regime go by the pair as it was"
    changed = "a pair of its regime, or a run without a TEE, changed"
    assert f"tee: stale: gold.cost_model is stale: {changed}" in notes
    forecasts.build_forecasts(lake)
    states, notes = read_status(lake, zone)
    assert states["tee"] == "stale", "the history of its workload shows the overhead of the pair as it was"
    assert "tee: stale: gold.history is stale: a run of its workload, or a pair of one, changed" in notes
    histories.build_histories(lake)
    assert read_status(lake, zone)[0]["tee"] == "unchecked"


def test_a_run_that_was_not_checked_is_not_up_to_date(lake: Lake, zone: LandingZone, land_files: LandFiles) -> None:
    land_pair(land_files)
    make_own_tables(lake, zone, ["off", "tee"])
    build_comparisons(lake)
    states, notes = read_status(lake, zone)
    assert states == {"off": "unchecked", "tee": "unchecked"}
    assert "tee: not checked since it was built" in notes
