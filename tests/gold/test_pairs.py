from __future__ import annotations

from gold.pairs import TABLE, Index, measure, pair_runs


def run(
    regime: str | None = "cc_off",
    workload: str | None = "model=m|batch_size=8",
    baseline: str | None = None,
    repeat_of: str | None = None,
) -> dict[str, str | None]:
    named = {"regime": regime, "baseline": baseline, "repeat_of": repeat_of}
    return {**named, "workload": workload, "family": workload}


def test_a_run_is_paired_with_the_baseline_that_it_names() -> None:
    index = {"tee": run("hopper_ppcie", baseline="b"), "a": run(), "b": run()}
    (pair,) = pair_runs(index).values()
    assert (pair.run_id, pair.baseline_run_id, pair.paired_by, pair.caveat) == ("tee", "b", "manifest", None)


def test_a_named_baseline_that_differs_is_taken_and_the_difference_told() -> None:
    index = {"tee": run("hopper_ppcie", baseline="b"), "b": run(workload="model=m|batch_size=16")}
    assert pair_runs(index)["tee"].caveat == "the baseline differs in batch_size"


def test_a_named_baseline_that_is_missing_or_in_a_tee_is_refused() -> None:
    index = {"x": run("hopper_ppcie", baseline="gone"), "y": run("hopper_ppcie", baseline="x")}
    assert [pair.reason for pair in pair_runs(index).values()] == [
        "its manifest names gone, which is not in the lake",
        "its manifest names x, whose regime is hopper_ppcie",
    ]


def test_equal_workloads_pair_and_the_choice_among_several_is_told() -> None:
    index = {"tee": run("tee_io_tdisp"), "b": run(), "a": run(), "r": run(repeat_of="a")}
    pair = pair_runs(index)["tee"]
    assert (pair.baseline_run_id, pair.paired_by) == ("a", "workload")
    assert pair.caveat == "2 runs are equal in workload; the first by name was taken"


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


def test_a_run_without_a_tee_is_no_pair() -> None:
    assert pair_runs({"a": run(), "b": run()}) == {}


def test_a_pair_is_one_row() -> None:
    rows = measure(pair_runs({"tee": run("tee_io_tdisp"), "a": run()})["tee"])
    assert rows.schema == TABLE.arrow_schema
    assert rows.to_pylist()[0]["baseline_run_id"] == "a"
