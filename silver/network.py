"""Whether a collective leaves its node, by the nodes that the run claims and the ranks that take part."""

from __future__ import annotations

import narwhals as nw

from lake.frames import Frame, divide_down

_INT = nw.Int64


def find_boundary(found: Frame) -> Frame:
    """A collective goes over the network where its ranks are on several nodes, which are filled in the order of ranks.

    A group whose ranks the trace does not list is taken to leave its node, unless the run has only one; a copy between
    GPUs never does.
    """
    is_exchange, nodes, world = ~nw.col("collective").is_null(), nw.col("nodes_count"), nw.col("_world")
    low, high = nw.col("first_group_rank"), nw.col("last_group_rank")
    # A list that is not in order says nothing of what lies between its ends.
    is_listed = ((low <= high) & (high < world) & (high - low + 1 >= nw.col("group_size"))).fill_null(False)
    one = nw.lit(1).cast(_INT)
    some_nodes = nw.max_horizontal(nodes, one).fill_null(1)
    is_even = ((nodes > 1) & (world % some_nodes == 0)).fill_null(False)
    ranks_per_node = nw.max_horizontal(divide_down(world.fill_null(1), some_nodes), one)
    found = found.with_columns(_ranks_per_node=ranks_per_node)
    found = found.with_columns(
        _first_node=divide_down(low.fill_null(0), nw.col("_ranks_per_node")),
        _last_node=divide_down(high.fill_null(0), nw.col("_ranks_per_node")),
        _is_listed=is_listed,
        _is_even=is_even,
    )
    is_listed, is_even = nw.col("_is_listed"), nw.col("_is_even")
    is_within = is_listed & is_even & (nw.col("_first_node") == nw.col("_last_node"))
    is_known = (nodes == 1) | is_within | ((nodes > 1) & ((nw.col("group_size") == world) | (is_listed & is_even)))
    is_far = is_exchange & (nodes > 1).fill_null(False) & ~is_within
    said = nw.when(is_known.fill_null(False)).then(nw.lit("modelled")).otherwise(nw.lit("unobservable"))
    return found.with_columns(
        boundary=nw.when(is_far).then(nw.lit("gpu_to_network")).otherwise(nw.col("boundary")),
        boundary_evidence=nw.when(is_exchange).then(said).otherwise(nw.lit("measured")),
    )
