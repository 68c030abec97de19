from __future__ import annotations

from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import collective_bandwidth
from lake.engines import engine as lake_engine
from tests.support.gold_rows import measure_rows

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

POLARS = lake_engine("polars")


def collective(match: str, duration_ns: int | None, rank: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "library": "nccl",
        "collective": "all_reduce",
        "dtype": "Float",
        "buffer_bytes": 1000,
        "group_size": 4,
        "match_id": match,
        "duration_ns": duration_ns,
        "rank": rank,
        "ranks_count": 4,
        **fields,
    }


def test_the_shortest_duration_over_ranks_is_the_transfer(engine: Bench) -> None:
    rows = [collective("a", length, rank) for rank, length in enumerate((900, 500, 700, 800))]
    (row,) = measure_rows(engine, collective_bandwidth, collectives=rows).to_dicts()
    assert (row["collectives_count"], row["transfer_total_ns"], row["is_lower_bound"]) == (1, 500, False)
    assert (row["algorithm_bytes_per_second"], row["bus_bytes_per_second"]) == (2e9, 3e9)
    assert (row["evidence"], row["reason"]) == ("measured", None)


def test_the_rate_is_that_of_all_bytes_over_all_time(engine: Bench) -> None:
    rows = [collective("a", 500), collective("b", 1500), collective("c", 1000)]
    (row,) = measure_rows(engine, collective_bandwidth, collectives=rows).to_dicts()
    assert (row["transfer_total_ns"], row["transfer_p50_ns"], row["transfer_min_ns"]) == (3000, 1000, 500)
    rates = ("algorithm_bytes_per_second", "p50_bus_bytes_per_second", "best_bus_bytes_per_second")
    assert [row[name] for name in rates] == [1e9, 1.5e9, 3e9]


# What nccl-tests multiplies algbw by, for 4 ranks (its doc/PERFORMANCE.md).
@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("all_reduce", 1.5),
        ("reduce_scatter", 0.75),
        ("all_gather", 0.75),
        ("all_to_all", 0.75),
        ("broadcast", 1.0),
        ("reduce", 1.0),
        ("send_recv", 1.0),
        ("barrier", None),
        ("other", None),
    ],
)
def test_the_factor_is_that_of_nccl_tests(engine: Bench, name: str, factor: float | None) -> None:
    (row,) = measure_rows(engine, collective_bandwidth, collectives=[collective("a", 500, collective=name)]).to_dicts()
    assert row["bus_factor_ratio"] == factor
    assert row["bus_bytes_per_second"] == (None if factor is None else factor * 2e9)


def test_what_fewer_ranks_recorded_is_a_lower_bound(engine: Bench) -> None:
    (row,) = measure_rows(engine, collective_bandwidth, collectives=[collective("a", 500, ranks_count=1)]).to_dicts()
    assert (row["is_lower_bound"], row["bus_bytes_per_second"]) == (True, 3e9)
    assert row["reason"].startswith("fewer ranks recorded it than take part")


def test_what_was_not_timed_has_no_rate(engine: Bench) -> None:
    rows = [collective("a", None), collective("b", None)]
    (row,) = measure_rows(engine, collective_bandwidth, collectives=rows).to_dicts()
    assert (row["collectives_count"], row["untimed_count"], row["transfer_total_ns"]) == (2, 2, None)
    assert (row["bus_bytes_per_second"], row["evidence"]) == (None, "unobservable")
    assert row["reason"] == "the calls were seen, not the transfers"


def test_what_states_no_size_or_only_parts_has_no_rate(engine: Bench) -> None:
    rows = [collective("a", 500, buffer_bytes=None, dtype=None), collective("b", 500, collective="gather")]
    unsized, partial = measure_rows(engine, collective_bandwidth, collectives=rows).to_dicts()
    assert (unsized["buffer_bytes"], unsized["dtype"], unsized["algorithm_bytes_per_second"]) == (0, "", None)
    assert unsized["reason"] == "the trace does not give its size"
    assert (partial["algorithm_bytes_per_second"], partial["transfer_total_ns"]) == (None, 500)
    assert partial["reason"] == "each rank states its own part, so the size of the whole buffer is not known"


def test_sizes_types_and_groups_stand_apart(engine: Bench) -> None:
    rows = [
        collective("a", 500),
        collective("b", 500, buffer_bytes=8),
        collective("c", 500, group_size=2, ranks_count=2),
        collective("d", 500, dtype="Half"),
    ]
    found = measure_rows(engine, collective_bandwidth, collectives=rows)
    assert found.select("dtype", "buffer_bytes", "group_size", "bus_factor_ratio").rows() == [
        ("Float", 8, 4, 1.5),
        ("Float", 1000, 2, 1.0),
        ("Float", 1000, 4, 1.5),
        ("Half", 1000, 4, 1.5),
    ]


# per match: size, durations over ranks
MATCHES = st.lists(
    st.tuples(st.sampled_from([1, 4096, 10**9]), st.lists(st.none() | st.integers(1, 10**9), min_size=3, max_size=3)),
    min_size=1,
    max_size=12,
)


@given(MATCHES)
@settings(max_examples=40)
def test_rates_equal_exact_fractions(matches: list[tuple[int, list[int | None]]]) -> None:
    rows = [
        collective(str(place), length, rank, buffer_bytes=size, group_size=3, ranks_count=3)
        for place, (size, lengths) in enumerate(matches)
        for rank, length in enumerate(lengths)
    ]
    found = {
        row["buffer_bytes"]: row for row in measure_rows(POLARS, collective_bandwidth, collectives=rows).to_dicts()
    }
    for size, group in groupby(sorted(matches, key=lambda one: one[0]), key=lambda one: one[0]):
        known = [[one for one in lengths if one is not None] for _, lengths in group]
        times = sorted(min(one) for one in known if one)
        row = found[size]
        assert (row["collectives_count"], row["untimed_count"]) == (len(known), len(known) - len(times))
        if times:
            rate = Fraction(size * len(times) * 10**9, sum(times))
            assert row["algorithm_bytes_per_second"] == pytest.approx(float(rate), rel=1e-14)
            assert row["bus_bytes_per_second"] == pytest.approx(float(rate * Fraction(4, 3)), rel=1e-14)
            assert (row["transfer_p50_ns"], row["transfer_min_ns"]) == (times[(len(times) - 1) // 2], times[0])
