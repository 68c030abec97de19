"""Whether the process of a launch still lives: each holds a lock that ends with it, in a container and after a kill."""

from __future__ import annotations

import hashlib
import os
import socket
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg

from lake.locks import try_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

# For a person to read. Nothing is decided by it: a host's name may change, and a number may be another process.
PROCESS_TAG = "teetotal/process"
# The launch whose lock the process holds. Dagster copies the tags of a launch to the one that retries it, which has
# no process yet: only a tag with the launch's own id counts.
LOCK_TAG = "teetotal/lock"
_AT_WORK = (dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
# A server finds within a minute that a machine is gone, and frees its locks.
_KEEPALIVES = "-c tcp_keepalives_idle=30 -c tcp_keepalives_interval=10 -c tcp_keepalives_count=3"


def describe_process() -> str:
    """This process."""
    return f"{socket.gethostname()}/{os.getpid()}"


def tags_of(run_id: str) -> dict[str, str]:
    """The tags of a launch whose lock this process holds."""
    return {PROCESS_TAG: describe_process(), LOCK_TAG: run_id}


def tag_launch(instance: dg.DagsterInstance, run_id: str, **tags: str) -> None:
    """Write this process, and what else is told of it, onto a launch."""
    instance.add_run_tags(
        run_id, {PROCESS_TAG: describe_process(), **{f"teetotal/{name}": text for name, text in tags.items()}}
    )


@contextmanager
def lock_launch(instance: dg.DagsterInstance, run_id: str) -> Iterator[bool]:
    """Hold a launch's lock unless another process does; give whether it is held."""
    server = getattr(instance.event_log_storage, "postgres_url", None)
    with _lock_on_server(server, run_id) if server else try_lock(_path(instance, run_id)) as is_held:
        yield is_held


def queued_launches(instance: dg.DagsterInstance, pool: str) -> set[str]:
    """The launches that have a place in a pool, or wait for one."""
    places = instance.event_log_storage.get_concurrency_info(pool)
    return {slot.run_id for slot in places.claimed_slots} | {step.run_id for step in places.pending_steps}


def fail_dead_launches(instance: dg.DagsterInstance, pool: str) -> None:
    """Report launches whose process is gone as failed, and free their places in a pool, which would stay blocked."""
    storage = instance.event_log_storage
    launches: dict[str, dg.DagsterRun | None] = {
        run.run_id: run for run in instance.get_runs(dg.RunsFilter(statuses=list(_AT_WORK)))
    }
    for run_id in queued_launches(instance, pool) - launches.keys():
        # One that is not recorded is of a command that has not begun: it claims its place first.
        launches[run_id] = instance.get_run_by_id(run_id)
    for run_id, seen in launches.items():
        if seen is not None and not seen.is_finished and not _is_ours(seen):
            continue
        with lock_launch(instance, run_id) as is_dead:
            if not is_dead:
                continue
            # Asked again: it may have ended as it should between the first look and the lock.
            run = instance.get_run_by_id(run_id)
            if run is not None and not run.is_finished:
                said = run.tags.get(PROCESS_TAG, "its process")
                instance.report_run_failed(run, f"{said} is gone; what it had committed stays")
            storage.free_concurrency_slots_for_run(run_id)


def _is_ours(run: dg.DagsterRun) -> bool:
    """Whether the launch is one that holds a lock while it lives. An older teetotal tagged its process and no lock."""
    if LOCK_TAG in run.tags:
        return run.tags[LOCK_TAG] == run.run_id
    return PROCESS_TAG in run.tags and run.status is not dg.DagsterRunStatus.STARTING


def _path(instance: dg.DagsterInstance, run_id: str) -> Path:
    return Path(instance.root_directory, "launches", f"{run_id}.lock")


@contextmanager
def _lock_on_server(address: str, run_id: str) -> Iterator[bool]:
    """The same between machines that share a PostgreSQL server: it frees the lock when the connection ends."""
    import sqlalchemy as sql

    number = int.from_bytes(hashlib.sha256(run_id.encode()).digest()[:8], "big", signed=True)
    engine = sql.create_engine(
        address, poolclass=sql.NullPool, isolation_level="AUTOCOMMIT", connect_args={"options": _KEEPALIVES}
    )
    with engine.connect() as connection:
        yield bool(connection.scalar(sql.select(sql.func.pg_try_advisory_lock(number))))
