from __future__ import annotations

from typing import Any

import pytest

from gold.scaling import TABLE, measure, partition


def point(
    name: str,
    ranks: int | None,
    overhead_ns: int | None,
    cap_mib: float | None = None,
    sealed_message_count: int | None = None,
    sealed_bytes: int | None = None,
) -> dict[str, Any]:
    sealed = {"sealed_message_count": sealed_message_count, "sealed_bytes": sealed_bytes}
    where = {"world_size": ranks, "bucket_cap_mib": cap_mib}
    return {
        "tee_run_id": name,
        "baseline_run_id": "b",
        "overhead_ns": overhead_ns,
        "slowdown_ratio": 2.0,
        "evidence": "measured",
        **sealed,
        **where,
    }


def fit_scaling(*points: dict[str, Any]) -> list[dict[str, Any]]:
    rows = measure("model=m", "sw_per_hop_aesgcm", points)
    assert rows.schema == TABLE.arrow_schema
    return [dict(row) for row in rows.to_pylist()]


def test_a_line_through_three_points_has_a_slope_and_an_interval() -> None:
    rows = fit_scaling(point("a", 2, 100), point("b", 4, 300), point("c", 8, 700))
    assert {row["slope_ns"] for row in rows} == {100}
    assert {(row["slope_low_ns"], row["slope_high_ns"]) for row in rows} == {(100, 100)}
    assert [(row["axis"], row["axis_number"], row["points_count"]) for row in rows] == [
        ("world_size", 2.0, 3),
        ("world_size", 4.0, 3),
        ("world_size", 8.0, 3),
    ]


def test_scatter_widens_the_interval_as_student_says() -> None:
    rows = fit_scaling(point("a", 1, 100), point("b", 2, 300), point("c", 3, 300))
    # slope 100, residuals -33.3, 66.7, -33.3: standard error 57.7, one degree of freedom
    assert rows[0]["slope_ns"] == 100
    assert rows[0]["slope_high_ns"] == pytest.approx(100 + 12.706 * 57.735, abs=1)


def test_two_places_have_no_slope_however_many_runs_stand_there() -> None:
    rows = fit_scaling(point("a", 2, 100), point("b", 4, 300), point("c", 4, 320))
    assert {(row["slope_ns"], row["slope_low_ns"], row["points_count"], row["places_count"]) for row in rows} == {
        (None, None, 3, 2)
    }
    assert rows[0]["reason"] == "the runs stand at two places of this axis: a slope needs three"


def test_runs_at_one_place_have_no_slope() -> None:
    rows = fit_scaling(point("a", 2, 100), point("b", 2, 300))
    assert {row["slope_ns"] for row in rows} == {None}
    assert rows[0]["reason"] == "the runs stand at one place of this axis: a slope needs three"


def test_runs_with_another_bucket_cap_are_not_on_the_line_over_ranks() -> None:
    line = [point(name, ranks, ranks * 100, 25.0) for name, ranks in (("a", 2), ("b", 4), ("c", 8))]
    rows = fit_scaling(*line, point("d", 16, 5, 100.0))
    found = {row["tee_run_id"]: row for row in rows if row["axis"] == "world_size"}
    assert [found["a"][name] for name in ("held", "slope_ns", "points_count")] == ["bucket_cap_mib=25.0", 100, 3]
    assert [found["d"][name] for name in ("held", "slope_ns", "points_count")] == ["bucket_cap_mib=100.0", None, 1]
    caps = [row for row in rows if row["axis"] == "bucket_cap_mib"]
    assert sorted((row["held"], row["tee_run_id"]) for row in caps) == [
        ("world_size=16", "d"),
        ("world_size=2", "a"),
        ("world_size=4", "b"),
        ("world_size=8", "c"),
    ]


def test_bucket_caps_are_an_axis_of_their_own_and_unknown_places_are_left_out() -> None:
    rows = fit_scaling(point("a", None, 100, 25.0), point("b", None, 50, 100.0), point("c", 2, None, 1.0))
    assert [(row["axis"], row["tee_run_id"]) for row in rows] == [("bucket_cap_mib", "a"), ("bucket_cap_mib", "b")]


def test_the_overhead_of_a_message_and_of_a_mib_are_slopes_of_their_own() -> None:
    overheads = (("a", 50, 2), ("b", 90, 4), ("c", 130, 6))
    points = [point(name, None, overhead, None, count, count << 19) for name, overhead, count in overheads]
    rows = fit_scaling(*points, point("d", None, 70, None, 3))
    assert [(row["axis"], row["axis_number"], row["slope_ns"], row["points_count"]) for row in rows] == [
        ("sealed_message_count", 2.0, 20, 4),
        ("sealed_message_count", 4.0, 20, 4),
        ("sealed_message_count", 6.0, 20, 4),
        ("sealed_message_count", 3.0, 20, 4),
        ("sealed_mib", 1.0, 40, 3),
        ("sealed_mib", 2.0, 40, 3),
        ("sealed_mib", 3.0, 40, 3),
    ]


def test_a_family_lies_under_an_id_of_its_own() -> None:
    assert partition("model=m", "r") != partition("model=m", "s")
    assert {row["family_id"] for row in fit_scaling(point("a", 2, 1))} == {partition("model=m", "sw_per_hop_aesgcm")}
