"""Data Docs and figures as the real web server serves them, and as a browser shows them."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from playwright.sync_api import sync_playwright

from assets.specs import asset_key, locate_figure
from gold import what_if
from report.drawing import specification
from report.pictures import empty
from tests.pipelines.test_ui import BROWSERS, FLAGS
from tests.support.drawn_figures import parse_svg
from tests.support.web_requests import serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.web_requests import Site

PAGE = "/data-docs/silver/spans/_all.html"
ATTACK = """<!doctype html><title>spans</title><h1>0 of 6 rows violate it</h1>
<script>document.title = "run"; fetch("/graphql", {method: "POST", headers: {"Content-Type": "application/json"},
body: JSON.stringify({query: 'mutation { setConcurrencyLimit(concurrencyKey: "from-docs", limit: 3) }'})})</script>"""


@pytest.fixture(scope="module")
def site(empty_records: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The real application, with a page of the Data Docs, one that is being written, and a file beside them."""
    docs = tmp_path_factory.mktemp("docs")
    folder = docs / "silver" / "spans"
    folder.mkdir(parents=True)
    (folder / "_all.html").write_text(ATTACK, "utf-8")
    (folder / ".run.0.part").write_text("half", "utf-8")
    (folder / ".run.html").write_text("half", "utf-8")
    (docs / "keyring.json").write_text("secret", "utf-8")
    (docs.parent / "beside.html").write_text("secret", "utf-8")
    (folder / "link.html").symlink_to(docs.parent / "beside.html")
    with dg.DagsterInstance.from_config(str(empty_records)) as records, serve(records, docs=docs) as served:
        yield served


def test_pages_are_listed_and_served_and_may_do_nothing(site: Site) -> None:
    answer = site.send("GET", "/data-docs/")
    assert answer.status == 200
    assert '<a href="silver/spans/_all.html">silver.spans: all runs</a>' in answer.text
    assert "half" not in answer.text
    page = site.send("GET", PAGE)
    assert (page.status, page.text) == (200, ATTACK)
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "sandbox" in policy
    assert "script" not in policy


@pytest.mark.parametrize(
    "path",
    [
        *("keyring.json", "../beside.html", "%2e%2e/beside.html", "silver/spans/.run.0.part", "silver/spans/.run.html"),
        *("silver/spans/link.html", "silver/spans", "gold/pairs/_all.html"),
    ],
)
def test_nothing_else_of_the_directory_is_served_and_a_missing_page_says_how_it_comes_to_be(
    site: Site, path: str
) -> None:
    answer = site.send("GET", f"/data-docs/{path}")
    assert "secret" not in answer.text
    assert "half" not in answer.text
    if answer.status != 200:  # what leaves the directory is a page of the interface, as any unknown path
        assert answer.status == 404
        assert "jobs/data_docs" in answer.text


def test_the_guard_stands_before_the_pages(site: Site) -> None:
    elsewhere = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "no-cors")]
    assert site.send("GET", PAGE, elsewhere).status == 403
    assert site.send("GET", PAGE, [("Host", "foreign.example")]).status == 421


def test_a_browser_opens_a_page_and_a_script_in_it_does_nothing(site: Site) -> None:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, f"no browser: install one of {', '.join(BROWSERS)} (`make system-packages`)"
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=found, args=FLAGS) as browser:
        page = browser.new_page(base_url=f"http://{site.host}")
        page.goto("/data-docs/")
        page.get_by_text("silver.spans: all runs").click()
        page.wait_for_url(f"**{PAGE}")
        assert page.get_by_text("0 of 6 rows violate it").is_visible()
        assert page.title() == "spans"
    assert not site.is_changed("from-docs")


def report_figure(site: Site, partition: str | None, version: str, text: str) -> None:
    """An event as a launch writes it."""
    found = empty(text, "rows will follow")
    made = dg.AssetMaterialization(
        asset_key("gold.what_if"),
        metadata={"vega_lite": dg.MetadataValue.json(specification(found, is_titled=True))},
        partition=partition,
        tags={"dagster/data_version": version},
    )
    site.records.report_runless_asset_event(made)


def test_the_figure_of_an_event_is_drawn_under_its_version(site: Site) -> None:
    for partition in ("tee", None):
        for version in ("a" * 64, "b" * 64):
            report_figure(site, partition, version, f"{partition} {version[0]}\x01!")
            answer = site.send("GET", locate_figure(what_if.TABLE, version, partition))
            assert answer.status == 200
            assert f"{partition} {version[0]} !" in "".join(parse_svg(answer.text).itertext())
            assert answer.headers["content-type"] == "image/svg+xml"
            assert "sandbox" in answer.headers["content-security-policy"]
    first = site.send("GET", locate_figure(what_if.TABLE, "a" * 64, "tee"))
    assert "tee a !" in "".join(parse_svg(first.text).itertext())


@pytest.mark.parametrize(
    "path", ["gold/what_if/tee.svg", "gold/what_if/tee.svg?version=cccc", "gold/nothing/tee.svg?version=a", "x/y.svg"]
)
def test_what_no_event_carries_is_not_served(site: Site, path: str) -> None:
    assert site.send("GET", f"/figures/{path}").status == 404
