from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from assets.build import gold, silver
from assets.build.catalogue import list_required
from assets.build.histories import build_histories, stale_histories
from assets.build.state import assess_comparisons
from assets.build.tiers import select_tables
from assets.checks.expectations import check_tables
from gold import history
from lake.engines import engine
from tests.support.build_runs import build_pairs
from tests.support.small_runs import OFF, TEE, trace
from tests.support.tampered_tables import count_broken

if TYPE_CHECKING:
    from lake.store import Lake
    from tests.conftest import LandFiles


# What histories, and the pairs that they show, are made from.
SHOWN = select_tables(list_required([history.TABLE.full_name, *(table.full_name for table in gold.PAIR_TABLES)]))


def land(land_files: LandFiles, run_id: str, claims: str, step_us: int = 100) -> None:
    land_files({"rank0.json": trace(step_us)}, run_id, claims)
    silver.materialise(land_files.lake, run_id, engine("polars"), SHOWN["silver"])
    gold.materialise(land_files.lake, run_id, engine("polars"), SHOWN["gold"])


def list_runs(lake: Lake) -> set[tuple[str | None, tuple[str, ...]]]:
    rows = lake.scan(history.TABLE).sort("session_number").collect().to_dicts()
    ids = {row["workload_id"] for row in rows}
    return {
        (
            next(row["regime"] for row in rows if row["workload_id"] == one),
            tuple(row["run_id"] for row in rows if row["workload_id"] == one),
        )
        for one in ids
    }


def test_a_new_run_makes_the_history_of_its_own_workload_stale_and_no_other(lake: Lake, land_files: LandFiles) -> None:
    land(land_files, "first", f'{OFF}recorded_at = "2026-11-02"\ndriver_version = "575"\n')
    land(land_files, "other", OFF.replace('"m"', '"n"'))
    land(land_files, "unnamed", 'regime = "cc_off"\n')
    assert {one.why for one in stale_histories(lake)} == {"gold.history was never made"}
    assert len(build_histories(lake)) == 2, "a run that names no model has no history"
    assert stale_histories(lake) == []
    land(land_files, "zeroth", f'{OFF}recorded_at = "2026-11-01"\ndriver_version = "570"\n')
    (stale,) = stale_histories(lake)
    assert (stale.members, stale.why) == (
        ("first", "zeroth"),
        "gold.history is stale: a run of its workload, or a pair of one, changed",
    )
    build_histories(lake)
    assert list_runs(lake) == {("cc_off", ("zeroth", "first")), ("cc_off", ("other",))}, "in the order of recording"
    assert len(stale_histories(lake, full=True)) == 2


def test_a_pair_shows_in_the_history_of_its_regime_and_makes_it_stale(lake: Lake, land_files: LandFiles) -> None:
    land(land_files, "off", OFF)
    land(land_files, "tee", TEE, 150)
    build_histories(lake)
    build_pairs(lake)
    assert [one.regime for one in stale_histories(lake)] == ["hopper_ppcie"]
    build_histories(lake)
    (row,) = lake.scan(history.TABLE).filter(run_id="tee").collect().to_dicts()
    assert (row["baseline_run_id"], row["overhead_ns"]) == ("off", 50_000)


def test_the_last_run_of_a_workload_leaves_an_empty_history(lake: Lake, land_files: LandFiles) -> None:
    land(land_files, "run", OFF)
    build_histories(lake)
    land(land_files, "run", OFF.replace('"m"', '"n"'))
    reasons = sorted(one.why for one in stale_histories(lake))
    assert reasons == ["gold.history is stale: the last run of a workload is gone", "gold.history was never made"]
    states = {state.stale for (name, _), state in assess_comparisons(lake).items() if name == "gold.history"}
    assert states == set(reasons)
    build_histories(lake)
    (row,) = lake.scan(history.TABLE).collect().to_dicts()
    assert "model=n" in row["workload"]


def test_a_step_that_the_run_does_not_have_fails_the_check(lake: Lake, land_files: LandFiles) -> None:
    land(land_files, "run", OFF)
    (written,) = build_histories(lake)
    assert count_broken(check_tables(lake, history.TABLE, [written.run_id])) == {}
    rows = lake.scan(history.TABLE).with_columns(step_ns=pl.col("step_ns") + 1).collect()
    lake.replace(history.TABLE, written.run_id, rows.select(history.TABLE.column_names).to_arrow(), "a" * 64)
    assert count_broken(check_tables(lake, history.TABLE, [written.run_id])) == {"steps_are_those_of_the_runs": 1}
