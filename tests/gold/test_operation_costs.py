from __future__ import annotations

from typing import TYPE_CHECKING, Any

import narwhals as nw
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gold import operation_costs, operation_overhead
from gold.pairs import Pair
from tests.support.campaigns import pick_size
from tests.support.gold_rows import InSlices
from tests.support.gold_rows import measure_rows as answered_with
from tests.support.silver_rows import RUN, rows_of

if TYPE_CHECKING:
    import polars as pl

    from lake.frames import Frame
    from tests.support.silver_rows import Bench


class Costs:
    """The table as it is made: calls of copies slice of time by slice, the rest of the whole."""

    def __init__(self) -> None:
        self.TABLE = operation_costs.TABLE
        self.measure = _measure_costs


def _measure_costs(spans: Frame, steps: Frame) -> Frame:
    first = operation_costs.find_first_calls(spans)
    slices = InSlices.slice_time(spans)
    counted = [operation_costs.count_operations(spans, steps, first, low, high) for low, high in slices]
    return operation_costs.measure(nw.concat(counted), steps, first)


def measure_costs(bench: Bench, answer: Costs, spans: list[dict[str, Any]], *steps: dict[str, Any]) -> pl.DataFrame:
    return answered_with(bench, answer, spans=spans, steps=list(steps))


COSTS = Costs()
PAIR = Pair("tee", "hopper_spt_cc", "plain", "manifest")


def calls(name: str, *durations: int, **fields: Any) -> list[dict[str, Any]]:
    """Calls one after another."""
    return [
        {"category": "cuda_runtime", "name": name, "ts_ns": at + 1, "ordinal": at, "duration_ns": length, **fields}
        for at, length in enumerate(durations)
    ]


def copies(size: int | None, *durations: int, **fields: Any) -> list[dict[str, Any]]:
    """Pinned copies to the GPU."""
    known = {"is_gpu": True, "kind": "copy", "category": "gpu_memcpy", "name": "Memcpy", "payload_bytes": size}
    known |= {"direction": "host_to_gpu", "memory": "pinned", **fields}
    return [{**known, "ts_ns": at + 1, "ordinal": 1000 + at, "duration_ns": d} for at, d in enumerate(durations)]


def test_a_call_is_timed_without_its_first_and_its_median_lies_between_observed_bounds(engine: Bench) -> None:
    rows = measure_costs(engine, COSTS, calls("cudaLaunchKernel", 999, *range(101, 112)))
    columns = ("operation", "name", "direction", "operations_count", "median_ns", "median_low_ns", "median_high_ns")
    assert rows.select(columns).rows() == [
        ("call", "cudaLaunchKernel", "none", 11, 106, 101, 111),
        ("first_call", "cudaLaunchKernel", "none", 1, 999, None, None),
    ]
    assert rows.select("total_ns", "payload_bytes", "reason").rows() == [
        (sum(range(101, 112)), None, None),
        (999, None, "fewer than 9 have no interval"),
    ]


def test_the_first_call_of_a_name_on_each_rank_moves_nothing_of_the_steady_state(engine: Bench) -> None:
    spans = [
        *calls("cudaMallocHost", 1173, 5, rank=0),
        *calls("cudaMallocHost", 165, 6, rank=1),
        *calls("cudaHostAlloc", 70, rank=0),
    ]
    rows = measure_costs(engine, COSTS, [{**row, "ordinal": at} for at, row in enumerate(spans)])
    assert rows.select("operation", "name", "operations_count", "total_ns").rows() == [
        ("call", "cudaMallocHost", 2, 11),
        ("first_call", "cudaHostAlloc", 1, 70),
        ("first_call", "cudaMallocHost", 2, 1338),
    ]


def test_the_first_call_is_no_call_of_a_copy_either(engine: Bench) -> None:
    made = calls("cudaMemcpyAsync", 900, 70, correlation_id=5)
    made = [{**row, "correlation_id": 5 + at} for at, row in enumerate(made)]
    started = [
        {**row, "launch_ts_ns": at + 1, "launch_duration_ns": (900, 70)[at], "correlation_id": 5 + at}
        for at, row in enumerate(copies(8, 10, 11))
    ]
    rows = measure_costs(engine, COSTS, [*made, *started])
    assert rows.select("operation", "operations_count", "total_ns").rows() == [
        ("call", 1, 70),
        ("copy", 2, 21),
        ("copy_call", 1, 70),
        ("first_call", 1, 900),
    ]


