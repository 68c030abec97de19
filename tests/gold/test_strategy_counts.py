from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gold.strategy_counts import (
    EXCHANGES,
    count_exchange,
    count_pipeline,
    count_pipeline_boundary,
    count_server,
    count_tensor,
    find_bubble_fraction,
)
from lake.engines import engine as lake_engine
from silver import crossings
from tests.support.silver_rows import Bronze, conform_chain, in_turn, kernel, run

if TYPE_CHECKING:
    from lake.store import Lake
    from tests.support.silver_rows import Row

RANKS, BUCKETS, GRADIENTS = 4, 13, 497_759_232
# The pipelined ring cuts each of its messages into so many: more of them, the same bytes.
PIECES = {"resnet50-sealed-w4-pipelined": 3}
SHARED = tuple(one for one in EXCHANGES if one != "none")
sizes = st.integers(min_value=1, max_value=1 << 40)
counts = st.integers(min_value=1, max_value=4096)


@pytest.mark.parametrize(
    ("exchange", "messages", "payload", "rounds", "fan_in"),
    [
        ("ring_ddp", 78, 746_638_848, 78, 1),
        ("zero_1", 78, 746_638_848, 78, 1),
        ("zero_2", 78, 746_638_848, 78, 1),
        ("zero_3", 117, 1_119_958_272, 117, 1),
        ("parameter_server", 26, 995_518_464, 26, 4),
        ("asynchronous_server", 26, 995_518_464, 26, 4),
        ("decentralised", 39, 1_493_277_696, 13, 3),
        ("gossip", 26, 995_518_464, 13, 2),
        ("none", 0, 0, 0, 0),
    ],
)
def test_a_rank_sends_what_its_strategy_says(
    exchange: str, messages: int, payload: int, rounds: int, fan_in: int
) -> None:
    found = count_exchange(exchange, RANKS, BUCKETS, GRADIENTS)
    assert (found.messages, found.payload_bytes, found.rounds, found.fan_in) == (messages, payload, rounds, fan_in)


def test_a_server_takes_in_and_gives_out_what_all_ranks_send() -> None:
    found, one = count_server(RANKS, BUCKETS, GRADIENTS), count_exchange("parameter_server", RANKS, BUCKETS, GRADIENTS)
    assert (found.messages, found.payload_bytes) == (RANKS * one.messages, RANKS * one.payload_bytes)
    assert found.fan_in == RANKS


def test_tensor_parallelism_sends_eight_messages_per_layer_and_peer_and_twelve_where_it_recomputes() -> None:
    assert count_tensor(4, 10, 3, 1024).messages == 8 * 3 * 10 * 3
    assert count_tensor(4, 10, 3, 1024).payload_bytes == 8 * 3 / 4 * 1024 * 10 * 3
    assert count_tensor(4, 10, 3, 1024, 1).messages == 12 * 3 * 10 * 3


def test_a_boundary_is_crossed_twice_per_micro_batch_and_an_end_of_a_pipeline_sends_half() -> None:
    assert [count_pipeline_boundary(stages, 8, 100).messages for stages in (1, 2, 3, 9)] == [0, 16, 16, 16]
    assert [count_pipeline(stages, 8, 100).messages for stages in (1, 2, 3, 9)] == [0, 8, 16, 16]
    assert [count_pipeline(stages, 8, 100).payload_bytes for stages in (1, 2, 3)] == [0, 800, 1600]


@given(exchange=st.sampled_from(EXCHANGES), buckets=counts, size=sizes)
def test_one_rank_sends_nothing(exchange: str, buckets: int, size: int) -> None:
    found = count_exchange(exchange, 1, buckets, size)
    assert (found.messages, found.payload_bytes, found.rounds, found.fan_in) == (0, 0, 0, 0)


@given(ranks=counts, buckets=counts, size=sizes)
def test_zero_1_and_2_send_what_ring_ddp_sends(ranks: int, buckets: int, size: int) -> None:
    ring, first, second = (count_exchange(one, ranks, buckets, size) for one in ("ring_ddp", "zero_1", "zero_2"))
    assert ring == first == second


@given(ranks=counts, buckets=counts, size=sizes, exchange=st.sampled_from(SHARED))
def test_more_ranks_never_send_less(ranks: int, buckets: int, size: int, exchange: str) -> None:
    fewer, more = (count_exchange(exchange, count, buckets, size) for count in (ranks, ranks + 1))
    assert (more.messages, more.payload_bytes) >= (fewer.messages, fewer.payload_bytes)


@given(layers=counts, micro=counts, size=sizes, is_recomputed=st.sampled_from((0, 1)))
def test_a_tensor_degree_of_one_has_no_traffic(layers: int, micro: int, size: int, is_recomputed: int) -> None:
    found = count_tensor(1, layers, micro, size, is_recomputed)
    assert (found.messages, found.payload_bytes) == (0, 0)


