from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gold import single_gpu_forecast
from gold.regime_model import RegimeModel
from gold.single_gpu_model import fit_plateau
from gold.what_if import ASKED, TABLE, measure
from tests.support.forecast_pairs import (
    SEALED,
    list_rows,
    make_pair,
    make_pairs,
    make_run,
    make_single_pairs,
    plant_chains,
    shuffle,
)

if TYPE_CHECKING:
    import pytest

    from gold.single_gpu_model import PlateauModel

PAIRS = make_pairs(0.5)
OFF_RUNS = tuple(pair.baseline for pair in PAIRS)


def test_a_run_of_the_regime_is_asked_for_the_usual_changes_but_for_what_it_is_already() -> None:
    rows = list_rows(TABLE, measure(RegimeModel(SEALED, (PAIRS[0],), ())))
    asked = {" ".join(f"{name}={value}" for name, value in change.items()) for change in ASKED}
    assert {row["run_id"] for row in rows} == {"ringy-sealed"}
    assert {row["change"] for row in rows} == asked - {"bucket_cap_mib=25"}
    (two,) = plant_chains("ringy")[1:]
    rows = list_rows(TABLE, measure(RegimeModel(SEALED, (two,), ())))
    assert {row["change"] for row in rows} == asked - {"bucket_cap_mib=25", "chains=2"}


def test_a_plain_run_is_asked_for_the_regime_where_pairs_of_its_machine_are() -> None:
    others = (
        make_run("elsewhere", steps=OFF_RUNS[0].steps, gpu="B200"),
        make_run("untraced"),
    )
    rows = list_rows(TABLE, measure(RegimeModel(SEALED, tuple(PAIRS), (*OFF_RUNS, *others))))
    assert [row["run_id"] for row in rows if row["change"] == f"regime={SEALED}"] == [
        "dense-plain",
        "mixed-plain",
        "ringy-plain",
    ]


def test_an_answer_says_what_it_predicts_and_how_certain_that_is() -> None:
    rows = list_rows(TABLE, measure(RegimeModel(SEALED, tuple(PAIRS), OFF_RUNS)))
    row = next(row for row in rows if row["run_id"] == "ringy-plain")
    assert (row["method"], row["evidence"], row["verdict"], row["interval_level"]) == (
        "bucket_replay",
        "modelled",
        "costs more",
        0.75,
    )
    assert row["current_step_ns"] == round(PAIRS[0].baseline_ns)
    assert abs(row["predicted_step_ns"] / PAIRS[0].candidate_ns - 1) < 1e-3
    assert abs(row["slowdown_ratio"] - PAIRS[0].slowdown) < 1e-3
    assert abs(row["saved_ns"] - (row["current_step_ns"] - row["predicted_step_ns"])) <= 1
    assert row["predicted_low_ns"] < row["predicted_step_ns"] < row["predicted_high_ns"]


def test_a_refusal_has_no_numbers_and_is_unobservable() -> None:
    rows = list_rows(TABLE, measure(RegimeModel(SEALED, tuple(PAIRS), ())))
    refused = [row for row in rows if row["change"] in {"pipelined=true", "direct=true", "chains=2", "chains=4"}]
    assert len(refused) == 12
    numbers = ("method", "predicted_step_ns", "predicted_low_ns", "interval_level", "slowdown_ratio", "saved_ns")
    for row in refused:
        assert [row[name] for name in numbers] == [None] * len(numbers)
        assert row["evidence"] == "unobservable"
        assert row["verdict"].startswith("not predictable because ")
        assert row["current_step_ns"] is not None
    assert {row["evidence"] for row in rows if row not in refused} == {"modelled"}


def test_a_traced_job_under_cc_is_asked_for_a_graph_and_gets_no_interval() -> None:
    pair, *others = make_single_pairs()
    traced = replace(pair, candidate=replace(pair.candidate, graph_ns=0.5 * pair.candidate_ns))
    rows = list_rows(TABLE, measure(RegimeModel("cc", (traced, *others), ())), "cc")
    (row,) = [row for row in rows if row["change"] == "cuda_graphs=true"]
    assert (row["run_id"], row["method"]) == (pair.candidate.run_id, "graph_replay")
    assert (row["verdict"], row["predicted_low_ns"]) == ("model error unknown", None)


def test_jobs_on_one_gpu_without_a_trace_are_asked_for_the_regime_alone() -> None:
    pairs = make_single_pairs()
    rows = list_rows(TABLE, measure(RegimeModel("cc", tuple(pairs), tuple(pair.baseline for pair in pairs))), "cc")
    assert {row["change"] for row in rows} == {"regime=cc"}
    assert len(rows) == 9
    assert {(row["method"], row["evidence"]) for row in rows} == {("plateau", "modelled")}
    few = [pair for pair in pairs if pair.candidate.model == "deep"]
    rows = list_rows(TABLE, measure(RegimeModel("cc", tuple(few), (few[0].baseline,))), "cc")
    (row,) = rows
    assert row["evidence"] == "unobservable"
    assert row["verdict"].startswith("not predictable because pairs of 0 other model(s) are known on ")
    assert not row["verdict"].endswith(".")


def test_constants_are_fitted_as_often_however_many_runs_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = tuple(make_single_pairs())
    plain = tuple(pair.baseline for pair in pairs)
    fits = []

    def count_fit(*given: Any) -> PlateauModel:
        fits.append(given[0])
        return fit_plateau(*given)

    monkeypatch.setattr(single_gpu_forecast, "fit_plateau", count_fit)
    counts = []
    for off_runs in (plain[:1], plain):
        fits.clear()
        measure(RegimeModel("cc", pairs, off_runs))
        counts.append(len(fits))
    assert counts == [4, 4], "for all models, and without each of three"


def test_a_run_that_nothing_timed_is_refused() -> None:
    run = replace(OFF_RUNS[0], run_id="untimed", step_ns=None)
    rows = list_rows(TABLE, measure(RegimeModel(SEALED, tuple(PAIRS), (run,))))
    (row,) = (row for row in rows if row["run_id"] == "untimed")
    assert row["verdict"] == "not predictable because nothing timed a step of this run"
    assert row["current_step_ns"] is None


def test_a_regime_without_pairs_has_no_rows() -> None:
    rows = measure(RegimeModel(SEALED, (), OFF_RUNS))
    assert (rows.num_rows, rows.schema) == (0, TABLE.arrow_schema)


def test_the_order_of_pairs_and_runs_does_not_matter() -> None:
    pairs = [*plant_chains("ringy", "mixed"), make_pair("dense", 0.7)]
    turned = RegimeModel(SEALED, tuple(shuffle(pairs)), OFF_RUNS[::-1])
    model = RegimeModel(SEALED, tuple(pairs), OFF_RUNS)
    assert list_rows(TABLE, measure(turned)) == list_rows(TABLE, measure(model))
