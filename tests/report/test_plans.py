"""Figures of a plan: what is hatched, what is drawn, and that they are Vega-Lite."""

from __future__ import annotations

from typing import Any

import pytest

from gold.strategy_crossovers import Crossover, trace_counts
from report.drawing import specification
from report.plans import describe_crossovers, draw_counts, draw_grid, select_best
from tests.support.planned_jobs import ask, plan

Row = dict[str, Any]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return plan(ask("gpt-2-xl", 8, 128))


def test_a_cell_is_hatched_where_its_strategy_ties_and_nowhere_else(rows: list[Row]) -> None:
    figure = draw_grid(rows, "plan")
    cells = [row for row in figure.rows if "fill" in row]
    hatched = {(int(row["hx"]), int(row["hy"])) for row in figure.rows if "hx" in row}
    tied = {(int(row["x"]), int(row["y"])) for row in cells if row["fill"] == "tie"}
    assert hatched == tied
    assert tied
    (best,) = [row for row in cells if row["fill"] == "best" and row["run"] == "hopper_spt_cc"]
    assert best["what"] == "no replicas 1 × 1 × 8"  # noqa: RUF001


def test_strokes_stay_inside_of_their_cell(rows: list[Row]) -> None:
    strokes = [row for row in draw_grid(rows, "plan").rows if "hx" in row]
    for row in strokes:
        assert all(int(row[one]) <= row[one] <= int(row["hx"]) + 1 for one in ("hx", "hx2"))
        assert min(row["hy"], row["hy2"]) % 1 >= 0
        assert abs(row["hy"] - row["hy2"]) <= 1


def test_each_strategy_has_a_cell_per_regime(rows: list[Row]) -> None:
    cells = [row for row in draw_grid(rows, "plan").rows if "fill" in row]
    assert len(cells) == 9 * 4
    assert len(select_best(rows)) == 9 * 4


def test_a_strategy_that_never_fits_says_so() -> None:
    rows = plan(ask("llama-2-13b", 2, 8, "b200-sxm"))
    cells = {row["label"]: row["value"] for row in draw_grid(rows, "plan").rows if "fill" in row}
    assert cells["ring DDP, cc_off"] == "does not fit"
    assert cells["ZeRO-3 (FSDP), cc_off"].endswith("tie, mostly compute")


def test_the_figures_are_vega_lite(rows: list[Row]) -> None:
    import altair as alt  # takes as long to import as all of ours

    counted = draw_counts(trace_counts(ask("gpt-2-xl", 8, 128)), "counts", 8)
    for figure in (draw_grid(rows, "plan"), counted):
        alt.Chart.from_dict(specification(figure, is_titled=True))
    assert "on 8 GPUs, over cc_off: hopper_spt_cc 4.13×, hopper_ppcie 1.00×, sw_per_hop_aesgcm 2.64×" in counted.notes  # noqa: RUF001


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        ((True, True), "from 3.12 to 6.23 billion parameters another choice"),
        ((True, False), "from 3.12 billion parameters on (searched up to 6.23) another choice"),
        ((False, True), "up to 6.23 billion parameters (searched down to 3.12) another choice"),
        ((False, False), "from 3.12 to 6.23 billion parameters, as far as searched, another choice"),
    ],
)
def test_a_range_says_which_of_its_ends_was_found(bounds: tuple[bool, bool], said: str) -> None:
    one = Crossover("parameters", "hopper_ppcie", 2.0, 4.0, *bounds, ("zero_3", 8, 1, 1), ("none", 1, 1, 8))
    lines = describe_crossovers([one], ask("gpt-2-xl", 8, 128))
    assert f"hopper_ppcie: {said}: no replicas 1 × 1 × 8 instead of ZeRO-3 (FSDP) 8 × 1 × 1" in lines  # noqa: RUF001
    assert "hopper_ppcie: the choice stays along GPU count and link speed" in lines
