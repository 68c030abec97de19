"""One file of a run's landing directory: its bytes at hand on this machine, digested, opened where it landed sealed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Self

import obstore

from lake.errors import EvidenceRejected, SourceUnavailable
from lake.locations import report_unreachable
from lake.regular_files import Tree, mark_of
from lake.sealed_files import MAGIC, LandingSeals, is_sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from io import BufferedReader

    from lake.locations import Location

_BLOCK_BYTES = 1 << 20


class Fetched:
    """A landed file's bytes at hand on this machine, with their digest; what landed sealed is opened as it is read."""

    def __init__(
        self, file: LandedFile, seen: _Seen, reopen: Callable[[], BufferedReader], spool: Path | None = None
    ) -> None:
        self._file = file
        self._reopen = reopen
        self._spool = spool
        # Of the bytes as they landed, and of what they hold; none where that may not be read, for this reason.
        self.sha256 = seen.sha256
        self.content_sha256 = seen.content_sha256
        self.problem = seen.problem
        self.is_sealed = seen.is_sealed

    def blocks(self) -> Iterator[bytes]:
        """The plain bytes from the start, in memory alone; may be asked for again."""
        with report_unreachable(f"{self._file.where} could not be read"), self._reopen() as file:
            yield from self._file.seals.open_blocks(file, self._file.run_id, self._file.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spool is not None:
            self._spool.unlink()


@dataclass(frozen=True)
class _Seen:
    """What one pass over a landed file's bytes tells."""

    sha256: str
    content_sha256: str | None
    problem: str | None = None
    is_sealed: bool = False


@dataclass(frozen=True)
class LandedFile:
    """One entry of a run's directory; `problem` says why it may not be read."""

    place: Location
    run_id: str
    name: str
    size_bytes: int | None
    etag: str
    problem: str | None = None
    # When it was listed; what was written only a moment before may change without a new mark.
    listed_ns: int = 0
    seals: LandingSeals = field(default_factory=LandingSeals)

    @property
    def where(self) -> str:
        """The file as a person calls it."""
        return f"{self.place}/{self.run_id}/{self.name}"

    async def digest(self) -> str:
        """The digest of the bytes as they landed, which takes no key."""
        with await replace(self, seals=LandingSeals(is_closed=True)).fetch() as fetched:
            return fetched.sha256

    async def fetch(self, *, is_copied: bool = False) -> Fetched:
        """Bring the bytes here and digest them; a local file is digested where it lies, unless a copy is asked for.

        What landed sealed is opened once to its end, before anybody makes rows of its beginning.
        """
        with report_unreachable(f"{self.where} could not be read"):
            if self.place.is_local and is_copied:
                return await asyncio.to_thread(self._copy)
            if self.place.is_local:
                sha256, mark = await asyncio.to_thread(self._digest)
                seen = await asyncio.to_thread(self._look, sha256, lambda: self._open(mark))
                return Fetched(self, seen, lambda: self._open(mark))
            digest = hashlib.sha256()
            answer = await obstore.get_async(self.place.store, f"{self.run_id}/{self.name}")
            handle, spool = tempfile.mkstemp(prefix="teetotal-")
            try:
                with os.fdopen(handle, "wb") as file:
                    async for block in answer.stream(_BLOCK_BYTES):
                        digest.update(block)
                        file.write(block)
                path = Path(spool)
                seen = await asyncio.to_thread(self._look, digest.hexdigest(), lambda: path.open("rb"))
            except BaseException:
                os.unlink(spool)  # noqa: PTH108 - quicker than a thread
                raise
            return Fetched(self, seen, lambda: path.open("rb"), path)

    def _look(self, sha256: str, reopen: Callable[[], BufferedReader]) -> _Seen:
        """Whether a file is sealed, and whether all of it opens; one that is not is not read again."""
        with reopen() as file:
            sealed = is_sealed(file.read(len(MAGIC)))
        if self.seals.is_closed or (not sealed and not self.seals.must_be_sealed):
            return _Seen(sha256, sha256)
        content = hashlib.sha256()
        try:
            with reopen() as file:
                for block in self.seals.open_blocks(file, self.run_id, self.name):
                    content.update(block)
        except EvidenceRejected as error:
            return _Seen(sha256, None, str(error), sealed)
        return _Seen(sha256, content.hexdigest(), None, sealed)

    def _copy(self) -> Fetched:
        """A local file as it is now, for one that is being written: what comes later is not part of it."""
        digest = hashlib.sha256()
        handle, spool = tempfile.mkstemp(prefix="teetotal-")
        path = Path(spool)
        try:
            with os.fdopen(handle, "wb") as copy, self._open() as file:
                left = os.fstat(file.fileno()).st_size
                while left and (block := file.read(min(left, _BLOCK_BYTES))):
                    digest.update(block)
                    copy.write(block)
                    left -= len(block)
            seen = self._look(digest.hexdigest(), lambda: path.open("rb"))
        except BaseException:
            path.unlink()
            raise
        return Fetched(self, seen, lambda: path.open("rb"), path)

    def _digest(self) -> tuple[str, str]:
        """The digest of a local file, and the mark of the file that it is of."""
        with self._open() as file:
            mark = mark_of(os.fstat(file.fileno()))
            return hashlib.file_digest(file, "sha256").hexdigest(), mark

    def _open(self, mark: str | None = None) -> BufferedReader:
        """Open a local file; what became a link out, a pipe or a device since it was listed is refused."""
        file = open_landed(self.place.directory, self.run_id, self.name)
        if mark is not None and mark_of(os.fstat(file.fileno())) != mark:
            file.close()
            raise SourceUnavailable(f"{self.where} changed while it was read", "run it again when it is at rest")
        return file


def open_landed(landing: Path, run_id: str, name: str) -> BufferedReader:
    """Open a file of a run, links within the landing zone followed; what is no regular file of it is refused."""
    where = f"{landing}/{run_id}/{name}"
    with Tree(landing) as tree:
        try:
            parts = tree.resolve((run_id, name))
        except RuntimeError as error:
            raise EvidenceRejected(f"{where} is a link that leads back to itself") from error
        if parts is None:
            raise EvidenceRejected(f"{where} is a link out of the landing zone, which is never followed")
        return tree.open(parts, where)
