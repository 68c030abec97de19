"""Waiting for the pool of those who write to the lake: asleep, told to whoever waits, and ended by a signal."""

from __future__ import annotations

import signal
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import dagster as dg
from dagster._core.execution.plan.instance_concurrency_context import InstanceConcurrencyContext
from dagster._utils.interrupts import pop_captured_interrupt

from assets.launch_locks import PROCESS_TAG, fail_dead_launches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

# Nobody else writes while one writes: two launches never meet in one partition.
POOL = "lake_writer"
_LOOK_S = 1.0
# What a shell says of a process that a signal has ended.
_SIGNALLED = 128


@contextmanager
def claim_pool(instance: dg.DagsterInstance, run_id: str, step: str, tell: Callable[[str], None]) -> Iterator[None]:
    """Claim the writer's place for a step of a launch that is about to begin; wait for whoever has it.

    Dagster finds the place claimed and goes on. Its own wait would be silent, because it keeps what a launch prints.
    """
    launch = dg.DagsterRun(job_name=step, run_id=run_id)
    announced = None
    try:
        with InstanceConcurrencyContext(instance, launch) as places, _stop_on_signal() as pause:
            while not places.claim(POOL, step):
                fail_dead_launches(instance, POOL)
                holder = _describe_holder(instance)
                if holder not in {None, announced}:
                    tell(f"waiting for {holder}; Ctrl-C ends the wait, not that launch")
                    announced = holder
                pause()
        yield
    finally:
        instance.event_log_storage.free_concurrency_slots_for_run(run_id)


def _describe_holder(instance: dg.DagsterInstance) -> str | None:
    """Who writes to the lake now: launch, process and since when."""
    slots = instance.event_log_storage.get_concurrency_info(POOL).claimed_slots
    record = instance.get_run_record_by_id(slots[0].run_id) if slots else None
    if record is None or record.start_time is None:
        return None  # it has ended or is about to begin: the next look tells
    since = datetime.fromtimestamp(record.start_time, UTC)
    run = record.dagster_run
    return (
        f"launch {run.run_id}, which writes to the lake since {since:%Y-%m-%d %H:%M:%S} UTC "
        f"(job {run.job_name}, process {run.tags.get(PROCESS_TAG, 'unknown')})"
    )


@contextmanager
def _stop_on_signal() -> Iterator[Callable[[], None]]:
    """A pause between two looks that Ctrl-C or SIGTERM ends; a look itself is not torn, so nothing stays behind."""
    received: list[int] = []
    is_signalled = threading.Event()

    def hear(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        is_signalled.set()

    def pause() -> None:
        if is_signalled.wait(_LOOK_S):
            raise KeyboardInterrupt if received[0] == signal.SIGINT else SystemExit(_SIGNALLED + received[0])

    before = {number: signal.signal(number, hear) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield pause
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _sleep_time(places: InstanceConcurrencyContext) -> float:
    """How long a step sleeps before it asks for its place again, unless the launch was told to stop."""
    if not places.has_pending_claims():
        return 0.0
    if pop_captured_interrupt():
        raise dg.DagsterExecutionInterruptedError
    fail_dead_launches(places._instance, POOL)  # noqa: SLF001 - there is no other way to it
    return _LOOK_S


# A step that has to wait inside a launch: the second one of a job, a retry, any that the daemon launches. Dagster's own
# answer is never above 0 (`min([0, …])` in 1.13), so it asks without end and never hears a signal.
InstanceConcurrencyContext.interval_to_next_pending_claim_check = _sleep_time  # type: ignore[method-assign,assignment]
