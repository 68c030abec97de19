from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gold.overhead_breakdown import GROUPS, TABLE, measure
from gold.time_breakdown import PARTS
from tests.support.baselines import PAIR, cell, steps

if TYPE_CHECKING:
    import pyarrow as pa


def overheads(tee: pa.Table, baseline: pa.Table) -> dict[str, dict[str, Any]]:
    rows = measure(PAIR, tee, baseline)
    assert rows.schema == TABLE.arrow_schema
    return {row["part"]: row for row in rows.to_pylist()}


def test_each_part_tells_what_the_tee_added_to_it() -> None:
    tee = steps("tee", cell(0, compute=20, crypto=70), cell(1, compute=22, crypto=80))
    baseline = steps("plain", cell(0, compute=24), cell(1, compute=22))
    found = overheads(tee, baseline)
    assert list(found) == list(PARTS)
    assert (found["compute"]["overhead_ns"], found["crypto"]["overhead_ns"], found["idle"]["overhead_ns"]) == (
        -2,
        75,
        0,
    )
    assert found["crypto"]["share_fraction"] == pytest.approx(75 / 73)
    assert {row["cells_count"] for row in found.values()} == {2}


def test_a_part_that_one_side_could_not_observe_is_said_and_goes_unattributed() -> None:
    blind = cell(0, compute=None, idle=None, launch=10, unattributed=90)
    found = overheads(steps("tee", blind), steps("plain", cell(0, compute=40, launch=5, idle=5)))
    assert found["compute"]["overhead_ns"] is None
    assert found["compute"]["reason"] == "not observed in the run; it is part of what is not attributed"
    assert found["launch"]["overhead_ns"] == 5
    assert (found["unattributed"]["step_ns"], found["unattributed"]["baseline_step_ns"]) == (90, 45)


def test_a_hop_is_one_group_in_both_modes_so_a_renamed_part_is_no_finding() -> None:
    # The sealed ring waits where the plain one sends: together they take 10 more.
    tee = steps("tee", cell(0, compute=20, crypto=70, transport=5, wait=35))
    baseline = steps("plain", cell(0, compute=20, transport=100))
    found = overheads(tee, baseline)
    assert {part: row["group_overhead_ns"] for part, row in found.items() if row["part_group"] == "hop"} == {
        "collective": 10,
        "crypto": 10,
        "transport": 10,
        "wait": 10,
    }
    assert found["transport"]["overhead_ns"] == -95


def test_a_group_with_a_part_that_nobody_observed_has_no_sum() -> None:
    blind = cell(0, collective=None, idle=None, launch=10, unattributed=90)
    found = overheads(steps("tee", blind), steps("plain", cell(0, collective=40, launch=5, idle=5)))
    assert found["crypto"]["group_overhead_ns"] is None
    assert found["launch"]["group_overhead_ns"] == 5


def test_every_part_is_in_one_group() -> None:
    assert sorted(part for parts in GROUPS.values() for part in parts) == sorted(PARTS)


def test_equal_runs_have_no_share() -> None:
    found = overheads(steps("tee", cell(0, compute=5)), steps("plain", cell(0, compute=5)))
    assert {row["share_fraction"] for row in found.values()} == {None}


def test_nothing_in_common_is_no_row() -> None:
    assert overheads(steps("tee"), steps("plain", cell(0, compute=5))) == {}


LENGTHS = st.fixed_dictionaries({part: st.integers(0, 10**15) for part in PARTS if part != "unattributed"})


@given(st.lists(st.tuples(LENGTHS, LENGTHS), min_size=1, max_size=9))
def test_parts_sum_to_the_overhead_of_the_mean_steps_exactly(
    cells: list[tuple[dict[str, int], dict[str, int]]],
) -> None:
    tee = steps("tee", *(cell(number, 0, is_warmup=False, **ours) for number, (ours, _) in enumerate(cells)))
    baseline = steps("plain", *(cell(number, 0, is_warmup=False, **theirs) for number, (_, theirs) in enumerate(cells)))
    found = overheads(tee, baseline)
    means = [sum(sum(side.values()) for side in sides) // len(cells) for sides in zip(*cells, strict=True)]
    assert sum(row["step_ns"] for row in found.values()) == means[0]
    assert sum(row["baseline_step_ns"] for row in found.values()) == means[1]
    assert sum(row["overhead_ns"] for row in found.values()) == means[0] - means[1]
    groups = {row["part_group"]: row["group_overhead_ns"] for row in found.values()}
    assert sum(groups.values()) == means[0] - means[1]
    for part, row in found.items():
        exact = sum(ours.get(part, 0) for ours, _ in cells) / len(cells)
        assert abs(row["step_ns"] - exact) <= 1 + exact * 1e-12
