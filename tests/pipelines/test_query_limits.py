"""A query ends: with its time while it is planned, run or read, with its memory, and with the process that asked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from lake.errors import ContractBroken, EvidenceRejected, LimitReached, SourceUnavailable
from pipelines.cli import sandbox
from pipelines.cli.main import main
from pipelines.cli.query import query
from pipelines.settings import parse_bytes, query_environment, settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lake.locations import Location
    from lake.store import Lake

MEMORY = 200_000_000
PATIENCE_S = 60
ENDLESS = "SELECT a.range FROM range(1000000000) a, range(1000000) b"
# DuckDB plans this for minutes, and its planner cannot be interrupted.
COLUMNS = f"SELECT {', '.join(f'{place} AS c{place}' for place in range(30_000))}"


def children(parent: int) -> list[int]:
    """The processes whose parent that is."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == parent and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.fixture
def place(lake: Lake) -> Location:
    """A lake that holds a table, without rows."""
    (lake.place.directory / "bronze" / "runs").mkdir(parents=True)
    return lake.place


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    before = children(os.getpid())  # a Spark session of other tests, for example
    yield
    assert children(os.getpid()) == before


def test_the_time_ends_a_statement_that_is_still_planned(place: Location) -> None:
    done = CliRunner().invoke(
        main, ["--lake", str(place), "query", COLUMNS, "--timeout", "0.3", "--format", "csv"], catch_exceptions=False
    )
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "no answer within 0.3 s (ask for less, or allow more with --timeout" in done.stderr


def test_the_time_also_ends_while_rows_are_read(place: Location) -> None:
    waiting = "SELECT range AS n FROM range(200000) UNION ALL SELECT sleep_ms(600000)"
    with (
        pytest.raises(LimitReached, match="no answer within 1 s"),
        query(place, waiting, timeout_s=1, memory_bytes=MEMORY) as answer,
    ):
        answer.rows().read_all()


def test_a_sort_of_more_than_the_memory_is_refused_and_nothing_is_spilled(place: Location, tmp_path: Path) -> None:
    before = sorted(tmp_path.rglob("*"))
    sort = "SELECT range FROM range(1000000000) ORDER BY hash(range)"
    with (
        query(place, sort, memory_bytes=MEMORY) as answer,
        pytest.raises(LimitReached, match=r"more than the 0\.2 GB of memory.*--memory"),
    ):
        answer.rows()
    assert sorted(tmp_path.rglob("*")) == before


def test_memory_that_duckdb_does_not_count_is_bounded_by_the_address_space(place: Location) -> None:
    """One text of many gigabytes, put together of parts: DuckDB's own limit does not see it."""
    text = "SELECT repeat('x', 1000000000) || repeat('y', 1000000000) || repeat('z', 2000000000) AS t"
    with query(place, text, memory_bytes=MEMORY) as answer, pytest.raises(LimitReached, match=r"0\.2 GB of memory"):
        answer.rows().read_all()


def test_a_table_for_the_terminal_is_not_collected_without_end(place: Location) -> None:
    with query(place, ENDLESS, memory_bytes=MEMORY) as answer, pytest.raises(LimitReached, match="--format csv"):
        answer.first(None)


def test_a_process_that_dies_before_it_answers_is_told(place: Location, tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    environment = {**query_environment(), "PYTHONPATH": str(tmp_path)}  # a package without what is to run
    (tmp_path / "pipelines" / "__init__.py").touch()
    with (
        query(place, "SELECT 1", memory_bytes=MEMORY, environment=environment) as answer,
        pytest.raises(SourceUnavailable, match="ended with status 1"),
    ):
        answer.rows()


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
def test_when_the_command_ends_so_does_the_process_that_answers(place: Location, sent: signal.Signals) -> None:
    words = ["--lake", str(place), "query", ENDLESS, "--format", "csv", "--timeout", "0"]
    command = subprocess.Popen([Path(sys.executable).with_name("teetotal"), *words], stdout=subprocess.PIPE)
    assert command.stdout is not None
    assert command.stdout.readline() == b'"range"\n'
    (child,) = children(command.pid)
    command.send_signal(sent)
    command.stdout.close()
    command.wait(PATIENCE_S)
    wait_until(lambda: not Path(f"/proc/{child}").exists())


def test_no_secret_of_ours_is_in_the_environment_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEETOTAL_KEYRING_SECRET", "secret")
    monkeypatch.setenv("AWS_REGION", "here")
    assert "TEETOTAL_KEYRING_SECRET" not in query_environment()
    assert query_environment()["AWS_REGION"] == "here"


@pytest.mark.parametrize(("text", "count"), [("500MB", 500_000_000), ("4GB", 4_000_000_000), ("1.5 gb", 1_500_000_000)])
def test_memory_is_given_as_people_write_it(text: str, count: int) -> None:
    assert parse_bytes(text, "--memory") == count
    assert settings(environment={"TEETOTAL_QUERY_MEMORY": text}).query_memory_bytes == count


@pytest.mark.parametrize("text", ["4", "4 TB", "-1GB", "GB", "1e3GB"])
def test_memory_in_another_form_is_refused(text: str) -> None:
    with pytest.raises(ContractBroken, match=r"TEETOTAL_QUERY_MEMORY is .*such as 500MB or 4GB"):
        settings(environment={"TEETOTAL_QUERY_MEMORY": text})


# -- settings are out of reach --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sql",
    [
        "FROM duckdb_settings()",
        "SELECT current_setting('threads')",
        "SELECT 'threads'.current_setting()",
        'SELECT system.main."Current_Setting"($$threads$$)',
        "EXPLAIN SELECT current_setting('threads')",
        "EXPLAIN ANALYZE SELECT current_setting('threads')",
        "EXPLAIN (ANALYZE, FORMAT json) SELECT current_setting('threads')",
        "/* é */ EXPLAIN /* b */ (SELECT current_setting('threads'))",
        "SELECT (SELECT current_setting('threads')) FROM (VALUES (1)) ORDER BY current_setting('threads')",
        "WITH s AS (SELECT current_setting('threads')) FROM s",
        "SHOW threads",
        "SELECT * FROM (SHOW threads)",
        "FROM pg_settings",
        "FROM pg_catalog.pg_settings",
        "SUMMARIZE pg_settings",
        "FROM query_table('pg_settings')",
        "FROM query('FROM pg_settings')",
        "SELECT json_serialize_plan('SELECT current_setting(''threads'')')",
        "FROM json_execute_serialized_sql(json_serialize_sql('FROM pg_settings'))",
        "FROM duckdb_extensions()",
        "FROM duckdb_variables()",
        "SELECT getvariable('x')",
        "FROM pragma_user_agent()",
        "FROM which_secret('x', 's3')",
        "SELECT list_transform(['threads'], lambda x: current_setting(x))",
    ],
)
def test_no_statement_tells_a_setting(lake: Lake, sql: str) -> None:
    with pytest.raises(EvidenceRejected, match="is not taken"), sandbox.ask(lake, sql) as answer:
        answer.rows().read_all()
