"""What the web server refuses, because another website may have caused it, and what it goes on to serve."""

from __future__ import annotations

import json
import logging
import shutil
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from playwright.sync_api import expect, sync_playwright
from websockets.exceptions import InvalidStatus

from lake.errors import ContractBroken
from pipelines.settings import settings
from tests.pipelines.test_ui import BROWSERS, FLAGS, PATIENCE_MS
from tests.support.web_proxy import NAME, PASSWORD, USER, Proxy, as_authorization, serve_proxy
from tests.support.web_requests import JSON, Site, as_body, as_mutation, as_path, serve

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FOREIGN = "http://foreign.example"
PUBLIC, PUBLIC_PORT = NAME, "store.example.org:8443"
OPEN_WEBSOCKET = """(address) => new Promise((resolve) => {
  const socket = new WebSocket(address, 'graphql-ws');
  socket.onopen = () => resolve('open');
  socket.onerror = () => resolve('refused');
})"""
QUERY = "query Version { version }"
# Looks like a subscription where a stream is opened, and like a mutation where its first event is executed.
DISGUISED = """mutation {
  ... on Subscription { capturedLogs(logKey: ["a"]) { stdout } }
  ... on Mutation { setConcurrencyLimit(concurrencyKey: "KEY", limit: 3) }
}"""


