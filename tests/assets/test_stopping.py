from __future__ import annotations

import signal
from typing import TYPE_CHECKING, NoReturn

import dagster as dg
import duckdb
import pytest

from assets.training_runs import Stopped, retry_if_transient

if TYPE_CHECKING:
    from types import FrameType

BUSY = "SELECT sum(a.n * b.n) FROM range(20_000) AS a(n), range(5_000) AS b(n)"


def work_for_ever() -> NoReturn:
    with duckdb.connect() as connection:
        while True:  # a stop is heard at the end of a query at the latest
            connection.execute(BUSY).fetchall()


def raise_interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise dg.DagsterExecutionInterruptedError


def test_a_stop_is_not_tried_again_even_where_duckdb_turns_it_into_an_error_of_its_own() -> None:
    before = signal.signal(signal.SIGALRM, raise_interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Stopped), retry_if_transient():
            work_for_ever()
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, dg.DagsterExecutionInterruptedError])
def test_dagster_ends_a_stopped_step_and_does_not_start_it_again(stop: type[BaseException]) -> None:
    starts = []

    @dg.op(retry_policy=dg.RetryPolicy(max_retries=2))
    def working() -> None:
        starts.append(1)
        with retry_if_transient():
            raise stop

    @dg.job(executor_def=dg.in_process_executor)
    def launch() -> None:
        working()

    ended = launch.execute_in_process(raise_on_error=False)
    assert not ended.success
    assert len(starts) == 1
