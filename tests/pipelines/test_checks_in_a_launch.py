"""Checks in a launch: a broken promise blocks its run alone, and the comparisons follow what is new by themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import dagster as dg
import polars as pl
import pytest

from assets.build.catalogue import TABLES as CATALOGUE
from assets.build.catalogue import list_required
from assets.checks.expectations import list_rules
from assets.specs import asset_key
from assets.training_runs import OWN_TABLES, TABLES
from bronze import source_files, trace_events
from pipelines import jobs
from tests.support.build_runs import build_runs
from tests.support.deployment import Deployment
from tests.support.small_runs import OFF, TEE
from tests.support.tampered_tables import change

if TYPE_CHECKING:
    from pathlib import Path

    from dagster._core.definitions.asset_daemon_cursor import AssetDaemonCursor


def test_every_promise_of_every_table_is_held_in_a_launch(deployment: Deployment) -> None:
    deployment.land("off", 100, OFF)
    deployment.land("tee", 120, TEE)
    result = deployment.launch(["off", "tee"], check=True)
    assert result.success
    evaluations = result.get_asset_check_evaluations()
    assert all(evaluation.passed for evaluation in evaluations)
    assert {evaluation.asset_key for evaluation in evaluations} == {asset_key(table.full_name) for table in TABLES}
    (declared,) = [
        evaluation
        for evaluation in evaluations
        if evaluation.asset_key == asset_key("silver.spans") and evaluation.check_name == "rows_are_as_declared"
    ]
    assert declared.metadata["rows"].value == 12, "all rows of both runs"
    assert {evaluation.metadata["engine"].value for evaluation in evaluations} == {"duckdb"}
    assert "data_docs" not in declared.metadata, "a page is written where a check fails, and on the schedule"
    assert not deployment.chosen.docs.exists()


def test_a_broken_promise_blocks_its_run_alone_and_says_why(deployment: Deployment) -> None:
    deployment.land("good", 100, OFF)
    deployment.land("ill", 120, TEE)
    deployment.launch(["good", "ill"], only=[table.full_name for table in TABLES if table.tier == "bronze"])
    change(deployment.build_context.lake, trace_events.TABLE, "ill", lambda rows: pl.concat([rows, rows[:1]]))
    result = deployment.launch(["good", "ill"], only=list(list_required(["gold.time_breakdown"])), check=True)
    assert not result.success
    failed = {
        (evaluation.asset_key.to_user_string(), evaluation.check_name): evaluation
        for evaluation in result.get_asset_check_evaluations()
        if not evaluation.passed
    }
    assert ("bronze/trace_events", "rows_are_as_declared") in failed
    answer = failed["bronze/trace_events", "rows_are_as_declared"].metadata
    assert answer["runs"].value == ["ill"]
    assert str(answer["broken_rows"].value).startswith("{'no two rows have the same ")
    page = deployment.chosen.docs / "bronze" / "trace_events" / "_several.html"
    assert answer["data_docs"].value == "/data-docs/" + "/".join(page.parts[-3:]), "what fails has a page"
    assert answer["data_docs_file"].value == str(page)
    assert "no two rows have the same" in page.read_text("utf-8")
    assert [path.name for path in deployment.chosen.docs.rglob("*.html")] == ["_several.html"], "and nothing else"
    assert deployment.versions("gold.time_breakdown").keys() == {"good"}
    assert deployment.versions("silver.spans").keys() == {"good"}
    assert deployment.events(result, dg.DagsterEventType.STEP_UP_FOR_RETRY) == []
    (failure,) = deployment.events(result, dg.DagsterEventType.STEP_FAILURE)
    assert "bronze.trace_events breaks its word: no two rows have the same" in str(failure.step_failure_data.error)


def test_the_data_docs_job_validates_every_table_and_fails_where_a_check_does(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.land("off", 100, OFF)
    place = deployment.build_context
    build_runs(place.lake, place.zone, ["off"])
    job = deployment.definitions.resolve_job_def("data_docs")
    assert job.execute_in_process(instance=deployment.records).success
    pages = {path.relative_to(deployment.chosen.docs).as_posix() for path in deployment.chosen.docs.rglob("*.html")}
    assert pages == {f"{table.tier}/{table.name}/_all.html" for table in CATALOGUE.values()}
    text = (deployment.chosen.docs / "silver" / "spans" / "_all.html").read_text("utf-8")
    assert "0 of 6 rows violate it" in text
    assert all(rule.sentence.split(" ")[0] in text for rule in list_rules(CATALOGUE["silver.spans"]))
    change(deployment.build_context.lake, trace_events.TABLE, "off", lambda rows: pl.concat([rows, rows[:1]]))
    # Of the second time three tables are enough, the changed one between others that hold.
    some = ("bronze.source_files", "bronze.trace_events", "silver.runs")
    monkeypatch.setattr(jobs, "TABLES", {name: CATALOGUE[name] for name in some})
    result = job.execute_in_process(instance=deployment.records, raise_on_error=False)
    (failure,) = deployment.events(result, dg.DagsterEventType.STEP_FAILURE)
    assert "bronze.trace_events: no two rows have the same" in str(failure.step_failure_data.error)


@pytest.mark.usefixtures("spark")
def test_rows_are_looked_at_by_spark_where_the_setting_says_so(tmp_path: Path) -> None:
    sources = "bronze.source_files"
    with dg.DagsterInstance.ephemeral() as records:
        deployment = Deployment(tmp_path, records, {"TEETOTAL_CHECKS": "spark"})
        deployment.land("good", 100, OFF)
        deployment.land("ill", 120, TEE)
        deployment.launch(["good", "ill"], only=[sources])
        change(deployment.build_context.lake, source_files.TABLE, "ill", lambda rows: pl.concat([rows, rows[:1]]))
        result = deployment.launch(["good", "ill"], only=[sources], check=True)
    answer = {evaluation.check_name: evaluation for evaluation in result.get_asset_check_evaluations()}
    assert {name: evaluation.metadata["engine"].value for name, evaluation in answer.items()} == {
        "rows_are_as_declared": "spark",
        "rows_are_in_the_tables": "duckdb",
    }
    assert not answer["rows_are_as_declared"].passed
    assert answer["rows_are_as_declared"].metadata["runs"].value == ["ill"]


# Dagster's own tester says of itself that one of its arguments may change.
@pytest.mark.filterwarnings("ignore:Parameter `include_sources`")
def test_comparisons_follow_new_content_and_nothing_else(deployment: Deployment) -> None:
    scaling, pairs = asset_key("gold.scaling"), asset_key("gold.pairs")
    names = list_required(["gold.scaling", "gold.pairs"])
    own = [table.full_name for table in OWN_TABLES if table.full_name in names]

    def tick(cursor: AssetDaemonCursor | None) -> dg.EvaluateAutomationConditionsResult:
        return dg.evaluate_automation_conditions(deployment.definitions, deployment.records, cursor=cursor)

    deployment.land("off", 100, OFF)
    deployment.land("tee", 120, TEE)
    first = tick(None)
    deployment.launch(["off", "tee"], only=list(names))
    second = tick(first.cursor)
    assert second.get_requested_partitions(scaling) == {None}
    assert second.get_requested_partitions(pairs) == set(), "they were made with their runs"
    third = tick(second.cursor)
    assert third.total_requested == 0
    deployment.launch(["off", "tee"], only=list(names))
    fourth = tick(third.cursor)
    assert fourth.total_requested == 0, "the same content again asks nothing"
    deployment.land("tee", 150, TEE)
    deployment.launch(["tee"], only=own)
    alone = tick(fourth.cursor)
    assert alone.get_requested_partitions(pairs) == {"tee"}, "a run made without its pairs is followed by them"
