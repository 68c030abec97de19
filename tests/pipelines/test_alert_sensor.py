"""Alerts: told once while they last, to a real web server, and the token stands in no log and no record."""

from __future__ import annotations

import json
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from assets.build.catalogue import list_required
from assets.build.context import BuildContext
from assets.build.tiers import build_tier, select_tables
from bronze.limits import Limits
from lake.engines import engine
from lake.errors import ContractBroken
from pipelines.alert_sensor import build_alert_sensor, read_alerts
from pipelines.alert_settings import AlertSettings, read_alert_settings
from pipelines.definitions import build_context
from pipelines.settings import settings
from silver import nonce_budgets, runs
from tests.support.hostile_traces import SEALED_TWICE, hook, trace
from tests.support.webhook_receiver import SECRET_PATH, TOKEN, Receiver, find_secrets, serve_receiver

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from lake.store import Lake
    from tests.conftest import LandFiles

SLOW = "resnet50-sealed-w2"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with serve_receiver() as server:
        yield server


def choose(receiver: Receiver, **more: str) -> AlertSettings:
    return read_alert_settings({**receiver.variables, "TEETOTAL_ALERT_SLOWDOWN": "1.05", **more})


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
    chosen = choose(receiver)
    assert TOKEN not in repr(chosen)
    assert SECRET_PATH not in repr(chosen)
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
    assert headers["path"] == f"/{SECRET_PATH}?room=7"
    assert message["kind"] == "overhead"
    assert message["value"] > message["limit"] == 1.05
    assert message["text"].startswith(f"{SLOW} against resnet50-plain-w2: ")
    assert list_files_with(SLOW, tmp_path), "the records are on disk"
    assert find_secrets(caplog.text, told.cursor or "", below=tmp_path) == []


def list_files_with(text: str, below: Path) -> list[Path]:
    return [path for path in below.rglob("*") if path.is_file() and text.encode() in path.read_bytes()]


def test_each_kind_fires_by_the_tables_of_a_run_that_has_the_fault(
    land_files: LandFiles, receiver: Receiver, tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    files = {"r0.json": trace(*hook(1, *SEALED_TWICE)), "r1.json": trace(*hook(1, "tee::sendrecv"), rank=1)}
    land_files.write(files, "job", 'regime = "sw_per_hop_aesgcm"\n')
    tables = select_tables(list_required(table.full_name for table in (runs.TABLE, nonce_budgets.TABLE)))
    context = BuildContext(land_files.lake, land_files.zone, Limits())
    for tier in tables:
        made = build_tier(context, tier, ["job"], partial(engine, "polars"), tables=tables)
        assert [one.fault for one in made] == [None]
    # Two messages of the 2^32 that a key may seal: whatever the limit is, it is held against what was counted.
    chosen = choose(receiver, TEETOTAL_ALERT_NONCES="4e-10")
    caplog.set_level(logging.DEBUG)
    with dg.DagsterInstance.local_temp(str(tmp_path)) as records:
        receiver.status = 500
        failed = tick(land_files.lake, chosen, records)
        assert isinstance(failed, dg.SensorResult)
        receiver.status, before = 200, len(receiver.received)
        told = tick(land_files.lake, chosen, records, failed.cursor)
        assert isinstance(told, dg.SensorResult)
        for event in told.asset_events:
            records.report_runless_asset_event(event)
        pages = [(event.partition, event.asset_key.to_user_string()) for event in told.asset_events]
    assert [(one["kind"], one["sentence"]) for _, one in receiver.received[before:]] == [
        ("violation", "job: 1 crossing breaks the promise of sw_per_hop_aesgcm; limit 0"),
        ("nonce_budget", "job: a key of rank 0 has sealed 4.66e-08% of what it may; limit 4e-08%"),
        (
            "contradiction",
            "job: its claim is contradicted: it claims sw_per_hop_aesgcm, yet 1 crossings were not sealed",
        ),
    ]
    assert pages == [("job", "silver/runs"), ("job", "silver/nonce_budgets"), ("job", "silver/runs")]
    said = "".join(capfd.readouterr())
    assert "not told: the webhook at 127.0.0.1 answered 500" in said + caplog.text
    assert list_files_with("1 crossing breaks the promise", tmp_path), "else the search is of nothing"
    cursors = (failed.cursor or "", told.cursor or "")
    assert find_secrets(said, caplog.text, *cursors, below=tmp_path) == []
    quiet = choose(receiver, TEETOTAL_ALERT_NONCES="5e-10", TEETOTAL_ALERT_VIOLATIONS="1").limits
    assert [alert.kind for alert in read_alerts(land_files.lake, quiet)] == ["contradiction"]


@pytest.mark.parametrize("status", [500, 302])
def test_what_could_not_be_sent_is_tried_again_and_a_redirect_does_not_get_the_token(
    recorded_lake: Lake, receiver: Receiver, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    receiver.status = status
    chosen = choose(receiver, TEETOTAL_ALERT_SLOWDOWN="1.4")
    with dg.DagsterInstance.ephemeral() as records:
        first = tick(recorded_lake, chosen, records)
        assert isinstance(first, dg.SensorResult)
        assert list(first.asset_events) == []
        sent = len(receiver.received)
        assert sent
        assert {headers["path"] for headers, _ in receiver.received} == {f"/{SECRET_PATH}?room=7"}
        receiver.status = 200
        second = tick(recorded_lake, chosen, records, first.cursor)
        assert isinstance(second, dg.SensorResult)
        assert len(list(second.asset_events)) == len(receiver.received) - sent == sent
    assert TOKEN not in caplog.text
    assert SECRET_PATH not in caplog.text


def test_a_server_that_is_gone_is_named_without_its_path_or_token(recorded_lake: Lake, capfd: Any) -> None:
    gone = {"TEETOTAL_ALERT_WEBHOOK": f"http://127.0.0.1:9/{SECRET_PATH}", "TEETOTAL_ALERT_TOKEN": TOKEN}
    chosen = read_alert_settings({**gone, "TEETOTAL_ALERT_SLOWDOWN": "1.05"})
    with dg.DagsterInstance.ephemeral() as records:
        tick(recorded_lake, chosen, records)
    said = "".join(capfd.readouterr())
    assert "the webhook at 127.0.0.1 could not be reached (ConnectionRefusedError)" in said
    assert TOKEN not in said
    assert SECRET_PATH not in said


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
