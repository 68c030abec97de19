from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from assets.build import gold, silver
from gold import memory_timeline
from gold.time_slices import SLICES
from lake.engines import engine as lake_engine
from silver import memory_events, steps
from tests.support.silver_rows import RUN, rows_of

if TYPE_CHECKING:
    from lake.store import Lake
    from tests.conftest import LandFiles
    from tests.support.silver_rows import Bench

POLARS = lake_engine("polars")
# Three steps of ResNet-18 on an H200, cut down to allocator events and steps.
RECORDING = Path(__file__).parent / "recorded_memory" / "resnet18-r0.json.gz"
# moment, bytes of the block, of all after it
Block = tuple[int, int, int]


def draw_timeline(
    bench: Bench, *blocks: Block, stepped: list[dict[str, Any]] | None = None, **fields: Any
) -> list[Any]:
    """The rows of one rank's blocks on GPU 0, in order of device, period and number."""
    rows = [
        {"run_id": RUN, "rank": 0, "source_sha256": "s", "ordinal": place, "device_type": "cuda", "device_id": 0}
        | {"ts_ns": at, "block_bytes": size, "allocated_bytes": total, "reserved_bytes": 1000, **fields}
        for place, (at, size, total) in enumerate(blocks)
    ]
    known = [{"run_id": RUN, "rank": 0, **step} for step in stepped or [{}]]
    peaks = bench.rows(memory_timeline.find_peaks(bench.wrap(rows_of(memory_events.TABLE, rows))))
    found = memory_timeline.measure(peaks, rows_of(steps.TABLE, known)).to_pylist()
    return sorted(found, key=lambda row: (row["device"], row["period"], row["period_number"]))


def test_the_peak_has_its_moment_and_its_step(engine: Bench) -> None:
    stepped = [{"step_ordinal": nth, "step_number": 7 + nth, "ts_ns": 1000 * nth, "duration_ns": 900} for nth in (1, 2)]
    *_, row = draw_timeline(
        engine, (1100, 10, 10), (2100, 30, 40), (2200, -30, 10), (2950, 30, 40), stepped=stepped, reserved_bytes=64
    )
    assert (row["device"], row["period"], row["ts_ns"], row["duration_ns"]) == ("cuda:0", "trace", 1100, 1850)
    assert (row["peak_allocated_bytes"], row["peak_allocated_ts_ns"], row["peak_allocated_step_number"]) == (
        40,
        2100,
        9,
    )
    assert (row["peak_reserved_bytes"], row["peak_reserved_ts_ns"], row["peak_reserved_step_number"]) == (64, 1100, 8)
    assert (row["allocations_count"], row["frees_count"], row["evidence"], row["reason"]) == (3, 1, "measured", None)


def test_a_moment_at_the_very_end_of_a_step_is_in_none() -> None:
    step = {"step_number": 7, "ts_ns": 1000, "duration_ns": 100}
    found = [draw_timeline(POLARS, (at, 10, 10), stepped=[step])[-1] for at in (999, 1000, 1099, 1100)]
    assert [row["peak_allocated_step_number"] for row in found] == [None, 7, 7, None]


def test_a_slice_begins_with_what_was_handed_out_before_it() -> None:
    *slices, whole = draw_timeline(POLARS, (1, 50, 50), (1000, -20, 30))
    assert [row["period_number"] for row in slices] == [1, 100]
    assert [(row["peak_allocated_bytes"], row["peak_allocated_ts_ns"]) for row in slices] == [(50, 1), (50, 1000)]
    assert (whole["peak_allocated_bytes"], whole["peak_allocated_ts_ns"]) == (50, 1)


def test_what_was_handed_out_before_the_first_event_counts() -> None:
    *_, whole = draw_timeline(POLARS, (10, -20, 80), (20, 5, 85))
    assert (whole["peak_allocated_bytes"], whole["peak_allocated_ts_ns"]) == (100, 10)