@given(stages=counts, micro=counts)
def test_a_bubble_is_none_for_one_stage_grows_with_stages_and_shrinks_with_micro_batches(
    stages: int, micro: int
) -> None:
    assert find_bubble_fraction(1, micro) == 0
    here = find_bubble_fraction(stages, micro)
    assert here <= find_bubble_fraction(stages + 1, micro)
    assert here >= find_bubble_fraction(stages, micro + 1)


@given(ranks=st.lists(counts, min_size=1, max_size=8), size=sizes, exchange=st.sampled_from(EXCHANGES))
def test_arrays_are_counted_as_numbers_are(ranks: list[int], size: int, exchange: str) -> None:
    found = count_exchange(exchange, np.array(ranks), 7, float(size))
    for place, count in enumerate(ranks):
        one = count_exchange(exchange, count, 7, float(size))
        assert (found.messages[place], found.payload_bytes[place]) == (one.messages, one.payload_bytes)


# -- against what was recorded --------------------------------------------------------------------------------------


def test_ring_ddp_sends_what_every_bundled_recording_shows(recorded_lake: Lake) -> None:
    rows = (
        recorded_lake.scan(crossings.TABLE)
        .filter(pl.col("collective") == "all_reduce", pl.col("step_number").is_not_null())
        .group_by("run_id", "rank", "step_number")
        .agg(
            pl.len().alias("buckets"),
            pl.col("group_size").min(),
            pl.col("message_count").sum(),
            pl.col("payload_bytes").sum(),
            pl.col("buffer_bytes").sum(),
            pl.col("payload_bytes").null_count().alias("unsized"),
        )
        .collect()
        .to_dicts()
    )
    assert len({row["run_id"] for row in rows}) >= 10, "the recordings of several ranks that have a trace"
    wrong = [row for row in rows if not is_ring(row, PIECES.get(row["run_id"], 1))]
    assert wrong == []


def is_ring(row: dict[str, Any], pieces: int = 1) -> bool:
    """Whether messages and bytes of a step are those of a ring; a backend that does not say sizes has its messages."""
    found = count_exchange("ring_ddp", row["group_size"], row["buckets"], row["buffer_bytes"])
    is_sized = row["unsized"] == 0
    return bool(
        found.messages * pieces == row["message_count"]
        and (not is_sized or found.payload_bytes == row["payload_bytes"])
    )


def test_a_recording_with_a_message_too_many_would_be_found() -> None:
    row = {"buckets": 5, "group_size": 2, "message_count": 10, "payload_bytes": 800, "buffer_bytes": 800, "unsized": 0}
    assert is_ring(row)
    assert not is_ring({**row, "message_count": 11})
    assert not is_ring({**row, "payload_bytes": 801})


def count_sent(*rows: Row) -> tuple[int, int]:
    """Messages and bytes that silver makes of a trace of rank 0."""
    found = conform_chain(lake_engine("polars"), Bronze.of(run(), *in_turn(*rows))).tables["crossings"]
    return int(found["message_count"].sum()), int(found["payload_bytes"].sum())


def make_exchange(collective: str, ranks: int, size: int, shares: int = 1) -> Row:
    """A collective over bytes; those that scatter or gather have one end of a share only."""
    known = {"collective_name": collective, "dtype": "Byte", "group_size": ranks}
    if collective == "_allgather_base":
        ends = {"in_elements_count": size // shares, "out_elements_count": size}
    elif collective == "_reduce_scatter_base":
        ends = {"in_elements_count": size, "out_elements_count": size // shares}
    else:
        ends = {"in_elements_count": size, "out_elements_count": size}
    names = {"_allgather_base": "AllGather_RING_LL", "_reduce_scatter_base": "ReduceScatter_Sum_bf16_RING_LL"}
    return kernel(f"ncclDevKernel_{names.get(collective, 'SendRecv')}", 0, 10, **known, **ends)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_fsdp_sends_what_a_trace_of_its_collectives_shows(ranks: int) -> None:
    layers, micro_batches, size = 3, 2, 8000
    around = [
        make_exchange(collective, ranks, size, ranks)
        for _ in range(layers * micro_batches)
        for collective in ("_allgather_base", "_allgather_base", "_reduce_scatter_base")
    ]
    found = count_exchange("zero_3", ranks, layers * micro_batches, size * layers * micro_batches)
    assert count_sent(*around) == (found.messages, found.payload_bytes)


@pytest.mark.parametrize(("stages", "sends"), [(2, 1), (3, 2), (8, 2)])
def test_a_stage_of_a_pipeline_sends_what_a_trace_of_it_shows(stages: int, sends: int) -> None:
    micro_batches, activation = 5, 4096
    found = count_pipeline(stages, micro_batches, activation)
    shown = [make_exchange("send", 2, activation) for _ in range(sends * micro_batches)]
    assert count_sent(*shown) == (found.messages, found.payload_bytes)
