from __future__ import annotations

import signal
import socket
from typing import TYPE_CHECKING

import dagster as dg
import psutil
from click.testing import CliRunner
from dagster._core.execution.plan.objects import ErrorSource

from pipelines.cli.main import main
from tests.support.web_interface import House, Serving, eventually

if TYPE_CHECKING:
    from pathlib import Path

RUN = "resnet50-plain-w2"
MORE_RUNS = ("bert-base-plain-w2", "bert-base-sealed-w2", "gpt2-plain-w4", "gpt2-sealed-w4")


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(main, [*House(tmp_path).places, "ui", "--port", str(port)])
    assert (result.exit_code, result.output.count("\n")) == (1, 1)
    assert f"port {port} is in use" in result.stderr
    assert "--port" in result.stderr


def test_a_child_that_dies_ends_the_whole_with_an_error(tmp_path: Path) -> None:
    house = House(tmp_path)
    with Serving(house, tmp_path / "log", "--only", "server") as serving:
        serving.wait_for_line(r"^(http://127\.0\.0\.1:\d+) ")
        children = psutil.Process(serving.process.pid).children()
        (web,) = [child for child in children if "pipelines.web_server" in child.cmdline()]
        web.kill()
        assert serving.process.wait(60) == 1
    assert "teetotal: the web server ended with status -9" in serving.said()
    assert house.left() == []


def test_ctrl_c_ends_a_launch_too_and_the_next_command_finds_the_lake_free(tmp_path: Path) -> None:
    house = House(tmp_path)
    for run_id in (RUN, *MORE_RUNS):  # one alone may be done before it is stopped
        house.land(run_id)
    with Serving(house, tmp_path / "log", "--only", "daemon") as serving, house.records() as records:
        serving.wait_for_line("^(the daemon runs) ")
        started = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])
        run = eventually(lambda: next(iter(records.get_runs(started)), None), "the landing sensor's launch")
        begun = dg.DagsterEventType.STEP_START
        eventually(lambda: records.all_logs(run.run_id, of_type=begun), "its step at work")
        assert serving.stop(*[signal.SIGINT] * 3) == 0, "however often it is pressed"
        assert serving.said().endswith("stopped\n")
        assert house.left() == []
        ended = records.get_run_by_id(run.run_id)
        assert ended is not None
        # Neither tried again, which Dagster would do by itself, nor killed because it did not listen.
        assert ended.status == dg.DagsterRunStatus.FAILURE
        assert not records.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_UP_FOR_RETRY)
        (failed,) = records.all_logs(run.run_id, of_type=dg.DagsterEventType.STEP_FAILURE)
        assert failed.dagster_event is not None
        assert failed.dagster_event.step_failure_data.error_source == ErrorSource.INTERRUPT
    # A launch that still held the writer's place would keep this waiting.
    command = house.start("run", "--no-check", "--to", "gold.step_times", RUN)
    said, _ = command.communicate(timeout=240)
    assert command.returncode == 0, said
    assert RUN in said
