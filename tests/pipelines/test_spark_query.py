"""`teetotal query --engine spark`: the same questions and values as on DuckDB, and what Spark is never shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from assets.build import silver
from assets.build.catalogue import TABLES
from lake.cluster import Cluster
from lake.engines import PolarsEngine
from lake.errors import EvidenceRejected
from lake.keyring import KeyringFile
from lake.locations import Location
from lake.store import Lake
from pipelines.cli import sandbox
from pipelines.cli.main import main
from pipelines.cli.spark_query import spark_query
from pipelines.cli.spark_text import check_spark_statement
from tests.pipelines.test_injection import PAYLOADS
from tests.support.two_runs import bring_two

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs: a kernel of 2 µs in one, of 3 µs in the other, of 1 µs in both; a file that is none of the lake's."""
    root = tmp_path_factory.mktemp("spark-query")
    lake = _lake(root)
    bring_two(root, lake, 'regime = "cc_off"\nowner = "ada"\n')
    silver.materialise(lake, "a", PolarsEngine())
    (root / "canary.csv").write_text("tweet\n")
    return root


@pytest.fixture
def ask(root: Path, spark: SparkSession) -> Callable[..., list[dict[str, Any]]]:
    """The rows that a statement gives on Spark."""

    def query_spark(sql: str, **values: Any) -> list[dict[str, Any]]:
        with spark_query(_lake(root), Cluster(), sql, values) as answer:
            return list(answer.rows().read_all().to_pylist())

    return query_spark


@pytest.mark.parametrize(
    ("sql", "values"),
    [
        ("SELECT run_id, name FROM bronze.trace_events WHERE duration_ns > {least} ORDER BY run_id", {"least": 1000}),
        ("SELECT name FROM Bronze.`trace_events` WHERE run_id = {run} AND name = {name}", {"run": "a", "name": "l"}),
        (
            """WITH r AS (SELECT * FROM bronze.runs)
            SELECT r.run_id, count(*) AS n FROM r JOIN bronze.trace_events t USING (run_id)
            WHERE t.`rank` = 0 GROUP BY 1 ORDER BY 1;""",
            {},
        ),
        (
            "SELECT sum(duration_ns) AS sum_ns, {half} AS half, {yes} AS yes FROM bronze.trace_events",
            {"half": 0.5, "yes": True},
        ),
        ("SELECT count(*) AS n FROM gold.step_overhead -- an empty one", {}),
    ],
)
def test_spark_answers_as_duckdb_does(
    ask: Callable[..., list[dict[str, Any]]], root: Path, sql: str, values: dict[str, Any]
) -> None:
    texts = [sql.format(**{name: f"{mark}{name}" for name in values}) for mark in ("$", ":")]
    with sandbox.ask(_lake(root), texts[0].replace("`", '"'), values) as answer:
        assert ask(texts[1], **values) == answer.rows().read_all().to_pylist() != []


def test_sealed_columns_give_tokens(root: Path, spark: SparkSession) -> None:
    with spark_query(_lake(root), Cluster(), "SELECT owner, regime FROM silver.runs") as answer:
        (row,) = answer.rows().read_all().to_pylist()
    assert answer.sealed == ["owner"]
    assert row["regime"] == "cc_off"
    assert "ada" not in row["owner"]
    assert len(row["owner"]) > len("ada")


@pytest.mark.parametrize("payload", [text for text in PAYLOADS.values() if text.isprintable()])
def test_a_hostile_statement_is_refused(ask: Callable[..., list[dict[str, Any]]], payload: str) -> None:
    with pytest.raises(EvidenceRejected):
        ask(payload)


