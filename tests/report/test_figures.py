from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from assets.build import gold
from gold import (
    attested_runs,
    energy_overhead,
    kernel_breakdown,
    launches,
    operation_costs,
    operation_overhead,
    overhead_breakdown,
    published,
    scaling,
    sealing_coverage,
    step_overhead,
    stragglers,
    time_breakdown,
    trace_summary,
)
from report import literature
from report.pictures import FIGURES, figure
from silver import steps
from tests.support.drawn_figures import describe_figure, draw_figure, marks, rows_of
from tests.support.report_answers import answers

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from lake.tables import Table

MS = 1_000_000
PICTURED = {table.full_name: table for table in gold.TABLES if table.full_name in FIGURES}
ROWS_ALONE = [table for table in gold.TABLES if table.full_name not in FIGURES]


@pytest.mark.parametrize("name", [name for name, rows in answers().items() if rows and name in PICTURED])
def test_the_rows_behind_a_figure_are_what_they_were(name: str, snapshot: SnapshotAssertion) -> None:
    rows = rows_of(PICTURED[name], answers()[name])
    found = figure(PICTURED[name], rows)
    assert found is not None
    assert snapshot == describe_figure(found)
    assert figure(PICTURED[name], rows.take(list(reversed(range(rows.num_rows))))) == found


@pytest.mark.parametrize("table", PICTURED.values(), ids=PICTURED.keys())
def test_a_table_without_rows_says_so_and_what_would_have_one(table: Table) -> None:
    found = draw_figure(table)
    assert found.title == f"{table.full_name}: no rows"
    assert found.rows[0]["value"] == table.grain


def test_what_rows_say_best_has_no_figure() -> None:
    assert set(FIGURES) == set(PICTURED), "a figure is of a table that there is"
    for table in (*ROWS_ALONE, steps.TABLE):
        assert figure(table, rows_of(table, [{table.partition_key: "a"}])) is None


# -- time_breakdown -----------------------------------------------------------------------------------------------

STEP = {**{f"{part}_ns": 0 for part in time_breakdown.PARTS}, "run_id": "a", "evidence": "measured"}


def test_pieces_are_as_long_as_the_mean_of_their_part_and_stand_side_by_side() -> None:
    found = draw_figure(
        time_breakdown.TABLE,
        {**STEP, "step_number": 1, "duration_ns": 300 * MS, "compute_ns": 100 * MS, "crypto_ns": 200 * MS},
        {**STEP, "step_number": 2, "duration_ns": 500 * MS, "compute_ns": 100 * MS, "crypto_ns": 400 * MS},
        {**STEP, "step_number": 0, "is_warmup": True, "duration_ns": 9000 * MS, "compute_ns": 9000 * MS},
    )
    assert [(row["what"], row["start"], row["end"]) for row in found.rows if "end" in row] == [
        ("compute kernels", 0, 100),
        ("sealing and opening", 100, 400),
    ]
    assert [row["value"] for row in marks(found, label="rank 0")] == ["400 ms"]


def test_only_warm_up_is_drawn_and_a_rank_without_pieces_says_why() -> None:
    alone = draw_figure(time_breakdown.TABLE, {**STEP, "is_warmup": True, "duration_ns": MS, "compute_ns": MS})
    assert len([row for row in alone.rows if "end" in row]) == 1
    empty = draw_figure(time_breakdown.TABLE, {**STEP, "evidence": "unobservable", "reason": "no GPU rows"})
    assert [row["note"] for row in marks(empty, label="rank 0")] == ["no GPU rows"]


def test_a_part_that_was_not_seen_is_not_drawn_and_its_time_is_not_attributed() -> None:
    row = {**STEP, "duration_ns": 10 * MS, "compute_ns": None, "crypto_ns": 4 * MS, "unattributed_ns": 6 * MS}
    found = draw_figure(time_breakdown.TABLE, {**row, "evidence": "unobservable", "reason": "no GPU rows"})
    assert [(row["what"], row["detail"], row["evidence"]) for row in found.rows if "end" in row] == [
        ("sealing and opening", "4.00 ms", "unobservable"),
        ("not attributed", "6.00 ms", "unobservable"),
    ]


def test_ranks_beyond_the_fortieth_are_counted() -> None:
    found = draw_figure(time_breakdown.TABLE, *({**STEP, "rank": rank, "duration_ns": MS} for rank in range(43)))
    assert found.notes == ("and 3 more ranks",)


# -- overhead_breakdown -----------------------------------------------------------------------------------------------


