"""The report in a browser, from disk, with no network: what a person sees, with a script and without."""

from __future__ import annotations

import itertools
import re
import shutil
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect, sync_playwright

from report.page import page
from tests.pipelines.test_ui import BROWSERS, FLAGS
from tests.support.report_answers import answers
from tests.support.web_interface import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

ARTEFACTS = ROOT / ".artifacts" / "report"
VERSIONS = {"teetotal": "0.1.0"}
EVIL = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>\"'&amp;"
FIGURES = 12
PATIENCE_MS = 120_000
_CONTRAST = """([ink, paper]) => {
  const light = (text) => text.match(/[0-9.]+/g).slice(0, 3).map(Number)
    .map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const [low, high] = [light(ink), light(paper)].sort((one, other) => one - other);
  return (high + 0.05) / (low + 0.05);
}"""


class Opened:
    """A page in the browser, and what it said and asked for."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.said: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))

    def settle(self, turn: int = 1) -> None:
        """Wait until all figures are drawn."""
        self.page.wait_for_function(f"document.documentElement.dataset.ready >= {turn}")

    def choose(self, name: str, value: str) -> None:
        """Filter by one of the choices."""
        self.page.locator(f"select[name={name}]").select_option(value)

    def texts(self, figure: str) -> str:
        """All that is written in a chart."""
        return self.page.locator(f"#chart-{figure} svg").text_content() or ""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a small lake."""
    place = tmp_path_factory.mktemp("report") / "report.html"
    place.write_text(page(answers(), VERSIONS).html, "utf-8")
    return place


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A headless browser."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, f"no browser: install one of {', '.join(BROWSERS)} (`make system-packages`)"
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=found, args=FLAGS) as launched:
        yield launched


def open_page(browser: Browser, file: Path, *, has_script: bool = True, is_dark: bool = False) -> Opened:
    """The file in a window of its own, with the network off."""
    window = browser.new_context(
        offline=True,
        java_script_enabled=has_script,
        color_scheme="dark" if is_dark else "light",
        viewport={"width": 1200, "height": 1000},
    )
    window.set_default_timeout(PATIENCE_MS)
    found = Opened(window.new_page())
    found.page.goto(file.as_uri())
    if has_script:
        found.settle()
    return found


def test_all_figures_are_drawn_and_nothing_is_complained_of_or_asked_for(browser: Browser, file: Path) -> None:
    found = open_page(browser, file)
    assert found.said == []
    assert found.asked == [file.as_uri()]
    assert found.page.locator("figure").count() == FIGURES
    for chart in found.page.locator(".chart").all():
        assert chart.get_attribute("data-drawn") == "1"
        assert chart.locator("svg .role-mark path, svg .role-mark text").count() > 1
    found.page.screenshot(path=ARTEFACTS / "light.png", full_page=True)


def test_a_filter_leaves_what_it_names_with_its_baseline_and_hides_the_rest(browser: Browser, file: Path) -> None:
    found = open_page(browser, file)
    assert all(run in found.texts("step_overhead") for run in ("small-sealed", "large-sealed"))
    found.choose("model", "Small")
    found.settle(2)
    expect(found.page.get_by_text("2 of 5 runs shown")).to_be_visible()
    assert "large" not in found.texts("step_overhead")
    assert "small-plain" in found.texts("time_breakdown")
    expect(found.page.locator("article").filter(has_text="small-sealed")).to_be_visible()
    expect(found.page.locator("article").filter(has_text="large-sealed")).to_be_hidden()
    found.choose("model", "")
    found.choose("regime", "sw_per_hop_aesgcm")
    found.settle(4)
    expect(found.page.get_by_text("5 of 5 runs shown")).to_be_visible()
    found.choose("ranks", "4")
    found.settle(5)
    expect(found.page.get_by_text("2 of 5 runs shown")).to_be_visible()
    assert "Somebody" in found.texts("published")  # the literature belongs to no run
    assert found.said == []


def test_a_filter_that_leaves_no_run_says_so_in_place_of_a_chart(browser: Browser, file: Path) -> None:
    found = open_page(browser, file)
    found.choose("model", "Lone")
    found.settle(2)
    expect(found.page.locator("#chart-step_overhead")).to_have_text("No run in sight has a line here.")


def test_a_mark_tells_its_value_and_evidence_when_it_is_pointed_at(browser: Browser, file: Path) -> None:
    found = open_page(browser, file)
    found.page.locator("#chart-overhead_breakdown .role-mark path[fill='#d55e00']").first.hover()
    tooltip = found.page.locator("#vg-tooltip-element.visible")
    expect(tooltip).to_contain_text("sealing and opening")
    expect(tooltip).to_contain_text("measured")


def test_without_a_script_every_figure_is_a_still_picture_and_no_control_is_shown(browser: Browser, file: Path) -> None:
    found = open_page(browser, file, has_script=False)
    assert found.page.locator(".chart > svg").count() == FIGURES
    assert "small-sealed" in found.texts("step_overhead")
    expect(found.page.locator("#filters")).to_be_hidden()
    expect(found.page.get_by_text("1.50x slower")).to_be_visible()
    found.page.screenshot(path=ARTEFACTS / "without_script.png", full_page=True)


