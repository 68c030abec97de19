"""The page of two compared runs in a browser: tables of long kernel names on a wide screen and on a narrow one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from report.comparison_page import write_comparison
from tests.report.test_page import VERSIONS, browser, open_page
from tests.support.report_answers import answers

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Browser, Locator

__all__ = ["browser"]

# As long as a table shows one, without a place to break it at.
KERNEL = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4"
_OVERFLOW = "one => one.scrollWidth - one.clientWidth"


def describe_work(name: str) -> dict[str, Any]:
    """One line of changed work, with as much in its cells as there may be."""
    counted = {"baseline_step_count": 1234, "step_count": 1234, "q_value": 0.0123, "slowdown_ratio": 1.57}
    timed = dict.fromkeys(("baseline_step_total_ns", "step_total_ns", "overhead_ns"), 123_456_789)
    exposed = dict.fromkeys(("baseline_step_exposed_ns", "step_exposed_ns"), 123_456_789)
    return {"name": name, "kind": "compute", "detail": "", "change": "no_difference", **counted, **timed, **exposed}


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a pair whose kernels have long names."""
    tables = answers()
    step = next(row for row in tables["gold.step_overhead"] if row["baseline_run_id"])
    names = ("gold.pairs", "gold.overhead_breakdown", "gold.throughput_overhead", "gold.attested_runs")
    named = {name: [row for row in tables[name] if row["run_id"] == step["run_id"]] for name in names}
    work = [describe_work(f"{KERNEL}{place}") for place in range(12)]
    compared = {"baseline": [step["baseline_run_id"]], "candidate": [step["run_id"]], "memory": None}
    compared |= {"differences": [{"field": "torch_version", "baseline_value": "2.11", "value": "2.12"}]}
    compared |= {"collectives": [], "kernels": work, "operations": []}
    place = tmp_path_factory.mktemp("comparison") / "compared.html"
    text = write_comparison({**named, "gold.step_overhead": [step]}, compared, VERSIONS)
    place.write_text(text, "utf-8")
    return place


def find_edges(cell: Locator) -> tuple[float, float]:
    box = cell.bounding_box()
    assert box is not None
    return box["x"], box["x"] + box["width"]


def test_on_a_wide_screen_no_table_is_cut_off(browser: Browser, comparison: Path) -> None:
    found = open_page(browser, comparison)
    assert set(found.page.locator(".wide").evaluate_all(f"all => all.map({_OVERFLOW})")) == {0}
    assert found.said == []


def test_on_a_narrow_screen_a_number_is_seen_beside_its_name_and_the_name_stays(
    browser: Browser, comparison: Path
) -> None:
    found = open_page(browser, comparison)
    found.page.set_viewport_size({"width": 400, "height": 800})
    assert found.page.evaluate("document.documentElement.scrollWidth") == 400
    wide = found.page.locator("#kernels .wide")
    left, right = find_edges(wide)
    name, number = wide.locator("td").nth(0), wide.locator("td").nth(2)
    assert find_edges(number)[1] < right, "the time of A is read without a swipe"
    assert wide.evaluate(_OVERFLOW) > 0
    wide.evaluate("one => { one.scrollLeft = 10000; }")
    assert abs(find_edges(name)[0] - left) < 1, "swiped sideways, the name is still there"
    assert find_edges(number)[1] < find_edges(name)[1]