def part(ordinal: int, name: str, baseline: int | None, tee: int | None, **more: object) -> dict[str, object]:
    delta = None if baseline is None or tee is None else (tee - baseline) * MS
    times = {"baseline_step_ns": baseline and baseline * MS, "step_ns": tee and tee * MS, "overhead_ns": delta}
    return {"run_id": "a", "part_ordinal": ordinal, "part": name, "evidence": "measured", **times, **more}


def test_each_piece_of_the_waterfall_begins_where_the_last_one_ended() -> None:
    found = draw_figure(
        overhead_breakdown.TABLE,
        part(0, "compute", 100, 90),
        part(1, "collective", 0, 0),
        part(4, "crypto", 0, 240),
        part(9, "idle", 20, 30),
    )
    assert [(row["label"], row["start"], row["end"], row["kind"]) for row in found.rows] == [
        ("step of the baseline", 0, 120, "mean step"),
        ("compute kernels", 120, 110, "takes less"),
        ("sealing and opening", 110, 350, "takes longer"),
        ("nothing recorded", 350, 360, "takes longer"),
        ("step of the run", 0, 360, "mean step"),
    ]


def test_a_part_that_one_side_could_not_see_has_words_and_no_piece() -> None:
    unseen = {"evidence": "unobservable", "reason": "not observed in the run"}
    found = draw_figure(
        overhead_breakdown.TABLE, part(0, "compute", None, None, **unseen), part(10, "unattributed", 80, 90)
    )
    (row,) = marks(found, label="compute kernels")
    assert row["unseen"] == "not observed in the run, unobservable"
    assert "end" not in row


def test_a_share_is_never_zero_where_it_is_not() -> None:
    found = draw_figure(overhead_breakdown.TABLE, part(0, "compute", 100, 101, share_fraction=-0.002))
    assert marks(found, label="compute kernels")[0]["value"] == "+1.00 ms (<1 %)"


# -- slowdowns ----------------------------------------------------------------------------------------------------

PAIRED = {"run_id": "tee", "verdict": "2.00x slower", "evidence": "measured", "run_noise_fraction": 0.5}
RATIOS = {"slowdown_ratio": 2.0, "slowdown_low_ratio": 1.5, "slowdown_high_ratio": 3.0}


def test_the_interval_spans_its_ends_around_the_point_and_the_noise_spans_one() -> None:
    (row,) = draw_figure(step_overhead.TABLE, {**PAIRED, **RATIOS}).rows
    assert [row[name] for name in ("at", "low", "high", "floor_low", "floor_high")] == [2.0, 1.5, 3.0, 0.5, 1.5]
    assert row["detail"] == "2.00×, 95 % 1.50× to 3.00×"  # noqa: RUF001


def test_more_energy_is_drawn_as_more_time_is() -> None:
    ratios = {name.replace("slowdown", "energy"): value for name, value in RATIOS.items()}
    (row,) = draw_figure(energy_overhead.TABLE, {"run_id": "tee", "evidence": "modelled", **ratios}).rows
    assert [row[name] for name in ("at", "low", "high", "evidence")] == [2.0, 1.5, 3.0, "modelled"]


def test_what_concludes_nothing_is_drawn_hollow_and_has_no_number_beside_it() -> None:
    row = {**PAIRED, **RATIOS, "verdict_class": "inconclusive", "interval_over": "within_run"}
    (found,) = draw_figure(step_overhead.TABLE, row).rows
    assert (found["open"], found["value"], "at" in found) == (2.0, "inconclusive", False)
    assert found["detail"] == "2.00×, within-run scatter only 1.50× to 3.00×"  # noqa: RUF001


def test_a_pair_without_an_answer_has_its_evidence_and_no_point() -> None:
    row = {"run_id": "tee", "verdict": "no answer: no step in common", "evidence": "unobservable"}
    (found,) = draw_figure(step_overhead.TABLE, row).rows
    assert "at" not in found
    assert (found["value"], found["evidence_text"]) == ("–", "unobservable")  # noqa: RUF001


def test_values_far_apart_stand_on_a_scale_of_powers() -> None:
    near, far = (draw_figure(step_overhead.TABLE, {**PAIRED, "slowdown_ratio": at}) for at in (2.0, 40.0))
    scales = [one.spec["layer"][0]["encoding"]["x"]["scale"].get("type") for one in (near, far)]
    assert scales == [None, "log"]


def test_the_change_that_weighs_most_comes_first_and_an_operation_without_a_ratio_is_counted() -> None:
    common = {"run_id": "a", "evidence": "measured", "operation": "copy", "median_ns": 1}
    found = draw_figure(
        operation_overhead.TABLE,
        {**common, "name": "often", "overhead_ns": 10, "operations_count": 100, "slowdown_ratio": 1.1},
        {**common, "name": "slow", "overhead_ns": 500, "operations_count": 1, "slowdown_ratio": 9.0},
        {**common, "name": "never"},
    )
    assert [row["label"].split(",")[0] for row in found.rows] == ["often", "slow"]
    assert found.notes == ("1 operation without a ratio, not drawn",)


