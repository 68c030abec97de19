from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from assets.checks.relations import RELATIONS
from benchmarks.standalone import environment
from tests.support.installed_wheel import ROOT
from tests.support.spark_lakes import PATIENCE_S, of

if TYPE_CHECKING:
    from benchmarks.standalone import Cluster
    from tests.support.installed_wheel import Installation
    from tests.support.spark_lakes import Bench

Variables = Mapping[str, str]
RELATED = {relation.name for relation in RELATIONS}


@dataclass(frozen=True)
class Asked:
    """What one client was told: where the code of executors lies, and what either engine found in a lake."""

    places: list[tuple[str, str, str]]
    theirs: list[tuple[str, str, int, int]]
    ours: list[tuple[str, str, int, int]]


@pytest.fixture(scope="module")
def client_answers(bench: Bench, connect: Variables, installed: Installation) -> Asked:
    """One client for all questions: executors unpack the environment, and start a Python, for each anew."""
    # One with sealed columns, one of few rows, one without a file.
    tables = ("silver.spans", "silver.steps", "bronze.copy_rates")
    lake = str(bench.home / "polars" / "lake")
    words = [str(ROOT / "tests" / "support" / "spark_asking.py"), "4", bench.recordings[0], *tables]
    variables = environment(**connect, TEETOTAL_LAKE=lake)
    command = [str(installed.python), *words]
    said = subprocess.run(command, cwd=installed.directory, env=variables, check=True, stdout=subprocess.PIPE).stdout
    return Asked(*(json.loads(line) for line in said.splitlines()))


def test_executors_run_the_wheel_that_was_sent_to_them(client_answers: Asked, standalone: Cluster) -> None:
    answers = client_answers.places
    assert [number for number, _, _ in answers] == ["0", "1", "2", "3"]
    for _, module, python in answers:
        assert f"{standalone.folder}/worker-" in module
        assert "/environment/lib/" in module
        assert "/environment/bin/python" in python


def test_every_table_is_what_polars_makes_of_it_through_spark_connect_though_a_worker_dies_in_mid_job(
    bench: Bench, connect: Variables, standalone: Cluster
) -> None:
    runs = (*bench.recordings, bench.many)
    words = ("run", "--engine", "spark", *runs)
    running = bench.start("connect", *words, **connect)
    bench.await_spooled("connect", "bronze.trace_events", running)
    standalone.kill("worker-1")
    said, _ = running.communicate(timeout=PATIENCE_S)
    assert running.returncode == 0, said
    assert "Lost executor" in standalone.log("connect")
    ours, theirs = of(bench.state("connect"), *runs), of(bench.state("polars"), *runs)
    assert {key: value for key, value in ours.items() if theirs.get(key) != value} == {}
    assert theirs.keys() == ours.keys()
    assert {table.partition(".")[0] for table, _ in theirs} == {"bronze", "silver", "gold"}
    assert bench.spooled("connect", "bronze.trace_events") == []
    standalone.add_worker("worker-2")
    assert bench.teetotal("connect", *words, **connect).count("up to date, nothing to do") == len(runs)


def test_great_expectations_look_through_spark_connect_and_find_what_duckdb_finds(client_answers: Asked) -> None:
    theirs, ours = client_answers.theirs, client_answers.ours
    assert {engine for _, engine, _, _ in theirs} == {"duckdb"}
    assert [one for one in ours if one[1] == "duckdb"] == [one for one in theirs if one[0] in RELATED]
    assert [(name, rows, broken) for name, _, rows, broken in ours] == [
        (name, rows, broken) for name, _, rows, broken in theirs
    ]
    assert {broken for *_, broken in ours} == {0}


def test_spark_connect_answers_a_query_as_duckdb_does(bench: Bench, connect: Variables) -> None:
    asked = (
        "SELECT run_id, count(*) AS n, sum(duration_ns) AS ns FROM silver.spans WHERE run_id = {}run GROUP BY run_id"
    )
    words = ("--param", f"run:text={bench.recordings[0]}", "--format", "csv")
    theirs = bench.teetotal("polars", "query", asked.format("$"), *words)
    ours = bench.teetotal("polars", "query", asked.format(":"), *words, "--engine", "spark", **connect)
    assert ours.strip().endswith(theirs.strip().splitlines()[-1])
    assert bench.recordings[0] in theirs
