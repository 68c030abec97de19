"""A stage on a Spark executor: it writes and digests files there and hands them, unnamed, to the driver's stage."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from uuid import uuid4

from lake.cut_off import repeat_cut_off
from lake.locations import report_unreachable
from lake.staging import Stage

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    import pyarrow as pa

    from lake.locations import Location
    from lake.staging import ClosedFile, Staged
    from lake.tables import Table


class ExecutorStage(Stage):
    """Holds no lock, since the stage it belongs to does; what it leaves behind when it is killed goes with that stage.

    On a disk that all machines share, its folder lies in the stage's spool. In an object store its files go to the
    table's own folder under names that nothing refers to: what is never settled is deleted by the table's upkeep.
    """

    def __init__(
        self,
        place: Location,
        table: Table,
        run_id: str,
        seal: Callable[[pa.RecordBatch], pa.RecordBatch],
        spool: str,
        prefix: str = "",
    ) -> None:
        super().__init__(place, table, run_id, seal, prefix)
        self._home = Path(spool)

    def __enter__(self) -> Self:
        with report_unreachable(f"{self._place} could not be written to from an executor"), ExitStack() as exits:
            if self._place.is_local:
                self._spool = Path(tempfile.mkdtemp(prefix="executor-", dir=self._home))
            else:
                self._spool = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="teetotal-")))
            self._exits = exits.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            shutil.rmtree(self._spool, ignore_errors=True)
        self._exits.close()

    def hand_over(self, spool: Path) -> Path | str:
        """Leave a closed file where the stage can settle it."""
        if self._place.is_local:
            return spool
        import obstore

        key = f"{self.table.partition_key}={self.run_id}/unsettled-{uuid4().hex}.parquet"
        repeat_cut_off(partial(obstore.put, self._place.child(*self.table.path.split("/")).store, key, spool))
        spool.unlink()
        return key


class AdoptedFile:
    """Rows that an executor has written, on the stage that will commit them: nothing is left to do but to name them."""

    def __init__(self, stage: Stage, closed: ClosedFile | None) -> None:
        self._stage = stage
        self._closed = closed
        self.staged: Staged | None = None

    def finish(self, **values: Any) -> None:
        """Name the file."""
        self.staged = self._stage.take(self._closed, values)

    def discard(self) -> None:
        """Leave the file unnamed: it goes with the stage."""


class RecalledFile:
    """Rows that an earlier landing of the run has written: they stay where they are, and are only named again."""

    def __init__(self, stage: Stage, staged: Staged | None) -> None:
        self._stage = stage
        self.staged = staged

    def finish(self, **values: Any) -> None:
        """Name the file."""
        if self.staged is not None:
            self.staged = self._stage.recall(self.staged, values)

    def discard(self) -> None:
        """Leave the rows to whoever else holds them."""