def test_an_operation_is_drawn_with_its_interval_where_it_has_one() -> None:
    common = {"run_id": "a", "operation": "call", "operations_count": 9, "evidence": "measured"}
    found = draw_figure(
        operation_costs.TABLE,
        {**common, "name": "one", "median_ns": 2000, "median_low_ns": 1000, "median_high_ns": 4000, "total_ns": 9},
        {**common, "name": "two", "median_ns": 3000, "total_ns": 8},
    )
    assert [(row["at"], row.get("low"), row.get("high")) for row in found.rows] == [(2, 1, 4), (3, None, None)]


# -- kernels, launches, collectives -------------------------------------------------------------------------------


def test_the_six_largest_kernels_come_first_and_the_rest_is_counted() -> None:
    kernels = [{"run_id": "a", "name": f"k{n}", "total_ns": n * MS, "evidence": "measured"} for n in range(1, 13)]
    found = draw_figure(kernel_breakdown.TABLE, *kernels)
    assert [(row["name"], row["at"]) for row in found.rows if "at" in row] == [(f"k{n}", n) for n in range(12, 6, -1)]
    assert found.notes == ("and 6 more kernels",)


def test_a_sealed_name_is_shown_short_and_still_told_from_others() -> None:
    tokens = [f"sealed:1:k0a1b2c3:{letter * 40}" for letter in "AB"]
    found = draw_figure(kernel_breakdown.TABLE, *({"run_id": "a", "name": token, "total_ns": MS} for token in tokens))
    assert {row["name"] for row in found.rows if "at" in row} == {f"sealed:k0a1b2c3:{a * 8}…" for a in "AB"}


def test_what_was_not_seen_of_a_launch_has_no_point() -> None:
    times = {"launch_p50_ns": 10_000, "launch_p95_ns": 100_000, "launch_p99_ns": 1_000_000}
    row = {"run_id": "a", "launches_count": 7, "evidence": "measured", "gpu_evidence": "unobservable", **times}
    launch, queue = draw_figure(launches.TABLE, row).rows
    assert [launch[p] for p in ("p50", "p95", "p99")] == [10, 100, 1000]
    assert "p50" not in queue
    assert queue["side"] == "queue not observed, unobservable"


def test_collectives_are_ordered_by_skew_beside_their_transfer() -> None:
    late = {"run_id": "a", "match_id": "late", "transfer_ns": 40 * MS, "skew_ns": 20 * MS, "is_skew_certain": True}
    doubted = {"run_id": "a", "match_id": "early", "skew_ns": 2 * MS, "skew_uncertainty_ns": 5 * MS}
    found = draw_figure(
        stragglers.TABLE,
        {**doubted, "is_skew_certain": False, "evidence": "unobservable", "reason": "only the call was seen"},
        {**late, "skew_uncertainty_ns": MS, "late_rank": 3, "ranks_count": 4, "evidence": "measured"},
    )
    assert [(row["what"], row.get("at"), row.get("low"), row.get("high")) for row in found.rows] == [
        ("transfer", 40, None, None),
        ("skew of arrivals", 20, 19, 21),
        ("transfer", None, None, None),
        ("skew of arrivals", 2, 0, 7),
    ]
    assert found.rows[2]["side"] == "transfer not known: only the call was seen"
    assert found.rows[3]["side"] == "2.00 ms ± 5.00 ms, within doubt"
    assert found.notes == ("a: 1 of 2 collectives with a skew beyond the doubt of the clocks",)


# -- sealing, traces, claims, scaling, others ---------------------------------------------------------------------


def test_coverage_shares_out_the_promised_bytes_and_names_violations() -> None:
    counts = {"promised_crossings_count": 4, "promised_bytes": 1000, "promised_message_count": 4, "violations_count": 1}
    seen = {"sealed_bytes": 500, "claimed_bytes": 250, "plain_bytes": 250}
    found = draw_figure(
        sealing_coverage.TABLE,
        {"run_id": "a", "boundary": "gpu_to_gpu", **counts, **seen, "evidence": "modelled"},
        {"run_id": "a", "boundary": "host_to_gpu", "crossings_count": 9, "evidence": "measured"},
    )
    assert [(row["what"], row["start"], row["end"]) for row in found.rows if "end" in row] == [
        ("sealed, recorded", 0, 0.5),
        ("sealed, claimed by the regime", 0.5, 0.75),
        ("in plaintext", 0.75, 1.0),
    ]
    assert marks(found, label="GPU to GPU")[0]["broken"] == "1 violation"
    assert marks(found, label="host to GPU")[0]["note"] == "nothing to seal in 9 crossings"


