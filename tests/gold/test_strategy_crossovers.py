from __future__ import annotations

import pytest

from gold.strategy_crossovers import Crossover, find_crossovers, list_counts, trace_counts
from gold.strategy_question import MODEL_ERROR, compare_steps, find_steps
from tests.support.planned_jobs import ask


@pytest.fixture(scope="module")
def found() -> list[Crossover]:
    """Those of 13 B parameters on 64 GPUs."""
    return find_crossovers(ask("llama-2-13b", 64, 1024))


def has_other_choice(question: object, regime: str) -> bool:
    ratio = compare_steps(find_steps(question, "cc_off"), find_steps(question, regime))  # type: ignore[arg-type]
    assert ratio is not None
    return ratio > 1 + MODEL_ERROR


def test_beyond_a_crossover_the_choice_changes_and_before_it_does_not(found: list[Crossover]) -> None:
    question = ask("llama-2-13b", 64, 1024)
    sized = [one for one in found if one.axis == "parameters" and one.is_low_bounded]
    assert sized
    for one in sized:
        assert has_other_choice(question.scale(size=one.low), one.regime)
        assert not has_other_choice(question.scale(size=one.low / 1.03), one.regime)


def test_gpu_counts_are_whole_nodes_and_the_choice_changes_there(found: list[Crossover]) -> None:
    question = ask("llama-2-13b", 64, 1024)
    counted = [one for one in found if one.axis == "gpus"]
    assert {one.regime for one in counted} >= {"hopper_ppcie", "sw_per_hop_aesgcm"}
    for one in counted:
        assert one.low % 8 == 0
        assert has_other_choice(question.scale(gpus_count=int(one.low)), one.regime)


def test_without_a_tee_nothing_changes_and_nvlink_that_stays_plain_keeps_the_choice() -> None:
    regimes = {one.regime for one in find_crossovers(ask("gpt-2-xl", 8, 128))}
    assert regimes == {"hopper_spt_cc", "sw_per_hop_aesgcm"}


def test_what_ties_without_a_tee_does_not_count_as_a_change() -> None:
    question = ask("llama-2-13b", 64, 1024)
    off, on = find_steps(question, "cc_off"), find_steps(question, "hopper_ppcie")
    assert off.best is not None
    assert on.best is not None
    assert off.names[off.best] != on.names[on.best], "another strategy is fastest"
    assert not has_other_choice(question, "hopper_ppcie"), "yet one that ties with the fastest is as good"


def test_counts_are_powers_of_two_that_the_batch_can_use_and_the_one_asked_about() -> None:
    assert list_counts(ask("gpt-2-xl", 8, 128)) == [1, 2, 4, 8]
    assert list_counts(ask("llama-2-13b", 24, 3)) == [1, 2, 4, 8, 16, 24, 32, 64, 128, 256]


def test_more_gpus_never_take_longer_without_a_tee() -> None:
    steps = [row["step_ns"] for row in trace_counts(ask("llama-2-13b", 64, 1024)) if row["regime"] == "cc_off"]
    assert len(steps) > 8
    assert steps == sorted(steps, reverse=True)