def test_the_total_of_a_step_is_that_of_steps_outside_warm_up(engine: Bench) -> None:
    steps = [{"rank": 0, "step_number": number, "is_warmup": number == 0} for number in range(3)]
    # The first call, one in warm-up, three in two steps, one in none.
    numbers, durations = (0, 0, 1, 2, 2, None), (999, 100, 7, 8, 10, 50)
    spans = [
        {**row, "step_number": number}
        for row, number in zip(calls("cudaLaunchKernel", *durations), numbers, strict=True)
    ]
    rows = measure_costs(engine, COSTS, spans, *steps)
    assert rows.select("operation", "total_ns", "steps_count", "step_total_ns").rows() == [
        ("call", 175, 2, 12),
        ("first_call", 999, 2, 0),
    ]
    without = measure_costs(engine, COSTS, spans)
    assert set(without.select("steps_count", "step_total_ns").rows()) == {(0, None)}


def test_copies_are_told_apart_by_direction_memory_and_size(engine: Bench) -> None:
    spans = [
        *copies(4096, 10, 20, 30),
        *copies(4097, 7, stream_id=2),
        *copies(None, 5, memory="pageable"),
        *copies(1 << 30, 9, direction=None, memory=None),
    ]
    rows = measure_costs(engine, COSTS, [{**row, "ordinal": at} for at, row in enumerate(spans)])
    columns = ("direction", "memory", "size_class", "operations_count", "median_ns", "payload_bytes")
    assert rows.select(columns).rows() == [
        ("host_to_gpu", "pageable", "unknown", 1, 5, None),
        ("host_to_gpu", "pinned", "up to 4 KiB", 3, 20, 3 * 4096),
        ("host_to_gpu", "pinned", "up to 64 KiB", 1, 7, 4097),
        ("unknown", "unknown", "over 256 MiB", 1, 9, 1 << 30),
    ]
    assert rows["bytes_per_second"].to_list()[1] == pytest.approx(3 * 4096 / 60e-9)
    assert set(rows["reason"]) == {"fewer than 9 have no interval"}


def test_the_call_of_a_copy_is_timed_apart_from_the_copy(engine: Bench) -> None:
    called = {"launch_ts_ns": 1, "launch_duration_ns": 70, "correlation_id": 5}
    graph = {"launch_ts_ns": 9, "launch_duration_ns": 90, "correlation_id": 6, "direction": "gpu_to_host"}
    spans = [*copies(8, 10, **called), *copies(8, 10, 11, **graph)]
    rows = measure_costs(engine, COSTS, [{**row, "ordinal": at} for at, row in enumerate(spans)])
    assert rows.select("operation", "direction", "operations_count", "median_ns").rows() == [
        ("copy", "gpu_to_host", 2, 10),
        ("copy", "host_to_gpu", 1, 10),
        ("copy_call", "host_to_gpu", 1, 70),
    ]


def test_a_copy_call_under_cc_says_that_it_holds_queued_work(engine: Bench) -> None:
    rows = measure_costs(engine, COSTS, calls("cudaMemcpyAsync", *[5] * 11, has_queued_work=True))
    queued = "under CC such a call holds queued work: it is not the time of a copy"
    assert rows["reason"].to_list() == [queued, f"{queued}; fewer than 9 have no interval"]


def costs(**fields: Any) -> pa.Table:
    known = {"operation": "call", "name": "cudaLaunchKernel", "direction": "none", "memory": "none"}
    row = {"run_id": RUN, **known, "size_class": "none", "operations_count": 100, "evidence": "measured", **fields}
    return rows_of(operation_costs.TABLE, [row])


def compare(ours: list[dict[str, int]], theirs: list[dict[str, int]]) -> dict[str, dict[str, Any]]:
    """One run per mapping from the name of a call to its median; the rows by name."""
    sides = [
        [pa.concat_tables([costs(name=name, median_ns=median) for name, median in run.items()]) for run in side]
        for side in (ours, theirs)
    ]
    rows = operation_overhead.measure(PAIR, sides[0], sides[1])
    assert rows.schema == operation_overhead.TABLE.arrow_schema
    return {row["name"]: row for row in rows.to_pylist()}


