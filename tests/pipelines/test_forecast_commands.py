"""`teetotal what-if` and `teetotal validate` as a person types them, on the bundled recordings."""

from __future__ import annotations

import csv
import io
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from click.testing import CliRunner

from assets.build import gold, silver
from gold import prediction_checks, time_breakdown, what_if
from lake.engines import engine
from pipelines.cli import forecasts, validation
from pipelines.cli.main import main
from tests.support.small_runs import trace

if TYPE_CHECKING:
    from pathlib import Path

    from click.testing import Result

    from lake.store import Lake
    from tests.conftest import LandFiles


def ask(lake: Lake, *words: str) -> Result:
    return CliRunner().invoke(main, ["--lake", str(lake.place), *words], catch_exceptions=False)


def ask_json(lake: Lake, *words: str) -> list[dict[str, Any]]:
    done = ask(lake, "what-if", *words, "--format", "json")
    assert done.exit_code == 0, done.stderr
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


def test_a_plain_run_is_predicted_under_the_regime_that_the_lake_has_pairs_of(recorded_lake: Lake) -> None:
    (row,) = ask_json(recorded_lake, "gpt2-plain-w4")
    assert row["change"] == "regime=sw_per_hop_aesgcm"
    assert (row["method"], row["evidence"]) == ("bucket_replay", "modelled")
    assert row["predicted_low_ns"] < row["predicted_step_ns"] < row["predicted_high_ns"]
    assert 1.3 < row["slowdown_ratio"] < 1.9
    assert row["interval_level"] <= 0.75, "three models support no more"


def test_remedies_of_a_run_are_ranked_by_what_they_save_and_refusals_come_last(recorded_lake: Lake) -> None:
    rows = ask_json(recorded_lake, "bert-base-sealed-w2")
    saved = [row["saved_ns"] for row in rows]
    known = [one for one in saved if one is not None]
    assert known == sorted(known, reverse=True)
    assert saved == [*known, *[None] * (len(saved) - len(known))]
    refused = {row["change"]: row["verdict"] for row in rows if row["saved_ns"] is None}
    assert refused["direct=true"] == "not predictable because recordings differ even in whether direct helps"
    assert refused["chains=4"].startswith("not predictable because no pair shows what chains=4 does")
    assert "bucket_cap_mib=25" not in {row["change"] for row in rows}, "that is its cap"
    assert not [row for row in rows if "sealing_gb_per_second" in row["change"]], "nobody can set that"


