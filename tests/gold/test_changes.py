from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gold.changes import name_change, predict_change
from gold.pairs import OFF
from gold.regime_model import RegimeModel
from tests.support.forecast_pairs import (
    MODELS,
    MS,
    SEALED,
    make_pair,
    make_pairs,
    make_run,
    make_single_pairs,
    make_step,
    plant_chains,
    time_candidate,
)

if TYPE_CHECKING:
    from gold.forecast_runs import ForecastPair, ForecastRun
    from gold.outcomes import Outcome

COST = 0.5


def make_model(*pairs: ForecastPair, off_runs: tuple[ForecastRun, ...] = ()) -> RegimeModel:
    """What predictions go by: these pairs, or one of each model."""
    return RegimeModel(SEALED, pairs or tuple(make_pairs(COST)), off_runs)


def ask(run: ForecastRun, model: RegimeModel | None = None, **change: str) -> Outcome:
    return predict_change(run, model or make_model(), change)


def find_refusal(run: ForecastRun, model: RegimeModel | None = None, **change: str) -> str:
    """Why a change is refused; nothing is predicted then."""
    found = ask(run, model, **change)
    assert (found.predicted_ns, found.low_ns, found.high_ns, found.level, found.method) == (None,) * 5
    assert found.verdict == f"not predictable because {found.refusal}"
    return found.refusal or ""


PLAIN = make_run("new-plain", steps=(make_step(*MODELS["ringy"]),), model="new")
RINGY = make_pair("ringy", COST).candidate


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pipelined", "direct"])
def test_options_of_which_recordings_differ_are_refused(name: str) -> None:
    assert find_refusal(RINGY, None, **{name: "true"}) == f"recordings differ even in whether {name} helps"


def test_a_run_with_such_an_option_is_refused_whatever_is_changed() -> None:
    pair = make_pair("ringy", COST, ring_pipelined="true")
    answer = "the run is pipelined, and recordings differ in what that does"
    assert find_refusal(pair.candidate, make_model(pair), accumulate="2") == answer


def test_another_number_of_gpus_is_refused() -> None:
    answer = "no recording in the lake shows how a step changes with the number of GPUs"
    assert find_refusal(PLAIN, regime=SEALED, world_size="8") == answer


def test_a_graph_of_a_job_of_several_ranks_is_refused() -> None:
    expected = "collectives between ranks are issued by the host, and no recording shows them in a graph"
    assert find_refusal(RINGY, cuda_graphs="true") == expected


@pytest.mark.parametrize("world_size", [1, 2])
def test_pinned_copies_are_refused_with_what_is_known_of_them(world_size: int) -> None:
    run = make_run("x", SEALED, steps=PLAIN.steps, world_size=world_size)
    assert find_refusal(run, pinned="true").startswith("under CC a pinned copy waits as a pageable one does")


def test_chains_without_a_pair_are_refused() -> None:
    assert find_refusal(RINGY, chains="4") == "no pair shows what chains=4 does on this machine; known are 1"


def test_a_machine_without_pairs_is_refused() -> None:
    elsewhere = make_run("x", steps=PLAIN.steps, gpu="B200")
    assert find_refusal(elsewhere, regime=SEALED) == (
        f"the lake has no traced pair of {SEALED} on the machine of this run"
    )


def test_a_sealed_run_without_a_traced_baseline_is_refused() -> None:
    answer = "no traced baseline of it is in the lake, and sealing hides when gradients were ready"
    assert find_refusal(make_run("alone", SEALED), accumulate="2") == answer
    untraced = replace(make_pair("ringy", COST, "untraced"), traced=())
    assert find_refusal(untraced.candidate, make_model(*make_pairs(), untraced), accumulate="2") == answer


def test_a_plain_run_without_a_trace_is_refused() -> None:
    assert find_refusal(replace(PLAIN, steps=()), regime=SEALED) == "no trace of it shows when its gradients were ready"


def test_a_recording_that_slowed_the_step_too_much_is_refused() -> None:
    answer = "recording slowed the traced steps 1.51 times: they say too little of bare ones"
    assert find_refusal(replace(PLAIN, burden=1.51), regime=SEALED) == answer
    assert ask(replace(PLAIN, burden=1.5), regime=SEALED).refusal is None


def test_a_sealed_run_goes_by_what_recording_did_to_its_baseline_which_is_replayed() -> None:
    ringy = make_pair("ringy", COST)
    slowed = replace(ringy, baseline=replace(ringy.baseline, burden=1.6))
    answer = "recording slowed the traced steps 1.60 times: they say too little of bare ones"
    assert find_refusal(ringy.candidate, make_model(slowed), accumulate="2") == answer
    alone = replace(ringy, candidate=replace(ringy.candidate, burden=1.6))
    assert ask(alone.candidate, make_model(alone), accumulate="2").refusal is None


