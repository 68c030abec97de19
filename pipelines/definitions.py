"""Everything that Dagster knows of teetotal, built from the settings: assets, checks, jobs, schedules and sensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg

from assets.build.context import BuildContext, BuildListener
from assets.comparisons import comparisons
from assets.specs import landing_spec
from assets.training_runs import training_runs
from lake.attestation_keys import load_keys
from lake.landing_zone import LandingZone
from pipelines.alert_sensor import build_alert_sensor
from pipelines.cli.session import open_signed_lake
from pipelines.jobs import CATCH_UP, COMPARE, INGEST, console, data_docs, executor, maintenance
from pipelines.landing_sensor import build_landing_sensor
from pipelines.schedules import data_docs_schedule, maintenance_schedule, nightly
from pipelines.settings import settings

if TYPE_CHECKING:
    from pipelines.settings import Settings


def build_context(chosen: Settings, listener: BuildListener | None = None) -> BuildContext:
    """The lake, the landing zone and the bounds that the settings name."""
    return BuildContext(
        lake=open_signed_lake(chosen),
        zone=LandingZone(chosen.landing, chosen.seals),
        limits=chosen.limits,
        docs=chosen.docs,
        keys=load_keys(chosen.attestation_keys),
        listener=listener or BuildListener(),
        spark=chosen.spark,
        checks=chosen.checks,
        margin=chosen.margin,
    )


def build_definitions(chosen: Settings, listener: BuildListener | None = None) -> dg.Definitions:
    """The definitions for one lake and one landing zone."""
    return dg.Definitions(
        assets=[landing_spec(), training_runs, comparisons],
        jobs=[INGEST, COMPARE, CATCH_UP, maintenance, data_docs],
        schedules=[nightly, maintenance_schedule, data_docs_schedule],
        sensors=[
            build_landing_sensor(chosen.sensor_seconds),
            build_alert_sensor(chosen.alerts, chosen.sensor_seconds),
            dg.AutomationConditionSensorDefinition(
                "automation",
                target=dg.AssetSelection.all(),
                minimum_interval_seconds=chosen.sensor_seconds,
                default_status=dg.DefaultSensorStatus.RUNNING,
            ),
        ],
        executor=executor,
        loggers={"console": console},
        resources={"build_context": build_context(chosen, listener)},
    )


@dg.definitions
def defs() -> dg.Definitions:
    """What the UI and the daemon load, from the environment alone."""
    return build_definitions(settings())
