"""The sensor of alerts: a run that passes a limit is told once, on its page and to a webhook where one is set."""

import json
from dataclasses import asdict
from typing import Any

import dagster as dg

from assets.build.context import BuildContext
from assets.specs import asset_key
from gold import step_overhead
from gold.alert_limits import AlertLimits
from gold.alerts import Alert, find_alerts
from lake.errors import LakeError
from lake.store import Lake
from lake.tables import Table
from pipelines.alert_settings import AlertSettings
from pipelines.webhook import Webhook
from report.terminal_text import make_printable
from silver import nonce_budgets, runs

_READ = (runs.TABLE, step_overhead.TABLE, nonce_budgets.TABLE)
# The page on which an alert of each kind stands.
_PAGES: dict[str, Table] = {
    "overhead": step_overhead.TABLE,
    "violation": runs.TABLE,
    "nonce_budget": nonce_budgets.TABLE,
    "contradiction": runs.TABLE,
}


def build_alert_sensor(chosen: AlertSettings, interval_seconds: int) -> dg.SensorDefinition:
    """The sensor, which looks at most once in so many seconds, and only where a table has a new version."""

    def tell_alerts(
        context: dg.SensorEvaluationContext, build_context: dg.ResourceParam[BuildContext]
    ) -> dg.SensorResult | dg.SkipReason:
        return send_alerts(context, build_context.lake, chosen)

    return dg.sensor(
        name="alert_sensor",
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Tells of runs that pass a limit (docs/live.md). Its cursor holds what was told.",
    )(tell_alerts)


def send_alerts(
    context: dg.SensorEvaluationContext, lake: Lake, chosen: AlertSettings
) -> dg.SensorResult | dg.SkipReason:
    """Tell what is new since the last look; what could not be sent is tried again at the next one."""
    before: dict[str, Any] = json.loads(context.cursor or "{}")
    told: list[str] = before.get("told", [])
    versions = [lake.snapshot(table).version for table in _READ]
    if versions == before.get("versions") and not before.get("failed"):
        return dg.SkipReason("no table that alerts are made from has changed")
    alerts = read_alerts(lake, chosen.limits)
    new = [alert for alert in alerts if alert.key not in told]
    failed = [alert for alert in new if not _notify(context, chosen.webhook, alert)]
    kept = sorted({alert.key for alert in alerts} - {alert.key for alert in failed})
    return dg.SensorResult(
        asset_events=[_observe(alert) for alert in new if alert not in failed],
        cursor=json.dumps({"versions": versions, "told": kept, "failed": bool(failed)}),
    )


def read_alerts(lake: Lake, limits: AlertLimits) -> list[Alert]:
    """The limits that the runs of a lake pass as its tables are now."""
    found, overheads, budgets = (lake.scan(table).collect().to_dicts() for table in _READ)
    return find_alerts(found, overheads, budgets, limits)


def _notify(context: dg.SensorEvaluationContext, webhook: Webhook | None, alert: Alert) -> bool:
    """Whether an alert was told: in the log of the tick, and to the webhook where there is one."""
    context.log.warning("%s: %s", alert.kind, make_printable(alert.sentence))
    if webhook is None:
        return True
    try:
        webhook.send({"text": alert.sentence, **asdict(alert)})
    except LakeError as error:
        context.log.warning("not told: %s", make_printable(str(error)))
        return False
    return True


def _observe(alert: Alert) -> dg.AssetObservation:
    return dg.AssetObservation(
        asset_key(_PAGES[alert.kind].full_name),
        partition=alert.run_id,
        description=alert.sentence,
        metadata={"alert": alert.kind, "value": alert.value or 0.0, "limit": alert.limit or 0.0},
    )