def test_the_pieces_of_a_trace_sum_to_it_hidden_communication_apart() -> None:
    times = {"total_ns": 100, "tl_compute_ns": 50, "tl_comm_ns": 30, "tl_exposed_comm_ns": 10}
    row = {"run_id": "a", **times, "tl_exposed_memcpy_ns": 5, "idle_ns": 35, "evidence": "measured"}
    found = draw_figure(trace_summary.TABLE, row, {"run_id": "b", "evidence": "unobservable", "reason": "no GPU rows"})
    assert [(row["what"], row["detail"]) for row in found.rows if "end" in row] == [
        ("compute alone", "30 ns"),
        ("compute that hides communication", "20 ns"),
        ("exposed communication", "10 ns"),
        ("exposed copies", "5 ns"),
        ("idle", "35 ns"),
    ]
    assert found.rows[-1]["note"] == "no GPU rows"


def test_a_contradicted_claim_is_told_from_an_unproven_one_and_from_one_that_agrees() -> None:
    claims = ("agrees", "unproven", "contradicted")
    found = draw_figure(
        attested_runs.TABLE, *({"run_id": claim, "agreement": claim, "verdict": claim} for claim in claims)
    )
    encoding = found.spec["layer"][0]["encoding"]
    assert all(len(set(encoding[channel]["scale"]["range"])) == 3 for channel in ("color", "shape"))


def test_the_modelled_line_goes_through_the_middle_of_the_points_and_its_fan_closes_there() -> None:
    family = {"family_id": "family-1", "family": "model=GPT-2|dtype=", "axis": "world_size", "evidence": "measured"}
    slope = {"slope_ns": 10 * MS, "slope_low_ns": -5 * MS, "slope_high_ns": 25 * MS, "slowdown_ratio": 2.0}
    points = [
        {**family, **slope, "tee_run_id": f"w{n}", "axis_number": float(n), "overhead_ns": n * 10 * MS}
        for n in (2, 4, 6)
    ]
    found = draw_figure(scaling.TABLE, *points)
    assert [(row["place"], row["overhead"]) for row in found.rows if "overhead" in row] == [(2, 20), (4, 40), (6, 60)]
    fan = [(row["place"], row["line"], row["fan_low"], row["fan_high"]) for row in found.rows if "line" in row]
    assert sum(fan, ()) == pytest.approx((2, 20, 50, -10, 4, 40, 40, 40, 6, 60, 30, 90))
    assert {row["evidence"] for row in found.rows if "line" in row} == {"modelled"}
    assert found.notes[0].endswith("by ranks: +10.0 ms per rank, modelled; 95 % −5.00 ms to +25.0 ms")  # noqa: RUF001


def test_one_place_of_an_axis_is_no_growth_and_is_counted() -> None:
    row = {"family_id": "f", "axis": "world_size", "tee_run_id": "w2", "axis_number": 2.0, "overhead_ns": MS}
    found = draw_figure(scaling.TABLE, row)
    assert found.rows[0]["value"] == "1 family has its runs at one place of an axis, which gives no slope"


def test_published_slowdowns_are_drawn_by_class_and_the_rest_is_counted() -> None:
    entry = {"collection_id": "published", "source": "them", "workload": "w"}
    found = draw_figure(
        published.TABLE,
        {**entry, "entry_id": "1", "slowdown_ratio": 1.0, "evidence_class": "primary"},
        {**entry, "entry_id": "2", "slowdown_ratio": 10.0, "evidence_class": "secondary"},
        {**entry, "entry_id": "3", "evidence_class": "primary"},
    )
    assert [(row["at"], row["kind"]) for row in found.rows] == [
        (1.0, "published: their own text"),
        (10.0, "published: quoted by others"),
    ]
    assert found.notes == ("1 published number of a part of the work, not drawn",)


def test_ours_stand_apart_from_theirs_under_headings_of_their_own_with_their_regimes() -> None:
    rows = answers()
    found = literature.published(rows["gold.published"], rows["gold.step_overhead"])
    ours, theirs = (
        [row for row in found.rows if (row.get("kind") == "ours") == mine and "at" in row] for mine in (1, 0)
    )
    assert [row["group"] for row in found.rows if "group" in row] == ["ours, in this lake", "published by others"]
    assert max(row["line"] for row in ours) < min(row["line"] for row in theirs) - 1
    assert {row["under"] for row in ours} == {"sw_per_hop_aesgcm"}
    assert [row["under"] for row in theirs if "under" in row] == ["hopper_spt_cc"]
    assert all("run" not in row for row in theirs)
