"""Rows that memory cannot hold, shared out on disk in one pass, so that each share can be read alone."""

from __future__ import annotations

import itertools
import resource
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from lake.errors import ContractBroken
from lake.locations import report_unreachable

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

# What else a process has open: tables, sockets, the files of a landing directory.
_OTHER_FILES = 256
_SEALED_BYTES = 1 << 18
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4")


class SpilledRows:
    """Files of a stage's spool, one a share; they go when the stage does."""

    def __init__(self, folder: Path, schema: pa.Schema, count: int, *, is_sealed: bool = False) -> None:
        self._schema = schema
        # A key that this process alone knows: what a killed one leaves is noise.
        self._cipher = AESGCM(AESGCM.generate_key(256)) if is_sealed else None
        self._files = [folder / f"share-{place}.arrow" for place in range(count)]
        self._writers: list[pa.ipc.RecordBatchFileWriter] = []
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        _may_open(len(self._files))
        with ExitStack() as opened, report_unreachable("the spool of the lake could not be written to"):
            self._writers = [
                opened.enter_context(pa.ipc.new_file(self._sink(place, opened), self._schema, options=_COMPRESSED))
                for place in range(len(self._files))
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

    def _sink(self, place: int, opened: ExitStack) -> Any:
        """Where a share is written: its file, or what seals on the way into it."""
        if self._cipher is None:
            return self._files[place]
        sealed = opened.enter_context(_SealedFile(self._files[place], self._cipher, place))
        return opened.enter_context(pa.PythonFile(sealed, "w"))

    def read(self, place: int) -> pa.Table:
        """One share, when all are written; its file goes with it."""
        with report_unreachable("the spool of the lake could not be read"):
            if self._cipher is None:
                with pa.OSFile(str(self._files[place])) as file:
                    rows = pa.ipc.open_file(file).read_all()
            else:
                plain = _open_sealed(self._files[place], self._cipher, place)
                rows = pa.ipc.open_file(pa.BufferReader(plain)).read_all()
            self._files[place].unlink()
        return rows


class _SealedFile:
    """A file that is written in sealed blocks, each with its length before it."""

    def __init__(self, path: Path, cipher: AESGCM, place: int) -> None:
        self._file = path.open("wb")
        self._cipher = cipher
        self._place = place
        self._held = bytearray()
        self._blocks = 0
        self.closed = False

    def write(self, data: bytes) -> int:
        """Take bytes; they are sealed a block at a time."""
        self._held += data
        if len(self._held) >= _SEALED_BYTES:
            self._seal()
        return len(data)

    def flush(self) -> None:
        """Nothing: a block is written when it is full, and the last at the end."""

    def close(self) -> None:
        """Write the last block; may be called again."""
        if not self.closed:
            self._seal()
            self._file.close()
            self.closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _seal(self) -> None:
        sealed = self._cipher.encrypt(_nonce(self._place, self._blocks), bytes(self._held), None)
        self._file.write(len(sealed).to_bytes(8, "big") + sealed)
        self._held.clear()
        self._blocks += 1


def _open_sealed(path: Path, cipher: AESGCM, place: int) -> bytes:
    plain = bytearray()
    with path.open("rb") as file:
        for number in itertools.count():
            length = file.read(8)
            if not length:
                return bytes(plain)
            plain += cipher.decrypt(_nonce(place, number), file.read(int.from_bytes(length, "big")), None)
    return bytes(plain)


def _nonce(place: int, block: int) -> bytes:
    return place.to_bytes(4, "big") + block.to_bytes(8, "big")


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
