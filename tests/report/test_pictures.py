from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from assets import gold
from gold import (
    attested_runs,
    energy_overhead,
    kernel_breakdown,
    launches,
    operation_costs,
    operation_overhead,
    pairs,
    published,
    scaling,
    sealing_coverage,
    step_energy,
    step_overhead,
    stragglers,
    time_breakdown,
    toll_breakdown,
    trace_summary,
)
from report.pictures import picture
from report.svg import RIGHT
from silver import steps
from tests.report.drawn import SVG, PictureSnapshot, drawn, marks, parsed, rows_of, texts, wide

if TYPE_CHECKING:
    from syrupy.assertion import SnapshotAssertion

    from lake.store import Lake
    from lake.tables import Table

MS = 1_000_000
ROWS_ALONE = (pairs.TABLE, operation_costs.TABLE, operation_overhead.TABLE, step_energy.TABLE, energy_overhead.TABLE)
PICTURED = {table.full_name: table for table in gold.TABLES if table not in ROWS_ALONE}
# Two runs, a pair, are enough to read in a diff; what spans runs is drawn whole.
PAIR = ["resnet50-plain-w2", "resnet50-sealed-w2"]


@pytest.mark.parametrize("table", PICTURED.values(), ids=PICTURED.keys())
def test_the_pictures_are_what_they_were(recorded: Lake, table: Table, snapshot: SnapshotAssertion) -> None:
    runs = None if table in {scaling.TABLE, published.TABLE} else PAIR
    rows = recorded.scan(table, runs).collect().to_arrow().cast(table.arrow_schema)
    assert snapshot(extension_class=PictureSnapshot) == picture(table, rows)
    order = pa.array(random.Random(1).sample(range(rows.num_rows), rows.num_rows), pa.int64())
    shuffled = rows.take(order)
    assert picture(table, shuffled) == picture(table, rows)


@pytest.mark.parametrize("table", PICTURED.values(), ids=PICTURED.keys())
def test_a_table_without_rows_says_so_and_what_would_have_one(table: Table) -> None:
    said = texts(parsed(picture(table, rows_of(table, []))))
    assert f"{table.full_name}: no rows" in said
    assert said[-1].rstrip("…") == table.grain[: len(said[-1].rstrip("…"))]


def test_what_rows_say_best_has_no_picture() -> None:
    for table in ROWS_ALONE:
        assert picture(table, rows_of(table, [{"run_id": "a"}])) is None
    assert picture(steps.TABLE, rows_of(steps.TABLE, [{"run_id": "a"}])) is None


# -- time_breakdown -----------------------------------------------------------------------------------------------

STEP = {**{f"{part}_ns": 0 for part in time_breakdown.PARTS}, "run_id": "a", "evidence": "measured"}


def test_bars_are_as_long_as_the_mean_of_their_part_and_stand_side_by_side() -> None:
    tree = drawn(
        time_breakdown.TABLE,
        {**STEP, "step_number": 1, "duration_ns": 300 * MS, "compute_ns": 100 * MS, "crypto_ns": 200 * MS},
        {**STEP, "step_number": 2, "duration_ns": 500 * MS, "compute_ns": 100 * MS, "crypto_ns": 400 * MS},
        {**STEP, "step_number": 0, "is_warmup": True, "duration_ns": 9000 * MS, "compute_ns": 9000 * MS},
    )
    compute, crypto = wide(tree, "a, rank 0: compute kernels 100 ms, measured"), wide(tree, "a, rank 0: sealing")
    assert compute[1] == pytest.approx(crypto[0], abs=0.02)
    assert crypto[1] - crypto[0] == pytest.approx(3 * (compute[1] - compute[0]), abs=0.1)
    assert "400 ms" in texts(tree)  # the mean step


def test_only_warm_up_is_drawn_and_said_to_be_that() -> None:
    tree = drawn(time_breakdown.TABLE, {**STEP, "is_warmup": True, "duration_ns": MS, "compute_ns": MS})
    assert "only warm-up was recorded" in texts(tree)


def test_a_part_that_was_not_seen_is_not_drawn_and_its_time_is_not_attributed() -> None:
    row = {**STEP, "duration_ns": 10 * MS, "compute_ns": None, "crypto_ns": 4 * MS, "unattributed_ns": 6 * MS}
    tree = drawn(time_breakdown.TABLE, {**row, "evidence": "unobservable", "reason": "no GPU rows"})
    assert [title.split(": ")[1] for title in marks(tree, "rect")] == [
        "sealing and opening 4.00 ms, unobservable",
        "not attributed 6.00 ms, unobservable",
    ]
    assert {"unobservable", "no GPU rows"} <= set(texts(tree))