@pytest.mark.parametrize("is_dark", [False, True], ids=["light", "dark"])
def test_words_can_be_read_by_day_and_by_night_and_the_button_turns_one_into_the_other(
    browser: Browser, file: Path, is_dark: bool
) -> None:
    found = open_page(browser, file, is_dark=is_dark)
    paper = found.page.evaluate("getComputedStyle(document.body).backgroundColor")
    inks = [
        found.page.locator(place).first.evaluate(f"one => getComputedStyle(one).{name}")
        for place, name in (
            *((".verdict", "color"), (".note", "color"), ("a", "color"), (".evidence", "color")),
            *(("#chart-step_overhead .mark-text text", "fill"), ("#chart-step_overhead .role-axis-label text", "fill")),
        )
    ]
    assert [found.page.evaluate(_CONTRAST, [ink, paper]) >= 4.5 for ink in inks] == [True] * len(inks)
    found.page.screenshot(path=ARTEFACTS / f"{'dark' if is_dark else 'light'}.png", full_page=True)
    found.page.get_by_role("button", name="Dark or light").click()
    turned = found.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (found.page.evaluate(_CONTRAST, [turned, paper])) > 10


def test_on_paper_it_is_light_without_controls_and_its_details_are_open(browser: Browser, file: Path) -> None:
    found = open_page(browser, file, is_dark=True)
    found.page.emulate_media(media="print")
    assert found.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    expect(found.page.locator("#filters")).to_be_hidden()
    found.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert found.page.locator("details:not([open])").count() == 0


def test_on_paper_what_matters_takes_few_pages_and_appendices_stand_behind(browser: Browser, file: Path) -> None:
    found = open_page(browser, file)
    found.page.set_viewport_size({"width": 703, "height": 1032})  # A4 with margins of 12 mm
    found.page.emulate_media(media="print")
    first = found.page.locator("section.appendix").first
    assert first.evaluate("one => getComputedStyle(one).breakBefore") == "page"
    top = first.bounding_box()
    assert top is not None
    assert top["y"] < 10 * 1032
    kinds = found.page.locator("section").evaluate_all("all => all.map(one => one.classList.contains('appendix'))")
    assert kinds == sorted(kinds), "nothing that matters stands behind an appendix"
    assert found.page.locator("section:not(.appendix) figure details:visible").count() == 0


def test_on_a_narrow_screen_nothing_runs_out_of_the_page_and_letters_stay_as_large(
    browser: Browser, file: Path
) -> None:
    found = open_page(browser, file)
    found.page.set_viewport_size({"width": 400, "height": 800})
    assert found.page.evaluate("document.documentElement.scrollWidth") == 400
    chart = found.page.locator(".chart").first
    width, shown = chart.evaluate("one => [one.querySelector('svg').getBoundingClientRect().width, one.clientWidth]")
    assert width > shown, "what does not fit is reached sideways"
    hint = chart.evaluate("one => getComputedStyle(one, '::before').content")
    assert "swipe sideways" in hint
    found.page.screenshot(path=ARTEFACTS / "narrow.png", full_page=True)


def test_it_is_read_by_heading_by_key_and_by_ear(browser: Browser, file: Path) -> None:
    found = open_page(browser, file)
    assert found.page.locator("html").get_attribute("lang") == "en"
    assert found.page.locator("h1").count() == 1
    levels = [
        int(tag[1]) for tag in found.page.locator("h1, h2, h3").evaluate_all("all => all.map(one => one.tagName)")
    ]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    for chart in found.page.locator(".chart").all():
        assert len(chart.get_attribute("aria-label") or "") > 20
    assert found.page.locator("figure details table").count() == FIGURES
    found.page.keyboard.press("Tab")
    assert found.page.evaluate("document.activeElement.textContent") == "Skip to the answers"
    found.page.keyboard.press("Tab")
    assert found.page.evaluate("document.activeElement.name") == "model"
    for link in found.page.locator("nav a").all():
        assert found.page.locator(link.get_attribute("href") or "").count() == 1


def test_whatever_a_name_says_is_shown_and_not_obeyed(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "hostile.html"
    file.write_text(page(answers(EVIL), VERSIONS).html, "utf-8")
    found = open_page(browser, file)
    assert found.page.evaluate("window.hacked") is None
    assert found.page.locator("img").count() == 0
    assert found.said == []
    assert found.asked == [file.as_uri()]
    assert "small-sealed</script><script>" in (found.page.locator("article").first.text_content() or "")
    found.page.locator("#chart-overhead_breakdown .role-mark path[fill='#d55e00']").first.hover()
    expect(found.page.locator("#vg-tooltip-element.visible")).to_contain_text("</script>")
    assert found.page.evaluate("window.hacked") is None
    found.choose("model", f"Small{EVIL}")
    found.settle(2)
    expect(found.page.get_by_text("2 of 5 runs shown")).to_be_visible()


def test_it_is_one_small_file_whose_policy_lets_nothing_in_and_nothing_out(file: Path) -> None:
    text = file.read_text("utf-8")
    assert len(text.encode()) < 5_000_000
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert "default-src &#x27;none&#x27;" in policy[1]
    assert "unsafe-eval" not in policy[1]
    markup = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    assert re.findall(r"""(?:src|href|action)\s*=\s*["']?(?!#)[^"'\s>]+""", markup) == []
    assert "secret-name" not in text


def test_the_same_answers_give_the_same_bytes(file: Path) -> None:
    assert page(answers(), VERSIONS).html == file.read_text("utf-8")


def test_a_file_of_a_cycle_that_does_not_count_yet_is_marked() -> None:
    rows = answers()
    first, *others = rows["bronze.source_files"]
    html = page({**rows, "bronze.source_files": [{**first, "is_counted": False}, *others]}, VERSIONS).html
    assert html.count("<td>kept, counts when the run is closed</td>") == 1


def test_an_empty_lake_has_a_page_that_says_so(browser: Browser, tmp_path: Path) -> None:
    made = page({key: [] for key in answers()}, VERSIONS)
    file = tmp_path / "empty.html"
    file.write_text(made.html, "utf-8")
    found = open_page(browser, file, has_script=False)
    expect(found.page.get_by_text("There is no run in this lake yet")).to_be_visible()
    assert (made.figures, made.runs) == (0, 0)
    assert "<script" not in made.html
