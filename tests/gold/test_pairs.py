from __future__ import annotations

import pytest

from gold.forecast_runs import choose_pairs
from gold.pairs import TABLE, Index, find_noise_groups, group_repeats, is_tee_overhead, measure, pair_runs


def run(
    regime: str | None = "cc_off",
    workload: str | None = "model=m|batch_size=8",
    baseline: str | None = None,
    repeat_of: str | None = None,
) -> dict[str, str | None]:
    named = {"regime": regime, "baseline": baseline, "repeat_of": repeat_of}
    return {**named, "workload": workload, "family": workload}


def test_a_run_is_paired_with_the_twin_that_it_names() -> None:
    index = {"tee": run("hopper_ppcie", baseline="b"), "a": run(), "b": run()}
    (pair,) = pair_runs(index).values()
    assert (pair.run_id, pair.baseline_run_id, pair.paired_by, pair.caveat) == ("tee", "b", "manifest", None)


def test_a_named_twin_that_differs_is_taken_and_the_difference_told() -> None:
    index = {"tee": run("hopper_ppcie", baseline="b"), "b": run(workload="model=m|batch_size=16")}
    assert pair_runs(index)["tee"].caveat == "the baseline differs in batch_size"


def test_a_named_twin_that_is_missing_or_claims_no_regime_is_refused() -> None:
    index = {"x": run("hopper_ppcie", baseline="gone"), "y": run("hopper_ppcie", baseline="z"), "z": run(None)}
    assert [pair_runs(index)[name].reason for name in ("x", "y")] == [
        "its manifest names gone, which is not in the lake",
        "its manifest names z, which claims no regime, so nothing says whether that was inside a TEE",
    ]


def test_equal_workloads_pair_and_the_choice_among_several_is_told() -> None:
    index = {"tee": run("tee_io_tdisp"), "b": run(), "a": run(), "r": run(repeat_of="a")}
    pair = pair_runs(index)["tee"]
    assert (pair.baseline_run_id, pair.paired_by) == ("a", "workload")
    assert pair.baseline_repeats == ("r",)
    assert pair.caveat == (
        "2 runs are equal in workload; the first by name was taken; with repeat_of in their manifests the others would "
        "count as its repeats"
    )


def test_what_could_not_be_paired_says_which_key_differs() -> None:
    index: Index = {
        "tee": run("tee_io_tdisp", "model=m|batch_size=8|gpu=H100"),
        "far": run(workload="model=x|batch_size=1|gpu=H100"),
        "near": run(workload="model=m|batch_size=16|gpu=H100"),
    }
    assert pair_runs(index)["tee"].reason == (
        "no run with regime cc_off has its workload; the nearest, near, differs in batch_size"
    )


def test_runs_that_say_too_little_are_listed_with_the_reason() -> None:
    assert pair_runs({"a": run(None)})["a"].reason == (
        "it claims no regime, so nothing says whether it was inside a TEE"
    )
    assert pair_runs({"a": run("hopper_ppcie", None), "b": run()})["a"].reason == (
        "its manifest names neither a baseline nor a model"
    )
    assert pair_runs({"a": run("hopper_ppcie")})["a"].reason == (
        "there is no run with regime cc_off that names its model"
    )


def test_a_run_without_a_tee_that_names_no_baseline_is_no_pair() -> None:
    assert pair_runs({"a": run(), "b": run()}) == {}


def test_a_pair_is_one_row() -> None:
    rows = measure(pair_runs({"tee": run("tee_io_tdisp"), "a": run()})["tee"])
    assert rows.schema == TABLE.arrow_schema
    assert rows.to_pylist()[0]["baseline_run_id"] == "a"


TEE = "hopper_ppcie"


def test_repeats_of_both_sides_are_runs_of_the_pair() -> None:
    index = {
        "tee": run(TEE),
        "tee-2": run(TEE, repeat_of="tee"),
        "tee-3": run(TEE, repeat_of="tee-2"),
        "off": run(),
        "off-2": run(repeat_of="off"),
    }
    pair = pair_runs(index)["tee"]
    assert (pair.candidates, pair.baselines) == (("tee", "tee-2", "tee-3"), ("off", "off-2"))
    (row,) = measure(pair).to_pylist()
    assert (row["repeats"], row["baseline_repeats"], row["repeated_run_id"]) == ("tee-2, tee-3", "off-2", None)