def test_ranks_beyond_the_sixteenth_are_counted() -> None:
    tree = drawn(time_breakdown.TABLE, *({**STEP, "rank": rank, "duration_ns": MS} for rank in range(19)))
    assert texts(tree)[-1] == "and 3 more ranks"


# -- toll_breakdown -----------------------------------------------------------------------------------------------


def part(ordinal: int, name: str, twin: int | None, tee: int | None, **more: object) -> dict[str, object]:
    delta = None if twin is None or tee is None else (tee - twin) * MS
    times = {"baseline_step_ns": twin and twin * MS, "step_ns": tee and tee * MS, "delta_ns": delta}
    return {"run_id": "a", "part_ordinal": ordinal, "part": name, "evidence": "measured", **times, **more}


def test_each_piece_of_the_waterfall_begins_where_the_last_one_ended() -> None:
    tree = drawn(
        toll_breakdown.TABLE,
        part(0, "compute", 100, 90),
        part(1, "collective", 0, 0),
        part(4, "crypto", 0, 240),
        part(9, "idle", 20, 30),
    )
    twin, tee = wide(tree, "step of the twin: 120 ms, measured"), wide(tree, "step in the TEE: 360 ms, measured")
    compute, crypto, idle = (wide(tree, name) for name in ("compute kernels", "sealing and opening", "nothing"))
    one = (twin[1] - twin[0]) / 120
    assert compute == pytest.approx((twin[1] - 10 * one, twin[1]), abs=0.05)
    assert crypto == pytest.approx((compute[0], compute[0] + 240 * one), abs=0.05)
    assert idle == pytest.approx((crypto[1], tee[1]), abs=0.05)
    assert tee[1] - twin[1] == pytest.approx(240 * one, abs=0.05)
    assert {"−10.0 ms", "+240 ms", "+10.0 ms"} <= set(texts(tree))  # noqa: RUF001
    assert "collective kernels" not in texts(tree)


def test_longer_and_shorter_have_their_own_colours() -> None:
    tree = drawn(toll_breakdown.TABLE, part(0, "compute", 100, 90), part(4, "crypto", 0, 240))
    colours = {title.split(":")[0]: mark["fill"] for title, mark in marks(tree, "rect").items()}
    assert len({colours["compute kernels"], colours["sealing and opening"], colours["step in the TEE"]}) == 3


def test_a_part_that_one_side_could_not_see_has_words_and_no_piece() -> None:
    unseen = {"evidence": "unobservable", "reason": "not observed in the run"}
    tree = drawn(toll_breakdown.TABLE, part(0, "compute", None, None, **unseen), part(10, "unattributed", 80, 90))
    assert "not observed in the run" in texts(tree)
    assert not [title for title in marks(tree, "rect") if title.startswith("compute")]
    assert wide(tree, "not attributed")[1] == pytest.approx(wide(tree, "step in the TEE")[1], abs=0.02)


# -- step_overhead ------------------------------------------------------------------------------------------------

PAIRED = {"run_id": "tee", "verdict": "2.00x slower", "evidence": "measured", "noise_floor_fraction": 0.5}
RATIOS = {"slowdown_ratio": 2.0, "slowdown_low_ratio": 1.5, "slowdown_high_ratio": 3.0}


def test_the_interval_spans_its_ends_around_the_point_and_the_noise_spans_one() -> None:
    tree = drawn(step_overhead.TABLE, {**PAIRED, **RATIOS})
    (point,) = (float(mark["cx"]) for title, mark in marks(tree, "circle").items() if title == "tee: 2.00×, measured")  # noqa: RUF001
    low, high = wide(tree, "95 % 1.50")
    noise = wide(tree, "repeats of the twin differ by 50.0 %")
    one = sum(noise) / 2
    assert (point - one, high - one) == pytest.approx((2 * (low - one), 4 * (low - one)), abs=0.1)
    assert noise[1] == pytest.approx(low, abs=0.05)
    lines = [float(mark.get("x1", "")) for mark in tree.iter(f"{SVG}line") if mark.get("stroke-width") == "1.5"]
    assert min(abs(x - one) for x in lines) < 0.05  # the line at 1
    assert {"2.00x slower", "2.00×", "1×"} <= set(texts(tree))  # noqa: RUF001


def test_a_pair_without_an_answer_has_its_reason_and_no_point() -> None:
    row = {"run_id": "tee", "verdict": "no answer: no step in common", "evidence": "unobservable"}
    tree = drawn(step_overhead.TABLE, row)
    assert marks(tree, "circle") == {}
    assert {"no answer: no step in common", "unobservable", "–"} <= set(texts(tree))  # noqa: RUF001


# -- kernels, launches, collectives -------------------------------------------------------------------------------


