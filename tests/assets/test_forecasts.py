from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from assets.build import gold, silver
from assets.build.catalogue import list_required, select
from assets.build.forecasts import FORECAST_TABLES, build_forecasts, read_regime, stale_regimes
from assets.build.state import assess_comparisons
from assets.build.tiers import select_tables
from gold import cost_model, prediction_checks, what_if
from lake.engines import engine
from lake.store import Lake
from lake.tables import Scope
from tests.conftest import LandFiles
from tests.support.small_runs import trace

if TYPE_CHECKING:
    from pathlib import Path

    from lake.snapshot import Written

POLARS = engine("polars")
READ = select_tables(
    list_required(["gold.exposure", "gold.step_times", "gold.time_breakdown", "silver.runs", "silver.throughput"])
)
SEALED, PPCIE = "sw_per_hop_aesgcm", "hopper_ppcie"
CHANGED = "a pair of its regime, or a run without a TEE, changed"
MIB = 1 << 20


def ring_trace(step_us: int, *bucket_us: int) -> bytes:
    """Three steps with a kernel and buckets of 4 MiB, 10 ms apart, that the collector's ring reduces in these times."""
    answer = json.loads(trace(step_us))
    for number in range(3):
        at = 1000 + number * step_us + 10_000
        for duration in bucket_us:
            span = {"ph": "X", "cat": "user_annotation", "name": f"tee::all_reduce#{4 * MIB}", "tid": 5}
            answer["traceEvents"].append({**span, "ts": at, "dur": duration})
            at += 10_000
    return json.dumps(answer).encode()


def manifest(regime: str, model: str = "m", **fields: str) -> str:
    answer = {"regime": regime, "model": model, "gpu": "H200", **fields}
    numbers = "bucket_cap_mib = 25\nbatch_size = 8\nwarmup_steps_count = 0\n"
    return numbers + "".join(f'{name} = "{value}"\n' for name, value in answer.items())


def land(land_files: LandFiles, run_id: str, claims: str, step_us: int) -> None:
    """A run of two ranks, from its trace to those of its gold tables that forecasts read."""
    land_files({"rank0.json": ring_trace(step_us, 2000, 3000)}, run_id, claims)
    silver.materialise(land_files.lake, run_id, POLARS, READ["silver"])
    gold.materialise(land_files.lake, run_id, POLARS, READ["gold"])