def test_three_runs_per_side_conclude_and_fewer_do_not() -> None:
    ours, theirs = [{"a": 200}, {"a": 202}, {"a": 198}], [{"a": 100}, {"a": 101}, {"a": 99}]
    row = compare(ours, theirs)["a"]
    assert (row["median_ns"], row["overhead_ns"], row["verdict_class"]) == (199, 100, "slower")
    assert row["slowdown_low_ratio"] < 2 < row["slowdown_high_ratio"]
    assert (row["runs_count"], row["operations_count"], row["q_value"]) == (3, 300, row["p_value"])
    row = compare(ours[:2], theirs)["a"]
    assert (row["slowdown_ratio"], row["verdict_class"]) == (pytest.approx(2.0, abs=0.02), "inconclusive")
    assert (row["slowdown_low_ratio"], row["p_value"]) == (None, None)
    assert row["reason"] == "a conclusion needs 3 runs per side, and there are 2 and 3"


def test_what_one_question_would_show_many_together_need_not() -> None:
    wide = ([1030, 1045, 1060], [1000, 970, 985])
    alone = compare(*([{"a": value} for value in values] for values in wide))["a"]
    assert alone["p_value"] < 0.05
    assert alone["verdict_class"] == "slower"
    together = compare(
        [{"a": wide[0][at], **_noise(at)} for at in range(3)], [{"a": wide[1][at], **_noise(at + 5)} for at in range(3)]
    )
    assert together["a"]["p_value"] == alone["p_value"]
    assert together["a"]["q_value"] > 0.05
    assert together["a"]["verdict_class"] == "not_shown"


def _noise(place: int) -> dict[str, int]:
    """Forty calls that differ from run to run and not from side to side."""
    return {f"n{other}": 100_000 + 900 * ((place * 31 + other * 17) % 97) for other in range(40)}


def test_copies_of_one_recording_are_no_repeats() -> None:
    row = compare([{"a": 200}] * 3, [{"a": 100}, {"a": 101}, {"a": 99}])["a"]
    assert (row["runs_count"], row["verdict_class"]) == (1, "inconclusive")


def test_a_median_of_nothing_has_no_ratio() -> None:
    row = compare([{"a": 0}], [{"a": 5}])["a"]
    assert (row["slowdown_ratio"], row["verdict_class"]) == (None, "inconclusive")
    assert "a median of nothing gives no ratio" in row["reason"]


def test_what_only_one_recorded_is_no_row() -> None:
    assert operation_overhead.measure(PAIR, [costs()], [costs(name="cudaFree")]).num_rows == 0


def test_totals_of_a_step_have_an_overhead_of_their_own() -> None:
    tee, plain = costs(step_total_ns=900, median_ns=3), costs(step_total_ns=1000, median_ns=2)
    (row,) = operation_overhead.measure(PAIR, [tee], [plain]).to_pylist()
    assert [row[name] for name in ("step_total_ns", "baseline_step_total_ns", "step_overhead_ns")] == [900, 1000, -100]
    (row,) = operation_overhead.measure(PAIR, [tee], [costs(step_total_ns=None)]).to_pylist()
    assert row["step_overhead_ns"] is None


@settings(max_examples=pick_size(25, 300))
@given(st.lists(st.integers(0, 10**12), min_size=9, max_size=60))
def test_bounds_are_observed_lie_around_the_median_and_hold_enough(durations: list[int]) -> None:
    from lake.engines import engine as lake_engine

    rows = measure_costs(lake_engine("polars"), COSTS, copies(1, *durations))
    low, middle, high = rows.select("median_low_ns", "median_ns", "median_high_ns").row(0)
    assert low <= middle <= high
    assert {low, middle, high} <= set(durations)
    count = len(durations)
    rank = max(r for r in range(1, count) if (count - 2 * r) >= 0 and (count - 2 * r) ** 2 * 100 >= 503 * count)
    assert (low, high) == (sorted(durations)[rank - 1], sorted(durations)[count - rank])
