"""Figures of the peers' analyses: small, of what was observed, and with the evidence of each number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gold import collective_bandwidth, idle_breakdown, queue_length, roofline
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
