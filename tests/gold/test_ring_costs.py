from __future__ import annotations

import random
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING

import pytest

from gold.ring_costs import (
    average_factor,
    find_chain_factors,
    find_siblings,
    fit_cost,
    guess_constant,
    guess_nearest,
    guess_per_byte,
    leave_out,
    rebucket_ratio,
    select_replayed,
    solve_cost,
)
from tests.support.forecast_pairs import MODELS, MS, make_pair, make_pairs, make_step, time_candidate

if TYPE_CHECKING:
    from gold.forecast_runs import ForecastPair


def name_model(pair: ForecastPair) -> str:
    return pair.candidate.model


@pytest.mark.parametrize("cost", [0.3, 0.9, 3.0])
def test_a_planted_cost_is_found_again(cost: float) -> None:
    found = fit_cost(make_pairs(cost))
    assert found is not None
    assert found.ns_per_byte == pytest.approx(cost, rel=1e-3)
    assert found.models == set(MODELS)


@pytest.mark.parametrize("oddity", [0.7, 1.8])
@pytest.mark.parametrize("place", range(6))
def test_one_odd_pair_does_not_move_the_cost(place: int, oddity: float) -> None:
    pairs = [*make_pairs(), *(make_pair(model, 0.5, f"{model}-again") for model in MODELS)]
    pairs[place] = time_candidate(pairs[place], pairs[place].candidate_ns * oddity)
    found = fit_cost(pairs)
    assert found is not None
    assert found.ns_per_byte == pytest.approx(0.5, rel=1e-3)


def test_the_order_of_pairs_does_not_matter() -> None:
    pairs = [make_pair(model, cost) for model, cost in zip(MODELS, (0.4, 0.5, 0.7), strict=True)]
    first = fit_cost(pairs)
    assert all(fit_cost(some) == first for some in permutations(pairs))


def test_no_pairs_have_no_cost() -> None:
    assert fit_cost([]) is None
    assert leave_out([], name_model) == []


def test_the_cost_that_makes_one_pair_come_true_is_solved() -> None:
    pair = make_pair("ringy", 0.8)
    assert solve_cost(pair) == pytest.approx(0.8)
    assert pair.predict(0.8) == pytest.approx(pair.candidate_ns)


def test_a_pair_that_hides_its_sealing_or_is_odd_has_no_cost_of_its_own() -> None:
    pair = make_pair("ringy", 0.8)
    assert solve_cost(time_candidate(pair, 0.5 * pair.baseline_ns)) is None
    assert solve_cost(time_candidate(pair, 100 * pair.baseline_ns)) is None
    assert solve_cost(replace(pair, traced=())) is None


def test_repeats_of_a_traced_baseline_count_alike() -> None:
    pair = make_pair("ringy", 0.5)
    other = make_step((80, 1, 1))
    both = replace(pair, traced=(*pair.traced, (other,)))
    alone = replace(pair, traced=((other,),))
    assert both.predict(0.5) == pytest.approx((pair.predict(0.5) + alone.predict(0.5)) / 2)


# -- which pairs are replayed -----------------------------------------------------------------------------------------


def test_only_traced_rings_that_differ_in_nothing_but_sealing_are_replayed() -> None:
    plain = make_pair("ringy", 0.5)
    others = [
        replace(plain, traced=()),
        make_pair("ringy", 0.5, ring_pipelined="true"),
        make_pair("ringy", 0.5, ring_direct="true"),
        make_pair("ringy", 0.5, ring_chains="2"),
        replace(plain, baseline=make_pair("ringy", 0.5, bucket_cap_mib=5).baseline),
        replace(plain, baseline=make_pair("ringy", 0.5, world_size=4).baseline),
        replace(plain, baseline=make_pair("ringy", 0.5, batch_size=64).baseline),
        replace(plain, baseline=make_pair("mixed", 0.5).baseline),
    ]
    assert select_replayed([plain, *others]) == [plain]
    assert select_replayed([plain, *others], chains=2) == [others[3]]


# -- leaving out ------------------------------------------------------------------------------------------------------


def test_a_model_is_predicted_without_its_own_pairs() -> None:
    costs = {"ringy": 2.0, "mixed": 0.5, "dense": 0.5}
    pairs = [make_pair(model, cost) for model, cost in costs.items()]
    found = next(one for one in leave_out(pairs, name_model) if one.left_out == "ringy")
    assert found.pair == pairs[0]
    assert found.predicted_ns == pytest.approx(pairs[0].predict(0.5), rel=1e-3), "the cost of the others, not its own"
    assert found.predicted_ns < 0.9 * pairs[0].candidate_ns


def test_a_prediction_weighs_what_its_cost_makes_and_not_only_what_it_adds() -> None:
    pairs = [make_pair(model, 0.5, burden=1.2) for model in MODELS]
    found = {one.left_out: one for one in leave_out(pairs, name_model)}
    assert {one.burden for one in found.values()} == {1.2}
    ringy, dense = found["ringy"], found["dense"]
    sealed = sum(bucket.sealed_bytes for bucket in pairs[0].traced[0][0].buckets) * 0.5
    added = ringy.predicted_ns - pairs[0].baseline_ns
    assert sealed > added + 4e6, "copies that sealing replaces are no longer there"
    assert ringy.weight == pytest.approx(0.03 + sealed / ringy.predicted_ns, rel=1e-2)
    assert dense.weight < ringy.weight, "compute hides the most of it"