def test_a_hostile_value_finds_no_rows(ask: Callable[..., list[dict[str, Any]]]) -> None:
    sql = "SELECT run_id FROM bronze.runs WHERE run_id = :value OR regime LIKE :value"
    harmless = [text for text in PAYLOADS.values() if text.isprintable() and len(text) < 1000]
    joined = "SELECT run_id FROM bronze.runs WHERE array_contains(split(:value, :cut), run_id)"
    assert ask(joined, value="\x1f".join(harmless), cut="\x1f") == []
    assert ask(sql, value="x' OR '1'='1") == []


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("", "found none"),
        ("SELECT 1; SELECT 2", "found 2"),
        ("DROP TABLE bronze.runs", "this is DROP"),
        ("SET spark.sql.runSQLOnFiles = true", "this is SET"),
        ("EXPLAIN SELECT 1", "this is EXPLAIN"),
        ("FROM bronze.runs INSERT OVERWRITE DIRECTORY '/tmp/stolen' SELECT *", "INSERT"),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", "INSERT"),
        ("SELECT reflect('java.lang.System', 'getenv', 'HOME')", "out of reach"),
        ("SELECT system.builtin.`java_method`('java.lang.System', 'getenv', 'HOME')", "out of reach"),
        ("SELECT system.builtin.typeof(1)", "out of reach"),
        ("SELECT identifier('reflect')('java.lang.System', 'getenv', 'HOME')", "cannot be read"),
        ("SELECT * FROM IDENTIFIER('csv.`/etc/passwd`')", "out of reach"),
        ("SELECT * FROM read_files('/etc/passwd')", "out of reach"),
        ("SELECT secret('scope', 'key')", "out of reach"),
        ("SELECT TRANSFORM(run_id) USING 'cat' AS (x STRING) FROM bronze.runs", "holds QueryTransform"),
        ("SELECT r'\\' , reflect('a', 'b') -- '", "out of reach"),
        ("SELECT /* ' */ reflect('a', 'b') -- '", "out of reach"),
        ("SELECT $$ ' $$, reflect('a', 'b') -- '", "cannot be read"),
        ("SELECT 'open", "cannot be read"),
        ("SELECT 'it''s'", "two quotes in a row"),
        ("SELECT ?", "no name"),
        ("SELECT $a", "no name"),
        ("SELECT * FROM csv.`/etc/passwd`", "no table"),
        ("SELECT :a", "no value for :a"),
    ],
)
def test_what_does_not_only_read_is_refused_before_spark_sees_it(sql: str, said: str) -> None:
    from pipelines.cli.spark_query import _expect

    with pytest.raises(EvidenceRejected, match=said):
        _expect(check_spark_statement(sql, TABLES).values, {})


@pytest.mark.parametrize("source", ["csv.`{root}/canary.csv`", "text.`{root}/canary.csv`", "bronze.rums", "nothing"])
def test_only_tables_of_the_lake_are_there(ask: Callable[..., list[dict[str, Any]]], root: Path, source: str) -> None:
    with pytest.raises(EvidenceRejected) as refused:
        ask(" ".join(("SELECT * FROM", source.format(root=root))))
    assert "tweet" not in str(refused.value)


def test_a_view_that_someone_left_in_the_session_is_not_seen(
    ask: Callable[..., list[dict[str, Any]]], root: Path, spark: SparkSession
) -> None:
    spark.read.csv(str(root / "canary.csv")).createOrReplaceTempView("left_behind")
    with pytest.raises(EvidenceRejected, match="no table 'left_behind'"):
        ask("SELECT * FROM left_behind")


def test_a_question_without_an_end_is_stopped(root: Path, spark: SparkSession) -> None:
    endless = "SELECT sum(id % 7) AS n FROM range(1000000000000)"
    with (
        pytest.raises(EvidenceRejected, match="no answer within 1 s"),
        spark_query(_lake(root), Cluster(), endless, timeout_s=1) as answer,
    ):
        answer.rows()


@pytest.mark.usefixtures("spark")
def test_the_command_takes_the_same_values(root: Path) -> None:
    words = ["query", "SELECT run_id FROM bronze.runs WHERE run_id = :run", "--param", "run:text=007"]
    words = ["--lake", str(root / "lake"), *words, "--engine", "spark", "--format", "json"]
    done = CliRunner().invoke(main, words, catch_exceptions=False)
    assert json.loads(done.stdout) == [{"run_id": "007"}] or json.loads(done.stdout) == {"run_id": "007"}


def _lake(root: Path) -> Lake:
    return Lake(Location.of(root / "lake"), KeyringFile(root / "keyring.json", is_made_on_first_use=True))


def test_what_spark_sees_is_written_anew_without_comments_and_with_one_name_for_a_table() -> None:
    sql = "SELECT bronze.runs.run_id /* a */ FROM Bronze.runs -- b\nWHERE run_id = :id AND regime = 'a\\'b'"
    found = check_spark_statement(sql, TABLES)
    assert found.text == "SELECT `bronze.runs`.run_id FROM `bronze.runs` WHERE run_id = :id AND regime = 'a\\'b'"
    assert found.tables == {"bronze.runs"}
    assert found.values == {"id"}
