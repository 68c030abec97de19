"""What `teetotal validate` says of intervals by group, on checks that are made up."""

from __future__ import annotations

import polars as pl
import pytest

from gold.prediction_checks import TABLE
from pipelines.cli import validation


def make_checks(level: float = 0.67, **groups: tuple[int, int]) -> pl.DataFrame:
    """Good predictions: so many of each model inside their intervals, of so many."""
    rows = [
        {
            **dict.fromkeys(TABLE.column_names),
            "regime": "sw_per_hop_aesgcm",
            "task": "regime",
            "scheme": "model",
            "left_out": model,
            "model": model,
            "predicted_run_id": f"{model}-{number}",
            "measured_step_ns": 100,
            "known_step_ns": 90,
            "error_fraction": 0.01,
            "interval_level": level,
            "is_inside": number < inside,
            "is_hidden": False,
        }
        for model, (inside, count) in groups.items()
        for number in range(count)
    ]
    return pl.DataFrame(rows, schema=TABLE.polars_schema)


def judge(checks: pl.DataFrame) -> tuple[list[str], bool]:
    lines, is_met = validation.judge(checks)
    return [line.strip() for line in lines], is_met


def test_coverage_is_told_of_every_group_and_the_worst_is_named_with_what_chance_leaves_open() -> None:
    lines, is_met = judge(make_checks(bert=(3, 3), gpt=(6, 6), resnet=(6, 9)))
    assert is_met
    assert "intervals: 83 % of 18 inside at a stated 67 %, no group below by more than 10 points: met" in lines
    assert "worst group: resnet, 67 % of 9; so few runs leave 30 to 93 % open" in lines
    assert "by group: bert 3 of 3, gpt 6 of 6, resnet 6 of 9" in lines


def test_a_group_that_is_covered_too_seldom_misses_though_all_together_do_not() -> None:
    lines, is_met = judge(make_checks(bert=(9, 9), resnet=(5, 9)))
    assert not is_met
    assert "intervals: 78 % of 18 inside at a stated 67 %, no group below by more than 10 points: missed" in lines
    assert any(line.startswith("worst group: resnet, 56 % of 9; ") for line in lines)


def test_a_group_of_few_runs_is_named_and_decides_nothing() -> None:
    lines, is_met = judge(make_checks(bert=(9, 9), vit=(0, 2)))
    assert is_met
    assert "worst group: vit, 0 % of 2, too few to decide; so few runs leave 0 to 84 % open" in lines


def test_all_groups_together_decide_however_few_runs_each_has() -> None:
    assert not judge(make_checks(bert=(1, 3), vit=(1, 4)))[1]


@pytest.mark.parametrize(("inside", "is_met"), [(7, True), (6, False)])
def test_a_group_may_miss_by_ten_points(inside: int, *, is_met: bool) -> None:
    assert judge(make_checks(0.8, bert=(10, 10), gpt=(10, 10), resnet=(inside, 10)))[1] is is_met


def test_runs_of_no_model_are_a_group() -> None:
    lines, _ = judge(make_checks(bert=(3, 3)).with_columns(model=pl.lit("")))
    assert "by group: no model named 3 of 3" in lines