def test_the_ten_largest_kernels_come_first_and_the_rest_is_counted() -> None:
    kernels = [
        {
            "run_id": "a",
            "name": f"k{n}",
            "total_ns": n * MS,
            "evidence": "measured",
            "share_fraction": 0.1,
            "p50_ns": MS,
        }
        for n in range(1, 13)
    ]
    tree = drawn(kernel_breakdown.TABLE, *kernels)
    assert [title.split(":")[0] for title in marks(tree, "rect")] == [f"k{n}" for n in range(12, 2, -1)]
    ends = [wide(tree, f"k{n}:")[1] - wide(tree, f"k{n}:")[0] for n in (12, 6, 3)]
    assert ends == pytest.approx([ends[0], ends[0] / 2, ends[0] / 4], abs=0.05)
    assert texts(tree)[-1] == "and 2 more kernels"


def test_a_sealed_name_is_shown_short_and_still_told_from_others() -> None:
    tokens = [f"sealed:1:k0a1b2c3:{letter * 40}" for letter in "AB"]
    tree = drawn(kernel_breakdown.TABLE, *({"run_id": "a", "name": token, "total_ns": MS} for token in tokens))
    assert {"sealed:k0a1b2c3:AAAAAAAA…", "sealed:k0a1b2c3:BBBBBBBB…"} <= set(texts(tree))
    assert "A" * 9 not in "".join(texts(tree))


def test_launches_stand_in_the_order_of_their_percentiles_and_what_was_not_seen_has_no_point() -> None:
    times = {"launch_p50_ns": 10_000, "launch_p95_ns": 100_000, "launch_p99_ns": 1_000_000}
    row = {"run_id": "a", "launches_count": 7, "evidence": "measured", "gpu_evidence": "unobservable", **times}
    tree = drawn(launches.TABLE, row)
    places = {title: float(mark["cx"]) for title, mark in marks(tree, "circle").items()}
    p50, p95, p99 = (
        places[f"rank 0: launch p{p} {told}, measured"]
        for p, told in ((50, "10.0 µs"), (95, "100 µs"), (99, "1.00 ms"))
    )
    assert p95 - p50 == pytest.approx(p99 - p95, abs=0.05)  # each ten times the last
    assert len(places) == 3
    assert {"7 launches, median 10.0 µs", "not observed", "unobservable"} <= set(texts(tree))


def test_collectives_are_ordered_by_skew_beside_their_transfer() -> None:
    late = {"run_id": "a", "match_id": "late", "transfer_ns": 40 * MS, "skew_ns": 20 * MS, "is_skew_certain": True}
    doubted = {"run_id": "a", "match_id": "early", "skew_ns": 2 * MS, "skew_uncertainty_ns": 5 * MS}
    tree = drawn(
        stragglers.TABLE,
        {**late, "skew_uncertainty_ns": MS, "late_rank": 3, "ranks_count": 4, "evidence": "measured"},
        {**doubted, "is_skew_certain": False, "evidence": "unobservable", "reason": "only the call was seen"},
    )
    assert [title.split(":")[0] for title in marks(tree, "rect")] == ["late", "late", "early"]
    transfer, skew = wide(tree, "late: 40.0 ms"), wide(tree, "late: 20.0 ms ± 1.00 ms")
    assert transfer[1] - transfer[0] == pytest.approx(2 * (skew[1] - skew[0]), abs=0.05)
    said = texts(tree)
    assert "1 of 2 collectives with a skew beyond the doubt of the clocks" in said
    assert "transfer not known: only the call was seen" in said
    assert "2.00 ms ± 5.00 ms skew, within the doubt of the clocks" in said


# -- sealing, traces, claims, scaling, others ---------------------------------------------------------------------


def test_coverage_shares_out_the_promised_bytes_and_names_violations() -> None:
    counts = {"promised_crossings_count": 4, "promised_bytes": 1000, "promised_message_count": 4, "violations_count": 1}
    seen = {"sealed_bytes": 500, "claimed_bytes": 250, "plain_bytes": 250}
    tree = drawn(
        sealing_coverage.TABLE,
        {"run_id": "a", "boundary": "gpu_to_gpu", **counts, **seen, "evidence": "modelled"},
        {"run_id": "a", "boundary": "host_to_gpu", "crossings_count": 9, "evidence": "measured"},
    )
    sealed, claimed, plain = (
        wide(tree, f"a, GPU to GPU: {name}") for name in ("sealed, rec", "sealed, cl", "in plain")
    )
    assert sealed[1] - sealed[0] == pytest.approx(2 * (claimed[1] - claimed[0]), abs=0.05)
    assert (sealed[1], claimed[1]) == pytest.approx((claimed[0], plain[0]), abs=0.02)
    assert {"1 violation", "nothing to seal in 9 crossings", "modelled"} <= set(texts(tree))