@pytest.fixture(scope="module")
def forecast_lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models without a TEE and sealed, and one of them under another regime, with their forecasts; to be copied."""
    directory = tmp_path_factory.mktemp("forecasts")
    land_files = LandFiles.open(directory)
    for model, sealed_us in (("m", 48_000), ("n", 52_000)):
        land(land_files, f"off-{model}", manifest("cc_off", model), 40_000)
        land(land_files, f"sealed-{model}", manifest(SEALED, model), sealed_us)
    land(land_files, "ppcie-m", manifest(PPCIE), 44_000)
    never_made = {one.regime: one.why for one in stale_regimes(land_files.lake)}
    assert never_made == dict.fromkeys((SEALED, PPCIE), f"{FORECAST_TABLES[0].full_name} was never made")
    assert list_changed(build_forecasts(land_files.lake)) == {
        (table.full_name, regime) for table in FORECAST_TABLES for regime in (SEALED, PPCIE)
    } - {("gold.prediction_checks", PPCIE)}, "one model alone cannot be left out"
    return directory


@pytest.fixture
def land_files(forecast_lake: Path, tmp_path: Path) -> LandFiles:
    """A copy of that lake."""
    shutil.copytree(forecast_lake, tmp_path / "copy")
    return LandFiles.open(tmp_path / "copy")


@pytest.fixture
def lake(land_files: LandFiles) -> Lake:
    return land_files.lake


def list_changed(written: list[Written]) -> set[tuple[str, str]]:
    return {(each.table, each.run_id) for each in written if each.is_changed}


def count_rows(lake: Lake, regime: str) -> list[int]:
    return [lake.scan(table, [regime]).collect().height for table in FORECAST_TABLES]


def test_forecasts_of_each_regime_are_made_once(lake: Lake, land_files: LandFiles) -> None:
    assert stale_regimes(lake) == []
    versions = [lake.snapshot(table).version for table in FORECAST_TABLES]
    assert build_forecasts(lake) == []
    assert [lake.snapshot(table).version for table in FORECAST_TABLES] == versions
    rates = lake.scan(cost_model.TABLE).filter(term="seal_and_open").sort("regime").collect()
    assert rates.select("regime", "pairs_count", "models_count").rows() == [(PPCIE, 1, 1), (SEALED, 2, 2)]
    checks = lake.scan(prediction_checks.TABLE, [SEALED]).collect().filter(scheme="model")
    assert checks.select("left_out", "predicted_run_id", "known_run_id").sort("left_out").rows() == [
        ("m", "sealed-m", "off-m"),
        ("n", "sealed-n", "off-n"),
    ]
    asked = lake.scan(what_if.TABLE, [SEALED]).collect()
    assert set(asked["run_id"]) == {"off-m", "off-n", "sealed-m", "sealed-n"}
    sealed = asked.filter(run_id="off-m", change=f"regime={SEALED}").to_dicts()[0]
    assert sealed["current_step_ns"] == 40_000_000
    assert sealed["predicted_step_ns"] == pytest.approx(50_000_000, abs=2_100_000), "between what both models took"


def test_a_new_pair_makes_its_own_regime_stale_and_status_says_why(lake: Lake, land_files: LandFiles) -> None:
    before = lake.snapshot(cost_model.TABLE).mark(PPCIE)
    land(land_files, "ppcie-n", manifest(PPCIE, "n"), 45_000)
    (stale,) = stale_regimes(lake)
    assert (stale.regime, stale.members) == (PPCIE, ("ppcie-m", "ppcie-n"))
    assert stale.why == f"{FORECAST_TABLES[0].full_name} is stale: {CHANGED}"
    state = assess_comparisons(lake, [cost_model.TABLE])
    assert state["gold.cost_model", PPCIE].stale == f"gold.cost_model is stale: {CHANGED}"
    assert state["gold.cost_model", SEALED].stale is None
    assert {regime for _, regime in list_changed(build_forecasts(lake))} == {PPCIE}
    assert lake.snapshot(cost_model.TABLE).mark(PPCIE) != before
    assert stale_regimes(lake) == []


def test_a_baseline_recorded_again_makes_every_regime_of_its_pairs_stale(lake: Lake, land_files: LandFiles) -> None:
    land(land_files, "off-m", manifest("cc_off"), 41_000)
    assert [one.regime for one in stale_regimes(lake)] == [PPCIE, SEALED]
    build_forecasts(lake)
    assert stale_regimes(lake) == []


def test_a_run_without_a_tee_on_another_machine_makes_nothing_stale(lake: Lake, land_files: LandFiles) -> None:
    land(land_files, "a-far-one", manifest("cc_off", gpu="B200"), 30_000)
    assert stale_regimes(lake) == []
    land(land_files, "off-o", manifest("cc_off", "o"), 30_000)
    assert [one.regime for one in stale_regimes(lake)] == [PPCIE, SEALED], "a run to ask about on the same machine"


def test_the_last_pair_gone_empties_the_forecasts(lake: Lake, land_files: LandFiles) -> None:
    assert count_rows(lake, PPCIE) > [0, 0, 0]
    land(land_files, "ppcie-m", manifest(SEALED), 44_000)
    stale = {one.regime: one.why for one in stale_regimes(lake)}
    assert stale[PPCIE] == f"the last pair of {PPCIE} is gone"
    build_forecasts(lake)
    assert count_rows(lake, PPCIE) == [0, 0, 0]
    assert stale_regimes(lake) == []


def test_everything_is_made_again_where_that_is_asked_for(lake: Lake, land_files: LandFiles) -> None:
    assert [(one.regime, one.why) for one in stale_regimes(lake, full=True)] == [
        (regime, f"the forecasts of {regime} are to be made again") for regime in (PPCIE, SEALED)
    ]
    assert list_changed(build_forecasts(lake, full=True)) == set(), "the same rows again"


def test_a_question_reads_the_regime_and_the_run_that_is_asked_about(lake: Lake, land_files: LandFiles) -> None:
    model = read_regime(lake, SEALED, ["sealed-m", "off-n"])
    assert [pair.candidate.run_id for pair in model.pairs] == ["sealed-m", "sealed-n"]
    assert [run.run_id for run in model.off_runs] == ["off-m", "off-n"]
    assert [(run.step_ns, len(run.steps)) for run in model.off_runs] == [(40_000_000, 3)] * 2


# -- what asking takes ------------------------------------------------------------------------------------------------


def test_the_tables_of_a_regime_are_those_that_are_declared_so() -> None:
    assert set(FORECAST_TABLES) == set(select("gold", Scope.REGIME))


def test_an_answer_takes_no_import_of_readers_of_checks_or_of_other_engines(forecast_lake: Path) -> None:
    program = (
        "import sys\nfrom pipelines.cli.main import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit as done:\n    assert not done.code, done.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    words = ["--lake", str(forecast_lake / "lake"), "what-if", "sealed-m", "--set", "accumulate=2"]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert "accumulate=2" in done.stdout
    slow = {"scipy.optimize", "scipy.stats", "duckdb", "jwt", "dagster", "great_expectations", "altair", "bronze.land"}
    assert not slow & set(done.stderr.split())
