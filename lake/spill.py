"""Rows that memory cannot hold, shared out on disk in one pass, so that each share can be read alone."""

from __future__ import annotations

import resource
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa

from lake.errors import ContractBroken
from lake.locations import report_unreachable

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

# What else a process has open: tables, sockets, the files of a landing directory.
_OTHER_FILES = 256
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


class SpilledRows:
    """Files of a stage's spool, one a share; they go when the stage does."""

    def __init__(self, folder: Path, schema: pa.Schema, count: int) -> None:
        self._schema = schema
        self._files = [folder / f"share-{place}.arrow" for place in range(count)]
        self._writers: list[pa.ipc.RecordBatchFileWriter] = []
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        _may_open(len(self._files))
        with ExitStack() as opened, report_unreachable("the spool of the lake could not be written to"):
            self._writers = [
                opened.enter_context(pa.ipc.new_file(file, self._schema, options=_COMPRESSED)) for file in self._files
            ]
            self._exits = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exits.close()

    def add(self, batch: pa.RecordBatch, share: np.ndarray[Any, np.dtype[np.int64]]) -> None:
        """Put every row into its share."""
        order = np.argsort(share, kind="stable")
        bounds = np.searchsorted(share[order], np.arange(len(self._files) + 1))
        sorted_rows = batch.take(pa.array(order))
        with report_unreachable("the spool of the lake could not be written to"):
            for place, writer in enumerate(self._writers):
                length = int(bounds[place + 1] - bounds[place])
                if length:
                    writer.write_batch(sorted_rows.slice(int(bounds[place]), length))

    def read(self, place: int) -> pa.Table:
        """One share, when all are written; its file goes with it."""
        with report_unreachable("the spool of the lake could not be read"):
            with pa.OSFile(str(self._files[place])) as file:
                rows = pa.ipc.open_file(file).read_all()
            self._files[place].unlink()
        return rows


def _may_open(files: int) -> None:
    """Let this process have so many files open: many systems say 1,024 at first, and let it ask for more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = files + _OTHER_FILES
    if resource.RLIM_INFINITY not in (soft, hard) and hard < wanted:
        raise ContractBroken(
            f"{files:,} shares of a rank need as many files open at once; this machine allows {hard:,}",
            "raise the limit of open files (`ulimit -Hn`) and run again",
        )
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
