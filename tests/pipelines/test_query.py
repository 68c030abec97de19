"""`teetotal query`: what it answers, what it refuses, and what it reads to do so."""

from __future__ import annotations

import json
import shutil
from io import BytesIO
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest
from click.testing import CliRunner

from assets.build.catalogue import TABLES
from lake.errors import EvidenceRejected, SourceUnavailable
from lake.locations import Location
from lake.store import Lake
from lake.tables import Kind
from pipelines.cli import sandbox
from pipelines.cli.main import main
from pipelines.cli.query import parameters
from tests.support.two_runs import bring_two

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

    from lake.tables import Table


@pytest.fixture(scope="module")
def shared_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two runs in a lake that no test changes: a kernel of 2 µs in one, of 3 µs in the other, of 1 µs in both."""
    root = tmp_path_factory.mktemp("shared")
    lake = Lake(Location.of(root / "lake"))
    bring_two(root, lake)
    return lake


@pytest.fixture
def ask(shared_lake: Lake) -> Callable[..., list[dict[str, Any]]]:
    """The rows that a statement gives."""

    def query_lake(sql: str, lake: Lake = shared_lake, **values: Any) -> list[dict[str, Any]]:
        with sandbox.ask(lake, sql, values) as answer:
            return list(answer.rows().read_all().to_pylist())

    return query_lake


@pytest.fixture
def own(shared_lake: Lake, tmp_path: Path) -> Lake:
    """A copy of the same lake, for a test that damages it."""
    return Lake(Location.of(shutil.copytree(shared_lake.place.directory, tmp_path / "own")))


@pytest.fixture
def teetotal(shared_lake: Lake) -> Callable[..., Result]:
    """The command, in this process."""
    return lambda *words, **more: CliRunner().invoke(
        main, ["--lake", str(shared_lake.place), *words], catch_exceptions=False, **more
    )


def test_values_are_bound_by_name(ask: Callable[..., list[dict[str, Any]]]) -> None:
    longer = "SELECT run_id, name FROM bronze.trace_events WHERE duration_ns > $least ORDER BY run_id"
    assert ask(longer, least=1000) == [{"run_id": "007", "name": "k"}, {"run_id": "a", "name": "k"}]
    assert ask("SELECT name FROM bronze.trace_events WHERE run_id = $run AND name = $name", run="a", name="l") == [
        {"name": "l"}
    ]


@pytest.mark.parametrize(
    ("typed", "value"),
    [
        ("x=7", 7),
        ("x=-7", -7),
        ("x=007", "007"),
        ("x:text=7", "7"),
        ("x=9223372036854775807", (1 << 63) - 1),
        ("x=9223372036854775808", "9223372036854775808"),
        ("x=1.5", 1.5),
        ("x=1e3", 1000.0),
        ("x=nan", "nan"),
        ("x=\N{ARABIC-INDIC DIGIT SEVEN}", "\N{ARABIC-INDIC DIGIT SEVEN}"),
        ("x=true", True),
        ("x=True", "True"),
        ("x=", ""),
        ("x=a=b\nc", "a=b\nc"),
    ],
)
def test_a_value_is_what_it_looks_like(typed: str, value: object) -> None:
    found = parameters([typed])["x"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["x"], "'x' is no parameter"),
        (["x:number=1"], "is no parameter"),
        (["x'=1"], "is no parameter"),
        (["x=1", "x=2"], "x is given twice"),
        (["x=\udcff"], "is not UTF-8"),
    ],
)
def test_a_parameter_that_is_none_is_refused(typed: list[str], said: str) -> None:
    with pytest.raises(EvidenceRejected, match=said):
        parameters(typed)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"a": 1}, r"no value for \$b \(give --param b=…\)"),
        ({"a": 1, "b": 2, "c": 3}, r"the statement has no \$c \(it has \$a, \$b\)"),
    ],
)
def test_values_and_names_must_meet(lake: Lake, values: dict[str, int], said: str) -> None:
    with pytest.raises(EvidenceRejected, match=said), sandbox.ask(lake, "SELECT $a + $b", values):
        pytest.fail("it was asked all the same")


def test_every_table_is_there_with_its_declared_columns_also_in_an_empty_lake(lake: Lake) -> None:
    columns = "SELECT table_schema AS tier, table_name AS name, column_name, data_type FROM information_schema.columns"
    with sandbox.ask(lake, columns) as answer:
        rows = answer.rows().read_all().to_pylist()
    found = {tuple(row.values()) for row in rows if row["name"] != "timeline"}
    assert {row["tier"] for row in rows if row["name"] == "timeline"} == {"silver"}
    assert found == {
        (table.tier, table.name, *column) for table in TABLES.values() for column in table.duckdb_types.items()
    }
    with sandbox.ask(lake, "SELECT count(*) AS n FROM gold.step_overhead") as answer:
        assert answer.rows().read_all().to_pylist() == [{"n": 0}]


@pytest.mark.parametrize(
    "sql",
    [
        "FROM bronze.runs",
        "WITH r AS (FROM Bronze.RUNS) SELECT * FROM r",
        'SELECT * FROM memory."bronze".runs;',
        "SELECT r.range, u FROM range(2) r, unnest([1, 2]) t(u)",
        "SELECT pg_typeof(1)",
        "SELECT count(*) FROM information_schema.tables",
        "FROM duckdb_columns()",
        "EXPLAIN (FORMAT json) SELECT 1",
        "/* é */ explain -- why\n(SELECT 1)",
        "DESCRIBE bronze.runs",
        "SUMMARIZE bronze.runs",
        "SHOW ALL TABLES",
        "EXPLAIN SELECT * FROM bronze.runs",
        "EXPLAIN ANALYZE SELECT * FROM bronze.runs",
        "VALUES (1)",
        "PIVOT bronze.runs ON regime IN ('cc_off') USING count(*)",
    ],
)
def test_statements_that_read_are_taken(ask: Callable[..., list[dict[str, Any]]], sql: str) -> None:
    assert ask(sql)


def test_columns_become_the_kinds_of_the_lake_and_no_name_comes_twice(
    ask: Callable[..., list[dict[str, Any]]],
) -> None:
    sql = """
        SELECT run_id, run_id, sum(duration_ns) AS sum_ns, 0.5 AS half, [1, NULL] AS list, DATE '2024-02-29' AS day,
            count(*) > 1 AS is_many, NULL AS nothing
        FROM bronze.trace_events GROUP BY run_id ORDER BY sum_ns DESC LIMIT 1
    """
    assert ask(sql) == [
        {
            "run_id": "007",
            "run_id_1": "007",
            "sum_ns": 4000,
            "half": 0.5,
            "list": "[1, NULL]",
            "day": "2024-02-29",
            "is_many": True,
            "nothing": None,
        }
    ]


def test_rows_keep_their_order(ask: Callable[..., list[dict[str, Any]]]) -> None:
    rows = ask("SELECT range AS n, n::DECIMAL(9, 0) AS d FROM range(300000) ORDER BY n DESC")
    assert [row["n"] for row in rows] == list(range(299_999, -1, -1))


def test_the_same_rows_in_every_format_and_no_more_than_the_limit(teetotal: Callable[..., Result]) -> None:
    words = ("query", "SELECT run_id, sum(duration_ns) AS ns FROM bronze.trace_events GROUP BY ALL ORDER BY ns")
    expected = [{"run_id": "a", "ns": 3000}, {"run_id": "007", "ns": 4000}]
    assert json.loads(teetotal(*words, "--format", "json").stdout) == expected
    csv = pl.read_csv(teetotal(*words, "--format", "csv").stdout_bytes, schema_overrides={"run_id": pl.String})
    assert csv.to_dicts() == expected
    parquet = teetotal(*words, "--format", "parquet", "--limit", "1").stdout_bytes
    assert pl.read_parquet(BytesIO(parquet)).to_dicts() == expected[:1]
    assert "1 of 2 rows" in teetotal(*words, "--limit", "1").output
    assert "20 of 1,000 rows" in teetotal("query", "FROM range(1000)").output


def test_the_statement_comes_from_a_file_or_from_standard_input(
    teetotal: Callable[..., Result], tmp_path: Path
) -> None:
    file = tmp_path / "question.sql"
    file.write_text("-- why\nSELECT $x AS x;\n", "utf-8-sig")
    words = ("--param", "x=7", "--format", "json")
    expected = [{"x": 7}]
    assert json.loads(teetotal("query", "--file", str(file), *words).stdout) == expected
    assert json.loads(teetotal("query", "-", *words, input="SELECT $x AS x").stdout) == expected
    file.write_bytes(b"SELECT '\xff'")
    wrong: list[tuple[tuple[str, ...], str]] = [
        ((), "there is no statement"),
        (("SELECT 1", "--file", str(file)), "two statements"),
        (("--file", str(file)), "is not UTF-8"),
        (("--file", str(tmp_path)), "Is a directory"),
        (("SELECT '\udcff'",), "is not UTF-8"),
    ]
    for typed, said in wrong:
        done = teetotal("query", *typed)
        assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
        assert said in done.stderr


WRONG = pytest.mark.parametrize(
    ("words", "said"),
    [
        (("SELECT * FROM bronze.trace_event",), "no table 'bronze.trace_event' (did you mean 'bronze.trace_events'?)"),
        (("SELECT * FROM trace_events",), "no table 'trace_events' (did you mean 'bronze.trace_events'?)"),
        (("SELECT regim FROM bronze.runs",), 'Referenced column "regim" not found'),
        (("SELEC 1",), 'syntax error at or near "SELEC"'),
        (("SELECT $a",), "no value for $a"),
        (("SELECT * FROM bronze.runs WHERE run_id = $run", "--param", "run=7"), "--param name:text="),
        (("SELECT 1; SELECT 2",), "expected one statement, found 2"),
        ((";",), "expected one statement, found none"),
        (("SELECT 18446744073709551616 * 2::HUGEINT",), "Conversion Error"),
    ],
)


@WRONG
def test_a_wrong_question_is_one_line_that_says_what_to_do(
    ask: Callable[..., list[dict[str, Any]]], words: tuple[str, ...], said: str
) -> None:
    with pytest.raises(EvidenceRejected) as refused:
        ask(words[0], **parameters(words[2:]))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_wrong_question_that_is_typed_gives_one_line_and_status_2(teetotal: Callable[..., Result]) -> None:
    done = teetotal("query", "SELECT * FROM bronze.trace_event")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("teetotal: there is no table 'bronze.trace_event' (did you mean ")


def test_a_question_on_one_run_reads_no_file_of_another(ask: Callable[..., list[dict[str, Any]]], own: Lake) -> None:
    (other,) = (own.place.directory / "bronze" / "trace_events" / "run_id=a").rglob("*.parquet")
    other.write_bytes(b"no longer Parquet")
    sql = "SELECT sum(duration_ns) AS ns FROM bronze.trace_events WHERE run_id = $run"
    assert ask(sql, own, run="007") == [{"ns": 4000}]
    assert ask("SELECT name FROM bronze.trace_events WHERE run_id IN ($a, $b) AND rank = 0", own, a="007", b="b")
    with pytest.raises(SourceUnavailable, match="a file of the lake could not be read"):
        ask(sql, own, run="a")


def test_only_the_tables_that_are_named_are_opened(ask: Callable[..., list[dict[str, Any]]], own: Lake) -> None:
    for log in (own.place.directory / "bronze" / "trace_events" / "_delta_log").iterdir():
        log.write_bytes(b"no longer a log")
    assert ask("WITH x AS (SELECT 1 AS i) SELECT i, run_id FROM bronze.runs, x WHERE run_id = $run", own, run="a")
    with pytest.raises(SourceUnavailable, match="trace_events"):
        ask("SELECT * FROM bronze.trace_events", own)


def test_sealed_columns_give_tokens(lake: Lake) -> None:
    table = TABLES["silver.runs"]
    lake.replace(table, "a", pa.Table.from_pylist([_row(table, "a", host="node-7")], table.arrow_schema), "0" * 64)
    with sandbox.ask(lake, "SELECT host, upper(host) AS owner, 1 AS job FROM silver.runs") as answer:
        assert answer.sealed == ["host", "owner"]
        (row,) = answer.rows().read_all().to_pylist()
    assert row["host"].startswith("sealed:1:")
    words = ["--lake", str(lake.place), "query", "SELECT run_id, host FROM silver.runs"]
    drawn = CliRunner().invoke(main, words, catch_exceptions=False).output
    assert "sealed:" in drawn
    assert "node-7" not in drawn


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("DROP VIEW bronze.runs", "DROP"),
        ("DELETE FROM bronze.runs", "DELETE"),
        ("INSERT INTO bronze.runs SELECT * FROM bronze.runs", "INSERT"),
        ("UPDATE bronze.runs SET regime = 'cc_off'", "UPDATE"),
        ("CREATE TABLE t AS SELECT 1", "CREATE"),
        ("CREATE SECRET (TYPE s3)", "CREATE"),
        ("COPY bronze.runs TO 'FILE'", "COPY"),
        ("COPY (SELECT 1) TO PROGRAM 'touch FILE'", "syntax error"),
        ("ATTACH 'FILE' AS other", "ATTACH"),
        ("DETACH memory", "DETACH"),
        ("INSTALL httpfs", "LOAD"),
        ("LOAD 'FILE'", "LOAD"),
        ("SET enable_external_access = true", "SET"),
        ("RESET lock_configuration", "SET"),
        ("USE bronze", "SET"),
        ("PRAGMA enable_profiling", "PRAGMA"),
        ("PRAGMA database_list", "PRAGMA"),
        ("CALL enable_logging(storage = 'file', storage_path = 'FILE')", "CALL"),
        ("EXPORT DATABASE 'FILE'", "EXPORT"),
        ("IMPORT DATABASE 'FILE'", "PRAGMA"),
        ("PREPARE p AS SELECT 1", "PREPARE"),
        ("EXECUTE p", "EXECUTE"),
        ("BEGIN", "TRANSACTION"),
        ("ROLLBACK", "TRANSACTION"),
        ("CHECKPOINT", "CALL"),
        ("VACUUM", "VACUUM"),
        ("PIVOT bronze.runs ON regime", "MULTI"),
        ("SELECT 1; DROP VIEW bronze.runs", "expected one statement"),
        ("WITH x AS (DELETE FROM bronze.runs RETURNING *) SELECT * FROM x", "Can only delete from base table"),
        ("EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1", "cannot be looked at"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'FILE' (FORMAT csv, use_tmp_file false)", "cannot be looked at"),
        ("EXPLAIN ANALYZE COPY (SELECT 1) TO 'LAKEFILE' (FORMAT parquet, use_tmp_file false)", "cannot be looked at"),
        ("EXPLAIN ANALYZE SET threads = 1", "cannot be looked at"),
        ("EXPLAIN ANALYZE LOAD 'FILE'", "cannot be looked at"),
        ("FROM enable_profiling(save_location = 'FILE')", "'enable_profiling' is not taken"),
        ("FROM enable_logging(storage = 'file', storage_path = 'FILE')", "'enable_logging' is not taken"),
        ("FROM read_parquet('LAKEFILE')", "'read_parquet' is not taken"),
        ("FROM 'LAKEFILE'", "disabled"),
        ("FROM query('FROM read_text(''CANARY'')')", "'query' is not taken"),
        (
            "FROM json_execute_serialized_sql(json_serialize_sql('FROM read_text(''CANARY'')'))",
            "'json_execute_serialized_sql' is not taken",
        ),
        ("FROM duckdb_secrets()", "'duckdb_secrets' is not taken"),
        ("SELECT getenv('HOME')", "getenv"),
        ("FROM lake", "lake"),
        ("FROM statement", "statement"),
    ],
)
def test_what_does_more_than_read_gets_nowhere(
    shared_lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sql: str, kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    canary = tmp_path / "canary.csv"
    canary.write_text("canary\n")
    stored = next((shared_lake.place.directory / "bronze" / "runs").rglob("*.parquet"))
    before = _tree(tmp_path), _tree(shared_lake.place.directory)
    typed = sql.replace("LAKEFILE", str(stored)).replace("CANARY", str(canary)).replace("FILE", str(tmp_path / "new"))
    with pytest.raises(EvidenceRejected, match=kind), sandbox.ask(shared_lake, typed) as answer:
        answer.rows().read_all()
    assert (_tree(tmp_path), _tree(shared_lake.place.directory)) == before


def _row(table: Table, run_id: str, **values: object) -> dict[str, object]:
    """A row with as little in it as its declaration lets it have."""
    row: dict[str, object] = {}
    for column in table.columns:
        least = {Kind.TEXT: column.one_of[0] if column.one_of else "x", Kind.BOOL: False}
        row[column.name] = None if column.nullable else least.get(column.kind, column.minimum or 0)
    return {**row, "run_id": run_id, **values}


def _tree(root: Path) -> dict[str, bytes]:
    """Every file below a directory with its bytes, and every directory."""
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else b"" for path in root.rglob("*")}