@pytest.mark.parametrize("run_id", ["gpt2-plain-w4", "bert-base-sealed-w2"])
def test_what_a_launch_has_answered_is_what_would_be_answered_now(
    recorded_lake: Lake, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = ask_json(recorded_lake, run_id)
    monkeypatch.setattr(forecasts, "_read_stored", lambda *_: [])
    assert ask_json(recorded_lake, run_id) == stored


def test_a_traced_job_on_one_gpu_is_predicted_as_a_graph_without_any_pair(lake: Lake, land_files: LandFiles) -> None:
    claims = 'regime = "cc_off"\nmodel = "m"\ngpu = "H200"\nworld_size = 1\nbatch_size = 8\nwarmup_steps_count = 0\n'
    land_files({"rank0.json": trace(40_000, ranks=1)}, "alone", claims)
    silver.materialise(lake, "alone", engine("polars"))
    gold.materialise(lake, "alone", engine("polars"))
    (row,) = ask_json(lake, "alone", "--set", "cuda_graphs=true")
    (busy,) = {row["compute_ns"] for row in lake.scan(time_breakdown.TABLE).collect().to_dicts()}
    assert (row["method"], row["predicted_step_ns"], row["current_step_ns"]) == ("graph_replay", busy, 40_000_000)
    assert (row["regime"], row["verdict"], row["saved_ns"]) == ("cc_off", "saving unknown", None)


def test_several_settings_are_one_change(recorded_lake: Lake) -> None:
    (row,) = ask_json(recorded_lake, "gpt2-sealed-w4", "--set", "bucket_cap_mib=100", "--set", "accumulate=2")
    assert row["change"] == "accumulate=2 bucket_cap_mib=100"
    assert "time to an accuracy" in row["reason"]


def test_a_repeat_is_answered_for_by_the_run_that_it_repeats(recorded_lake: Lake) -> None:
    (row,) = ask_json(recorded_lake, "gpt2-sealed-w4-again1", "--set", "accumulate=2")
    assert row["run_id"] == "gpt2-sealed-w4"


def test_a_regime_without_a_pair_is_refused_and_never_guessed(recorded_lake: Lake) -> None:
    (row,) = ask_json(recorded_lake, "resnet50-plain-w2", "--regime", "blackwell_mpt_nvle")
    assert row["predicted_step_ns"] is None
    assert row["evidence"] == "unobservable"
    assert "the lake has no traced pair of blackwell_mpt_nvle" in row["verdict"]


def test_a_person_sees_the_interval_its_level_and_that_it_is_modelled(recorded_lake: Lake) -> None:
    done = ask(recorded_lake, "what-if", "gpt2-sealed-w4")
    assert done.exit_code == 0
    assert "(75" in done.stdout
    assert "modelled from pairs in the lake" in done.stdout
    assert "not predictable because" in done.stdout


def test_without_a_run_the_best_next_step_of_each_is_told_and_only_beyond_the_models_error(recorded_lake: Lake) -> None:
    rows = ask_json(recorded_lake)
    stored = recorded_lake.scan(what_if.TABLE).filter(pl.col("verdict") == "worth it").collect()
    assert {row["run_id"] for row in rows} == set(stored["run_id"])
    assert len(rows) == len({row["run_id"] for row in rows})
    assert all(row["verdict"] == "worth it" for row in rows)


def test_csv_has_the_columns_of_the_table(recorded_lake: Lake) -> None:
    done = ask(recorded_lake, "what-if", "gpt2-plain-w4", "--format", "csv")
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert tuple(row) == what_if.TABLE.column_names


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["gpt2-plain-w5"], "no run 'gpt2-plain-w5' with gold tables (did you mean 'gpt2-plain-w4'?)"),
        (["gpt2-plain-w4", "--set", "chain=4"], "no such setting (did you mean 'chains'?)"),
        (["gpt2-plain-w4", "--set", "chains"], "expected NAME=VALUE"),
        (["gpt2-plain-w4", "--set", "chains=2.5"], "expected a number of threads"),
        (["gpt2-plain-w4", "--set", "bucket_cap_mib=-1"], "expected a bucket cap in MiB"),
        (["gpt2-plain-w4", "--set", "bucket_cap_mib=nan"], "expected a bucket cap in MiB"),
        (["gpt2-plain-w4", "--set", "pinned=maybe"], "expected true"),
        (["gpt2-sealed-w4", "--regime", "hopper_spt_cc"], "is a run under sw_per_hop_aesgcm"),
        (["gpt2-sealed-w4", "--regime", "hoper_spt_cc"], "no such regime (did you mean 'hopper_spt_cc'?)"),
        (["--set", "chains=4"], "name a run to change"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_told_with_what_was_expected(recorded_lake: Lake, words: list[str], answer: str) -> None:
    done = ask(recorded_lake, "what-if", *words)
    assert done.exit_code == 2
    assert answer in done.stderr


def test_validate_meets_its_goals_on_the_bundled_recordings_and_names_the_worst_model(recorded_lake: Lake) -> None:
    done = ask(recorded_lake, "validate")
    assert "model left out" in done.stdout
    assert "guesses: constant" in done.stdout
    assert "worst group: " in done.stdout
    assert "by group: " in done.stdout
    assert (done.exit_code == 0) == ("all goals are met" in done.stdout)


def test_a_missed_goal_a_better_guess_and_intervals_that_miss_are_each_told(recorded_lake: Lake) -> None:
    good = recorded_lake.scan(prediction_checks.TABLE).filter(pl.col("task") == "regime", pl.col("scheme") == "model")
    rows = good.collect().with_columns(error_fraction=pl.lit(0.01), is_inside=pl.lit(value=True))
    assert validation.judge(rows)[1]
    wrong = {
        "missed": rows.with_columns(error_fraction=pl.lit(0.3)),
        "one does better": rows.with_columns(constant_error_fraction=pl.lit(0.001)),
        "inside at a stated": rows.with_columns(is_inside=pl.lit(value=False)),
    }
    for answer, changed in wrong.items():
        lines, is_met = validation.judge(changed)
        assert not is_met
        assert any(answer in line and ("missed" in line or "better" in line) for line in lines)


def test_a_lake_without_pairs_has_nothing_to_validate(tmp_path: Path) -> None:
    (tmp_path / "lake" / "bronze" / "runs").mkdir(parents=True)
    done = CliRunner().invoke(main, ["--lake", str(tmp_path / "lake"), "validate"])
    assert done.exit_code == 2
    assert "there is nothing to validate" in done.stderr
