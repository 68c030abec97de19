"""A real standalone cluster on loopback, from nothing but the pip install: a master, workers, a Connect server."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyspark

from benchmarks.spark_classes import list_options

if TYPE_CHECKING:
    from collections.abc import Mapping

_SPARK = Path(pyspark.__file__).parent
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"
_PATIENCE_S = 120


@dataclass
class Cluster:
    """The processes of one cluster; each is a group of its own, so that it dies with all that it started."""

    folder: Path
    # What the environment of every process holds beside our own words.
    variables: Mapping[str, str] = field(default_factory=dict)
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    port: int = 0

    @property
    def url(self) -> str:
        """The address of the master."""
        return f"spark://127.0.0.1:{self.port}"

    @property
    def pids(self) -> list[int]:
        """The processes that were started; each has children of its own."""
        return [process.pid for process in self.running.values()]

    def start(self, workers: int) -> None:
        """Start a master and workers of one core each, and wait until they know each other."""
        self.port = free_port()
        self._spawn("master", "spark-class", _MASTER, "--host", "127.0.0.1", "--port", str(self.port))
        self._await("master", "I have been elected leader")
        for number in range(workers):
            self.add_worker(f"worker-{number}")
        for number in range(workers):
            self._await(f"worker-{number}", "Successfully registered with master")

    def add_worker(self, name: str) -> None:
        """Start one more worker of one core."""
        size = ("--cores", "1", "--memory", "2g", "--work-dir", str(self.folder / name))
        self._spawn(name, "spark-class", _WORKER, "--host", "127.0.0.1", *size, self.url)

    def serve(self, conf: Mapping[str, str]) -> str:
        """Start a Spark Connect server whose executors are on this cluster; give its address."""
        port = free_port()
        given = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.ui.enabled": "false",
            "spark.executor.memory": "1g",
            "spark.executor.extraJavaOptions": list_options(),
            **conf,
        }
        words = [word for name, value in given.items() for word in ("--conf", f"{name}={value}")]
        self._spawn("connect", "spark-submit", "--master", self.url, "--class", _CONNECT, *words)
        deadline = time.monotonic() + _PATIENCE_S
        while not is_open(port):
            self._still("connect", deadline)
        return f"sc://127.0.0.1:{port}"

    def kill(self, name: str) -> None:
        """Kill one process and all that it started, at once: a machine that lost its power."""
        process = self.running.pop(name)
        family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for one in family:
            with suppress(psutil.NoSuchProcess):  # an executor ends by itself when its driver is gone
                one.kill()
        process.wait(30)

    def stop(self) -> None:
        """End everything."""
        for name in reversed(list(self.running)):
            self.kill(name)

    def log(self, name: str) -> str:
        """What a process has said."""
        return (self.folder / f"{name}.log").read_text("utf-8", "replace")

    def _spawn(self, name: str, command: str, *words: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            self.running[name] = subprocess.Popen(
                [str(_SPARK / "bin" / command), *words],
                env=environment(**self.variables),
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _await(self, name: str, said: str) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while said not in self.log(name):
            self._still(name, deadline)

    def _still(self, name: str, deadline: float) -> None:
        if self.running[name].poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"{name} did not start: {self.log(name)[-2000:]}")
        time.sleep(0.1)


def environment(**more: str) -> dict[str, str]:
    """The environment of every process here: loopback only, and nothing of the checkout on Python's path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TEETOTAL_", "PYTHON", "SPARK"))}
    java = dict.fromkeys(("SPARK_DAEMON_JAVA_OPTS", "SPARK_SUBMIT_OPTS"), list_options())
    return {**kept, **java, "SPARK_HOME": str(_SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC", **more}


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def is_open(port: int) -> bool:
    """Whether someone listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