def test_the_host_reserves_nothing_and_says_what_is_counted() -> None:
    *_, row = draw_timeline(POLARS, (10, 5, 5), device_type="cpu", reserved_bytes=0)
    assert (row["device"], row["peak_allocated_bytes"], row["peak_reserved_bytes"]) == ("cpu", 5, None)
    assert row["reason"] == "of the host only what was handed out while the profiler ran is counted"


def test_a_rank_without_allocations_has_no_number_and_a_reason() -> None:
    (row,) = draw_timeline(POLARS)
    assert (row["device"], row["period"], row["peak_allocated_bytes"]) == ("none", "trace", None)
    assert (row["evidence"], row["allocations_count"]) == ("unobservable", 0)
    assert row["reason"] == "the profiler recorded no allocations (profile_memory=True records them)"


BLOCKS = st.lists(
    st.tuples(st.integers(0, 40), st.integers(-50, 50), st.integers(0, 100), st.sampled_from([0, 1])),
    min_size=1,
    max_size=12,
)


@given(BLOCKS, st.integers(1, 900), st.sampled_from([1, 1_700_000_000_000_000_000]))
@settings(max_examples=25)
def test_peaks_equal_a_look_at_every_event(blocks: list[tuple[int, int, int, int]], scale: int, first: int) -> None:
    events = [(first + at * scale, size, max(total, size), gpu) for at, size, total, gpu in blocks]
    rows = [
        {"run_id": RUN, "rank": 0, "source_sha256": "s", "ordinal": place, "device_type": "cuda", "device_id": gpu}
        | {"ts_ns": at, "block_bytes": size, "allocated_bytes": total, "reserved_bytes": total // 2}
        for place, (at, size, total, gpu) in enumerate(events)
    ]
    peaks = POLARS.rows(memory_timeline.find_peaks(POLARS.wrap(rows_of(memory_events.TABLE, rows))))
    found = memory_timeline.measure(peaks, rows_of(steps.TABLE, [{"run_id": RUN}])).to_pylist()
    least, most = min(at for at, *_ in events), max(at for at, *_ in events)
    assert sum(row["allocations_count"] + row["frees_count"] for row in found) == 2 * len(events)
    for row in found:
        assert 0 <= row["period_number"] <= SLICES
        low, high = (least, most) if row["period"] == "trace" else (row["ts_ns"], row["ts_ns"] + row["duration_ns"] - 1)
        own = [one for one in events if low <= one[0] <= high and row["device"] == f"cuda:{one[3]}"]
        peak, moment = max((max(total, total - size), -at) for at, size, total, _ in own)
        assert (row["peak_allocated_bytes"], row["peak_allocated_ts_ns"]) == (peak, -moment)
        reserved, moment = max((total // 2, -at) for at, _, total, _ in own)
        assert (row["peak_reserved_bytes"], row["peak_reserved_ts_ns"]) == (reserved, -moment)
        assert row["allocations_count"] == sum(size >= 0 for _, size, _, _ in own)


def test_the_peaks_of_a_recording_are_those_that_torch_itself_told(lake: Lake, land_files: LandFiles) -> None:
    land_files({"r0.json.gz": RECORDING.read_bytes()}, RUN, 'regime = "cc_off"\n')
    silver.materialise(lake, RUN, POLARS)
    gold.materialise(lake, RUN, POLARS, [memory_timeline.TABLE])
    whole = [row for row in lake.scan(memory_timeline.TABLE).collect().to_dicts() if row["period"] == "trace"]
    (gpu,) = (row for row in whole if row["device"] == "cuda:0")
    # torch.cuda.max_memory_allocated() and max_memory_reserved() of the same three steps.
    assert (gpu["peak_allocated_bytes"], gpu["peak_reserved_bytes"]) == (566_183_424, 872_415_232)
    assert gpu["evidence"] == "measured"


def test_peaks_of_a_rank_without_steps_are_kept() -> None:
    *_, seen, unseen = draw_timeline(POLARS, (1100, 10, 10), (2100, 30, 40), stepped=[{"rank": 1}])
    assert (seen["rank"], seen["peak_allocated_bytes"], seen["peak_allocated_step_number"]) == (0, 40, None)
    assert (unseen["rank"], unseen["evidence"]) == (1, "unobservable")
