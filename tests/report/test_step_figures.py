from __future__ import annotations

from typing import Any

import pytest

from gold.step_timeline import PIXELS, choose_step, merge_to_pixels
from gold.time_breakdown import PARTS
from report.drawing import specification, svg
from report.heat_map import MOST_CELLS, MOST_RANKS, step_heat_map
from report.timeline import step_timeline
from tests.support.drawn_figures import parse_svg

MS = 1_000_000


def cell(rank: int, step: int, duration_ms: int, **more: Any) -> dict[str, Any]:
    row = {"run_id": "r", "rank": rank, "step_number": step, "duration_ns": duration_ms * MS}
    return {**row, "is_warmup": False, "wait_ns": None, **more}


def step(rank: int, ts_ns: int, duration_ns: int, number: int = 7) -> dict[str, Any]:
    row = {"run_id": "r", "rank": rank, "step_number": number, "ts_ns": ts_ns, "duration_ns": duration_ns}
    return {**row, "is_warmup": False, "is_aligned": True}


def segment(rank: int, part: str, begin_ns: int, end_ns: int) -> dict[str, Any]:
    return {"rank": rank, "part": part, "begin_ns": begin_ns, "end_ns": end_ns}


def test_a_heat_map_has_a_cell_per_rank_and_step_and_says_which_was_longest() -> None:
    rows = [cell(rank, number, 10 + rank + number) for rank in (0, 1) for number in (3, 4)]
    found = step_heat_map([*rows, cell(0, 2, 99, is_warmup=True)], ["r"])
    assert [(row["rank"], row["step"], row["value"]) for row in found.rows] == [
        (0, 3, "13.0 ms"),
        (0, 4, "14.0 ms"),
        (1, 3, "14.0 ms"),
        (1, 4, "15.0 ms"),
    ]
    assert found.notes == ("r: steps of 13.0 ms to 15.0 ms, the longest by rank 1 in step 4",)
    assert "rank 1, step 4: 15.0 ms" in found.alt, "the figure in words"
    drawn = parse_svg(svg(specification(found)))
    assert "ms per step" in "".join(drawn.itertext()), "the scale of its colours has a name"


def test_many_steps_share_a_cell_by_their_mean_and_many_ranks_are_counted() -> None:
    rows = [cell(rank, number, 10 + number % 2) for rank in (0, 1) for number in range(2 * MOST_CELLS)]
    found = step_heat_map(rows, ["r"])
    assert len(found.rows) == 2 * MOST_CELLS
    assert (found.rows[0]["label"], found.rows[0]["value"]) == ("rank 0, step 0 to 1", "10.5 ms")
    crowd = step_heat_map([cell(rank, 0, 10) for rank in range(MOST_RANKS + 3)], ["r"])
    assert len(crowd.rows) == MOST_RANKS
    assert crowd.notes[-1] == "r: and 3 more ranks"


def test_one_rank_has_no_heat_map_and_waiting_is_told_where_it_is_known() -> None:
    assert step_heat_map([cell(0, 1, 5)], ["r"]).rows == ()
    found = step_heat_map([cell(0, 1, 5, wait_ns=2 * MS), cell(1, 1, 5)], ["r"])
    assert found.rows[0]["detail"] == "5.00 ms, of it waiting for peers 2.00 ms"
    assert found.rows[1]["detail"] == "5.00 ms"


def test_a_pixel_is_charged_to_what_took_most_of_it_and_the_rest_is_idle() -> None:
    long = PIXELS * 10
    segments = [segment(0, "compute", 0, 50), segment(0, "crypto", 50, 53), segment(0, "copy", 60, long // 2)]
    found = merge_to_pixels([step(0, 0, long)], segments)
    assert [(row["part"], row["begin_ns"], row["end_ns"]) for row in found] == [
        ("compute", 0, 50),
        ("idle", 50, 60),
        ("copy", 60, long // 2),
        ("idle", long // 2, long),
    ]


def test_ranks_stand_on_one_clock_from_the_start_of_the_first() -> None:
    long = PIXELS * 10
    steps = [step(1, 1000 + long // 2, long // 2), step(0, 1000, long)]
    found = merge_to_pixels(steps, [segment(1, "wait", 1000 + long // 2, 1000 + long)])
    assert [(row["rank"], row["part"], row["begin_ns"], row["end_ns"]) for row in found] == [
        (0, "idle", 0, long),
        (1, "wait", long // 2, long),
    ]


def test_a_timeline_is_bounded_however_many_spans_a_step_has() -> None:
    segments = [segment(0, ("compute", "copy")[at % 2], at, at + 1) for at in range(5000)]
    assert len(merge_to_pixels([step(0, 0, 5000)], segments)) <= PIXELS


def test_the_median_step_is_chosen_warm_up_aside() -> None:
    rows = [step(rank, 0, length + rank, number) for number, length in ((1, 30), (2, 10), (3, 20)) for rank in (0, 1)]
    assert choose_step([*rows, {**step(0, 0, 999, 0), "is_warmup": True}]) == 3
    assert choose_step([]) is None


@pytest.mark.parametrize("is_aligned", [True, False])
def test_a_timeline_is_drawn_and_told_in_words(is_aligned: bool) -> None:
    long = PIXELS * 1000
    rows = merge_to_pixels([{**step(0, 0, long), "is_aligned": is_aligned}], [segment(0, "compute", 0, long * 3 // 4)])
    parts = {f"{part}_ns": None for part in PARTS} | {"compute_ns": long * 3 // 4, "idle_ns": long // 4 + 1}
    found = step_timeline(rows, [cell(0, 7, 1) | parts, cell(0, 8, 1) | parts, cell(1, 7, 1) | parts])
    assert [(row["what"], row["begin"], row["end"]) for row in found.rows] == [
        ("compute kernels", 0, 0.54),
        ("nothing recorded", 0.54, 0.72),
    ]
    assert ("on its own clock" in found.rows[0]["detail"]) is not is_aligned
    assert found.notes == ("r, rank 0, step 7: compute kernels 540 µs, nothing recorded 180 µs",)
    assert "rank 0" in "".join(parse_svg(svg(specification(found))).itertext())
