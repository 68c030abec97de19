"""A run is up to date when its own tables, its pair, its comparisons and its checks are; else `status` says why."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from assets.build import comparisons, forecasts, histories
from pipelines.cli.status import collect_status
from tests.conftest import LandFiles
from tests.support.build_runs import build_comparisons, build_pairs, make_own_tables
from tests.support.small_runs import OFF, TEE, trace


@dataclass(frozen=True)
class Status:
    """What `status` said: the state of each run, and the sentences beside them."""

    states: dict[str, str]
    notes: list[str]


@pytest.fixture(scope="module")
def statuses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Status]:
    """What was said of a pair on its way from its own tables to the histories, after each step of it."""
    land_files = LandFiles.open(tmp_path_factory.mktemp("pair"))
    lake, zone = land_files.lake, land_files.zone
    found: dict[str, Status] = {}

    def note(step: str) -> None:
        status = collect_status(lake, zone)
        found[step] = Status({line["run"]: line["state"] for line in status.lines}, status.notes)

    land_files.write({"rank0.json": trace(100)}, "off", OFF)
    land_files.write({"rank0.json": trace(120)}, "tee", TEE)
    make_own_tables(lake, zone, ["off", "tee"])
    note("own tables")
    build_comparisons(lake)
    note("comparisons")
    land_files.write({"rank0.json": trace(60)}, "off", OFF)
    make_own_tables(lake, zone, ["off"])
    note("another baseline")
    build_pairs(lake)
    note("pairs")
    comparisons.build_families(lake)
    note("families")
    forecasts.build_forecasts(lake)
    note("forecasts")
    histories.build_histories(lake)
    note("histories")
    return found


def test_a_run_without_its_pair_is_stale_and_says_so(statuses: dict[str, Status]) -> None:
    assert statuses["own tables"].states["tee"] == "stale"
    assert "tee: stale: its pair was never made" in statuses["own tables"].notes


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (
            "another baseline",
            "gold.energy_overhead is stale: the run, its baseline off, a repeat or the margin changed",
        ),
        # The pair is new, the family that it is a point of is not.
        ("pairs", "gold.scaling is stale: a pair of its family changed"),
        # The forecasts of its regime go by the pair as it was.
        ("families", "gold.cost_model is stale: a pair of its regime, or a run without a TEE, changed"),
        # The history of its workload shows the overhead of the pair as it was.
        ("forecasts", "gold.history is stale: a run of its workload, or a pair of one, changed"),
    ],
)
def test_a_pair_is_stale_once_its_baseline_changed(statuses: dict[str, Status], step: str, why: str) -> None:
    assert statuses[step].states["tee"] == "stale"
    assert f"tee: stale: {why}" in statuses[step].notes


def test_a_pair_whose_comparisons_are_all_new_is_no_longer_stale(statuses: dict[str, Status]) -> None:
    assert statuses["histories"].states["tee"] == "unchecked"


def test_a_run_that_was_not_checked_is_not_up_to_date(statuses: dict[str, Status]) -> None:
    assert statuses["comparisons"].states == {"off": "unchecked", "tee": "unchecked"}
    assert "tee: not checked since it was built" in statuses["comparisons"].notes
