"""Statistics that may leave: one tenant changes them by no more than was paid for, and nothing but noise hides it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gold.private_statistics import GROUPINGS, METRICS, SHARES, MeasuredRun, list_groups, release_statistics
from lake.errors import ContractBroken

if TYPE_CHECKING:
    from collections.abc import Sequence

BY, BOTH = ("regime", "gpu"), ("slowdown", "overhead")


@dataclass
class NoNoise:
    """Adds nothing, and keeps what it was asked to hide."""

    asked: list[tuple[list[int], int, float]] = field(default_factory=list)

    def __call__(self, values: Sequence[int], sensitivity: int, epsilon: float) -> tuple[list[int], float]:
        self.asked.append((list(values), sensitivity, epsilon))
        return list(values), 0.0


def run(
    number: int, tenant: str, slowdown: float, regime: str = "hopper_spt_cc", gpu: str = "NVIDIA H200"
) -> MeasuredRun:
    return MeasuredRun(f"run-{number}", tenant, regime, gpu, 10**9, {"slowdown": slowdown, "overhead": slowdown * 7})


RUNS = st.builds(
    run,
    st.integers(0, 10_000),
    st.sampled_from(["ada", "bob", "eve"]),
    st.floats(-1e6, 1e6),
    st.sampled_from([*GROUPINGS["regime"], "of my own"]),
    st.sampled_from(["NVIDIA H100 80GB", "H200", "", "GeForce"]),
)


@given(st.lists(RUNS, max_size=25, unique_by=lambda one: one.run_id), st.integers(1, 5))
def test_one_tenant_changes_what_is_hidden_by_no_more_than_was_said(runs: list[MeasuredRun], most: int) -> None:
    whole, without = NoNoise(), NoNoise()
    release_statistics(runs, BY, BOTH, 1.0, most, whole)
    release_statistics([one for one in runs if one.tenant != "eve"], BY, BOTH, 1.0, most, without)
    assert len(whole.asked) == len(without.asked) == 6
    for (values, sensitivity, epsilon), (other, same, price) in zip(whole.asked, without.asked, strict=True):
        assert (len(values), sensitivity, epsilon) == (len(other), same, price)
        assert sum(abs(one - two) for one, two in zip(values, other, strict=True)) <= sensitivity


@given(st.floats(0.01, 10), st.sampled_from([("slowdown",), BOTH]))
def test_the_shares_add_up_to_what_was_paid(epsilon: float, metrics: tuple[str, ...]) -> None:
    noise = NoNoise()
    release_statistics([], BY, metrics, epsilon, 4, noise)
    assert sum(price for _, _, price in noise.asked) == pytest.approx(epsilon)
    assert sum(SHARES.values()) == pytest.approx(1)


def test_groups_are_those_declared_whatever_the_data_hold() -> None:
    empty = release_statistics([], BY, BOTH, 1.0, 4, NoNoise())
    full = release_statistics(
        [run(1, "ada", 1.5, "a regime of my own", "a GPU of my own")], BY, BOTH, 1.0, 4, NoNoise()
    )
    assert [one.group for one in empty] == [one.group for one in full]
    assert {one.group for one in full} == set(list_groups(BY))
    counts = {one.group: one.value for one in full if one.statistic == "count" and one.metric == "slowdown"}
    assert counts.pop(("other", "other")) == 1
    assert set(counts.values()) == {0}


def test_without_noise_the_numbers_are_those_of_the_runs() -> None:
    runs = [run(number, f"tenant-{number}", 1.0 + number / 100) for number in range(101)]
    found = release_statistics(runs, ("regime",), ("slowdown",), 1.0, 4, NoNoise())
    told = {one.statistic: one.value for one in found if one.group == ("hopper_spt_cc",)}
    assert told["count"] == 101
    assert told["mean"] == pytest.approx(1.5)
    assert told["p50"] == pytest.approx(1.5, abs=0.05)
    assert told["p10"] == pytest.approx(1.1, abs=0.05)
    assert told["p90"] == pytest.approx(1.9, abs=0.05)


def test_a_tenant_counts_with_no_more_than_its_runs_and_always_the_same_ones() -> None:
    runs = [run(number, "ada", 1.0 + number) for number in range(9)]
    one, two = NoNoise(), NoNoise()
    release_statistics(runs, (), ("slowdown",), 1.0, 4, one)
    release_statistics([*reversed(runs), run(99, "bob", 2.0)], (), ("slowdown",), 1.0, 4, two)
    assert one.asked[0][0] == [4]
    assert two.asked[0][0] == [5]
    assert two.asked[1][0][0] - one.asked[1][0][0] == METRICS["slowdown"].clamp(2.0) - 2450


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_number_is_left_out(value: float) -> None:
    noise = NoNoise()
    release_statistics([run(1, "ada", value)], (), ("slowdown",), 1.0, 4, noise)
    assert noise.asked[0][0] == [0]


def test_a_wrong_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(ContractBroken, match=r"no grouping 'regim' .*regime"):
        release_statistics([], ("regim",), BOTH, 1.0, 4, NoNoise())
    with pytest.raises(ContractBroken, match=r"no metric 'slowdwn' .*slowdown"):
        release_statistics([], BY, ("slowdwn",), 1.0, 4, NoNoise())
