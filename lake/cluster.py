"""Where Spark is and how it is asked to work: one declaration, one session a process, reused by every asset."""

from __future__ import annotations

import socket
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lake.errors import ContractBroken, SourceUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from lake.executors import Site

# What a session may change on a server that others have started.
_OF_THE_SESSION = {"spark.sql.session.timeZone": "UTC"}
# Asked for where nobody has: quiet, and one thread a task, since Spark already runs a task on every core.
_OF_THE_DRIVER = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.executorEnv.POLARS_MAX_THREADS": "1",
    # Where in our sources a column was named helps nobody, and asking for it makes a plan half as slow again to build.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
}
_ENVIRONMENT = "environment"
_ANY_PYTHON = "python3"
_PORTS = {"spark": 7077, "sc": 15002}
_KNOCK_S = 5.0
_GUARD = threading.Lock()


@dataclass(frozen=True)
class Cluster:
    """One Spark, by its address; address and `conf` go to Spark as they are, and may hold secrets: neither is shown."""

    # local[*], spark://host:port or sc://host:port; none: whatever Spark's own settings say, else this machine.
    url: str | None = field(default=None, repr=False)
    executor_memory: str | None = None
    shuffle_partitions: int = 8
    # A packed Python environment that Spark unpacks on every executor.
    archive: str | None = None
    # The Python of executors; with an archive, the one inside it.
    python: str | None = None
    conf: Mapping[str, str] = field(default_factory=dict, repr=False)
    # How an executor opens lake and landing zone; without it, nothing is handed out.
    reach: Callable[[], Site] | None = field(default=None, repr=False)

    @property
    def is_connect(self) -> bool:
        """Whether the driver is a Spark Connect server, and this process only its client."""
        return (self.url or "").startswith("sc://")

    def session(self) -> SparkSession:
        """The session of this process; it is started when first asked for."""
        try:
            from pyspark.sql import SparkSession
        except ModuleNotFoundError:
            raise ContractBroken("pyspark is not installed", "install teetotal[spark]; Spark needs Java 17") from None
        with _GUARD:  # small runs are made side by side, and all of them ask
            session = SparkSession.getActiveSession() or self._start(SparkSession.builder)
            if not is_client(session) and session.sparkContext.pythonExec == _ANY_PYTHON:
                # Whatever lies first on an executor's path would be no match for ours.
                session.sparkContext.pythonExec = self._python or sys.executable
            return session

    def _check_reachable(self) -> None:
        """Find out at once that nobody is there: Spark's own clients go on trying for minutes."""
        where = urlsplit(self.url or "")
        # Several masters stand with commas between; which of them leads, only Spark can tell.
        if where.scheme not in _PORTS or "," in where.netloc:
            return
        try:
            with socket.create_connection((where.hostname or "", where.port or _PORTS[where.scheme]), _KNOCK_S):
                return
        except (OSError, ValueError) as error:
            raise self._describe_missing(error) from error

    def _describe_missing(self, error: Exception) -> SourceUnavailable:
        return SourceUnavailable(
            f"no Spark at {(self.url or 'this machine').partition(';')[0]}: {type(error).__name__}",
            "check TEETOTAL_SPARK, that the cluster is up, and that Java 17 is installed (docs/operations.md)",
        )

    def _start(self, builder: Any) -> SparkSession:
        self._check_reachable()
        shuffle = {"spark.sql.shuffle.partitions": str(self.shuffle_partitions)}
        asked = {**_OF_THE_SESSION, **shuffle}
        if not self.is_connect:
            asked |= _OF_THE_DRIVER
            asked |= {} if self.executor_memory is None else {"spark.executor.memory": self.executor_memory}
            asked |= {} if self.archive is None else {"spark.archives": f"{self.archive}#{_ENVIRONMENT}"}
        builder = builder.appName("teetotal").config(map={**asked, **self.conf})
        if self.url is not None:
            builder = builder.remote(self.url) if self.is_connect else builder.master(self.url)
        try:
            session: SparkSession = builder.getOrCreate()
        except Exception as error:  # Java, sockets and gRPC each fail in a way of their own
            raise self._describe_missing(error) from error
        if not self.is_connect and self._python is not None:
            session.sparkContext.pythonExec = self._python
        elif self._python is not None:
            # A server gives each client's Python a folder of its own: what the client sends is unpacked there.
            if self.archive is not None:
                session.addArtifacts(f"{self.archive}#{_ENVIRONMENT}", archive=True)
            session.conf.set("spark.sql.execution.pyspark.python", self._python)
        return session

    @property
    def _python(self) -> str | None:
        inside = f"./{_ENVIRONMENT}/bin/python" if self.archive is not None else None
        return self.python or inside


def is_client(session: SparkSession) -> bool:
    """Whether a session is one of Spark Connect, which has no driver in this process."""
    return type(session).__module__.startswith("pyspark.sql.connect")
