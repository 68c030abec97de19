from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gold.cost_model import TABLE, measure
from gold.operation_terms import fit_line
from tests.support.forecast_pairs import MODELS, SEALED, list_rows, make_pairs, shuffle

if TYPE_CHECKING:
    from tests.support.forecast_pairs import Rows

KIB = 1024
SIZES = (4 * KIB, 512 * KIB, 64 * KIB * KIB)


def copy_rows(alpha_ns: float, ns_per_byte: float, sizes: tuple[int, ...] = SIZES, **fields: Any) -> Rows:
    """Rows of gold.operation_costs: ten copies of each size, all on one line."""
    known = {"operation": "copy", "direction": "host_to_gpu", "memory": "pageable", "operations_count": 10, **fields}
    return [
        {**known, "payload_bytes": 10 * size, "total_ns": round(10 * (alpha_ns + size * ns_per_byte))} for size in sizes
    ]


def launch_rows(count: int, mean_ns: int, first_ns: int = 90_000) -> Rows:
    return [{"launches_count": count, "first_launch_ns": first_ns, "launch_total_ns": first_ns + (count - 1) * mean_ns}]


def name_runs(*sides: str) -> list[str]:
    return [f"{model}-{side}" for side in sides for model in MODELS]


def list_terms(operations: dict[str, Rows], launches: dict[str, Rows] | None = None) -> Rows:
    rows = list_rows(TABLE, measure(SEALED, make_pairs(), (), operations, launches))
    return [row for row in rows if row["term"] in {"copy", "copy_call", "launch"}]


@given(st.floats(1, 1e6), st.floats(0.01, 1), st.lists(st.integers(1, 1000), min_size=3, max_size=3))
def test_a_line_is_found_again(alpha_ns: float, ns_per_byte: float, counts: list[int]) -> None:
    points = [(size, alpha_ns + size * ns_per_byte, count) for size, count in zip(SIZES, counts, strict=True)]
    line = fit_line(points)
    assert line.alpha_ns == pytest.approx(alpha_ns, rel=1e-3, abs=1e-3)
    assert line.ns_per_byte == pytest.approx(ns_per_byte, rel=1e-3)


points = st.tuples(st.integers(1, 1 << 28), st.floats(100, 1e8), st.integers(1, 10_000))


@given(st.lists(points, min_size=1, max_size=12))
def test_neither_part_is_negative_and_the_sum_over_all_copies_is_right(some: list[tuple[int, float, int]]) -> None:
    line = fit_line(some)
    alpha, slope = line.alpha_ns or 0.0, line.ns_per_byte or 0.0
    assert min(alpha, slope) >= 0
    explained = sum((alpha + slope * size) * count for size, _, count in some)
    assert explained == pytest.approx(sum(time * count for _, time, count in some), rel=1e-6)


def test_copies_have_a_time_and_a_rate_beside_those_of_their_baselines() -> None:
    sealed = {name: copy_rows(20_000, 0.4) for name in name_runs("sealed")}
    plain = {name: copy_rows(5_000, 0.1) for name in name_runs("plain")}
    (row,) = list_terms({**sealed, **plain})
    assert (row["term"], row["direction"], row["memory"]) == ("copy", "host_to_gpu", "pageable")
    assert (row["alpha_ns"], row["baseline_alpha_ns"]) == pytest.approx((20_000, 5000), rel=1e-3)
    assert row["bytes_per_second"] == pytest.approx(2.5e9, rel=1e-3)
    assert row["baseline_bytes_per_second"] == pytest.approx(1e10, rel=1e-3)
    assert (row["smallest_bytes"], row["largest_bytes"], row["points_count"]) == (SIZES[0], SIZES[-1], 9)
    assert (row["pairs_count"], row["models_count"], row["evidence"], row["reason"]) == (3, 3, "modelled", None)


def test_ends_are_those_of_fits_without_one_of_the_models() -> None:
    sealed = {name: copy_rows(1000, cost) for name, cost in zip(name_runs("sealed"), (0.2, 0.2, 0.4), strict=True)}
    (row,) = list_terms(sealed)
    assert row["low_bytes_per_second"] < row["bytes_per_second"] < row["high_bytes_per_second"]
    assert row["high_bytes_per_second"] == pytest.approx(5e9, rel=1e-3), "without the slow one"
    assert row["baseline_alpha_ns"] is None


def test_copies_of_one_size_have_a_rate_and_no_time_of_their_own() -> None:
    (row,) = list_terms({name: copy_rows(0, 0.5, (1 << 20,)) for name in name_runs("sealed")})
    assert (row["alpha_ns"], row["bytes_per_second"]) == (None, pytest.approx(2e9))
    assert row["evidence"] == "measured"
    assert row["reason"] == "copies of one size do not tell what a copy costs whatever its size"


def test_calls_of_copies_say_that_they_may_have_waited_and_those_on_the_gpu_are_left_out() -> None:
    calls = copy_rows(9000, 0.3, operation="copy_call")
    inside = copy_rows(9000, 0.3, operation="copy_call", direction="on_gpu", memory="unknown")
    (row,) = list_terms({"ringy-sealed": [*calls, *inside]})
    assert (row["term"], row["models_count"]) == ("copy_call", 1)
    waited = "the call may have waited for work that was queued before it"
    assert row["reason"] == f"{waited}; timed while a profiler recorded, which slows the host"


def test_launches_are_averaged_by_model_without_the_first_of_a_rank() -> None:
    often = [*launch_rows(1000, 8000), *launch_rows(1000, 8000)]
    launches = {
        "ringy-sealed": often,
        "dense-sealed": launch_rows(11, 12_000),
        "ringy-plain": launch_rows(11, 5000),
        "mixed-sealed": [{"launches_count": None, "first_launch_ns": None, "launch_total_ns": None}],
    }
    (row,) = list_terms({}, launches)
    assert (row["term"], row["direction"], row["memory"]) == ("launch", "none", "none")
    assert (row["alpha_ns"], row["low_alpha_ns"], row["high_alpha_ns"]) == (10_000, 8000, 12_000)
    assert (row["baseline_alpha_ns"], row["bytes_per_second"]) == (5000, None)
    assert (row["points_count"], row["pairs_count"], row["models_count"], row["evidence"]) == (3, 2, 2, "measured")


def test_copies_of_unknown_size_and_a_rank_with_one_launch_say_nothing() -> None:
    unknown = [{**row, "payload_bytes": None} for row in copy_rows(1000, 0.1)]
    assert list_terms({"ringy-sealed": unknown}, {"ringy-sealed": launch_rows(1, 0)}) == []


def test_the_order_of_pairs_does_not_matter() -> None:
    operations = {name: copy_rows(1000 + 10 * place, 0.2) for place, name in enumerate(name_runs("sealed", "plain"))}
    launches = {name: launch_rows(20 + place, 9000) for place, name in enumerate(name_runs("sealed"))}
    turned = measure(SEALED, shuffle(make_pairs()), (), operations, launches)
    assert list_rows(TABLE, turned) == list_rows(TABLE, measure(SEALED, make_pairs(), (), operations, launches))