def test_the_pieces_of_a_trace_sum_to_it_hidden_communication_apart() -> None:
    times = {"total_ns": 100, "tl_compute_ns": 50, "tl_comm_ns": 30, "tl_exposed_comm_ns": 10}
    row = {"run_id": "a", **times, "tl_exposed_memcpy_ns": 5, "idle_ns": 35, "evidence": "measured"}
    tree = drawn(trace_summary.TABLE, row, {"run_id": "b", "evidence": "unobservable", "reason": "no GPU rows"})
    told = [title.split(": ")[1] for title in marks(tree, "rect")]
    assert told == [
        "compute alone 30 ns, measured",
        "compute that hides communication 20 ns, measured",
        "exposed communication 10 ns, measured",
        "exposed copies 5 ns, measured",
        "idle 35 ns, measured",
    ]
    assert "no GPU rows" in texts(tree)


def test_a_contradicted_claim_is_told_from_an_unproven_one_and_from_one_that_agrees() -> None:
    claims = ("agrees", "unproven", "contradicted")
    tree = drawn(attested_runs.TABLE, *({"run_id": claim, "agreement": claim, "verdict": claim} for claim in claims))
    assert len({(mark["fill"], mark["stroke"]) for mark in marks(tree, "circle").values()}) == 3


def test_points_of_a_family_stand_where_the_axis_and_the_toll_put_them() -> None:
    family = {"run_id": "family-1", "family": "model=GPT-2|dtype=", "axis": "world_size", "evidence": "measured"}
    slope = {"slope_ns": 10 * MS, "slope_low_ns": -5 * MS, "slope_high_ns": 25 * MS}
    points = [
        {
            **family,
            **slope,
            "tee_run_id": f"w{n}",
            "axis_number": float(n),
            "toll_ns": n * 10 * MS,
            "slowdown_ratio": 2.0,
        }
        for n in (2, 4, 6)
    ]
    tree = drawn(scaling.TABLE, *points)
    first, second, third = sorted((float(mark["cx"]), float(mark["cy"])) for mark in marks(tree, "circle").values())
    assert second == pytest.approx(((first[0] + third[0]) / 2, (first[1] + third[1]) / 2), abs=0.05)
    (line,) = (mark for title, mark in marks(tree, "line").items() if "modelled" in title)
    assert [float(line[name]) for name in ("x1", "y1", "x2", "y2")] == pytest.approx([*first, *third], abs=0.05)
    (fan,) = marks(tree, "polygon")
    assert fan.endswith("+10.0 ms per rank, modelled; 95 % −5.00 ms to +25.0 ms")  # noqa: RUF001
    assert "GPT-2" in texts(tree)


def test_one_point_has_no_slope_and_says_why() -> None:
    row = {
        "run_id": "f",
        "axis": "world_size",
        "tee_run_id": "w2",
        "axis_number": 2.0,
        "toll_ns": MS,
        "reason": "one place",
    }
    tree = drawn(scaling.TABLE, row)
    assert not [title for title in marks(tree, "line") if "slope" in title]
    assert "no slope: one place" in texts(tree)


def test_published_slowdowns_are_drawn_by_class_and_the_rest_is_counted() -> None:
    entry = {"run_id": "published", "source": "them", "workload": "w"}
    tree = drawn(
        published.TABLE,
        {**entry, "entry_id": "1", "slowdown_ratio": 1.0, "evidence_class": "primary"},
        {**entry, "entry_id": "2", "slowdown_ratio": 10.0, "evidence_class": "secondary"},
        {**entry, "entry_id": "3", "evidence_class": "primary"},
    )
    found = marks(tree, "circle")
    assert list(found) == ["w, value: 1.00×, primary", "w, value: 10.0×, secondary"]  # noqa: RUF001
    assert len({mark["fill"] for mark in found.values()}) == 2
    assert texts(tree)[-1] == "1 published number of a part of the work, not drawn"


# -- names --------------------------------------------------------------------------------------------------------

EVIL = '</text><script>alert(1)</script><image href="https://evil.example/x"/>'


def test_a_name_is_a_text_whatever_it_says() -> None:
    tree = drawn(kernel_breakdown.TABLE, {"run_id": EVIL, "name": f"{EVIL}\x00\x1b[31m\u202e", "total_ns": MS})
    assert {mark.tag.removeprefix(SVG) for mark in tree.iter()} <= {"svg", "title", "desc", "rect", "text", "line"}
    assert any(text.startswith("</text><script>") for text in texts(tree))


def test_a_long_name_stays_on_the_paper() -> None:
    tree = drawn(kernel_breakdown.TABLE, {"run_id": "W" * 500, "name": "漢" * 500, "total_ns": MS})
    assert {text for text in texts(tree) if text.startswith("漢")} == {"漢" * ((RIGHT - 20) // 11 - 1) + "…"}
    assert max(map(len, texts(tree))) < 100