def test_another_batch_size_needs_two_that_are_known() -> None:
    answer = "the lake has no two batch sizes of this model without a TEE on this machine"
    others = (make_run("other-model", model="x", batch_size=64), make_run("other-gpu", gpu="B200", batch_size=64))
    model = make_model(off_runs=(PLAIN, replace(PLAIN, run_id="again", step_ns=99.0 * MS), *others))
    assert find_refusal(PLAIN, model, batch_size="64") == answer


def test_another_cap_of_a_run_that_does_not_say_its_own_is_refused() -> None:
    run = make_run("x", steps=PLAIN.steps, bucket_cap_mib=None)
    assert find_refusal(run, regime=SEALED, bucket_cap_mib="5") == "the run does not say its bucket cap"


def test_a_run_without_a_step_is_refused() -> None:
    found = ask(replace(PLAIN, step_ns=None), regime=SEALED)
    assert (found.refusal, found.current_ns) == ("nothing timed a step of this run", None)


def test_one_gpu_with_another_change_is_refused() -> None:
    answer = "the lake has no pair on one GPU that differs in accumulate, chains"
    assert find_refusal(make_run("x", world_size=1), regime="hopper_spt_cc", chains="2", accumulate="2") == answer


def test_one_gpu_under_a_regime_already_is_refused() -> None:
    answer = f"it is a run under {SEALED} already: ask what a run without a TEE would take"
    assert find_refusal(make_run("x", SEALED, world_size=1), regime=SEALED) == answer


def test_one_gpu_without_a_batch_size_is_refused() -> None:
    assert find_refusal(make_run("x", world_size=1, batch_size=None), regime=SEALED) == "it does not say its batch size"


def test_where_nothing_tells_host_from_gpu_time_the_interval_holds_both() -> None:
    pairs = make_single_pairs()
    model = RegimeModel("hopper_spt_cc", tuple(pairs), tuple(pair.baseline for pair in pairs))
    known, lone = (
        predict_change(run, model, {"regime": "hopper_spt_cc"})
        for run in (pairs[1].baseline, make_run("lone", step_ms=40, model="lone", world_size=1, batch_size=64))
    )
    assert (known.method, known.caveat) == ("plateau", None)
    assert known.low_ns is not None
    assert lone.caveat == "nothing shows whether the host or the GPU bounds its step: the interval holds both"
    assert lone.low_ns is not None
    assert lone.high_ns is not None
    assert lone.high_ns / lone.low_ns > (known.high_ns or 0) / known.low_ns


# -- predictions ------------------------------------------------------------------------------------------------------


def test_a_plain_run_under_the_regime_takes_what_its_replay_says() -> None:
    pair = make_pair("ringy", COST, "new")
    found = ask(pair.baseline, regime=SEALED)
    assert found.predicted_ns == pytest.approx(pair.candidate_ns, rel=1e-3)
    assert (found.method, found.current_ns, found.change) == ("bucket_replay", pair.baseline_ns, f"regime={SEALED}")


def test_a_sealed_run_without_the_regime_takes_what_its_baseline_takes() -> None:
    pair = make_pair("ringy", COST)
    found = ask(pair.candidate, regime=OFF)
    assert found.predicted_ns == pytest.approx(pair.baseline_ns)


def test_a_run_whose_sealing_costs_more_than_others_keeps_its_own_cost() -> None:
    odd = make_pair("ringy", 2 * COST, "odd")
    model = make_model(*make_pairs(COST), *plant_chains("mixed", "dense"), odd)
    found = ask(odd.candidate, model, chains="2")
    assert found.predicted_ns == pytest.approx(odd.predict(2 * COST * 0.6), rel=1e-3)


def test_no_change_at_all_takes_what_the_run_takes() -> None:
    found = ask(RINGY, accumulate="1")
    assert found.predicted_ns == pytest.approx(RINGY.step_ns)
    assert found.verdict == "within model error"


def test_a_run_that_no_cost_explains_is_still_what_a_change_starts_from() -> None:
    odd = make_pair("ringy", COST, "odd")
    odd = time_candidate(odd, 0.9 * odd.baseline_ns)
    found = ask(odd.candidate, make_model(*make_pairs(COST), odd), accumulate="1")
    assert found.predicted_ns == pytest.approx(odd.candidate_ns)


def test_many_micro_batches_leave_nothing_but_compute() -> None:
    pair = make_pair("ringy", COST)
    steps = [ask(pair.candidate, accumulate=count).predicted_ns or 0.0 for count in ("1", "2", "4", "1000000")]
    assert steps == sorted(steps, reverse=True)
    (step,) = pair.traced[0]
    assert steps[-1] < pair.baseline_ns
    alone = (step.buckets[0].ready_ns + step.tail_ns) / step.step_ns * pair.baseline_ns
    assert steps[-1] > alone, "the last gradients come no earlier than the first"


