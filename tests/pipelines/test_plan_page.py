"""The page about plans says what the planner says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pipelines.cli.plan_page import DOCS, EXAMPLES, PAGE, fill_page, list_questions

TEXT = PAGE.read_text("utf-8")


def test_the_page_is_what_the_planner_gives() -> None:
    assert fill_page(TEXT) == TEXT, "write it again: python -m pipelines.cli.plan_page"


def test_a_number_typed_by_hand_would_be_found() -> None:
    changed = TEXT.replace("| 8 × 1 × 1 | 0.855 s |", "| 8 × 1 × 1 | 0.955 s |")  # noqa: RUF001
    assert changed != TEXT
    only = re.search(r"<!-- checks: .*?<!-- end -->", changed, re.DOTALL)
    assert only is not None
    assert fill_page(only[0]) != only[0]


def test_every_regime_is_in_the_examples() -> None:
    assert {regime for name in EXAMPLES for question in list_questions(name) for regime in question.regimes} == {
        "cc_off",
        "hopper_spt_cc",
        "hopper_ppcie",
        "blackwell_mpt_nvle",
        "tee_io_tdisp",
        "sw_per_hop_aesgcm",
    }


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_the_figures_of_an_example_show_its_steps(name: str) -> None:
    block = re.search(rf"<!-- {name}: .*?<!-- end -->", TEXT, re.DOTALL)
    assert block is not None
    steps = {
        (row[1], row[4].strip()) for row in (line.split("|") for line in block[0].splitlines() if "-sxm |" in line)
    }
    assert len(steps) >= 5
    for gpu, step in steps:
        figure = DOCS / "figures" / f"plan-{name}-{gpu.strip().partition('-')[0]}.svg"
        assert f">{step}<" in figure.read_text("utf-8")


def test_every_figure_of_the_page_is_there_and_no_other() -> None:
    shown = {Path(path).name for path in re.findall(r"\]\(figures/(plan-[^)]+)\)", TEXT)}
    assert shown == {path.name for path in (DOCS / "figures").glob("plan-*.svg")}
