"""The sensor of the landing zone: a run that is complete and new or changed becomes a partition and a launch, once."""

import hashlib
import json

import dagster as dg

from assets import dagster_events
from assets.build.context import BuildContext
from assets.build.freshness import mark_landing
from assets.build.state import assess_runs
from assets.specs import TRAINING_RUNS, asset_key
from lake.errors import LakeError
from lake.landing_zone import LandingZone
from pipelines.jobs import INGEST
from pipelines.partitions import MANIFEST_TABLE, list_known, make_range_tags, plan_launches
from report.terminal_text import make_printable

_UNFINISHED = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
]


def build_landing_sensor(interval_seconds: int) -> dg.SensorDefinition:
    """The sensor, which looks at the landing zone at most once in so many seconds."""
    return dg.sensor(
        name="landing_sensor",
        job=INGEST,
        minimum_interval_seconds=interval_seconds,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description="Launches runs that have landed or changed. Its cursor holds the mark of every run it has seen.",
    )(launch_landed_runs)


def launch_landed_runs(
    context: dg.SensorEvaluationContext, build_context: dg.ResourceParam[BuildContext]
) -> dg.SensorResult | dg.SkipReason:
    """Compare the landing zone with what was seen at the last tick."""
    before: dict[str, str] = json.loads(context.cursor or "{}")
    zone = build_context.zone.listed_once()
    complete, incomplete = zone.run_ids()
    marks = {}
    for run_id in complete:
        try:
            marks[run_id] = mark_landing(zone, run_id, build_context.keys)
        except LakeError as error:  # it went away, or changes under our eyes: the next tick sees it
            context.log.warning("%s: %s", run_id, make_printable(str(error)))
    for run_id in sorted(before.keys() - marks.keys()):
        context.log.info("%s is gone from the landing zone; its tables stay in the lake", run_id)
    changed = [run_id for run_id in marks if marks[run_id] != before.get(run_id)]
    for run_id in _list_waiting(context, zone, changed):
        changed.remove(run_id)
        marks[run_id] = before.get(run_id, "")  # the next tick sees it as changed
    if not changed:
        context.update_cursor(json.dumps(marks))
        return dg.SkipReason(f"{len(marks)} runs, none new or changed; {len(incomplete)} not complete")
    order = list_known(context.instance)
    new = [run_id for run_id in changed if run_id not in set(order)]
    states = assess_runs(build_context.lake, zone, changed, build_context.keys, margin=build_context.margin)
    stale = [run_id for run_id in changed if states[run_id].needs_launch()]
    return dg.SensorResult(
        run_requests=[
            _request(neighbours, marks, is_readable=is_readable)
            for neighbours, is_readable in plan_launches(zone, stale, [*order, *new])
        ],
        dynamic_partitions_requests=[TRAINING_RUNS.build_add_request(new)] if new else [],
        asset_events=[dagster_events.observe_landing(run_id, marks[run_id]) for run_id in changed],
        cursor=json.dumps(marks),
    )


def _list_waiting(context: dg.SensorEvaluationContext, zone: LandingZone, changed: list[str]) -> list[str]:
    """Open runs that wait for the launch before theirs: they change with every tick, and launches would pile up."""
    growing = [run_id for run_id in changed if zone.is_open(run_id)]
    unfinished = dg.RunsFilter(job_name=str(INGEST.name), statuses=_UNFINISHED)
    return growing if growing and context.instance.get_run_ids(unfinished, limit=1) else []


def _request(neighbours: list[str], marks: dict[str, str], *, is_readable: bool) -> dg.RunRequest:
    """One launch for neighbours; the same content is never asked for twice."""
    content = hashlib.sha256("".join(marks[run_id] for run_id in neighbours).encode()).hexdigest()
    return dg.RunRequest(
        run_key=f"{neighbours[0]}+{len(neighbours)}:{content}",
        tags=make_range_tags(neighbours),
        asset_selection=None if is_readable else [asset_key(MANIFEST_TABLE.full_name)],
    )
