"""A launch of Dagster's: every run tells of itself, and one that fails stops alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
import pytest
from dagster._core.definitions.data_version import StaleStatus

from assets.build import bronze, gold
from assets.build.catalogue import list_required
from assets.build.freshness import mark_landing
from assets.dagster_events import observe_landing
from assets.training_runs import TABLES
from pipelines.instance import open_instance
from tests.support.small_runs import OFF, TEE

if TYPE_CHECKING:
    from tests.support.deployment import Deployment

EVERY = {table.full_name for table in TABLES}
BRONZE = [table.full_name for table in bronze.TABLES]
MATERIALISED = dg.DagsterEventType.ASSET_MATERIALIZATION
# Some of each tier: what a launch is need not be asked of all tables each time.
FEW = sorted(list_required(["gold.time_breakdown", "gold.trace_summary"]))
# With those that compare two runs.
PAIRED = sorted(list_required(["gold.step_overhead", "gold.overhead_breakdown"]))


def test_a_launch_tells_of_every_partition_by_its_content(deployment: Deployment) -> None:
    deployment.land("off", 100, OFF)
    deployment.land("tee", 120, TEE)
    result = deployment.launch(["off", "tee"])
    assert result.success
    assert deployment.list_materialised(result) == {
        (name.replace(".", "/"), run) for name in EVERY for run in ("off", "tee")
    }
    lake = deployment.build_context.lake
    for table in TABLES:
        snapshot = lake.snapshot(table)
        expected = {run_id: snapshot.content_sha256(run_id) for run_id in ("off", "tee")}
        assert deployment.versions(table.full_name) == expected, table.full_name
        for run_id in ("off", "tee"):
            assert deployment.status(table.full_name, run_id) is StaleStatus.FRESH, table.full_name


def test_many_runs_are_one_step(deployment: Deployment) -> None:
    run_ids = [f"run-{number}" for number in range(4)]
    for number, run_id in enumerate(run_ids):
        deployment.land(run_id, 100 + number)
    result = deployment.launch(run_ids, FEW)
    assert result.success
    assert len(deployment.events(result, dg.DagsterEventType.STEP_START)) == 1
    assert deployment.versions("gold.time_breakdown").keys() == set(run_ids)


def test_another_process_sees_what_a_tier_has_made_before_the_next_one_begins(lasting: Deployment) -> None:
    lasting.land("off")
    seen: dict[str, set[str]] = {}

    def look(entry: dg.EventLogEntry) -> None:
        if entry.user_message.startswith("made "):
            with open_instance(lasting.chosen.home) as records:
                made = [one.dagster_event for one in records.all_logs(entry.run_id, of_type={MATERIALISED})]
            seen[entry.user_message] = {str(one.asset_key.path[0]) for one in made if one and one.asset_key}

    assert lasting.launch(["off"], FEW, listener=look).success
    assert seen == {
        "made bronze of 1 run": {"bronze"},
        "made silver of 1 run": {"bronze", "silver"},
        "made gold of 1 run": {"bronze", "silver", "gold"},
    }


def test_what_a_partition_holds_is_told_with_it(deployment: Deployment) -> None:
    deployment.land("off", 100, OFF)
    deployment.land("tee", 120, TEE)
    result = deployment.launch(["off", "tee"], PAIRED)
    answer = {
        (event.asset_key.to_user_string(), event.partition): event.step_materialization_data.materialization.metadata
        for event in deployment.events(result, dg.DagsterEventType.ASSET_MATERIALIZATION)
        if event.asset_key
    }
    spans = answer["silver/spans", "tee"]
    assert spans["dagster/partition_row_count"].value == 6
    assert "dagster/row_count" not in spans, "which Dagster shows as the rows of the whole table"
    assert spans["engine"].value == "polars"
    assert spans["is_recomputed"].value is True
    assert {"bytes", "files", "delta_version", "content_sha256", "tier_seconds"} <= spans.keys()
    signer = deployment.chosen.signing.signer if deployment.chosen.signing else None
    assert signer is not None
    assert spans["signed_by"].value == signer.public.key_id
    assert answer["bronze/source_files", "tee"]["kept"].value == 1
    assert answer["silver/rule_counts", "tee"]["kept"].value == 6
    assert "1.2" in str(answer["gold/step_overhead", "tee"]["rows_shown"].value)
    drawn_from = answer["gold/overhead_breakdown", "tee"]["vega_lite"].value
    assert isinstance(drawn_from, dict)
    assert {row["run"] for row in drawn_from["data"]["values"]} >= {"tee"}
    nothing_to_draw = answer["gold/overhead_breakdown", "off"]
    assert "rows_shown" in nothing_to_draw
    assert not {"figure", "vega_lite"} & nothing_to_draw.keys()


def test_the_engine_that_was_asked_for_is_told(deployment: Deployment) -> None:
    deployment.land("off")
    deployment.launch(["off"], BRONZE)
    result = deployment.launch(["off"], only=["silver.memory_events"], engine="duckdb")
    events = deployment.events(result, dg.DagsterEventType.ASSET_MATERIALIZATION)
    assert {event.step_materialization_data.materialization.metadata["engine"].value for event in events} == {"duckdb"}
    run = deployment.records.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags["teetotal/engine"] == "duckdb"


def test_the_same_launch_again_computes_nothing_and_changes_no_version(deployment: Deployment) -> None:
    deployment.land("off")
    deployment.launch(["off"], FEW)
    before = {name: deployment.versions(name) for name in FEW}
    again = deployment.launch(["off"], FEW)
    assert {name: deployment.versions(name) for name in FEW} == before
    assert all(before.values())
    notes = [
        event.step_materialization_data.materialization.metadata.get("is_recomputed")
        for event in deployment.events(again, dg.DagsterEventType.ASSET_MATERIALIZATION)
    ]
    assert {note.value for note in notes if note is not None} == {False}


def test_input_that_is_unchanged_is_not_computed_again_downstream(deployment: Deployment) -> None:
    directory = deployment.land("off")
    deployment.launch(["off"], FEW)
    touched = directory / "rank0.json"
    touched.write_bytes(touched.read_bytes())
    result = deployment.launch(["off"], FEW)
    recomputed = {
        str(event.asset_key.path[0]): event.step_materialization_data.materialization.metadata["is_recomputed"].value
        for event in deployment.events(result, dg.DagsterEventType.ASSET_MATERIALIZATION)
        if event.asset_key and "is_recomputed" in event.step_materialization_data.materialization.metadata
    }
    assert recomputed == {"bronze": True, "silver": False, "gold": False}


def test_a_changed_directory_makes_its_run_stale_and_no_other(deployment: Deployment) -> None:
    deployment.land("off", 100, OFF)
    deployment.land("tee", 120, TEE)
    deployment.launch(["off", "tee"], PAIRED)
    deployment.land("tee", 140, TEE)
    deployment.records.report_runless_asset_event(
        observe_landing("tee", mark_landing(deployment.build_context.zone, "tee"))
    )
    assert deployment.status("bronze.trace_events", "tee") is StaleStatus.STALE
    assert deployment.status("bronze.trace_events", "off") is StaleStatus.FRESH
    result = deployment.launch(["tee"], PAIRED)
    assert {run_id for _, run_id in deployment.list_materialised(result)} == {"tee"}
    assert deployment.status("gold.pairs", "tee") is StaleStatus.FRESH


def test_a_changed_baseline_brings_the_pairs_of_other_runs_up_to_date(deployment: Deployment) -> None:
    deployment.land("off", 100, OFF)
    deployment.land("tee", 120, TEE)
    deployment.launch(["off", "tee"], PAIRED)
    deployment.land("off", 90, OFF)
    result = deployment.launch(["off"], PAIRED)
    assert {name for name, run_id in deployment.list_materialised(result) if run_id == "tee"} == {
        table.full_name.replace(".", "/") for table in gold.PAIR_TABLES
    }


def test_a_run_that_cannot_be_taken_stops_alone_is_not_tried_again_and_says_why(deployment: Deployment) -> None:
    for run_id in ("a", "c"):
        deployment.land(run_id)
    deployment.land("b", manifest="regime = 1\n")
    result = deployment.launch(["a", "b", "c"], FEW)
    assert not result.success
    assert deployment.events(result, dg.DagsterEventType.STEP_UP_FOR_RETRY) == []
    assert {name.partition(".")[0] for name in FEW} == {"bronze", "silver", "gold"}
    for name in FEW:
        assert deployment.versions(name).keys() == {"a", "c"}
        assert deployment.failed(name) == {"b"}
    (failure,) = deployment.events(result, dg.DagsterEventType.STEP_FAILURE)
    assert failure.step_failure_data.error is not None
    assert "1 of 3 runs failed; the others are up to date. b: b/run.toml: regime" in str(
        failure.step_failure_data.error.message
    )
    reasons = {
        (event.asset_observation_data.asset_observation.asset_key.to_user_string(), event.partition): str(
            event.asset_observation_data.asset_observation.metadata["failed"].value
        )
        for event in deployment.events(result, dg.DagsterEventType.ASSET_OBSERVATION)
        if "failed" in event.asset_observation_data.asset_observation.metadata
    }
    assert {run_id for _, run_id in reasons} == {"b"}
    assert "regime" in reasons["bronze/runs", "b"]
    assert "regime" in reasons["gold/time_breakdown", "b"]


@pytest.mark.timeout(120)
def test_storage_that_refuses_twice_is_tried_until_it_answers(deployment: Deployment) -> None:
    deployment.land("a")
    deployment.land("b", manifest="regime = 1\n")
    obstacle = deployment.place / "lake" / "silver" / "spans"
    obstacle.parent.mkdir(parents=True)
    obstacle.write_text("in the way")
    retries = []

    def clear(entry: dg.EventLogEntry) -> None:
        if entry.dagster_event_type == dg.DagsterEventType.STEP_UP_FOR_RETRY:
            retries.append(entry)
            if len(retries) == 2:
                obstacle.unlink()

    result = deployment.launch(["a", "b"], listener=clear)
    assert len(deployment.events(result, dg.DagsterEventType.STEP_UP_FOR_RETRY)) == 2
    assert deployment.versions("gold.time_breakdown").keys() == {"a"}
    assert not result.success, "what failed for good in the first try is not forgotten in the last"
    (failure,) = deployment.events(result, dg.DagsterEventType.STEP_FAILURE)
    assert "1 of 2 runs failed; the others are up to date. b: " in str(failure.step_failure_data.error)
    reasons = [
        event
        for event in deployment.events(result, dg.DagsterEventType.ASSET_OBSERVATION)
        if event.asset_key == dg.AssetKey(["bronze", "runs"]) and event.partition == "b"
    ]
    assert len(reasons) == 1, "what cannot be taken is not tried again with what can"


def test_a_tier_without_the_one_before_says_what_to_make_first(deployment: Deployment) -> None:
    deployment.land("a")
    result = deployment.launch(["a"], only=["silver.spans"])
    (failure,) = deployment.events(result, dg.DagsterEventType.STEP_FAILURE)
    assert "make its bronze tables first" in str(failure.step_failure_data.error)


def test_one_tier_can_be_made_by_itself(deployment: Deployment) -> None:
    deployment.land("a")
    deployment.launch(["a"], BRONZE)
    result = deployment.launch(["a"], only=["silver.spans"], full=True)
    assert result.success
    assert {name.split("/")[0] for name, _ in deployment.list_materialised(result)} == {"silver"}


def test_only_the_tables_chosen_are_made_and_what_they_need_of_their_tier(deployment: Deployment) -> None:
    deployment.land("a")
    deployment.launch(["a"], FEW)
    result = deployment.launch(["a"], only=["gold.trace_summary"], full=True)
    assert deployment.list_materialised(result) == {("gold/trace_summary", "a")}
    result = deployment.launch(["a"], only=["silver.spans"], full=True)
    # What counts the events goes with the spans: it holds that none was lost.
    names = ("clock_offsets", "nsys_ranks", "rejects", "rule_counts", "spans", "steps")
    assert deployment.list_materialised(result) == {(f"silver/{name}", "a") for name in names}