def test_a_repeat_of_the_candidate_has_no_pair_of_its_own() -> None:
    pair = pair_runs({"tee": run(TEE), "tee-2": run(TEE, repeat_of="tee"), "off": run()})["tee-2"]
    assert (pair.baseline_run_id, pair.repeated_run_id, pair.baselines) == (None, "tee", ())
    assert pair.reason == "it repeats tee and counts as a run of that pair"


def test_a_named_baseline_that_is_a_repeat_brings_its_group() -> None:
    index = {
        "tee": run(TEE, baseline="off-2"),
        "off": run(),
        "off-2": run(repeat_of="off"),
        "off-3": run(repeat_of="off"),
    }
    assert pair_runs(index)["tee"].baselines == ("off-2", "off", "off-3")


def test_what_differs_in_regime_or_workload_is_no_repeat_and_is_named() -> None:
    index = {
        "tee": run(TEE),
        "other": run("tee_io_tdisp", repeat_of="tee"),
        "off": run(),
        "bigger": run(workload="model=m|batch_size=16", repeat_of="off"),
    }
    found = pair_runs(index)
    assert (found["tee"].repeats, found["tee"].baseline_repeats) == ((), ())
    assert found["tee"].caveat == "no repeats, because regime or workload differ: bigger, other"
    assert found["other"].baseline_run_id == "off", "it is a pair of its own"
    assert str(found["other"].caveat).startswith("it repeats tee, which is not in the lake or differs in regime")


def test_repeats_in_a_circle_are_one_group() -> None:
    index = {"b": run(repeat_of="c"), "c": run(repeat_of="b"), "a": run(repeat_of="b")}
    assert set(group_repeats(index).values()) == {("b", "a", "c")}


def test_noise_is_borrowed_from_repeats_on_the_same_machine_and_software_only() -> None:
    here, other = "model=m|gpu=H100|torch_version=2", "model=m|gpu=H100|torch_version=3"
    elsewhere = "model=x|gpu=H100|torch_version=2"
    index = {
        "tee": run(TEE, here),
        "off": run(workload=here),
        "x": run(workload=elsewhere),
        "x-2": run(workload=elsewhere, repeat_of="x"),
        "y": run(workload=other),
        "y-2": run(workload=other, repeat_of="y"),
    }
    assert find_noise_groups(pair_runs(index), index) == {"tee": [("x", "x-2")]}
    repeats = {f"{name}-{at}": {**index[name], "repeat_of": name} for name in ("tee", "off") for at in (2, 3)}
    enough = {**index, **repeats}
    assert find_noise_groups(pair_runs(enough), enough) == {}, "three runs per side need no noise of others"


def test_a_workload_that_names_no_hardware_borrows_no_noise() -> None:
    index = {"tee": run(TEE), "off": run(), "x": run(workload="model=x"), "x-2": run(workload="model=x", repeat_of="x")}
    assert find_noise_groups(pair_runs(index), index) == {}


@pytest.mark.parametrize(
    ("regime", "of_baseline"), [("cc_off", "cc_off"), (TEE, TEE), (TEE, "tee_io_tdisp"), ("cc_off", TEE)]
)
def test_a_declared_baseline_of_any_regime_makes_a_pair_that_is_no_overhead_of_a_tee(
    regime: str, of_baseline: str
) -> None:
    index = {"new": run(regime, baseline="old"), "old": run(of_baseline, "model=m|batch_size=8|torch_version=2")}
    pair = pair_runs(index)["new"]
    assert (pair.baseline_run_id, pair.regime, pair.baseline_regime) == ("old", regime, of_baseline)
    assert not pair.is_tee_overhead
    assert pair.caveat == "the baseline differs in torch_version"
    (row,) = measure(pair).to_pylist()
    assert (row["baseline_regime"], row["paired_by"], is_tee_overhead(row)) == (of_baseline, "manifest", False)


