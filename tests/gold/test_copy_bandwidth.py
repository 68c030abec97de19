from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import copy_bandwidth
from lake.engines import engine as lake_engine
from silver import spans, steps
from tests.support.silver_rows import RUN, rows_of

if TYPE_CHECKING:
    from tests.support.silver_rows import Bench

END = 1 << 62
POLARS = lake_engine("polars")
# start, duration, bytes, direction
Copy = tuple[int, int, int | None, str | None]


def rate_copies(bench: Bench, *copies: Copy, cuts: tuple[int, ...] = (), **fields: Any) -> list[dict[str, Any]]:
    """The rows of one rank's copies, the wholes first, in order of kind and slice."""
    rows = [
        {"run_id": RUN, "rank": 0, "source_sha256": "s", "ordinal": place, "is_gpu": True, "kind": "copy"}
        | {"ts_ns": at, "duration_ns": length, "payload_bytes": size, "direction": direction, **fields}
        for place, (at, length, size, direction) in enumerate(copies)
    ]
    spanned = bench.wrap(rows_of(spans.TABLE, rows))
    known = bench.wrap(rows_of(steps.TABLE, [{"run_id": RUN, "rank": 0}]))
    times = bench.wrap(bench.rows(copy_bandwidth.find_copy_times(spanned)))
    sums = pl.concat(
        [
            pl.DataFrame(bench.rows(copy_bandwidth.sum_copies(spanned, times, low, high)))
            for low, high in pairwise([0, *sorted(set(cuts)), END])
        ]
    )
    found = bench.rows(copy_bandwidth.measure(bench.wrap(sums.to_arrow()), times, known)).to_pylist()
    return sorted(found, key=lambda row: (row["period"] == "slice", row["copy_kind"], row["period_number"]))


def test_a_rate_is_of_the_time_during_which_copies_ran(engine: Bench) -> None:
    whole, first, last = rate_copies(
        engine, (10, 100, 500, "host_to_gpu"), (60, 100, 250, "host_to_gpu"), (5010, 50, 250, "host_to_gpu")
    )
    assert (whole["copies_count"], whole["payload_bytes"], whole["busy_ns"]) == (3, 1000, 200)
    assert (whole["bytes_per_second"], whole["ts_ns"], whole["duration_ns"]) == (5e9, 10, 5000)
    assert (first["period_number"], first["ts_ns"], first["duration_ns"], first["busy_ns"]) == (1, 10, 51, 150)
    assert (last["period_number"], last["payload_bytes"], last["bytes_per_second"]) == (99, 250, 5e9)
    assert {row["evidence"] for row in (whole, first, last)} == {"measured"}


def test_kinds_stand_apart_and_a_memset_is_one() -> None:
    found = rate_copies(POLARS, (10, 10, 5, "on_gpu"), (10, 10, 7, "gpu_to_host"), (15, 10, 9, None))
    wholes = {row["copy_kind"]: (row["payload_bytes"], row["busy_ns"]) for row in found if row["period"] == "trace"}
    assert wholes == {"on_gpu": (5, 10), "gpu_to_host": (7, 10), "unknown": (9, 10)}
    (row, _) = rate_copies(POLARS, (10, 10, 5, None), kind="memset")
    assert (row["copy_kind"], row["payload_bytes"]) == ("memset", 5)


def test_a_copy_without_a_size_leaves_bytes_and_no_rate() -> None:
    row, _ = rate_copies(POLARS, (10, 10, 5, "on_gpu"), (10, 20, None, "on_gpu"), (10, 20, -1, "on_gpu"))
    assert (row["payload_bytes"], row["unsized_count"], row["busy_ns"], row["bytes_per_second"]) == (5, 2, 20, None)
    assert row["reason"] == "the size of some copies was not recorded: their bytes are missing, and there is no rate"


def test_time_that_two_copies_share_counts_once_though_a_chunk_ends_between_them() -> None:
    whole, *_ = rate_copies(POLARS, (10, 20, 5, "on_gpu"), (15, 20, 5, "on_gpu"), cuts=(12,))
    assert (whole["copies_count"], whole["busy_ns"]) == (2, 25)


def test_a_copy_of_no_time_has_no_rate() -> None:
    row, _ = rate_copies(POLARS, (10, 0, 5, "on_gpu"))
    assert (row["busy_ns"], row["bytes_per_second"], row["reason"]) == (0, None, None)


def test_a_rank_without_copies_has_no_number_and_a_reason() -> None:
    (row,) = rate_copies(POLARS, (10, 10, 5, "on_gpu"), is_gpu=False)
    assert (row["copy_kind"], row["period"], row["copies_count"], row["busy_ns"]) == ("none", "trace", 0, None)
    assert (row["evidence"], row["reason"]) == ("unobservable", "no copies of the GPU were recorded")


COPIES = st.lists(
    st.tuples(st.integers(1, 90), st.integers(0, 30), st.integers(0, 99), st.sampled_from(["on_gpu", "gpu_to_host"])),
    min_size=1,
    max_size=20,
)


@given(COPIES, st.lists(st.integers(2, 90), min_size=1, max_size=4), st.sampled_from([1, 3]))
@settings(max_examples=25)
def test_rates_equal_a_count_of_moments_however_time_is_chunked(
    copies: list[tuple[int, int, int, str]], cuts: list[int], scale: int
) -> None:
    scaled = [(at * scale, length * scale, size, kind) for at, length, size, kind in copies]
    found = rate_copies(POLARS, *scaled, cuts=tuple(cuts))
    assert sum(row["copies_count"] for row in found) == 2 * len(copies)
    for row in found:
        until = END if row["period"] == "trace" else row["ts_ns"] + row["duration_ns"]
        own = [one for one in scaled if row["ts_ns"] <= one[0] < until and one[3] == row["copy_kind"]]
        taken = {moment for at, length, *_ in own for moment in range(at, at + length)}
        assert (row["copies_count"], row["payload_bytes"]) == (len(own), sum(one[2] for one in own))
        assert row["busy_ns"] == len(taken)
        assert row["bytes_per_second"] == (row["payload_bytes"] / len(taken) * 1e9 if taken else None)