@pytest.fixture(scope="module")
def site(empty_records: Path) -> Iterator[Site]:
    """The real application on a port of its own, to which two public names were given."""
    with dg.DagsterInstance.from_config(str(empty_records)) as records, serve(records, PUBLIC, PUBLIC_PORT) as served:
        yield served


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """What a change of this test alone would be known by."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


# -- who may change something ------------------------------------------------------------------------------------


def test_the_interface_itself_and_a_command_may_change_something(site: Site, key: str) -> None:
    assert site.change(f"{key}-page").status == 200
    assert site.change(f"{key}-charset", ("Content-Type", "application/json; charset=utf-8")).status == 200
    assert site.change(f"{key}-curl", ("Origin", ""), ("Sec-Fetch-Site", "")).status == 200
    assert all(site.is_changed(f"{key}-{how}") for how in ("page", "charset", "curl"))


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:8080", "http://localhost:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
        (PUBLIC, f"https://{PUBLIC}"),
        (PUBLIC.upper(), f"https://{PUBLIC}"),
        (f"{PUBLIC}:443", f"https://{PUBLIC}"),
        (f"{PUBLIC}:8443", f"https://{PUBLIC}:8443"),
        (PUBLIC_PORT, f"https://{PUBLIC_PORT}"),
    ],
)
def test_a_tunnel_or_a_proxy_with_a_known_name_may_change_something(
    site: Site, key: str, host: str, origin: str
) -> None:
    assert site.change(key, ("Host", host), ("Origin", origin)).status == 200
    assert site.is_changed(key)


@pytest.mark.parametrize(
    "host",
    [
        "foreign.example",
        "foreign.example:3000",
        "localhost.foreign.example",
        "127.0.0.1.foreign.example",
        "localhost.",
        "foreign.example@localhost",
        "localhost:3000:80",
        "localhost foreign.example",
        "0.0.0.0",  # noqa: S104 - a name that is asked for
        "store.example.org",
        "store.example.org:443",
        "sub.lake.example.org",
        "",
    ],
)
def test_a_name_that_is_not_ours_is_refused_whatever_is_asked(site: Site, key: str, host: str) -> None:
    for answer in (
        site.change(key, ("Host", host), ("Origin", f"http://{host}")),
        site.send("GET", "/", [("Host", host)]),
        site.send("GET", "/server_info", [("Host", host)]),
    ):
        # The HTTP parser itself refuses a few of them.
        assert answer.status in (400, 421), answer
    assert not site.is_changed(key)


def test_two_hosts_are_refused(site: Site) -> None:
    assert site.send("GET", "/", [("Host", site.host), ("Host", "foreign.example")]).status in (400, 403)


@pytest.mark.parametrize(
    "headers",
    [
        [("Origin", FOREIGN)],
        [("Origin", FOREIGN), ("Sec-Fetch-Site", "cross-site")],
        [("Origin", "null")],
        [("Origin", "http://127.0.0.1")],
        [("Origin", "http://127.0.0.1:1")],
        [("Origin", "http://localhost:OWN")],
        [("Origin", "file://127.0.0.1:OWN")],
        [("Origin", "http://127.0.0.1:OWN.foreign.example")],
        [("Origin", "http://127.0.0.1:OWN"), ("Origin", FOREIGN)],
        [("Sec-Fetch-Site", "cross-site")],
        [("Sec-Fetch-Site", "same-site")],
        [("Sec-Fetch-Site", "same-site"), ("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")],
        [("Origin", ""), ("Sec-Fetch-Site", "cross-site")],
        [("Content-Type", "")],
        [("Content-Type", "text/plain")],
        # Dagster looks for the words anywhere in the header; a browser sends these two without asking first.
        [("Content-Type", "text/plain; x=application/json")],
        [("Content-Type", "application/x-www-form-urlencoded; application/json")],
        [("Content-Type", "application/graphql")],
        [("Content-Type", "text/plain"), ("Content-Type", JSON)],
        [("Content-Type", "text/plain"), ("Origin", ""), ("Sec-Fetch-Site", "")],
    ],
)
def test_what_a_foreign_page_can_post_changes_nothing(site: Site, key: str, headers: list[tuple[str, str]]) -> None:
    answer = site.change(key, *((name, value.replace("OWN", str(site.port))) for name, value in headers))
    assert answer.status == 403
    assert answer.text.count("\n") == 1
    assert not site.is_changed(key)


def test_a_form_that_posts_to_an_address_with_a_mutation_changes_nothing(site: Site, key: str) -> None:
    form = [("Content-Type", "application/x-www-form-urlencoded")]
    assert site.send("POST", as_path(as_mutation(key)), form, "a=b").status == 403
    assert site.send("POST", as_path(as_mutation(key))).status == 403
    assert not site.is_changed(key)


def test_a_preflight_is_not_answered_with_a_permission(site: Site) -> None:
    asked = [("Origin", FOREIGN), ("Access-Control-Request-Method", "POST")]
    answer = site.send("OPTIONS", "/graphql", asked)
    assert answer.status == 403
    assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize("what", ["materialization", "observation", "check"])
def test_events_are_not_reported_for_a_foreign_page(site: Site, what: str) -> None:
    path = f"/report_asset_{what}/foreign?check_name=a&passed=true"
    assert site.send("POST", path).status == 403
    assert site.send("POST", path, [("Content-Type", JSON), ("Origin", FOREIGN)], "{}").status == 403
    assert not site.records.has_asset_key(dg.AssetKey("foreign"))


def test_events_may_be_reported_by_a_command(site: Site) -> None:
    assert site.send("POST", "/report_asset_materialization/own", [("Content-Type", JSON)], "{}").status == 200
    assert site.records.has_asset_key(dg.AssetKey("own"))


# -- what a GET may hold -------------------------------------------------------------------------------------------


def test_a_get_may_hold_a_query(site: Site) -> None:
    answer = site.send("GET", as_path(QUERY))
    assert (answer.status, list(json.loads(answer.text)["data"])) == (200, ["version"])


def test_the_word_mutation_in_a_query_is_no_mutation(site: Site) -> None:
    answer = site.send("GET", as_path('query mutation { version } # mutation { a } "'))
    assert answer.status == 200


@pytest.mark.parametrize(
    "path",
    [
        "MUTATION",
        "#\n\ufeff,MUTATION",
        "QUERY MUTATION",
        "MUTATION QUERY",
    ],
)
def test_a_get_with_a_mutation_executes_nothing(site: Site, key: str, path: str) -> None:
    document = path.replace("MUTATION", as_mutation(key)).replace("QUERY", QUERY)
    answer = site.send("GET", as_path(document, operationName="Change"))
    assert answer.status == 403
    assert "POST" in answer.text
    assert not site.is_changed(key)


def test_of_two_documents_in_a_get_the_one_that_would_be_executed_is_judged(site: Site, key: str) -> None:
    assert site.send("GET", as_path(QUERY, as_mutation(key))).status == 403
    assert site.send("GET", as_path(as_mutation(key), QUERY)).status == 200
    assert not site.is_changed(key)


def test_a_get_with_a_subscription_is_refused(site: Site) -> None:
    assert site.send("GET", as_path('subscription { capturedLogs(logKey: ["a"]) { stdout } }')).status == 403


def test_a_document_that_cannot_be_parsed_is_a_fault_of_whoever_sent_it(site: Site) -> None:
    assert site.send("GET", as_path("mutation {")).status == 400


def test_another_website_may_link_to_a_page_and_may_not_use_it(site: Site) -> None:
    elsewhere, link = ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate")
    for path in ("/runs", as_path(QUERY), "/favicon.png"):
        assert site.send("GET", path, [elsewhere, link, ("Sec-Fetch-Dest", "document")]).status == 200
        assert site.send("GET", path, [elsewhere, link, ("Sec-Fetch-Dest", "iframe")]).status == 403
        assert site.send("GET", path, [elsewhere, ("Sec-Fetch-Mode", "no-cors")]).status == 403


def test_no_other_website_may_show_the_interface_in_a_frame(site: Site) -> None:
    for path in ("/", "/graphql", "/favicon.png", "/server_info"):
        headers = site.send("GET", path, [("Accept", "text/html")]).headers
        assert headers["x-frame-options"] == "SAMEORIGIN"
        assert headers["cross-origin-resource-policy"] == "same-origin"


# -- WebSockets ----------------------------------------------------------------------------------------------------


def test_a_websocket_of_the_interface_or_of_a_command_is_served(site: Site) -> None:
    query = 'subscription { capturedLogs(logKey: ["a"]) { stdout } }'
    for origin in (f"http://{site.host}", None):
        assert site.subscribe(query, origin)["type"] == "data"


@pytest.mark.parametrize("origin", [FOREIGN, "null", "http://127.0.0.1:1"])
def test_a_websocket_of_another_website_is_not_opened(site: Site, origin: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        site.subscribe(QUERY, origin)
    assert refused.value.response.status_code == 403


@pytest.mark.parametrize("document", ["MUTATION", "DISGUISED"])
def test_a_websocket_executes_no_mutation(site: Site, key: str, document: str) -> None:
    texts = {"MUTATION": as_mutation(key), "DISGUISED": DISGUISED.replace("KEY", key)}
    assert site.subscribe(texts[document], None)["type"] == "error"
    assert not site.is_changed(key)


# -- what is said --------------------------------------------------------------------------------------------------


def test_a_refusal_is_one_line_in_the_log_whatever_was_sent(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "teetotal.ui"):
        site.send("POST", "/a%0Ab%1B", [("Origin", "http://x" + "y" * 5000)], as_body("never"))
        site.send("GET", as_path(as_mutation("never")))
    posted, read = (record.getMessage() for record in caplog.records)
    assert posted.startswith("refused POST '/a\\nb\\x1b': Origin 'http://xyyy")
    assert len(posted) < 500
    assert read == "refused GET /graphql: a GET may hold queries only: send mutations by POST"


# -- behind the proxy of docs/nginx.conf ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def proxy(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    """A real nginx before the server, with the example's text."""
    with serve_proxy(tmp_path_factory.mktemp("nginx"), site.host) as served:
        yield served


