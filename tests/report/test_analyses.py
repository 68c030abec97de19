"""Figures of the peers' analyses: small, of what was observed, and with the evidence of each number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold import (
    collective_bandwidth,
    copy_bandwidth,
    idle_breakdown,
    memory_timeline,
    queue_length,
    queue_timeline,
    roofline,
)
from report.page import page
from report.pictures import figure
from report.sections import sections
from tests.support.report_answers import answers
from tests.support.silver_rows import rows_of

if TYPE_CHECKING:
    from lake.tables import Table
    from report.figure import Figure

MS = 1_000_000
MEASURED = {"run_id": "a", "evidence": "measured"}
GPU = {"rank": 0, "device_id": 0, "stream": "all"}
IDLE = {"total_ns": 10 * MS, "busy_ns": 6 * MS, "host_wait_ns": 2 * MS, "kernel_wait_ns": MS, "other_ns": MS}
QUEUE = {"mean_length": 3.25, "p99_length": 40, "peak_length": 77, "empty_fraction": 0.25}
ROOF = {"operator": "aten::mm", "input_shapes": "[[8, 8], [8, 8]]", "total_ns": 5, "operations_per_second": 5e13}

WHOLE, SLICE = {"period": "trace", "period_number": 0}, {"period": "slice", "duration_ns": 2 * MS}
MEMORY = {
    "rank": 0,
    "device": "cuda:0",
    "ts_ns": 5 * MS,
    "peak_allocated_bytes": 3 << 30,
    "peak_reserved_bytes": 1 << 32,
}
COPY = {"rank": 0, "device_id": 0, "copy_kind": "host_to_gpu", "copies_count": 2, "payload_bytes": 1 << 20}


def draw(table: Table, *rows: dict[str, Any]) -> Figure:
    found = figure(table, rows_of(table, [{**MEASURED, **row} for row in rows]))
    assert found is not None
    return found


def test_idle_time_is_shown_for_the_gpu_and_its_pieces_sum_to_the_whole() -> None:
    found = draw(idle_breakdown.TABLE, {**IDLE, **GPU}, {**IDLE, **GPU, "stream": "7"})
    bars = [row for row in found.rows if "end" in row]
    assert [row["what"] for row in bars] == [
        "busy",
        "idle: the host had launched nothing",
        "idle between launched kernels",
        "idle: other",
    ]
    assert (bars[0]["start"], bars[-1]["end"]) == (0, 10)


def test_an_idle_time_that_was_not_observed_says_why() -> None:
    unseen = dict.fromkeys(IDLE)
    found = draw(idle_breakdown.TABLE, {**unseen, **GPU, "evidence": "unobservable", "reason": "no GPU work"})
    assert any("no GPU work" in str(row.get("note")) for row in found.rows)


def test_a_queue_is_told_by_its_mean_its_peak_and_how_often_it_is_empty() -> None:
    found = draw(queue_length.TABLE, {**QUEUE, **GPU}, {**QUEUE, **GPU, "stream": "7"})
    (row,) = found.rows
    assert (row["at"], row["value"]) == (3.25, "mean 3.25")
    assert row["detail"].endswith("at most 40 for 99 % of the time, peak 77, empty 25.0 % of the time")


def test_of_each_run_the_largest_collectives_are_shown_and_a_lower_bound_is_called_one() -> None:
    sizes = [
        {"buffer_bytes": size, "bus_bytes_per_second": 1e9 * size, "collective": "all_reduce"} for size in range(8)
    ]
    found = draw(collective_bandwidth.TABLE, *({**one, "group_size": 2, "is_lower_bound": True} for one in sizes))
    assert [row["at"] for row in found.rows] == [7, 6, 5, 4, 3, 2]
    assert found.rows[0]["value"] == "≥ 7 GB/s"
    assert any("2" in note for note in found.notes), "what is left out is counted"


def test_an_operator_stands_under_its_roof_which_is_modelled() -> None:
    roof = {"roof_operations_per_second": 1e14, "roof_fraction": 0.5, "bound": "compute", "roof_evidence": "modelled"}
    found = draw(roofline.TABLE, {**ROOF, **roof}, {**ROOF, "input_shapes": "[]", "operations_per_second": None})
    (row,) = found.rows
    assert (row["at"], row["roof"], row["value"]) == (50, 100, "50 TFLOP/s")
    assert "50.0 % of its roof, bound by compute, modelled; [[8, 8], [8, 8]]" in row["detail"]
    assert "the roof by the GPU's data sheet, modelled" in found.subtitle


def test_a_report_has_these_figures_only_where_there_is_something_to_draw() -> None:
    tables = answers()
    assert 'id="analyses"' not in page(tables, {}).html
    (row,) = rows_of(queue_length.TABLE, [{**MEASURED, **QUEUE, **GPU}]).to_pylist()
    tables["gold.queue_length"] = [row]
    (section,) = [one for one in sections(tables, {}) if one.name == "analyses"]
    assert [name for name, _ in section.figures] == ["queue_length"]
    assert section.kind == "appendix", "it stands behind what decides"


def test_memory_is_drawn_by_slices_with_what_the_allocator_held_and_its_peak_in_words() -> None:
    whole = {**MEMORY, **WHOLE, "duration_ns": 9 * MS, "peak_allocated_step_number": 2}
    slices = [{**MEMORY, **SLICE, "period_number": place, "ts_ns": (4 + place) * MS} for place in (1, 3)]
    of_the_host = {**slices[1], "device": "cpu", "peak_reserved_bytes": None}
    found = draw(memory_timeline.TABLE, of_the_host, whole, *slices)
    assert [(row["panel"], row["begin"], row["end"], row["peak"], row["held"]) for row in found.rows] == [
        ("a, rank 0, cuda:0", 0, 2, 3, 4),
        ("a, rank 0, cuda:0", 2, 4, 3, 4),
    ], "time counts from the first event of a panel, and a host beside a GPU is not drawn"
    assert found.notes[0] == "a, rank 0, cuda:0: at most 3.00 GiB in step 2, 4.00 GiB held by the allocator; measured"
    (alone,) = draw(memory_timeline.TABLE, {**of_the_host, "peak_allocated_bytes": 5 << 20}).rows
    assert (alone["panel"], alone["peak"], alone.get("held")) == ("a, rank 0, cpu", 5, None)
    assert {row["evidence"] for row in found.rows} == {"measured"}


def test_copies_are_drawn_by_kind_and_slice_and_one_without_a_rate_is_not() -> None:
    moved = {**COPY, **SLICE, "period_number": 1, "ts_ns": 5 * MS, "bytes_per_second": 2.5e10}
    found = draw(
        copy_bandwidth.TABLE,
        {**COPY, **WHOLE, "ts_ns": 5 * MS, "duration_ns": 9 * MS, "bytes_per_second": 5e9},
        moved,
        {**moved, "copy_kind": "on_gpu", "period_number": 3, "ts_ns": 9 * MS, "bytes_per_second": 1e12},
        {**moved, "copy_kind": "memset", "bytes_per_second": None},
    )
    assert [(row["what"], row["begin"], row["end"], row["rate"]) for row in found.rows] == [
        ("host to GPU", 0, 2, 25),
        ("on one GPU", 4, 6, 1000),
    ]
    assert found.notes == ("a, rank 0, GPU 0: host to GPU 5 GB/s over 1.00 MiB",)


def test_of_many_ranks_and_runs_some_panels_are_drawn_and_the_others_counted() -> None:
    moved = {**COPY, **SLICE, "period_number": 1, "ts_ns": 5 * MS, "bytes_per_second": 2.5e10}
    rows = [{**moved, "run_id": run, "rank": rank} for run in "abc" for rank in range(3)]
    found = draw(copy_bandwidth.TABLE, *rows)
    assert [row["panel"] for row in found.rows] == [
        *("a, rank 0, GPU 0", "b, rank 0, GPU 0", "c, rank 0, GPU 0", "a, rank 1, GPU 0")
    ]
    assert found.notes == ("and 5 more panels",)


def test_queues_are_drawn_by_slices_and_the_longest_is_told() -> None:
    waiting = {"rank": 0, "device_id": 1, "launched_count": 3, "started_count": 1, "duration_ns": 2 * MS}
    rows = [
        {**waiting, "period_number": place, "ts_ns": (4 + place) * MS, "mean_length": length}
        for place, length in ((1, 0.5), (3, 7.25))
    ]
    found = draw(queue_timeline.TABLE, {"rank": 1, "evidence": "unobservable"}, *rows)
    assert [(row["panel"], row["begin"], row["end"], row["length"]) for row in found.rows] == [
        ("a, rank 0, GPU 1", 0, 2, 0.5),
        ("a, rank 0, GPU 1", 2, 4, 7.25),
    ]
    assert found.rows[1]["detail"] == "7.25 waiting: 3 launched, 1 started"
    assert found.notes == ("a, rank 0, GPU 1: at most 7.25 on the mean of a slice, 2.00 ms after the first launch",)
