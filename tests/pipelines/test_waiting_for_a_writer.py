"""While another launch writes to the lake, a second one waits: asleep, not silently, and until it is told to stop."""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING
from uuid import uuid4

import dagster as dg
import pytest

from assets.launch_locks import describe_process, lock_launch, queued_launches, tags_of
from assets.pool_wait import POOL, claim_pool
from tests.support.web_interface import House

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("records_at_hand")


@dg.op(pool=POOL)
def working() -> None:
    """Work that only one may do at a time."""


@dg.job
def launch() -> None:
    """One step that needs the writer's place."""
    working()


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


@contextmanager
def writing(records: dg.DagsterInstance) -> Iterator[str]:
    """Another launch that writes to the lake, and lives."""
    run_id = str(uuid4())
    with lock_launch(records, run_id), claim_pool(records, run_id, "working", pytest.fail):
        run = records.create_run_for_job(launch, run_id=run_id, tags=tags_of(run_id))
        records.report_dagster_event(
            dg.DagsterEvent(event_type_value=dg.DagsterEventType.RUN_START.value, job_name=run.job_name), run_id
        )
        yield run_id


@contextmanager
def sending(number: signal.Signals) -> Iterator[None]:
    """Send this process a signal in a while."""
    timer = threading.Timer(1.5, os.kill, (os.getpid(), number))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@pytest.mark.parametrize(("number", "stop"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)])
def test_a_signal_ends_the_wait_and_leaves_nothing_in_the_queue(
    house: House, number: signal.Signals, stop: type[BaseException]
) -> None:
    answer: list[str] = []
    with house.records() as records, writing(records) as holder:
        began = time.process_time()
        with sending(number), pytest.raises(stop), claim_pool(records, "waits", "working", answer.append):
            pytest.fail("two may write at once")
        assert time.process_time() - began < 1, "it does not sleep while it waits"
        assert queued_launches(records, POOL) == {holder}
    (line,) = answer
    assert line.startswith(f"waiting for launch {holder}, which writes to the lake since ")
    assert describe_process() in line


def test_a_step_that_has_to_wait_inside_a_launch_sleeps_and_obeys(house: House) -> None:
    with house.records() as records, writing(records) as holder:
        began = time.process_time()
        with sending(signal.SIGTERM):
            ended = launch.execute_in_process(instance=records, raise_on_error=False)
        assert time.process_time() - began < 1.2, "it does not sleep while it waits"
        run = records.get_run_by_id(ended.run_id)
        assert run is not None
        assert run.status is dg.DagsterRunStatus.FAILURE
        assert queued_launches(records, POOL) == {holder}


def test_a_step_waits_no_longer_for_a_launch_that_was_killed(house: House) -> None:
    with house.records() as records:
        with writing(records) as holder:
            pass
        records.event_log_storage.claim_concurrency_slot(POOL, holder, "working")
        assert launch.execute_in_process(instance=records).success
        killed = records.get_run_by_id(holder)
    assert killed is not None
    assert killed.status is dg.DagsterRunStatus.FAILURE


def test_the_command_says_whom_it_waits_for_and_obeys(house: House) -> None:
    house.land("resnet50-plain-w2")
    with house.records() as records, writing(records) as holder:
        with house.start("run", "--quiet", "--no-check", "--to", "bronze.runs") as command:
            assert command.stdout is not None
            line = command.stdout.readline()
            command.send_signal(signal.SIGTERM)  # also where it says something else: it would be waited for
            assert f"waiting for launch {holder}" in line
            assert command.stdout.read() == ""
        assert command.returncode == 128 + signal.SIGTERM
        assert [run.run_id for run in records.get_runs()] == [holder], "it began though another was at work"
        assert queued_launches(records, POOL) == {holder}