@pytest.mark.parametrize("authorization", ["", as_authorization("wrong")])
def test_without_the_password_the_proxy_passes_nothing_on(proxy: Proxy, authorization: str) -> None:
    assert proxy.send("GET", "/server_info", {"Authorization": authorization}) == 401


def test_through_the_proxy_its_own_pages_may_change_something(site: Site, proxy: Proxy, key: str) -> None:
    headers = {"Content-Type": JSON, "Origin": proxy.origin, "Sec-Fetch-Site": "same-origin"}
    assert proxy.send("POST", "/graphql", headers, as_body(key)) == 200
    assert site.is_changed(key)


def test_a_browser_that_knows_the_password_does_nothing_for_another_website(site: Site, proxy: Proxy, key: str) -> None:
    assert proxy.send("POST", "/graphql", {"Content-Type": JSON, "Origin": FOREIGN}, as_body(key)) == 403
    assert proxy.send("GET", as_path(as_mutation(key)), {}) == 403
    assert not site.is_changed(key)


def test_the_proxy_serves_no_other_name(proxy: Proxy) -> None:
    assert proxy.send("GET", "/server_info", {"Host": "foreign.example"}) == 421
    assert proxy.send("GET", "/server_info", {}) == 200


def test_a_browser_shows_the_interface_through_the_proxy_and_opens_its_websocket(proxy: Proxy) -> None:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, f"no browser: install one of {', '.join(BROWSERS)} (`make chromium`)"
    flags = [*FLAGS, f"--host-resolver-rules=MAP {NAME} 127.0.0.1"]
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=found, args=flags) as browser:
        page = browser.new_page(ignore_https_errors=True, http_credentials={"username": USER, "password": PASSWORD})
        page.goto(f"{proxy.origin}/runs")
        expect(page.get_by_text("You have not launched any runs yet")).to_be_visible(timeout=PATIENCE_MS)
        assert page.evaluate(OPEN_WEBSOCKET, f"{proxy.origin.replace('http', 'ws')}/graphql") == "open"


# -- the setting ---------------------------------------------------------------------------------------------------


def test_names_are_read_from_the_environment() -> None:
    assert settings(environment={}).ui_hosts == ()
    assert settings(environment={"TEETOTAL_UI_HOSTS": f" {PUBLIC}  {PUBLIC_PORT}"}).ui_hosts == (PUBLIC, PUBLIC_PORT)


@pytest.mark.parametrize("text", ["*", "*.example.org", f"https://{PUBLIC}", f"{PUBLIC},{PUBLIC_PORT}", f"{PUBLIC}/"])
def test_what_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(ContractBroken, match="TEETOTAL_UI_HOSTS"):
        settings(environment={"TEETOTAL_UI_HOSTS": text})
