"""Work handed out to Spark's executors: one task an order, the same code there as here, and only its answer comes back.

Nothing secret travels: an executor is told where lake and landing zone are, and finds keys and credentials by itself.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from lake.errors import ContractBroken, LakeError, SourceUnavailable, explain, is_stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import SparkSession

    from lake.landing_zone import LandingZone
    from lake.store import Lake

Order = TypeVar("Order")
Answer = TypeVar("Answer")

_ANSWERS = "place long, answer binary"
_ANSWER = pa.schema([pa.field("place", pa.int64()), pa.field("answer", pa.binary())])
# A cluster that went away may come back; what Python says it cannot import will not.
_GONE = ("SparkConnectGrpcException", "Py4JNetworkError")


@dataclass(frozen=True)
class Site:
    """What an executor works with: the lake and the landing zone, reached from where it is."""

    lake: Lake
    zone: LandingZone


class Executors:
    """The executors behind a session; each opens the lake by itself, with the environment that it was given."""

    def __init__(self, session: SparkSession, reach: Callable[[], Site]) -> None:
        self._session = session
        self._reach = reach

    def each(self, work: Callable[[Site, Order], Answer], orders: Sequence[Order]) -> list[Answer]:
        """Do the work for every order, one task each; a task that is lost with its executor is done again by Spark."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        if not orders:
            return []
        reach, count = self._reach, len(orders)

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            yield from _run_task(reach, work, orders, batches)

        try:
            # A range has exactly as many partitions as it is asked for: one order, one task.
            found = self._session.range(0, count, 1, count).mapInArrow(task, _ANSWERS).toArrow()
        except (PySparkException, Py4JError) as error:
            raise _describe_cluster_error(error) from error
        answers: list[Answer] = [None] * count  # type: ignore[list-item]
        for place, answer in zip(*(column.to_pylist() for column in found.columns), strict=True):
            # Written by our own code on our own executors: Spark itself trusts the same bytes.
            answers[place] = pickle.loads(answer)  # noqa: S301
        for answer in answers:
            if isinstance(answer, LakeError):
                raise answer
        return answers


def _run_task(
    reach: Callable[[], Site],
    work: Callable[[Site, Order], Answer],
    orders: Sequence[Order],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """What runs on an executor; what goes wrong with an order is its answer, and no reason to try again."""
    for batch in batches:
        for place in batch.column(0).to_pylist():
            try:
                answer: Answer | LakeError = work(reach(), orders[place])
            except ImportError:  # the environment of this executor, not the work
                raise
            except Exception as error:
                if is_stop(error):
                    raise
                answer = explain(error)
            yield pa.RecordBatch.from_arrays(
                [pa.array([place], pa.int64()), pa.array([pickle.dumps(answer)], pa.binary())], schema=_ANSWER
            )


def _describe_cluster_error(error: Exception) -> LakeError:
    """What went wrong on the cluster, without Spark's own text: that may quote values that are to be sealed."""
    text = str(error)
    if "ModuleNotFoundError" in text:
        return ContractBroken(
            "an executor's Python lacks teetotal or a package that it needs",
            "give executors the environment: docs/operations.md says how",
        )
    if type(error).__name__ in _GONE or "SparkContext was shut down" in text:
        return SourceUnavailable(f"the Spark cluster went away: {type(error).__name__}", "run it again when it is back")
    return ContractBroken(
        f"the Spark cluster could not do this: {type(error).__name__}",
        "its own log says why; the same run with `--engine polars` tells whether the cluster or the run is at fault",
    )
