"""Alerts: told once while they last, to a real web server, and the token stands in no log and no record."""

from __future__ import annotations

import json
import logging
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from lake.errors import ContractBroken
from pipelines.alert_sensor import build_alert_sensor, read_alerts
from pipelines.alert_settings import AlertSettings, read_alert_settings
from pipelines.definitions import build_context
from pipelines.settings import settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lake.store import Lake

TOKEN = "tok-5cf0b7d2e1a94"
SLOW = "resnet50-sealed-w2"


class Receiver(HTTPServer):
    """A web server that keeps what it is sent, and answers as it is told to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.received: list[tuple[dict[str, str], dict[str, Any]]] = []


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Receiver)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.received.append(({"path": self.path, **dict(self.headers)}, json.loads(body)))
        self.send_response(self.server.status)
        if self.server.status == 302:
            self.send_header("Location", "/elsewhere")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def choose(port: int, **more: str) -> AlertSettings:
    hook = {"TEETOTAL_ALERT_WEBHOOK": f"http://127.0.0.1:{port}/hook?room=7", "TEETOTAL_ALERT_TOKEN": TOKEN}
    return read_alert_settings({**hook, "TEETOTAL_ALERT_SLOWDOWN": "1.05", **more})


def tick(
    lake: Lake, chosen: AlertSettings, records: dg.DagsterInstance, cursor: str | None = None
) -> dg.SensorResult | dg.SkipReason:
    place = build_context(settings(str(lake.place), environment={"TEETOTAL_SIGNING_KEY": "none"}))
    with dg.build_sensor_context(records, cursor=cursor, resources={"build_context": place}) as context:
        result = build_alert_sensor(chosen, 15)(context)
    assert isinstance(result, dg.SensorResult | dg.SkipReason)
    return result


def test_an_alert_is_told_once_and_its_token_is_in_no_log_and_no_record(
    recorded_lake: Lake, receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = choose(receiver.server_port)
    assert TOKEN not in repr(chosen)
    assert "room" not in repr(chosen)
    caplog.set_level(logging.DEBUG)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as records:
        told = tick(recorded_lake, chosen, records)
        assert isinstance(told, dg.SensorResult)
        for event in told.asset_events:
            records.report_runless_asset_event(event)
        count = len(receiver.received)
        assert count == len(read_alerts(recorded_lake, chosen.limits)) > 3
        assert {event.partition for event in told.asset_events} >= {SLOW}
        assert isinstance(tick(recorded_lake, chosen, records, told.cursor), dg.SkipReason)
        # Another version of a table: the same alerts are not told again.
        moved = json.loads(told.cursor or "") | {"versions": []}
        again = tick(recorded_lake, chosen, records, json.dumps(moved))
        assert isinstance(again, dg.SensorResult)
        assert (len(receiver.received), list(again.asset_events)) == (count, [])
    headers, message = next(one for one in receiver.received if one[1]["run_id"] == SLOW)
    assert headers["Authorization"] == f"Bearer {TOKEN}"
    assert headers["path"] == "/hook?room=7"
    assert message["kind"] == "overhead"
    assert message["value"] > message["limit"] == 1.05
    assert message["text"].startswith(f"{SLOW} against resnet50-plain-w2: ")
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert written
    assert not any(TOKEN.encode() in path.read_bytes() for path in written)
    assert TOKEN not in caplog.text
    assert TOKEN not in (told.cursor or "")


@pytest.mark.parametrize("status", [500, 302])
def test_what_could_not_be_sent_is_tried_again_and_a_redirect_does_not_get_the_token(
    recorded_lake: Lake, receiver: Receiver, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    receiver.status = status
    chosen = choose(receiver.server_port, TEETOTAL_ALERT_SLOWDOWN="1.4")
    with dg.DagsterInstance.ephemeral() as records:
        first = tick(recorded_lake, chosen, records)
        assert isinstance(first, dg.SensorResult)
        assert list(first.asset_events) == []
        sent = len(receiver.received)
        assert sent
        assert {headers["path"] for headers, _ in receiver.received} == {"/hook?room=7"}
        receiver.status = 200
        second = tick(recorded_lake, chosen, records, first.cursor)
        assert isinstance(second, dg.SensorResult)
        assert len(list(second.asset_events)) == len(receiver.received) - sent == sent
    assert TOKEN not in caplog.text


def test_a_server_that_is_gone_is_named_without_its_path_or_token(recorded_lake: Lake, capfd: Any) -> None:
    chosen = choose(9)
    with dg.DagsterInstance.ephemeral() as records:
        tick(recorded_lake, chosen, records)
    said = "".join(capfd.readouterr())
    assert "the webhook at 127.0.0.1 could not be reached (ConnectionRefusedError)" in said
    assert TOKEN not in said
    assert "room" not in said


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"TEETOTAL_ALERT_WEBHOOK": "http://example.org/x"}, "TEETOTAL_ALERT_WEBHOOK is no address"),
        ({"TEETOTAL_ALERT_WEBHOOK": f"https://user:{TOKEN}@example.org/x"}, "TEETOTAL_ALERT_WEBHOOK is no address"),
        ({"TEETOTAL_ALERT_WEBHOOK": "https://[x/"}, "TEETOTAL_ALERT_WEBHOOK is no web address"),
        ({"TEETOTAL_ALERT_TOKEN": TOKEN}, "TEETOTAL_ALERT_TOKEN is set without TEETOTAL_ALERT_WEBHOOK"),
        ({"TEETOTAL_ALERT_WEBHOOK": "https://example.org", "TEETOTAL_ALERT_TOKEN": f"{TOKEN}\nX: y"}, "the token for"),
        ({"TEETOTAL_ALERT_SLOWDOWN": "much"}, "TEETOTAL_ALERT_SLOWDOWN is 'much'"),
        ({"TEETOTAL_ALERT_NONCES": "-1"}, "TEETOTAL_ALERT_NONCES is '-1'"),
    ],
)
def test_a_wrong_setting_is_named_and_no_secret_with_it(given: dict[str, str], what: str) -> None:
    with pytest.raises(ContractBroken, match=what) as caught:
        read_alert_settings(given)
    assert TOKEN not in str(caught.value)


def test_limits_come_from_the_environment_and_each_can_be_turned_off() -> None:
    off = dict.fromkeys(
        (f"TEETOTAL_ALERT_{name}" for name in ("SLOWDOWN", "VIOLATIONS", "NONCES", "CONTRADICTIONS")), "off"
    )
    limits = settings(environment=off).alerts.limits
    assert (limits.slowdown_ratio, limits.violations_count, limits.nonce_fraction) == (None, None, None)
    assert not limits.has_contradictions
    assert settings(environment={"TEETOTAL_ALERT_VIOLATIONS": "5"}).alerts.limits.violations_count == 5