def test_several_changes_at_once_are_one_prediction() -> None:
    model = make_model(*plant_chains("ringy", "mixed"))
    one, other, both = (
        ask(RINGY, model, **change)
        for change in ({"chains": "2"}, {"accumulate": "2"}, {"chains": "2", "accumulate": "2"})
    )
    assert both.change == "accumulate=2 chains=2"
    assert both.predicted_ns is not None
    assert one.predicted_ns is not None
    assert other.predicted_ns is not None
    assert both.predicted_ns < min(one.predicted_ns, other.predicted_ns)


def test_a_change_is_named_by_its_settings_in_their_order() -> None:
    assert (
        name_change({"regime": "r", "chains": "2"})
        == name_change({"chains": "2", "regime": "r"})
        == ("chains=2 regime=r")
    )


@pytest.mark.parametrize(("batch", "plain_ms"), [("48", 150), ("96", 250), ("16", 50)])
def test_a_batch_size_lies_on_the_line_through_the_nearest_two(batch: str, plain_ms: float) -> None:
    sizes = ((32, 100), (64, 200), (128, 300))
    known = tuple(make_run(f"b{size}", OFF, ms, model="new", batch_size=size) for size, ms in sizes)
    found = ask(PLAIN, make_model(off_runs=known), batch_size=batch)
    assert found.predicted_ns == pytest.approx(plain_ms * MS)


def test_the_dominant_term_is_what_the_step_mostly_is() -> None:
    hidden = make_run("x", steps=(make_step((90, 1, 1), tail_ms=20),))
    assert ask(hidden, regime=SEALED).dominant_term == "compute"
    expensive = make_model(*make_pairs(5.0))
    assert ask(PLAIN, expensive, regime=SEALED).dominant_term == "sealing"


# -- certainty --------------------------------------------------------------------------------------------------------


def test_an_interval_holds_the_prediction_at_the_level_of_three_models() -> None:
    found = ask(PLAIN, regime=SEALED)
    assert found.low_ns is not None
    assert found.high_ns is not None
    assert found.predicted_ns is not None
    assert found.low_ns <= found.predicted_ns <= found.high_ns
    assert (found.level, found.caveat) == (0.75, None)


def test_pairs_of_one_model_make_no_interval_and_no_verdict() -> None:
    found = ask(PLAIN, make_model(make_pair("ringy", COST)), regime=SEALED)
    assert (found.low_ns, found.high_ns, found.level) == (None, None, None)
    assert found.verdict == "model error unknown"
    assert found.caveat == "errors on fewer than two other models make no interval"


def test_an_interval_widens_with_what_recording_cost() -> None:
    narrow, same, wide = (ask(replace(PLAIN, burden=burden), regime=SEALED) for burden in (None, 1.1, 1.3))
    assert (same.low_ns, same.high_ns) == (narrow.low_ns, narrow.high_ns)
    assert wide.predicted_ns == narrow.predicted_ns
    assert wide.low_ns == pytest.approx((narrow.low_ns or 0) / 1.3)
    assert wide.high_ns == pytest.approx((narrow.high_ns or 0) * 1.3)
    assert wide.caveat == "recording slowed the traced steps 1.30 times, so the interval is wider"


def test_a_gain_beyond_the_models_error_is_worth_it() -> None:
    assert ask(RINGY, make_model(*make_pairs(COST)), regime=OFF).verdict == "worth it"


def test_a_loss_beyond_the_models_error_costs_more() -> None:
    assert ask(PLAIN, make_model(*make_pairs(2.0)), regime=SEALED).verdict == "costs more"


def test_the_same_loss_is_within_the_error_of_a_model_that_was_often_wrong() -> None:
    pairs = make_pairs(2.0)
    pairs[1] = time_candidate(pairs[1], 3 * pairs[1].candidate_ns)
    assert ask(PLAIN, make_model(*pairs), regime=SEALED).verdict == "within model error"


def test_what_lies_outside_of_the_pairs_is_extrapolated() -> None:
    caps = make_model(*make_pairs(), make_pair("ringy", COST, "five", bucket_cap_mib=5))
    wider = make_run("wide", steps=(make_step(*MODELS["ringy"], group_size=8),), world_size=8)
    larger = make_run("large", steps=(make_step((20, 9, 30)),))
    assert ask(PLAIN, regime=SEALED).is_extrapolated is False
    assert ask(wider, regime=SEALED).is_extrapolated is True
    assert ask(larger, regime=SEALED).is_extrapolated is True
    assert ask(RINGY, caps, bucket_cap_mib="10").is_extrapolated is False
    assert ask(RINGY, caps, bucket_cap_mib="100").is_extrapolated is True