def test_a_tee_and_a_plain_run_are_an_overhead_of_it_whoever_paired_them() -> None:
    for index in ({"tee": run(TEE, baseline="off"), "off": run()}, {"tee": run(TEE), "off": run()}):
        pair = pair_runs(index)["tee"]
        assert pair.is_tee_overhead
        assert is_tee_overhead(measure(pair).to_pylist()[0])
    assert not is_tee_overhead({"regime": None, "baseline_regime": "cc_off"}), "nothing says that it was inside a TEE"


def test_repeats_of_both_sides_count_in_a_pair_of_one_regime() -> None:
    old, new = (f"model=m|batch_size=8|torch_version={version}" for version in (2, 3))
    index = {
        "new": run(workload=new, baseline="old"),
        "new-2": run(workload=new, repeat_of="new"),
        "old": run(workload=old),
        "old-2": run(workload=old, repeat_of="old"),
    }
    found = pair_runs(index)
    assert (found["new"].candidates, found["new"].baselines) == (("new", "new-2"), ("old", "old-2"))
    assert found["new-2"].repeated_run_id == "new"
    assert found.keys() == {"new", "new-2"}, "the baseline and its repeats have no row of their own"


def test_a_repeat_that_names_a_baseline_says_where_to_declare_it() -> None:
    found = pair_runs({"a": run(), "a-2": run(repeat_of="a", baseline="b"), "b": run()})
    assert found.keys() == {"a-2"}
    assert found["a-2"].reason == (
        "it repeats a, which names no baseline: a pair is declared by the run that is repeated"
    )
    assert found["a-2"].repeated_run_id is None, "status tells it"


def test_a_declared_pair_that_says_nothing_is_refused_with_the_reason() -> None:
    bigger = "model=m|batch_size=16"
    index = {"a": run(baseline="a"), "b": run(baseline="c"), "c": run(workload=bigger), "d": run(TEE, baseline="c")}
    found = pair_runs(index)
    assert found["a"].reason == "a is on both sides: a run is not compared with itself"
    assert found["b"].reason == "a step of b and one of c do not do the same work: batch_size 8 against 16"
    assert (found["b"].baseline_run_id, found["b"].baselines) == (None, ())
    assert found["d"].caveat == "the baseline differs in batch_size", "a TEE is paired as before"


def test_two_runs_of_one_regime_differ_in_options_of_the_ring_too() -> None:
    index = {"new": run(baseline="old"), "old": run()}
    index["new"]["family"] = "model=m|batch_size=8|ring_chains=4"
    assert pair_runs(index)["new"].caveat == "the baseline differs in ring_chains"


def test_a_declared_pair_of_unnamed_models_says_that_nothing_holds_them_together() -> None:
    index = {"new": run(workload=None, baseline="old"), "old": run()}
    assert pair_runs(index)["new"].caveat == "no model named by new: nothing says that both did the same work"


def test_a_cost_model_is_fitted_on_pairs_of_a_tee_with_a_plain_run_only() -> None:
    index = {
        "off": run(),
        "changed": run(baseline="off"),
        "tee": run(TEE, baseline="off"),
        "tee-new": run(TEE, baseline="tee"),
        "inverse": run(baseline="tee"),
    }
    paired = pair_runs(index)
    assert all(paired[name].baseline_run_id is not None for name in ("changed", "tee", "tee-new", "inverse"))
    assert [pair.run_id for pair in choose_pairs(paired, index, TEE)] == ["tee"]
    assert choose_pairs(paired, index, "cc_off") == []


def test_a_pair_with_an_open_run_on_either_side_has_a_caveat_that_says_how_far_it_has_come() -> None:
    index = {"tee": run(TEE, baseline="off"), "off": run(workload="model=m|batch_size=16")}
    differs = "the baseline differs in batch_size"
    assert pair_runs(index)["tee"].caveat == differs
    index["off"]["so_far"] = "so far, 2 cycles"
    assert pair_runs(index)["tee"].caveat == f"{differs}; off is open: so far, 2 cycles"
    index = {"tee": run(TEE), "tee-2": run(TEE, repeat_of="tee"), "off": run()}
    index["tee"]["so_far"], index["tee-2"]["so_far"] = "so far, 1 logged period", "so far, 0 cycles"
    assert pair_runs(index)["tee"].caveat == ("tee is open: so far, 1 logged period; tee-2 is open: so far, 0 cycles")