def test_pairs_of_one_model_alone_are_not_predicted() -> None:
    assert leave_out([make_pair("ringy", 0.5), make_pair("ringy", 0.5, "again")], name_model) == []


def test_what_is_left_out_changes_no_prediction_of_itself() -> None:
    pairs = make_pairs()
    before = {one.left_out: one.predicted_ns for one in leave_out(pairs, name_model)}
    pairs[1] = time_candidate(pairs[1], 3 * pairs[1].candidate_ns)
    after = {one.left_out: one.predicted_ns for one in leave_out(pairs, name_model)}
    assert after["mixed"] == before["mixed"]


# -- chains and caps --------------------------------------------------------------------------------------------------


def test_siblings_differ_in_one_setting_alone() -> None:
    one, two = make_pair("ringy", 0.5), make_pair("ringy", 0.3, "two", ring_chains="2")
    others = [
        make_pair("mixed", 0.3, "three", ring_chains="2"),
        make_pair("ringy", 0.3, "four", ring_chains="2", bucket_cap_mib=5),
        make_pair("ringy", 0.3, "five", ring_chains="2", ring_direct="true"),
        replace(make_pair("ringy", 0.3, "six", ring_chains="2"), traced=()),
    ]
    assert find_siblings([one, two, *others], "ring_chains") == [(one, two), (two, one)]


def test_chain_factors_are_those_of_pairs_with_one_baseline() -> None:
    pairs = []
    for model, factor in (("ringy", 0.6), ("mixed", 0.5)):
        one, two = make_pair(model, 0.8), make_pair(model, 0.8 * factor, f"{model}-two", ring_chains="2")
        pairs += [one, replace(two, baseline=one.baseline)]
    pairs.append(make_pair("dense", 0.8))
    pairs.append(make_pair("dense", 0.1, "dense-two", ring_chains="2"))  # with a baseline of its own
    factors = find_chain_factors(pairs, 2)
    assert factors == {"ringy": [pytest.approx(0.6)], "mixed": [pytest.approx(0.5)]}
    assert find_chain_factors(pairs, 4) == {}


def test_models_weigh_the_same_in_an_average_factor() -> None:
    assert average_factor({"a": [0.4, 0.4, 0.4], "b": [0.9], "c": []}) == pytest.approx(0.6)
    assert average_factor({}) is None


def test_its_own_cap_changes_nothing_and_smaller_buckets_begin_earlier() -> None:
    steps = (make_step((30, 1, 1), *[(20.0, 9.0, 25.0)] * 3),)
    pair = make_pair("ringy", 0.8, steps=steps)
    assert rebucket_ratio(pair, 0.8, 25) == pytest.approx(1, abs=0.01)
    assert rebucket_ratio(pair, 0.8, 5) < 0.99
    assert rebucket_ratio(pair, 0.8, 100) > 1.01


# -- guesses ----------------------------------------------------------------------------------------------------------


def plant_slowdowns(*slowdowns: float) -> list[ForecastPair]:
    """Pairs with these slowdowns, whose baselines take 100 ms, 200 ms and so on."""
    named = [make_pair("ringy", 0.5, f"{place}", plain_ns=100 * MS * place) for place in range(1, len(slowdowns) + 1)]
    return [time_candidate(pair, slow * pair.baseline_ns) for pair, slow in zip(named, slowdowns, strict=True)]


def test_the_constant_guess_is_the_median_slowdown_of_the_others() -> None:
    pair, *others = plant_slowdowns(9, 1.1, 1.2, 2.0)
    assert guess_constant(pair, others) == pytest.approx(120 * MS)
    assert guess_constant(pair, others[:2]) == pytest.approx(115 * MS)


def test_the_nearest_guess_is_the_slowdown_of_the_most_similar_step() -> None:
    pair, *others = plant_slowdowns(9, 1.1, 1.2, 2.0)
    random.Random(1).shuffle(others)
    assert guess_nearest(pair, others) == pytest.approx(110 * MS)


def test_the_guess_per_byte_takes_the_median_overhead_of_a_byte() -> None:
    pairs = make_pairs()
    rates = [0.1, 0.2, 0.9]
    others = [
        time_candidate(pair, pair.baseline_ns + rate * pair.baseline.sealed_bytes)
        for pair, rate in zip(pairs, rates, strict=True)
    ]
    sealed = pairs[0].baseline.sealed_bytes
    assert sealed == sum(bucket.buffer_bytes for bucket in pairs[0].traced[0][0].buckets)
    assert guess_per_byte(pairs[0], others) == pytest.approx(pairs[0].baseline_ns + 0.2 * sealed)
    unknown = replace(pairs[0], baseline=replace(pairs[0].baseline, steps=()))
    assert guess_per_byte(unknown, others) is None
